//! `acetate kv`.

use std::io::Write;
#[cfg(target_os = "linux")]
use std::os::unix::fs::MetadataExt;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::process::{Output, Stdio};

#[cfg(target_os = "linux")]
use acetate::workspace::Workspace;
use serde_json::Value;

use super::program::{Serving, acetate, failure, run};
use crate::support::world::World;

/// Runs a verb on the world's session.
fn kv(world: &World, verb: &str, args: &[&str]) -> Output {
    run(world.scratch(), &[&["kv", verb, "session.db"], args].concat())
}

/// What a verb prints; it exits with 0, and says nothing else.
#[track_caller]
fn says(world: &World, verb: &str, args: &[&str]) -> String {
    let output = kv(world, verb, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What a verb says on stderr, and its exit code.
fn complains(world: &World, verb: &str, args: &[&str]) -> (String, Option<i32>) {
    let output = kv(world, verb, args);
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

#[test]
fn a_value_comes_back_as_it_was_set() {
    let world = World::plain();
    world.put("file", "content");
    let number = "12345678901234567890.10";
    for value in [r#"{"b": 1, "a": [2]}"#, "-5", "null", number, r#""a \"text\"""#] {
        assert_eq!(says(&world, "set", &["key", value]), "");
        assert_eq!(says(&world, "get", &["key"]), format!("{value}\n"));
    }
    assert_eq!(says(&world, "get", &["key", "--raw"]), "a \"text\"\n");
    says(&world, "set", &["key", number]);
    assert_eq!(says(&world, "get", &["key", "--raw"]), format!("{number}\n"));
    let json = says(&world, "get", &["key", "--json"]);
    assert!(json.contains(&format!("\"value\":{number}")), "no digit is lost: {json}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["v"], &json["type"]), (&1.into(), &"kv".into()));
    assert_eq!(json["key"], "key");
    assert!(json["created_at"].as_str().unwrap().ends_with('Z'), "{json}");
    assert_eq!(json["not_json"], Value::Null);
    assert_eq!(world.cat("file"), "content");
}

#[test]
fn a_text_may_be_given_as_it_is() {
    let world = World::plain();
    says(&world, "set", &["key", "--string", "say \"hi\"\n\u{1}"]);
    let stored = "\"say \\\"hi\\\"\\n\\u0001\"";
    assert_eq!(says(&world, "get", &["key"]), format!("{stored}\n"));
    assert_eq!(world.sql_value::<String>("SELECT value FROM kv_store"), stored);
    assert_eq!(says(&world, "get", &["key", "--raw"]), "say \"hi\"\n\u{1}\n");
    says(&world, "set", &["key", "--string", "--", "-x"]);
    assert_eq!(says(&world, "get", &["key"]), "\"-x\"\n");
    let (said, code) = complains(&world, "set", &["key", "text"]);
    assert_eq!(code, Some(2));
    assert!(said.starts_with("error: value: not JSON: ") && said.contains("--string"), "{said}");
    assert_eq!(says(&world, "get", &["key"]), "\"-x\"\n");
}

#[test]
fn a_value_may_come_from_stdin() {
    let world = World::plain();
    let set = |args: &[&str], bytes: &[u8]| {
        let mut command = acetate(world.scratch(), &["kv", "set", "session.db", "key", "-"]);
        command.args(args).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait_with_output().unwrap().status.code()
    };
    let long = format!("[\"{}\"]\n", "x".repeat(1 << 20));
    assert_eq!(set(&[], long.as_bytes()), Some(0));
    assert_eq!(says(&world, "get", &["key"]), long);
    assert_eq!(set(&["--string"], b" a\n"), Some(0));
    assert_eq!(says(&world, "get", &["key"]), "\" a\\n\"\n");
    assert_eq!(set(&[], b"\xff"), Some(2));
    assert_eq!(set(&[], b""), Some(2));
    assert_eq!(says(&world, "get", &["key", "--raw"]), " a\n\n");
}

#[test]
fn what_is_not_there_exits_with_1() {
    let world = World::plain();
    for verb in ["get", "rm"] {
        let (said, code) = complains(&world, verb, &["a\nkey"]);
        assert_eq!((said.as_str(), code), ("a\\nkey: no such key\n", Some(1)));
    }
    says(&world, "set", &["a\nkey", "1"]);
    assert_eq!(says(&world, "ls", &[]), "a\\nkey\n");
    let removed: Value = serde_json::from_str(&says(&world, "rm", &["a\nkey", "--json"])).unwrap();
    assert_eq!((&removed["key"], &removed["value"]), (&"a\nkey".into(), &1.into()));
    assert_eq!(complains(&world, "get", &["a\nkey"]).1, Some(1));
    assert_eq!(says(&world, "ls", &[]), "");
}

#[test]
fn ls_lists_keys() {
    let world = World::plain();
    for (key, value) in [("user:2", "22"), ("user:1", "1"), ("other", "{}")] {
        let json: Value =
            serde_json::from_str(&says(&world, "set", &[key, value, "--json"])).unwrap();
        assert_eq!(json["key"], key);
    }
    assert_eq!(says(&world, "ls", &[]), "other\nuser:1\nuser:2\n");
    assert_eq!(says(&world, "ls", &["user:"]), "user:1\nuser:2\n");
    let long = says(&world, "ls", &["user:", "-l"]);
    let lines: Vec<Vec<&str>> = long.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!((lines[1][1], lines[1][2], lines[1].len()), ("2", "user:2", 3));
    let json = says(&world, "ls", &["--json"]);
    let values: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(values.len(), 3);
    assert_eq!((&values[0]["key"], &values[2]["value"]), (&"other".into(), &22.into()));
}

#[test]
fn what_is_no_json_is_shown_and_marked() {
    let world = World::plain();
    let rows = "INSERT INTO kv_store (key, value, updated_at) VALUES ('bad', '{oops', NULL),
      ('bytes', x'ff', 1), (x'fe', '1', 2)";
    world.sql().execute_batch(rows).unwrap();
    let output = kv(&world, "get", &["bad"]);
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"{oops\n".to_vec()));
    assert_eq!(output.stderr, b"bad: the value is not JSON\n");
    assert_eq!(kv(&world, "get", &["bytes", "--raw"]).stdout, b"\xff\n");
    let long = says(&world, "ls", &["-l"]);
    let marks: Vec<bool> = long.lines().map(|line| line.ends_with("(not JSON)")).collect();
    assert_eq!(marks, [true, true, false], "{long}");
    assert!(long.starts_with("- ") && long.contains("1970-01-01T00:00:02Z"), "{long}");
    let json = says(&world, "ls", &["--json"]);
    let values: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(
        (&values[0]["value"], &values[0]["not_json"][0]),
        (&"{oops".into(), &"value".into())
    );
    assert_eq!((&values[2]["key_hex"], &values[2]["value"]), (&"fe".into(), &1.into()));
}

#[test]
fn a_server_does_not_mind() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    for number in 0..5 {
        let number = number.to_string();
        assert!(run(dir.path(), &["kv", "set", "s.db", "key", &number]).status.success());
        let said = run(dir.path(), &["kv", "get", "s.db", "key"]).stdout;
        assert_eq!(String::from_utf8(said).unwrap(), format!("{number}\n"));
    }
    server.signal("TERM");
    assert!(server.end().0.success());
    assert_eq!(run(dir.path(), &["kv", "get", "s.db", "key"]).stdout, b"4\n");
    let said = failure(dir.path(), &["kv", "set", "none.db", "key", "1"]);
    assert!(said.contains("none.db: no such session"), "{said}");
    assert!(!dir.path().join("none.db").exists());
}

/// The last program that closes a database removes its WAL, and a process loses SQLite's locks on a
/// file if it closes another descriptor of it. Of the WAL's index too: the next program would begin
/// a new one.
#[test]
#[cfg(target_os = "linux")]
fn a_key_beside_a_session_whose_files_were_read_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.db");
    let (wal, shm) = (dir.path().join("s.db-wal"), dir.path().join("s.db-shm"));
    let mut work = Workspace::create(&path, None).unwrap();
    work.write("one", "1".as_bytes()).unwrap();
    let number = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.ino());
    let before = [&wal, &shm].map(|path| number(path));
    for file in [&path, &shm] {
        drop(std::fs::File::open(file).unwrap());
    }
    for key in ["a", "b"] {
        let set =
            run(dir.path(), &["kv", "set", "s.db", key, &format!("\"{}\"", "x".repeat(60_000))]);
        assert!(set.status.success(), "{set:?}");
        work.write(key, "2".as_bytes()).unwrap();
        assert_eq!([&wal, &shm].map(|path| number(path)), before);
    }
    work.close().unwrap();
    assert!(!wal.exists());
    assert_eq!(run(dir.path(), &["check", "s.db"]).stdout, b"s.db: sound\n");
    assert_eq!(run(dir.path(), &["ls", "s.db", "/"]).stdout, b"a\nb\none\n");
    assert_eq!(run(dir.path(), &["kv", "ls", "s.db"]).stdout, b"a\nb\n");
}
