//! `acetate tool run`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use super::program::{
    Serving, acetate, failure, let_hang_ups_through, let_interrupts_through, run,
};

/// An empty session in a directory of its own.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    dir
}

/// Runs a line of shell as a tool call.
fn shell(dir: &Path, line: &str) -> Output {
    run(dir, &["tool", "run", "s.db", "sh", "--", "sh", "-c", line])
}

/// The calls that were recorded.
fn calls(dir: &Path) -> Vec<Value> {
    let said = String::from_utf8(run(dir, &["tool", "ls", "s.db", "--json"]).stdout).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Starts a line of shell as a tool call in a process group of its own, as a terminal does, and
/// waits until it has said a line.
fn start(dir: &Path, line: &str) -> Child {
    let mut command = acetate(dir, &["tool", "run", "s.db", "sh", "--", "sh", "-c", line]);
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    child
}

fn kill(signal: &str, target: &str) {
    assert!(Command::new("kill").args(["-s", signal, "--", target]).status().unwrap().success());
}

#[test]
fn a_command_that_succeeds_is_recorded() {
    let dir = place();
    let mut command = acetate(dir.path(), &["tool", "run", "s.db", "copy"]);
    command.args(["--parameters", r#"{"n": 1}"#, "--", "cat"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"through").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"through"[..]));
    let found = &calls(dir.path())[0];
    assert_eq!((&found["name"], &found["status"]), (&"copy".into(), &"success".into()));
    assert_eq!(found["result"], serde_json::json!({"exit_code": 0}));
    assert_eq!(found["parameters"], serde_json::json!({"n": 1}));
    assert_eq!(found["error"], Value::Null);
}

#[test]
fn it_ends_as_the_command_does() {
    let dir = place();
    for (line, code, error) in [
        ("exit 0", 0, None),
        ("echo out; echo err >&2; exit 3", 3, Some("exit status: 3")),
        ("exit 255", 255, Some("exit status: 255")),
        ("kill -TERM $$", 143, Some("signal: 15 (SIGTERM)")),
        ("kill -KILL $$", 137, Some("signal: 9 (SIGKILL)")),
    ] {
        let output = shell(dir.path(), line);
        assert_eq!(output.status.code(), Some(code), "{line}");
        let found = calls(dir.path()).pop().unwrap();
        assert_eq!(found["error"].as_str(), error, "{line}");
        assert_eq!(found["parameters"]["command"], serde_json::json!(["sh", "-c", line]));
        if code == 3 {
            assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        }
    }
    let start = std::time::Instant::now();
    shell(dir.path(), "sleep 1.2");
    assert!(start.elapsed().as_millis() >= 1200);
    let took = calls(dir.path()).pop().unwrap()["duration_ms"].as_i64().unwrap();
    assert!(took >= 1000 && took % 1000 == 0, "{took}");
}

#[test]
fn a_command_that_cannot_be_run_is_recorded() {
    let dir = place();
    std::fs::write(dir.path().join("text"), "no program").unwrap();
    for (program, code) in [("nowhere-to-be-found", 127), ("./text", 126)] {
        let output = run(dir.path(), &["tool", "run", "s.db", "t", "--", program]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.starts_with(&format!("error: cannot run {program}: ")), "{said}");
        let error = calls(dir.path()).pop().unwrap()["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with(&format!("cannot run {program}: ")), "{error}");
    }
}

#[test]
fn nothing_runs_that_could_not_be_recorded() {
    let dir = place();
    std::fs::write(dir.path().join("text.db"), "no session").unwrap();
    let touch = ["--", "touch", "ran"];
    for (args, message) in [
        (&["none.db", "t"][..], "none.db: no such session"),
        (&["text.db", "t"], "not a SQLite database"),
        (&["s.db", "t", "--parameters", "{a}"], "parameters: not JSON"),
    ] {
        let said = failure(dir.path(), &[&["tool", "run"], args, &touch].concat());
        assert!(said.contains(message), "{said}");
    }
    let locked = rusqlite::Connection::open(dir.path().join("s.db")).unwrap();
    locked.execute_batch("ALTER TABLE tool_calls DROP COLUMN error").unwrap();
    let said = failure(dir.path(), &[&["tool", "run", "s.db", "t"], &touch[..]].concat());
    assert!(said.contains("tool_calls has no column error"), "{said}");
    assert!(!dir.path().join("ran").exists());
    assert!(run(dir.path(), &["tool", "run", "s.db", "t"]).status.code() == Some(2), "no command");
}

#[test]
fn a_session_that_goes_away_meanwhile_is_told() {
    let dir = place();
    let output = shell(dir.path(), "mv s.db gone.db");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("s.db: no such session"), "{said}");
    std::fs::rename(dir.path().join("gone.db"), dir.path().join("s.db")).unwrap();
    let output = shell(dir.path(), "mv s.db gone.db; exit 7");
    assert_eq!(output.status.code(), Some(7));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such session"));
}

#[test]
fn an_interrupt_from_the_terminal_is_the_commands() {
    let_interrupts_through();
    let dir = place();
    for (line, code, error) in [
        ("trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done", 9, "exit status: 9"),
        ("echo ready; exec sleep 20", 130, "signal: 2 (SIGINT)"),
    ] {
        let mut child = start(dir.path(), line);
        kill("INT", &format!("-{}", child.id()));
        assert_eq!(child.wait().unwrap().code(), Some(code), "{line}");
        assert_eq!(calls(dir.path()).pop().unwrap()["error"], error);
    }
}

#[test]
fn a_signal_to_us_alone_is_passed_on() {
    let_hang_ups_through();
    let dir = place();
    for (signal, number) in [("TERM", 15), ("HUP", 1)] {
        let mut child = start(dir.path(), "echo ready; exec sleep 20");
        kill(signal, &child.id().to_string());
        assert_eq!(child.wait().unwrap().code(), Some(128 + number));
        let error = calls(dir.path()).pop().unwrap()["error"].clone();
        assert_eq!(error, format!("signal: {number} (SIG{signal})"));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_ignored_stays_ignored() {
    let dir = place();
    let program = env!("CARGO_BIN_EXE_acetate");
    let inner = "kill -HUP $$; kill -INT $$; echo alive";
    let line = format!("trap '' HUP INT; exec {program} tool run s.db t -- sh -c '{inner}'");
    let mut child = Command::new("sh")
        .args(["-c", &line])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), "alive\n"));
}

#[test]
fn a_server_does_not_mind() {
    let dir = place();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    // The command has the session for itself, as far as we are concerned.
    let program = env!("CARGO_BIN_EXE_acetate");
    let line = format!("{program} kv set s.db key 1 && {program} tool record s.db t --result 2");
    assert_eq!(shell(dir.path(), &line).stdout, b"1\n");
    server.signal("TERM");
    assert!(server.end().0.success());
    let found: Vec<_> = calls(dir.path()).iter().map(|call| call["name"].clone()).collect();
    assert_eq!(found, ["t", "sh"]);
}

/// A change in the second of a call of `tool run` is not the call's.
#[test]
fn changes_are_counted_by_the_rows_of_calls() {
    let dir = place();
    let program = env!("CARGO_BIN_EXE_acetate");
    assert!(run(dir.path(), &["mkdir", "s.db", "before"]).status.success());
    assert!(shell(dir.path(), &format!("{program} mkdir s.db within")).status.success());
    assert!(run(dir.path(), &["mkdir", "s.db", "after"]).status.success());
    assert!(run(dir.path(), &["tool", "run", "s.db", "idle", "--", "true"]).status.success());
    let said = run(dir.path(), &["log", "s.db", "--by", "tool", "--json"]).stdout;
    let said = String::from_utf8(said).unwrap();
    let groups: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts: Vec<_> = groups.iter().map(|group| (&group["name"], &group["paths"])).collect();
    assert_eq!(counts, [(&Value::Null, &2.into()), (&"sh".into(), &1.into())], "{said}");
}
