//! `acetate seal`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use super::program::{Serving, acetate, failure, run, said};
use crate::support::check::assert_consistent;
use crate::support::world::{Setup, World};

fn world() -> World {
    let many: String = (0..3000).map(|n| format!("moved/f{n} \"{n}\"\n")).collect();
    let setup = Setup { base: Some(many), chunk_bytes: 512, ..Setup::default() };
    let mut world = World::with(setup);
    world.rename("moved", "place").unwrap();
    world.put("sparse", "s");
    world.truncate("sparse", 5000).unwrap();
    world.close();
    world
}

#[test]
fn it_says_what_it_takes_and_what_it_did() {
    let world = world();
    let dir = world.scratch();
    let output = run(dir, &["seal", "session.db", "--dry-run"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("session.db: 10.6 KiB below 1 redirect (3000 objects), "), "{said}");
    let output = run(dir, &["seal", "session.db", "--for", "agentfs", "--json"]);
    assert!(output.status.success());
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["v"], &object["type"]), (&1.into(), &"seal".into()));
    assert_eq!((&object["redirects"], &object["copied"]), (&1.into(), &3000.into()));
    assert_eq!((&object["odd_names"], &object["hidden"]), (&0.into(), &0.into()));
    let output = run(dir, &["seal", "session.db"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "session.db: sealed: nothing to do\n");
}

#[test]
fn a_served_session_is_refused() {
    let dir = tempdir().unwrap();
    let server = Serving::start(dir.path(), 1, &["s.db"]);
    let said = failure(dir.path(), &["seal", "s.db"]);
    assert!(said.contains("in use by another server"), "{said}");
    assert!(said.contains("hint: stop that server first"), "{said}");
    // What it would take can be asked for.
    assert!(run(dir.path(), &["seal", "s.db", "--dry-run"]).status.success());
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn what_agentfs_cannot_read_is_named() {
    let mut world = World::plain();
    world.put(&b"odd \xff"[..], "x");
    world.close();
    let output = run(world.scratch(), &["seal", "session.db", "--for", "agentfs"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "/odd \\xff: no UTF-8, which AgentFS cannot read\n");
}

#[test]
fn killed_at_any_time_it_goes_on() {
    let world = world();
    let dir = world.scratch();
    let mut was_killed = 0;
    for delay in [20, 40, 60, 80, 120, 160, 240] {
        let mut command = acetate(dir, &["seal", "session.db"]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        was_killed += usize::from(!child.wait().unwrap().success());
        assert_consistent(&world.session());
        let ls = run(dir, &["ls", "session.db", "place"]).stdout;
        assert_eq!(ls.iter().filter(|byte| **byte == b'\n').count(), 3000);
    }
    assert!(was_killed > 0, "it was never killed");
    assert!(run(dir, &["seal", "session.db"]).status.success());
    assert!(run(dir, &["check", "session.db"]).status.success());
    let output = run(dir, &["cat", "session.db", "place/f77"]);
    assert_eq!(output.stdout, b"77");
    fs::remove_file(dir.join("session.db-lock")).unwrap_or_default();
}

/// A copied base has directories and files with other numbers.
#[test]
fn a_move_is_the_only_change_in_a_copied_base_too() {
    for is_copied_first in [true, false] {
        let dir = tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let done = |args: &[&str]| said(&run(dir.path(), args), 0).0;
        fs::create_dir_all(at("b/a/in")).unwrap();
        for file in ["b/a/1", "b/a/in/2"] {
            fs::write(at(file), file).unwrap();
        }
        done(&["init", "s.db", "--base", "b"]);
        done(&["mv", "s.db", "a", "z"]);
        let copy_base = || {
            let copied = Command::new("cp").arg("-a").args([at("b"), at("copy")]).status();
            assert!(copied.unwrap().success());
            fs::rename(at("b"), at("first")).unwrap();
            fs::rename(at("copy"), at("b")).unwrap();
        };
        if is_copied_first {
            copy_base();
        }
        done(&["seal", "s.db"]);
        if !is_copied_first {
            copy_base();
        }
        let moved = said(&run(dir.path(), &["diff", "s.db"]), 1).0;
        assert_eq!(moved, "R /a -> /z/\n", "{is_copied_first}");
        done(&["apply", "s.db", "--yes"]);
        assert!(!at("b/a").exists() && at("b/z/in/2").exists());
        assert_eq!(done(&["diff", "s.db"]), "");
    }
}
