//! `acetate status`.

use serde_json::Value;

use super::program::run;
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    gone/a "a"
"#;

fn status(world: &World, code: i32) -> Value {
    let session = world.session();
    let output = run(world.scratch(), &["status", session.to_str().unwrap(), "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn it_counts_what_the_session_holds_and_changed() {
    let mut world = World::new(TREE);
    world.put("new", "new content");
    world.write("dir/file", 0, b"C").unwrap();
    world.rename("dir/other", "moved").unwrap();
    world.rm_rf("gone");
    world.symlink("new", "link").unwrap();
    world.sql().execute("INSERT INTO kv_store (key, value) VALUES ('k', '1')", []).unwrap();
    let found = status(&world, 0);
    for (key, value) in [
        ("added", 2),
        ("deleted", 2),
        ("modified", 1),
        ("renamed", 1),
        ("files", 3),
        ("directories", 1),
        ("symlinks", 1),
        ("copied_up", 3),
        ("whiteouts", 2),
        ("content_bytes", 11 + 7 + 5),
        ("originals", 2),
        ("original_bytes", 7 + 5),
        ("original_bytes_max", 256 << 20),
        ("values", 1),
        ("drifted", 0),
        ("chunk_bytes", 65536),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    assert_eq!(found["served_by"], std::process::id());
    world.close();
    let found = status(&world, 0);
    assert_eq!((&found["served"], &found["closed"]), (&false.into(), &true.into()));
    assert_eq!(found["log_bytes"], 0);
    world.open_again();
}

#[test]
fn originals_are_shown_with_their_bound() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"C").unwrap();
    world.close();
    let shown = run(world.scratch(), &["status", world.session().to_str().unwrap()]).stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("original     1 file, 7 B of 256.0 MiB\n"), "{shown}");
    world.open_again();
}

#[test]
fn a_base_that_changed_is_a_finding() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"C").unwrap();
    std::fs::write(world.change_base().join("dir/file"), "by somebody else").unwrap();
    assert_eq!(status(&world, 1)["drifted"], 1);
}

#[test]
fn what_the_base_changed_after_it_was_removed_is_a_finding_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let done = |code: i32, args: &[&str]| {
        let output = run(dir, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::create_dir_all(dir.join("base/gone/sub")).unwrap();
    for file in ["file", "same", "gone/sub/a", "gone/moved"] {
        std::fs::write(dir.join("base").join(file), "content").unwrap();
    }
    done(0, &["init", "s.db", "--base", "base"]);
    done(0, &["mv", "s.db", "/gone/moved", "/moved"]);
    done(0, &["rm", "s.db", "-r", "/file", "/same", "/gone"]);
    let unchanged = "D /file\nD /gone/ (1 file, 7 B)\nR /gone/moved -> /moved\nD /same\n";
    assert_eq!(done(1, &["diff", "s.db"]), unchanged);
    assert!(!done(0, &["status", "s.db"]).contains("drift"));
    // Whiteouts and ctimes are compared in seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    std::fs::write(dir.join("base/file"), "of a person").unwrap();
    std::fs::write(dir.join("base/gone/sub/a"), "of a person").unwrap();
    let changed = "changed in the base too";
    let diff = done(1, &["diff", "s.db"]);
    let lines: Vec<_> = diff.lines().filter(|line| line.contains(changed)).collect();
    let gone = format!("D /gone/ (1 file, 11 B, {changed})");
    assert_eq!(lines, [format!("D /file ({changed})"), gone], "{diff}");
    let status = done(1, &["status", "s.db"]);
    assert!(status.contains("drift        2 objects changed"), "{status}");
    let plan = done(1, &["apply", "s.db", "--dry-run"]);
    let drifted: Vec<_> = plan.lines().filter(|line| line.starts_with('!')).collect();
    let since = "changed in the base since it was deleted";
    let inside = "created or changed in the base since /gone was deleted";
    assert_eq!(drifted, [format!("! /file: {since}"), format!("! /gone/sub/a: {inside}")]);
}

#[test]
fn a_look_leaves_nothing_behind() {
    let mut world = World::new(TREE);
    world.put("new", "new");
    world.close();
    let session = world.session();
    let before = std::fs::read(&session).unwrap();
    for command in ["status", "ls", "diff", "tree", "du"] {
        run(world.scratch(), &[command, session.to_str().unwrap()]);
        let left: Vec<_> = std::fs::read_dir(world.scratch())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != "base" && name != "session.db")
            .collect();
        assert!(left.is_empty(), "{command}: {left:?}");
    }
    assert!(std::fs::read(&session).unwrap() == before, "the session is as it was");
    world.open_again();
}

/// The content decides, for commands that remove and end too.
#[test]
fn what_was_removed_and_has_other_times_is_no_finding() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let done = |code: i32, args: &[&str]| {
        let output = run(dir, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    };
    std::fs::create_dir_all(dir.join("base/gone/sub")).unwrap();
    for file in ["file", "gone/sub/a", "gone/b"] {
        std::fs::write(dir.join("base").join(file), "content\n").unwrap();
    }
    done(0, &["init", "s.db", "--base", "base"]);
    done(0, &["rm", "s.db", "-r", "/file", "/gone"]);
    let patch = done(1, &["diff", "s.db", "--patch"]);
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let mut cp = std::process::Command::new("cp");
    assert!(cp.args(["-a", "base", "moved"]).current_dir(dir).status().unwrap().success());
    std::fs::remove_dir_all(dir.join("base")).unwrap();
    assert!(!done(0, &["status", "s.db", "--base", "moved"]).contains("drift"));
    assert_eq!(done(1, &["diff", "s.db", "--base", "moved", "--patch"]), patch);
    std::fs::rename(dir.join("moved"), dir.join("base")).unwrap();
    assert_eq!(done(1, &["diff", "s.db", "--patch"]), patch);
    done(0, &["apply", "s.db", "--yes"]);
    assert_eq!(std::fs::read_dir(dir.join("base")).unwrap().count(), 0);
}
