//! Looking at a session.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use tempfile::{TempDir, tempdir};

use super::Seen;
use crate::cli::program::{acetate, run as run_program};

/// `s.db` over a base, and changes of each kind.
pub(super) fn changed() -> TempDir {
    let dir = tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("base/dir")).unwrap();
    for file in ["dir/file", "gone", "old", "drifted", "typed", "kept"] {
        fs::write(at("base").join(file), file).unwrap();
    }
    fs::write(at("new"), "new content").unwrap();
    let done = |args: &[&str]| {
        let output = run_program(dir.path(), args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    done(&["init", "s.db", "--base", "base", "--hide", "*.secret"]);
    for path in ["/dir/file", "/drifted", "/made"] {
        done(&["write", "s.db", path, "--from", "new"]);
    }
    done(&["rm", "s.db", "/gone"]);
    done(&["mv", "s.db", "/old", "/renamed"]);
    done(&["rm", "s.db", "/typed"]);
    done(&["ln", "s.db", "-s", "dir/file", "/typed"]);
    done(&["ln", "s.db", "/made", "/link"]);
    done(&["chmod", "s.db", "600", "/kept"]);
    dir
}

/// Runs a command with something on its stdin.
pub(super) fn fed(dir: &Path, args: &[&str], input: &str) -> std::process::Output {
    let mut command = acetate(dir, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

pub(super) fn run(seen: &mut Seen) {
    let dir = changed();
    let dir = dir.path();
    seen.run(dir, 0, &["ls", "s.db", "/"]);
    let drawn = seen.run(dir, 0, &["tree", "s.db", "--depth", "1"]);
    let depths = drawn.iter().map(|object| object["depth"].as_u64().unwrap());
    assert!(depths.eq(drawn.iter().map(|object| u64::from(object["path"] != "/"))), "{drawn:?}");
    seen.run(dir, 0, &["stat", "s.db", "/typed", "/renamed"]);
    seen.run(dir, 0, &["find", "s.db"]);
    seen.run(dir, 0, &["du", "s.db"]);
    seen.run(dir, 1, &["diff", "s.db", "--times"]);
    seen.run(dir, 1, &["diff", "s.db", "--hunks"]);
    seen.run(dir, 0, &["status", "s.db"]);
    seen.run(dir, 0, &["log", "s.db"]);
    seen.run(dir, 0, &["log", "s.db", "--summary"]);
    seen.run(dir, 0, &["log", "s.db", "--by", "tool"]);
    let odd = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    odd.execute("UPDATE acetate_op SET path = x'2fff' WHERE id = 2", []).unwrap();
    odd.execute("UPDATE fs_dentry SET name = x'ff' WHERE name = 'link'", []).unwrap();
    let named = seen.run(dir, 0, &["ls", "s.db", "/"]);
    assert!(named.iter().any(|object| object["path_hex"] == "2fff"), "{named:?}");
    agent(seen, dir);
    nodes(seen);
}

/// What agents keep in a session.
fn agent(seen: &mut Seen, dir: &Path) {
    seen.run(dir, 0, &["kv", "set", "s.db", "key", "{\"a\": 1}"]);
    let odd = rusqlite::Connection::open(dir.join("s.db")).unwrap();
    odd.execute("UPDATE kv_store SET value = 'no JSON' WHERE key = 'key'", []).unwrap();
    seen.run(dir, 0, &["kv", "get", "s.db", "key"]);
    seen.run(dir, 0, &["kv", "ls", "s.db"]);
    seen.run(dir, 0, &["kv", "rm", "s.db", "key"]);
    let ended = ["--result", "1", "--started", "1h"];
    seen.run(dir, 0, &[&["tool", "record", "s.db", "edit"], &ended[..]].concat());
    odd.execute("UPDATE acetate_op SET procedure = 'x' WHERE id = 1", []).unwrap();
    let shown = seen.run(dir, 0, &["tool", "show", "s.db", "1"]);
    let changes = shown[0]["changes"].as_array().unwrap();
    assert!(changes.iter().any(|change| change["type"] == "odd_change"), "{shown:?}");
    seen.run(dir, 0, &["tool", "ls", "s.db"]);
    seen.run(dir, 0, &["tool", "stats", "s.db"]);
}

/// Context nodes.
fn nodes(seen: &mut Seen) {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    assert!(run_program(dir, &["init", "c.db"]).status.success());
    let node = |name: &str| format!("ctx://acme/users/alice/memories/preferences/{name}");
    let (tea, milk) = (node("tea"), node("milk"));
    for uri in [&tea, &milk] {
        let args = ["ctx", "put", "c.db", uri];
        let output = fed(dir, &seen.with_json(&args), "content");
        seen.check(0, &args, output);
    }
    seen.run(dir, 0, &["ctx", "get", "c.db", &tea]);
    seen.run(dir, 0, &["ctx", "ls", "c.db", "ctx://"]);
    seen.run(dir, 0, &["ctx", "relate", "c.db", &tea, &milk, "--type", "related"]);
    seen.run(dir, 0, &["ctx", "mv", "c.db", &milk, &node("cream")]);
    seen.run(dir, 0, &["ctx", "rm", "c.db", &node("cream")]);
    let events = seen.run(dir, 0, &["ctx", "outbox", "ls", "c.db"]);
    let id = |at: usize| events[at]["event"]["event_id"].as_str().unwrap();
    seen.run(dir, 0, &["ctx", "outbox", "ack", "c.db", id(0)]);
    let mut failed = Vec::new();
    while failed.last().is_none_or(|event: &serde_json::Value| event["dead"] == false) {
        failed.extend(seen.run(dir, 0, &["ctx", "outbox", "fail", "c.db", id(1)]));
    }
    seen.run(dir, 0, &["ctx", "outbox", "retry", "c.db", id(1)]);
    let meta = "/accounts/acme/users/alice/memories/preferences/tea/.meta.json";
    assert!(run_program(dir, &["rm", "c.db", meta]).status.success());
    seen.run(dir, 1, &["ctx", "repair", "c.db", "--dry-run"]);
}
