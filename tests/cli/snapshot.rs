//! `acetate snapshot`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use super::program::{Serving, acetate, failure, run};
use crate::delta::Place;
use crate::inspect::half_empty;
use crate::support::check::assert_consistent;

#[test]
fn it_copies_beside_a_server() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    let output = run(dir.path(), &["snapshot", "s.db", "copy.db"]);
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "no progress without a terminal");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("s.db: copied to copy.db, "), "{said}");
    let output = run(dir.path(), &["snapshot", "--json", "s.db", "other.db"]);
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["v"], &object["type"]), (&1.into(), &"snapshot".into()));
    assert_eq!((&object["session"], &object["copy"]), (&"s.db".into(), &"other.db".into()));
    assert_eq!(object["bytes"], fs::metadata(dir.path().join("other.db")).unwrap().len());
    assert_eq!(object["session_id"].as_str().unwrap().len(), 32);
    // The copy is served beside the original.
    let other = Serving::start(dir.path(), 1, &["copy.db"]);
    for server in [server, other] {
        server.signal("TERM");
        assert!(server.end().0.success());
    }
}

#[test]
fn what_cannot_be_is_said() {
    let dir = tempdir().unwrap();
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    let said = failure(dir.path(), &["snapshot", "s.db", "s.db"]);
    assert!(said.contains("s.db: file exists"), "{said}");
    assert!(said.contains("hint: choose another path"), "{said}");
    let said = failure(dir.path(), &["snapshot", "none.db", "new.db"]);
    assert!(said.contains("none.db: no such session"), "{said}");
    let said = failure(dir.path(), &["snapshot", "s.db", "none/new.db"]);
    assert!(said.contains("none: No such file or directory"), "{said}");
}

#[test]
fn a_disk_that_fails_leaves_nothing() {
    let place = Place::new();
    half_empty(&place, 40);
    let dir = place.path.parent().unwrap();
    // A limit on what a file may hold, in KiB or half of that, in place of a disk.
    let script = format!(
        "trap '' XFSZ; ulimit -f 1000; exec {} snapshot session.db new.db",
        env!("CARGO_BIN_EXE_acetate")
    );
    let output = Command::new("sh").current_dir(dir).args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("session.db: cannot be copied to "), "{said}");
    assert!(place.names().iter().all(|name| !name.starts_with("new")), "{:?}", place.names());
}

#[test]
fn killed_at_any_time_it_leaves_a_whole_copy_or_none() {
    let place = Place::new();
    half_empty(&place, 300);
    let dir = place.path.parent().unwrap();
    let new = dir.join("new.db");
    let (mut was_killed, mut left_some) = (0, 0);
    for delay in [4, 8, 12, 16, 24, 32, 48, 64, 96, 128] {
        let mut command = acetate(dir, &["snapshot", "session.db", "new.db"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        was_killed += usize::from(!child.wait().unwrap().success());
        left_some += usize::from(dir.join("new.db-snapshot-unfinished").exists());
        if new.exists() {
            assert_consistent(&new);
            fs::remove_file(&new).unwrap();
            // The check's connection may leave them.
            let _ = fs::remove_file(dir.join("new.db-wal"));
            let _ = fs::remove_file(dir.join("new.db-shm"));
        }
    }
    assert!(was_killed > 0 && left_some > 0, "killed {was_killed} times, {left_some} left some");
    assert!(run(dir, &["snapshot", "session.db", "new.db"]).status.success());
    let names = place.names();
    let new: Vec<_> = names.iter().filter(|name| name.starts_with("new")).collect();
    assert_eq!(new, ["new.db"]);
}
