//! `acetate quota`: limits are shown and set, whoever has the session.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use super::program::{Serving, acetate, failure, run};

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Bytes and files that are used, and that may be.
fn quota(dir: &Path, args: &[&str]) -> [Option<u64>; 4] {
    let found = json(&run(dir, &[&["quota", "s.db", "--json"], args].concat()));
    assert_eq!(found["type"], "quota");
    ["used_bytes", "used_files", "max_bytes", "max_files"].map(|key| found[key].as_u64())
}

fn write(dir: &Path, name: &str, content: &[u8]) -> Output {
    let mut command = acetate(dir, &["write", "s.db", name]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_size_of_each_file_is_limited() {
    for is_served in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert!(run(dir, &["init", "s.db"]).status.success());
        let _server = is_served.then(|| Serving::start(dir, 1, &["s.db"]));
        let most = |args: &[&str]| {
            let all = [&["quota", "s.db", "--json"], args].concat();
            json(&run(dir, &all))["max_file_bytes"].as_u64()
        };
        assert_eq!(most(&[]), None);
        assert_eq!(most(&["--max-file-bytes", "1KiB"]), Some(1024));
        let said = refused(&write(dir, "a", &[b'a'; 1025]));
        assert!(said.starts_with("error: /a: file too large"), "{said}");
        assert!(write(dir, "a", &[b'a'; 1024]).status.success());
        let shown = run(dir, &["quota", "s.db"]).stdout;
        assert!(String::from_utf8(shown).unwrap().contains("each file at most 1.0 KiB"));
        assert_eq!(most(&["--max-file-bytes", "none"]), None);
        assert!(write(dir, "a", &[b'a'; 1025]).status.success());
    }
}

#[test]
fn limits_are_set_shown_and_kept_to() {
    for is_served in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert!(run(dir, &["init", "s.db"]).status.success());
        let server = is_served.then(|| Serving::start(dir, 1, &["s.db"]));
        assert!(write(dir, "a", &[b'a'; 3000]).status.success());
        assert_eq!(quota(dir, &[]), [Some(3000), Some(1), None, None]);
        let set = quota(dir, &["--bytes", "4KiB", "--files", "2"]);
        assert_eq!(set, [Some(3000), Some(1), Some(4096), Some(2)]);

        let said = refused(&write(dir, "b", &[b'b'; 2000]));
        assert!(said.starts_with("error: /b: quota exceeded\nhint: `acetate quota"), "{said}");
        assert_eq!(quota(dir, &[])[1], Some(1), "nothing of the file is there");
        assert!(write(dir, "b", b"").status.success());
        let said = refused(&run(dir, &["mkdir", "s.db", "d"]));
        assert!(said.contains("quota exceeded"), "{said}");
        assert!(run(dir, &["rm", "s.db", "b"]).status.success());
        assert!(run(dir, &["mkdir", "s.db", "d"]).status.success());

        // One limit at a time; the other stays.
        assert_eq!(quota(dir, &["--files", "none"])[2..], [Some(4096), None]);
        assert_eq!(quota(dir, &["--bytes", "10"]), [Some(3000), Some(2), Some(10), None]);
        let shown = run(dir, &["quota", "s.db"]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert_eq!(shown, "bytes  2.9 KiB of 10 B\nfiles  2 of 65536\n");
        let status = String::from_utf8(run(dir, &["status", "s.db"]).stdout).unwrap();
        assert!(status.contains("\nquota        2.9 KiB of 10 B; files: 2 of 65536\n"), "{status}");
        assert_eq!(json(&run(dir, &["status", "s.db", "--json"]))["max_bytes"], 10);
        if let Some(server) = server {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
        // The next server keeps to them too.
        let server = Serving::start(dir, 1, &["s.db"]);
        assert!(refused(&write(dir, "d/x", b"x")).contains("quota exceeded"));
        assert_eq!(quota(dir, &["--bytes", "none"]), [Some(3000), Some(2), None, None]);
        assert!(write(dir, "d/x", b"x").status.success());
        server.signal("TERM");
        assert!(server.end().0.success());
        let status = String::from_utf8(run(dir, &["status", "s.db"]).stdout).unwrap();
        assert!(!status.contains("quota"), "{status}");
        assert!(run(dir, &["check", "s.db"]).status.success());
    }
}

#[test]
fn a_look_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(run(dir, &["init", "s.db"]).status.success());
    assert!(write(dir, "a", b"content").status.success());
    let before = fs::read(dir.join("s.db")).unwrap();
    assert_eq!(quota(dir, &[])[..2], [Some(7), Some(1)]);
    assert!(fs::read(dir.join("s.db")).unwrap() == before);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 1);
}

#[test]
fn a_session_whose_base_is_gone_can_be_limited() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("base")).unwrap();
    assert!(run(dir, &["init", "s.db", "--base", "base"]).status.success());
    fs::remove_dir(dir.join("base")).unwrap();
    assert_eq!(quota(dir, &["--files", "0"]), [Some(0), Some(0), None, Some(0)]);
}

#[test]
fn what_is_no_limit_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    assert!(run(dir, &["init", "s.db"]).status.success());
    for (args, what) in [
        (["--bytes", "2 gigs"], "500MB, 2GiB or 4096, or `none`"),
        (["--bytes", "9223372036854775808"], "expected bytes"),
        (["--files", "-1"], "unexpected argument"),
        (["--files", "many"], "expected a number, or `none`"),
    ] {
        let said = failure(dir, &[&["quota", "s.db"], &args[..]].concat());
        assert!(said.contains(what), "{args:?}: {said}");
    }
    assert!(failure(dir, &["quota", "none.db"]).contains("hint:"));
}
