//! What `acetate apply` says of what the base changed, and of plans that write no content.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use super::program::{run, said};
use crate::support::world::World;

fn apply(world: &World, args: &[&str]) -> Output {
    let session = world.session();
    run(world.scratch(), &[&["apply", session.to_str().unwrap()], args].concat())
}

#[test]
fn what_is_left_to_the_base_ends_no_undo_and_no_copy_loses_it() {
    let mut world = World::new("first \"1\"\nother \"other\"\n");
    world.write("first", 0, b"first").unwrap();
    world.write("other", 0, b"mine!").unwrap();
    world.close();
    let base = world.change_base();
    fs::write(base.join("other"), "a\nperson's\n").unwrap();
    let copy = world.scratch().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("first"), "1").unwrap();
    fs::write(copy.join("other"), "a\nperson's\n").unwrap();
    let to = ["--yes", "--no-keep", "--to", copy.to_str().unwrap(), "--take", "base", "other"];
    let (_, err) = said(&apply(&world, &to), 0);
    let stays = "1 object stays as the copy has it (--take base); the session keeps its own\n";
    assert_eq!(err, stays);
    said(&apply(&world, &["--yes", "--skip-drifted"]), 1);
    said(&apply(&world, &["--yes", "--take", "base", "other"]), 0);
    said(&apply(&world, &["--yes", "--undo"]), 0);
    assert_eq!(fs::read(base.join("first")).unwrap(), b"1");
    assert_eq!(fs::read(base.join("other")).unwrap(), b"a\nperson's\n");
}

#[test]
fn attributes_and_removals_in_the_base_are_said_as_such() {
    let mut world = World::new("mode \"1\"\nowner \"2\"\ngone \"3\"\n");
    world.close();
    let session = world.session();
    let session = session.to_str().unwrap();
    for args in [["chmod", session, "755", "/mode"], ["touch", session, "/owner", "/owner"]] {
        assert!(run(world.scratch(), &args).status.success());
    }
    let (out, _) = said(&apply(&world, &["--dry-run"]), 0);
    assert!(out.ends_with(": mode of 1 file, time of 1 file\n"), "{out}");
    assert!(run(world.scratch(), &["chmod", session, "600", "/gone"]).status.success());
    fs::remove_file(world.change_base().join("gone")).unwrap();
    let (out, _) = said(&apply(&world, &["--dry-run", "--skip-drifted"]), 1);
    assert!(out.contains("! /gone: was removed in the base; left out (--skip-drifted)\n"), "{out}");
    assert!(!out.contains("0 files to write"), "{out}");
    let diff = run(world.scratch(), &["diff", session]);
    let diff = String::from_utf8(diff.stdout).unwrap();
    assert!(diff.contains("M /gone (mode 0644 -> 0600, was removed in the base)\n"), "{diff}");
}

#[test]
fn a_copy_in_which_nothing_changed_is_dropped_where_nothing_else_is_applied() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir_all(dir.join("base/sub")).unwrap();
    fs::write(dir.join("base/sub/file"), "old").unwrap();
    let done = |args: &[&str]| {
        let ran = run(dir, args);
        assert!(ran.status.success(), "{args:?}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    done(&["init", "s.db", "--base", "base"]);
    done(&["chmod", "s.db", "600", "sub/file"]);
    done(&["chmod", "s.db", "644", "sub/file"]);
    fs::write(dir.join("base/sub/file"), "person").unwrap();
    let plan = "= /sub/file: the session changed nothing of it: what the base has shows again\n";
    assert!(done(&["apply", "s.db", "-n"]).starts_with(plan));
    assert_eq!(done(&["cat", "s.db", "sub/file"]), "old");
    let json = done(&["apply", "s.db", "-n", "--json"]);
    assert!(json.contains(r#""type":"unchanged""#) && json.contains(r#""/sub/file""#), "{json}");
    assert!(done(&["apply", "s.db", "--yes"]).starts_with(plan));
    assert_eq!(done(&["cat", "s.db", "sub/file"]), "person");
    assert!(done(&["apply", "s.db", "--yes"]).starts_with("nothing to apply"));
}

/// A directory whose time alone changes has no line in the plan, and does not count.
#[test]
fn what_was_applied_is_counted_as_the_plan_and_diff_count() {
    let tree = "dir/file \"1\"\nother \"other\"\ngone/a \"a\"\ngone/b \"b\"\ngone/c \"c\"\n";
    let mut world = World::new(tree);
    world.write("other", 0, b"mine!").unwrap();
    world.put("dir/new", "new");
    world.rm_rf("gone");
    world.close();
    let base = world.change_base();
    fs::write(base.join("other"), "a\nperson's\n").unwrap();
    let session = world.session();
    let names = run(world.scratch(), &["diff", session.to_str().unwrap(), "--name-only"]).stdout;
    assert_eq!(names.iter().filter(|&&byte| byte == b'\n').count(), 6);
    let (out, _) = said(&apply(&world, &["--yes", "--skip-drifted"]), 1);
    assert!(out.ends_with(": 5 applied, 1 skipped: the session keeps those\n"), "{out}");
}

#[test]
fn the_bases_mode_of_a_directory_is_taken_and_what_the_session_has_in_it_stays() {
    let mut world = World::new("d/x \"x\"\n");
    world.chmod("d", 0o700).unwrap();
    world.put("d/new", "agent");
    world.put("d/later", "agent");
    world.close();
    let base = world.change_base();
    fs::set_permissions(base.join("d"), fs::Permissions::from_mode(0o711)).unwrap();
    let take = ["--yes", "--take", "base", "d", "--exclude", "d/later"];
    let (_, err) = said(&apply(&world, &take), 0);
    let stays = "1 object stays as the base has it (--take base); the session gave up its own";
    assert!(err.contains(stays) && err.ends_with("\n/d (mode or owner)\n"), "{err}");
    assert_eq!(fs::read(base.join("d/new")).unwrap(), b"agent");
    assert!(!base.join("d/later").exists());
    let session = world.session();
    let diff = run(world.scratch(), &["diff", session.to_str().unwrap()]);
    assert_eq!(String::from_utf8(diff.stdout).unwrap(), "A /d/later\n");
    said(&apply(&world, &["--yes"]), 0);
    assert_eq!(fs::read(base.join("d/later")).unwrap(), b"agent");
    assert_eq!(fs::metadata(base.join("d")).unwrap().permissions().mode() & 0o7777, 0o711);
}
