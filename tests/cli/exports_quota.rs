//! `quota --config`, and what `quota` and `status` say of the exports that a session is in.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use super::program::{Serving, acetate, failure, run};

const EXPORTS: &str = r#"
[[export]]
path = "/chat"
quota = { bytes = "1MiB", files = 10 }
  [[export.mount]]
  at = "/"
  session = "chat.db"
  [[export.mount]]
  at = "/.user"
  session = "user.db"
  subtree = "/agents/a1"
  [[export.mount]]
  at = "/.also"
  session = "user.db"
  subtree = "/agents/a2"
  [[export.mount]]
  at = "/tools"
  session = "tools.db"
  options = ["ro"]
  [[export.mount]]
  at = "/skill"
  ephemeral = true

[[export]]
name = "other"
token = true
  [[export.mount]]
  at = "/"
  session = "user.db"
  [[export.mount]]
  at = "/memory"
  ephemeral = true
"#;

/// Sessions of 1000 bytes in a file, 20 in a file, and 3 in a file.
fn place() -> TempDir {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("exports.toml"), EXPORTS).unwrap();
    for (session, bytes) in [("chat.db", 1000), ("user.db", 20), ("tools.db", 3)] {
        assert!(run(dir.path(), &["init", session]).status.success());
        write(dir.path(), session, bytes);
    }
    for agent in ["agents/a1/x", "agents/a2/x", "agents/a1"] {
        assert!(run(dir.path(), &["mkdir", "user.db", "-p", agent]).status.success());
    }
    assert!(run(dir.path(), &["quota", "user.db", "--files", "50"]).status.success());
    dir
}

fn write(dir: &Path, session: &str, bytes: usize) {
    let mut command = acetate(dir, &["write", session, "/file"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&vec![b'x'; bytes]).unwrap();
    assert!(child.wait().unwrap().success());
}

fn lines(dir: &Path, args: &[&str]) -> Vec<Value> {
    let output = run(dir, args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Used and allowed bytes, used and allowed files.
fn taken(value: &Value) -> [Value; 4] {
    ["used_bytes", "max_bytes", "used_files", "max_files"].map(|key| value[key].clone())
}

fn figures(bytes: u64, max_bytes: Option<u64>, files: u64, max_files: Option<u64>) -> [Value; 4] {
    [json!(bytes), json!(max_bytes), json!(files), json!(max_files)]
}

/// The chat's export, and each session of it: where it is, whether it is counted, what it takes.
fn check_chat(dir: &Path, chat: &Value, bytes: u64) {
    let mib = Some(1 << 20);
    assert_eq!(taken(chat), figures(bytes, mib, 7, Some(10)));
    let real = dir.canonicalize().unwrap();
    let file = |name: &str| json!(real.join(name).to_str().unwrap());
    let expected = [
        (file("chat.db"), json!(["/"]), true, figures(bytes - 20, None, 1, None)),
        (file("user.db"), json!(["/.user", "/.also"]), true, figures(20, None, 6, Some(50))),
        (file("tools.db"), json!(["/tools"]), false, figures(3, None, 1, None)),
        (Value::Null, json!(["/skill"]), true, figures(0, None, 0, None)),
    ];
    let sessions = chat["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), expected.len());
    for (found, (session, at, is_counted, used)) in sessions.iter().zip(expected) {
        let is = (&found["session"], &found["at"], &found["is_counted"]);
        assert_eq!(is, (&session, &at, &json!(is_counted)));
        assert_eq!(taken(found), used, "{session}");
    }
}

#[test]
fn exports_and_their_sessions_are_counted() {
    let dir = place();
    let dir = dir.path();
    let ask = ["quota", "--config", "exports.toml", "--json"];
    let found = lines(dir, &ask);
    assert_eq!((&found[0]["name"], &found[0]["is_served"]), (&json!("chat"), &json!(false)));
    check_chat(dir, &found[0], 1020);
    assert_eq!(taken(&found[1]), figures(20, None, 6, None));
    let at_rest = run(dir, &ask[..3]);
    let said = String::from_utf8(at_rest.stderr).unwrap();
    assert_eq!(said, "exports.toml is not served: this is what its sessions hold\n");

    let server = Serving::start(dir, 1, &["--config", "exports.toml"]);
    // The server says what holds, not a file that it has not read.
    fs::write(dir.join("exports.toml"), EXPORTS.replace("1MiB", "2MiB")).unwrap();
    write(dir, "chat.db", 2000);
    let found = lines(dir, &ask);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["is_served"], true);
    check_chat(dir, &found[0], 2020);
    assert_eq!(
        (&found[1]["name"], taken(&found[1])),
        (&json!("other"), figures(20, None, 6, None))
    );
    // Where nobody else limits what is in memory, the server does.
    assert_eq!(taken(&found[1]["sessions"][1]), figures(0, Some(256 << 20), 0, None));
    let shown = run(dir, &ask[..3]);
    assert!(shown.stderr.is_empty(), "{shown:?}");
    let shown = String::from_utf8(shown.stdout).unwrap();
    let real = dir.canonicalize().unwrap();
    let expected = "\
chat: 1.9 KiB of 1.0 MiB; files: 7 of 10
  / chat.db: 1.9 KiB, no limit; files: 1, no limit
  /.user /.also user.db: 20 B, no limit; files: 6 of 50
  /tools tools.db: 3 B, no limit; files: 1, no limit; only read here, and not counted
  /skill memory: 0 B, no limit; files: 0, no limit
other: 20 B, no limit; files: 6, no limit
  / user.db: 20 B, no limit; files: 6 of 50
  /memory memory: 0 B of 256.0 MiB; files: 0 of 262144
";
    assert_eq!(shown.replace(&format!("{}/", real.display()), ""), expected);
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn a_session_names_the_exports_that_it_is_in() {
    let dir = place();
    let dir = dir.path();
    assert_eq!(lines(dir, &["quota", "user.db", "--json"])[0]["exports"], json!([]));
    let _server = Serving::start(dir, 1, &["--config", "exports.toml"]);
    for command in ["quota", "status"] {
        let of = |session: &str| lines(dir, &[command, session, "--json"])[0]["exports"].clone();
        let both = of("user.db");
        assert_eq!((&both[0]["name"], &both[1]["name"]), (&json!("chat"), &json!("other")));
        assert_eq!(taken(&both[0]), figures(1020, Some(1 << 20), 7, Some(10)), "{command}");
        let one = of("chat.db");
        assert_eq!((one.as_array().unwrap().len(), &one[0]), (1, &both[0]), "{command}");
    }
    let said = String::from_utf8(run(dir, &["quota", "user.db"]).stdout).unwrap();
    let export = "chat: 1020 B of 1.0 MiB; files: 7 of 10\n";
    assert!(said.contains(&format!("\nexport {export}export other: ")), "{said}");
    let said = String::from_utf8(run(dir, &["status", "user.db"]).stdout).unwrap();
    assert!(said.contains(&format!("\nexport       {export}export       other: ")), "{said}");
}

#[test]
fn sessions_that_are_not_made_yet_take_nothing() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("exports.toml"), EXPORTS).unwrap();
    let found = lines(dir.path(), &["quota", "--config", "exports.toml", "--json"]);
    assert_eq!(taken(&found[0]), figures(0, Some(1 << 20), 0, Some(10)));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    fs::write(dir.path().join("tools.db"), "no session").unwrap();
    let said = failure(dir.path(), &["quota", "--config", "exports.toml"]);
    assert!(said.contains("tools.db"), "{said}");
    for other in [&["s.db"][..], &["--bytes", "1"], &["--files", "1"]] {
        let args = [&["quota", "--config", "exports.toml"], other].concat();
        assert!(failure(dir.path(), &args).contains("cannot be used with"), "{other:?}");
    }
}
