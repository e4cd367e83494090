//! `--checkpoints`: which checkpoints a server makes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::program::{Serving, failure, run};

fn done(dir: &Path, args: &[&str]) -> String {
    let output = run(dir, args);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap() + &stderr
}

/// The kinds of a session's checkpoints.
fn kinds(dir: &Path, session: &str) -> Vec<String> {
    let listed = run(dir, &["checkpoint", "ls", session]).stdout;
    let listed = String::from_utf8(listed).unwrap();
    listed.lines().map(|line| line.split_whitespace().nth(2).unwrap().to_owned()).collect()
}

#[track_caller]
fn wait_for(dir: &Path, session: &str, expected: &[&str]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while kinds(dir, session).len() < expected.len() {
        assert!(Instant::now() < deadline, "{:?}", kinds(dir, session));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(kinds(dir, session), expected);
}

fn stop(server: Serving) {
    server.signal("TERM");
    let (status, said) = server.end();
    assert!(status.success(), "{said:?}");
}

#[test]
fn a_server_makes_one_after_changes_and_one_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let server = Serving::start(dir, 1, &["s.db", "--checkpoints", "idle:1"]);
    wait_for(dir, "s.db", &["idle"]);
    done(dir, &["mkdir", "s.db", "one"]);
    wait_for(dir, "s.db", &["idle", "idle"]);
    // Nothing changed since: a command makes none.
    done(dir, &["tool", "run", "s.db", "look", "--", "true"]);
    assert_eq!(kinds(dir, "s.db"), ["idle", "idle"]);
    done(dir, &["undo", "s.db", "--yes"]);
    assert_eq!(done(dir, &["ls", "s.db"]), "");
    stop(server);
    let made = kinds(dir, "s.db");
    assert!(made.len() >= 3 && made.iter().all(|kind| kind == "idle"), "{made:?}");
    done(dir, &["check", "s.db"]);
    // A server whose gap is never over makes one when it is stopped, and only after changes.
    let before = made.len();
    for (changes, expected) in [(true, 1), (false, 1)] {
        let server = Serving::start(dir, 1, &["s.db", "--checkpoints=idle:3600"]);
        if changes {
            done(dir, &["mkdir", "s.db", "two"]);
        }
        stop(server);
        assert_eq!(kinds(dir, "s.db").len(), before + expected);
    }
    done(dir, &["check", "s.db"]);
}

#[test]
fn a_server_that_makes_none_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let server = Serving::start(dir, 1, &["s.db", "--checkpoints", "off"]);
    done(dir, &["mkdir", "s.db", "one"]);
    let said = done(dir, &["tool", "run", "s.db", "edit", "--", "true"]);
    let expected = "no checkpoint before the command: the session's server makes none";
    assert!(said.contains(expected) && !said.contains("warning"), "{said}");
    assert_eq!(kinds(dir, "s.db"), [""; 0]);
    // Those that a user asks for are made, and the one of a restore too.
    done(dir, &["checkpoint", "create", "s.db"]);
    done(dir, &["mkdir", "s.db", "two"]);
    done(dir, &["restore", "s.db", "1", "--yes"]);
    assert_eq!(kinds(dir, "s.db"), ["manual", "safety"]);
    stop(server);
    assert_eq!(kinds(dir, "s.db"), ["manual", "safety"]);
    done(dir, &["check", "s.db"]);
    for wrong in ["", "idle:", "idle:0", "idle:3601", "idle:2s", "on"] {
        let said = failure(dir, &["serve", "s.db", &format!("--checkpoints={wrong}")]);
        let expected = "expected off, tools, idle, or idle:SECONDS with 1 to 3600";
        assert!(wrong.is_empty() || said.contains(expected), "{wrong}: {said}");
    }
    let said = failure(dir, &["serve", "--config", "x.toml", "--checkpoints", "off"]);
    assert!(said.contains("cannot be used with"), "{said}");
}

#[test]
fn each_session_of_an_exports_file_has_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let export = |name: &str, session: &str, more: &str| {
        format!(
            "[[export]]\npath = \"/{name}\"\n[[export.mount]]\nat = \"/\"\n\
             session = \"{session}\"\n{more}\n"
        )
    };
    let exports = [
        export("a", "a.db", "checkpoints = \"idle:1\""),
        export("b", "b.db", "checkpoints = \"off\""),
        export("c", "c.db", ""),
        // Another mount of the first session.
        export("d", "a.db", ""),
        "[[export]]\npath = \"/e\"\n[[export.mount]]\nat = \"/\"\nephemeral = true\n".to_owned(),
    ];
    fs::write(dir.join("x.toml"), exports.concat()).unwrap();
    let mut server = Serving::start(dir, 1, &["--config", "x.toml"]);
    for session in ["a.db", "b.db", "c.db"] {
        done(dir, &["mkdir", session, "dir"]);
        done(dir, &["tool", "run", session, "edit", "--", "true"]);
    }
    let made = kinds(dir, "a.db");
    assert!(made.iter().any(|kind| kind == "idle"), "{made:?}");
    assert_eq!(kinds(dir, "b.db"), [""; 0]);
    assert_eq!(kinds(dir, "c.db"), ["tool"]);
    // A server keeps what it began with.
    fs::write(dir.join("x.toml"), exports.concat().replace("idle:1", "tools")).unwrap();
    server.signal("HUP");
    let said = std::iter::from_fn(|| Some(server.line())).find(|line| line.contains("error"));
    let said = said.unwrap();
    assert!(said.contains("`checkpoints`") && said.contains("served as before"), "{said}");
    stop(server);
    for session in ["a.db", "b.db", "c.db"] {
        done(dir, &["check", session]);
    }
}

#[test]
fn a_session_remembers_which_it_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let steps = |from: usize| {
        for step in from..from + 3 {
            done(dir, &["mkdir", "s.db", &step.to_string()]);
            done(dir, &["tool", "run", "s.db", "step", "--", "true"]);
        }
    };
    let keep = "--keep-checkpoints=4,hourly=0s,daily=0s";
    let server = Serving::start(dir, 1, &["s.db", keep]);
    steps(0);
    stop(server);
    // At rest too.
    steps(3);
    assert_eq!(kinds(dir, "s.db").len(), 4);
    done(dir, &["checkpoint", "create", "s.db"]);
    let server = Serving::start(dir, 1, &["s.db", "--keep-checkpoints", "2,hourly=0s,daily=0s"]);
    assert_eq!(kinds(dir, "s.db").len(), 5);
    let said = done(dir, &["checkpoint", "prune", "s.db"]);
    assert_eq!(said, "removed 3\nremoved 4\n");
    let nothing = run(dir, &["checkpoint", "prune", "s.db"]);
    assert_eq!(nothing.status.code(), Some(1));
    stop(server);
    assert_eq!(kinds(dir, "s.db"), ["tool", "tool", "manual"]);
    let exports = "[[export]]\npath = \"/x\"\n[[export.mount]]\nat = \"/\"\nsession = \"s.db\"\n\
                   keep_checkpoints = { newest = 1, hourly = \"0s\", daily = \"0s\" }\n";
    fs::write(dir.join("x.toml"), exports).unwrap();
    let shown = done(dir, &["config", "check", "x.toml"]);
    assert!(shown.contains("keeps the newest 1") && !shown.contains("an hour"), "{shown}");
    stop(Serving::start(dir, 1, &["--config", "x.toml"]));
    assert_eq!(done(dir, &["checkpoint", "prune", "s.db"]), "removed 5\n");
    done(dir, &["check", "s.db"]);
    for (wrong, why) in [("many", "expected a number and ages"), ("1,hourly=x", "hourly is an age")]
    {
        let said = failure(dir, &["serve", "s.db", &format!("--keep-checkpoints={wrong}")]);
        assert!(said.contains(why), "{wrong}: {said}");
    }
}

/// The bound is kept by the server, and by commands where there is none.
#[test]
fn what_is_saved_is_bounded_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let step = |number: u8| {
        fs::write(dir.join("content"), vec![number; 200 << 10]).unwrap();
        done(dir, &["cp", "s.db", "content", ":/file"]);
        done(dir, &["tool", "run", "s.db", "step", "--", "true"]);
    };
    assert!(!done(dir, &["init", "s.db"]).contains("checkpoints"));
    let server = Serving::start(dir, 1, &["s.db", "--keep-checkpoints", "bytes=500KiB"]);
    (0..6).for_each(step);
    let deadline = Instant::now() + Duration::from_secs(60);
    while kinds(dir, "s.db").len() > 3 {
        assert!(Instant::now() < deadline, "{:?}", kinds(dir, "s.db"));
        std::thread::sleep(Duration::from_millis(20));
    }
    stop(server);
    (6..12).for_each(step);
    assert_eq!(kinds(dir, "s.db").len(), 3);
    let status = done(dir, &["status", "s.db"]);
    assert!(status.contains("checkpoints  3 checkpoints, 4"), "{status}");
    assert!(status.contains("of at most 500.0 KiB") && !status.contains("frees"), "{status}");
    // Three that a user wants: no removal makes room.
    for name in ["one", "two", "three"] {
        step(name.len() as u8);
        done(dir, &["checkpoint", "create", "s.db", name]);
    }
    step(20);
    step(21);
    let listed = done(dir, &["checkpoint", "ls", "s.db"]);
    let expected = "of at most 500.0 KiB; removing an automatic one frees nothing";
    assert!(listed.contains(expected) && listed.contains(" one"), "{listed}");
    done(dir, &["check", "s.db"]);
}
