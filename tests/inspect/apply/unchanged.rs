//! Copies in which the session changed nothing, and names of files of which some are as in the
//! base.

use std::fs;

use acetate::inspect::apply::{ApplyOptions, Why};

use super::{apply_served, copy, open, path};
use crate::support::applied::{all, applied, planned};
use crate::support::world::World;

const TEXT: &str = "1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n";

/// How many objects the session has, the top left out.
fn inodes(world: &World) -> i64 {
    world.sql_value("SELECT count(*) FROM fs_inode WHERE ino <> 1")
}

/// The paths of the copies that an apply drops, and whether the base changed them.
fn unchanged(world: &World) -> Vec<(String, bool)> {
    let plan = planned(&open(world), None, &all()).unwrap();
    assert_eq!(plan.drifted, []);
    let dropped = plan.unchanged.iter();
    dropped.map(|dropped| (dropped.copy.path.display().to_string(), dropped.is_drifted)).collect()
}

/// A session over a text, with its further names as the base has them.
fn over(tree: &str) -> World {
    World::new(&tree.replace("TEXT", TEXT))
}

#[test]
fn changes_that_were_taken_back_hide_nothing_after_an_apply() {
    let mut world = over("edited \"TEXT\"\nremoved \"TEXT\"\nsame \"TEXT\"");
    for file in ["edited", "removed", "same"] {
        world.chmod(file, 0o600).unwrap();
        world.chmod(file, 0o644).unwrap();
    }
    world.put("new", "new");
    let base = world.change_base();
    fs::write(base.join("edited"), "person").unwrap();
    fs::remove_file(base.join("removed")).unwrap();
    let expected = [("/edited", true), ("/removed", true), ("/same", false)];
    assert_eq!(unchanged(&world), expected.map(|(at, drifted)| (at.to_owned(), drifted)));
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(world.cat("edited"), "person");
    assert!(!world.exists("removed"));
    assert_eq!(inodes(&world), 0);
    assert_eq!(fs::read(base.join("edited")).unwrap(), b"person");
}

#[test]
fn a_time_alone_never_drifts() {
    let mut world = over("edited \"TEXT\"\nremoved \"TEXT\"\nsame \"TEXT\"");
    for file in ["edited", "removed", "same"] {
        world.write(file, 0, b"1").unwrap();
    }
    let base = world.change_base();
    fs::write(base.join("edited"), "person").unwrap();
    fs::remove_file(base.join("removed")).unwrap();
    let expected = [("/edited", true), ("/removed", true)];
    assert_eq!(unchanged(&world), expected.map(|(at, drifted)| (at.to_owned(), drifted)));
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(fs::read(base.join("edited")).unwrap(), b"person");
    assert!(!base.join("removed").exists() && !world.exists("removed"));
    assert_eq!(inodes(&world), 0);
}

#[test]
fn a_time_of_what_a_copy_does_not_have_is_no_drift() {
    let world = over("edited \"TEXT\"\nremoved \"TEXT\"\nsame \"TEXT\"");
    for file in ["edited", "removed", "same"] {
        world.write(file, 0, b"1").unwrap();
    }
    let to = copy(&world, "copy");
    fs::write(to.join("edited"), "person").unwrap();
    fs::remove_file(to.join("removed")).unwrap();
    let opened = open(&world);
    let plan = planned(&opened, Some(&to), &all()).unwrap();
    assert_eq!((plan.drifted.len(), plan.unchanged.len()), (0, 0));
    assert_eq!(applied(&opened, Some(&to), &all()).unwrap().skipped, []);
    assert_eq!(fs::read(to.join("edited")).unwrap(), b"person");
    assert!(!to.join("removed").exists());
}

#[test]
fn what_is_taken_from_the_session_is_written_though_only_its_time_differs() {
    let mut world = over("removed \"TEXT\"");
    world.write("removed", 0, b"1").unwrap();
    let base = world.change_base();
    fs::remove_file(base.join("removed")).unwrap();
    let options = ApplyOptions { take_session: vec![path("removed")], ..all() };
    assert_eq!(planned(&open(&world), None, &options).unwrap().unchanged, []);
    assert_eq!(apply_served(&world, &options).skipped, []);
    assert!(base.join("removed").exists());
    // Its content counts.
    world.write("removed", 0, b"one").unwrap();
    fs::remove_file(base.join("removed")).unwrap();
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert_eq!((plan.unchanged.len(), plan.drifted[0].why), (0, Why::Removed));
}

#[test]
fn a_file_of_which_a_further_name_was_applied_is_the_bases_again() {
    for (tree, moves) in [
        ("file \"TEXT\"", false),
        ("file \"TEXT\"\nlinked = file", false),
        ("dir/file \"TEXT\"", true),
    ] {
        let mut world = over(tree);
        let file = if moves { "moved/file" } else { "file" };
        if moves {
            world.rename("dir", "moved").unwrap();
        }
        world.link(file, "more").unwrap();
        let base = world.change_base();
        assert_eq!(apply_served(&world, &all()).skipped, []);
        assert_eq!(inodes(&world), 0, "{tree}");
        fs::write(base.join("more"), "person").unwrap();
        assert_eq!((world.cat("more"), world.cat(file)), ("person".into(), "person".into()));
        world.reopen();
        assert_eq!(world.stat(file).fileid, world.stat("more").fileid);
    }
}

#[test]
fn a_file_that_the_base_changed_goes_with_the_further_name_that_is_applied() {
    let mut world = over("file \"TEXT\"");
    world.link("file", "more").unwrap();
    let base = world.change_base();
    let theirs = TEXT.replace("\\n", "\n") + "person\n";
    fs::write(base.join("file"), &theirs).unwrap();
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!((world.cat("file"), world.cat("more")), (theirs.clone(), theirs));
    assert_eq!(inodes(&world), 0);
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert!(plan.changes.is_empty() && plan.unchanged.is_empty(), "{plan:#?}");
}
