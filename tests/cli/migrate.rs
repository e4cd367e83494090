//! `acetate migrate`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::tempdir;

use super::program::{Serving, acetate, failure, run};
use crate::delta::{FOREIGN, Place};
use crate::inspect::all_rows;
use crate::support::check::assert_consistent;
use crate::support::spec_versions;

/// A session of version 0.0.
fn old(place: &Place) {
    spec_versions::make(&place.path, &place.path.with_file_name("base"), "0.0");
}

#[test]
fn whoever_needs_it_is_told_and_gets_it() {
    let place = Place::new();
    old(&place);
    let dir = place.path.parent().unwrap();
    let said = failure(dir, &["serve", "session.db"]);
    assert!(said.contains("a session of version 0.0"), "{said}");
    assert!(said.contains("hint: `acetate migrate SESSION.db`"), "{said}");
    let output = run(dir, &["migrate", "session.db", "--dry-run"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("\nfs_inode: gets nlink, rdev, atime_nsec, "), "{said}");
    assert!(said.contains("\nfs_data: chunks are cut to 65536 bytes: 10\n"), "{said}");
    assert!(said.ends_with("session.db: would become one of version 0.4, from 0.0\n"), "{said}");
    assert_eq!(place.names(), ["base", "session.db"]);
    let output = run(dir, &["migrate", "session.db", "--backup", "old.db"]);
    assert!(output.stderr.is_empty(), "no progress without a terminal");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("session.db: now of version 0.4, from 0.0; as it was: /"), "{said}");
    assert!(said.ends_with("/old.db\n"), "{said}");
    assert_eq!(place.names(), ["base", "old.db", "session.db"]);
    let output = run(dir, &["cat", "session.db", "/dir/hard"]);
    assert_eq!(output.stdout, b"content");
    let output = run(dir, &["migrate", "session.db"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "session.db: of version 0.4, as acetate makes it; nothing to do\n");
}

#[test]
fn json_has_an_object_for_each_step_and_finding_and_one_for_all() {
    let place = Place::new();
    place.sql().execute_batch(FOREIGN).unwrap();
    let dir = place.path.parent().unwrap();
    let output = run(dir, &["migrate", "session.db", "--json"]);
    assert_eq!(output.status.code(), Some(1), "something is left");
    let lines = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |kind: &str| objects.iter().filter(|o| o["type"] == kind).collect::<Vec<_>>();
    assert!(of("step").iter().any(|step| step["table"] == "fs_inode"), "{lines}");
    let findings = of("finding");
    assert!(findings.iter().any(|f| f["rule"] == "S10" && f["is_note"] == false), "{lines}");
    let all = objects.last().unwrap();
    assert_eq!((&all["v"], &all["type"]), (&1.into(), &"migrate".into()));
    assert_eq!((&all["from"], &all["to"]), (&"0.4".into(), &"0.4".into()));
    assert_eq!(all["is_done"], true);
    assert_eq!(all["findings"], findings.len());
    assert!(all["backup"].as_str().unwrap().ends_with("/session.db.before-migrate"));
}

#[test]
fn what_is_in_use_is_refused() {
    let dir = tempdir().unwrap();
    let place = Place::new();
    place.sql().execute_batch(FOREIGN).unwrap();
    fs::copy(&place.path, dir.path().join("s.db")).unwrap();
    fs::create_dir(dir.path().join("base")).unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db", "--base", "base", "--moved"]);
    let said = failure(dir.path(), &["migrate", "s.db"]);
    assert!(said.contains("s.db: in use by another server or command (process "), "{said}");
    assert!(said.contains("hint: stop that server first, then migrate"), "{said}");
    server.signal("TERM");
    assert!(server.end().0.success());
    fs::write(dir.path().join("s.db.before-migrate"), "mine").unwrap();
    let said = failure(dir.path(), &["migrate", "s.db"]);
    assert!(said.contains("s.db.before-migrate: file exists"), "{said}");
    assert!(said.contains("with --backup FILE"), "{said}");
    assert_eq!(fs::read(dir.path().join("s.db.before-migrate")).unwrap(), b"mine");
    // As the other implementation's engine locks it.
    let other = place.sql();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let said = failure(place.path.parent().unwrap(), &["migrate", "session.db"]);
    assert!(said.contains("session.db: ") && said.contains("locked"), "{said}");
    assert!(said.contains("hint: another program has the session open; stop it first"), "{said}");
}

#[test]
fn a_disk_that_fails_leaves_the_session_as_it_was() {
    let place = Place::new();
    old(&place);
    let rows = all_rows(&place.path);
    let dir = place.path.parent().unwrap();
    let bytes = fs::metadata(&place.path).unwrap().len();
    let mut failed = 0;
    // A limit on what a file may hold, in KiB or half of that, in place of a disk: from what is
    // too little for the copy to what does for the log.
    for blocks in (0..14).map(|step| bytes / 1024 + step * 40) {
        let script = format!(
            "trap '' XFSZ; ulimit -f {blocks}; exec {} migrate session.db",
            env!("CARGO_BIN_EXE_acetate")
        );
        let output = Command::new("sh").current_dir(dir).args(["-c", &script]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let _ = fs::remove_file(dir.join("session.db.before-migrate"));
        if output.status.success() {
            break;
        }
        failed += 1;
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with("error: "), "{said}");
        assert!(all_rows(&place.path) == rows, "a row changed: {said}");
    }
    assert!(failed > 0, "nothing failed");
    run(dir, &["migrate", "session.db"]);
    assert_consistent(&place.path);
}

#[test]
fn killed_at_any_time_it_leaves_the_old_session_or_the_new_one() {
    let place = Place::new();
    let base = place.path.with_file_name("base");
    let made = spec_versions::empty(&place.path, &base, "0.0");
    let content: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    place.sql().execute_batch("PRAGMA synchronous = OFF").unwrap();
    for number in 0..20 {
        made.chunked(&format!("f{number}"), 300_001, &[(0, b"x"), (1, &content)]);
    }
    drop(made);
    let dir = place.path.parent().unwrap();
    let old = fs::read(&place.path).unwrap();
    let rows = all_rows(&place.path);
    let (mut was_old, mut was_new) = (0, 0);
    for delay in [10, 20, 40, 60, 80, 100, 130, 160, 200, 250, 300, 400, 2000] {
        let mut command = acetate(dir, &["migrate", "session.db"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        let _ended_already = child.kill();
        child.wait().unwrap();
        let copy = dir.join("session.db.before-migrate");
        if copy.exists() {
            assert!(all_rows(&copy) == rows, "the copy is another");
        }
        // What a kill left is taken back by whoever may write.
        let count = "SELECT count(*) FROM sqlite_master";
        place.sql().query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
        if all_rows(&place.path) == rows {
            was_old += 1;
        } else {
            was_new += 1;
            assert_consistent(&place.path);
            let output = run(dir, &["cat", "session.db", "--base", "base", "/f19"]);
            assert!(output.stdout == [b"x", &content[..]].concat());
            for name in place.names().iter().filter(|name| name.starts_with("session.db-")) {
                fs::remove_file(dir.join(name)).unwrap();
            }
            fs::write(&place.path, &old).unwrap();
        }
        let _ = fs::remove_file(copy);
    }
    assert!(was_old > 0 && was_new > 0, "{was_old} times the old one, {was_new} the new one");
}
