//! Hard-linked base files of which the session, or a person, changed a name.

use std::fs;
use std::os::unix::fs::MetadataExt;

use acetate::inspect::apply::DriftReason;

use super::merge::{TREE, base_text, change_first_line, drift, merged_paths};
use super::{apply_served, only, open, path};
use crate::support::applied::{all, applied, planned};
use crate::support::world::World;

/// One name was saved by a rename, the file of the other two edited in place: two files now, each
/// with the person's own change.
#[test]
fn names_of_one_file_that_are_two_files_in_the_base_are_merged_apart() {
    let text = |lines: [(usize, &str); 2]| {
        let line = |n| lines.iter().find(|(at, _)| *at == n).map(|(_, text)| (*text).to_owned());
        (1..=30).map(|n| line(n).unwrap_or_else(|| n.to_string()) + "\n").collect::<String>()
    };
    let mut world = World::new(&format!("one {:?}\ntwo = one\nthree = one", text([(0, ""); 2])));
    world.write("one", 4, b"A").unwrap();
    let base = world.change_base();
    fs::write(base.join("saved"), text([(12, "here"), (0, "")])).unwrap();
    fs::rename(base.join("saved"), base.join("one")).unwrap();
    fs::write(base.join("two"), text([(25, "there"), (0, "")])).unwrap();
    assert_eq!(world.cat("three"), text([(3, "A"), (0, "")]));
    assert_eq!(merged_paths(&world, &all()).len(), 3);
    assert_eq!(applied(&open(&world), None, &all()).unwrap().skipped, []);
    let read = |name: &str| fs::read_to_string(base.join(name)).unwrap();
    assert_eq!(read("one"), text([(3, "A"), (12, "here")]));
    assert_eq!(read("two"), text([(3, "A"), (25, "there")]));
    let number = |name: &str| fs::metadata(base.join(name)).unwrap().ino();
    assert_eq!(number("two"), number("three"));
}

/// It may be a new one that got the number; clients see the base's.
#[test]
fn a_file_of_one_name_with_the_number_of_a_copied_one_and_other_content_is_no_change() {
    let mut world = World::new("one \"1\\n2\\n\"\ntwo = one");
    world.write("one", 0, b"A").unwrap();
    let base = world.change_base();
    fs::remove_file(base.join("one")).unwrap();
    fs::write(base.join("two"), "person\n").unwrap();
    assert_eq!(world.cat("two"), "person\n");
    assert_eq!(drift(&world, &all()), [("/one".to_owned(), DriftReason::Removed)]);
}

/// The name by which the session has it is applied: the other one is the person's.
#[test]
fn a_file_of_one_name_and_other_content_shows_after_the_copied_one_was_applied() {
    let mut world = World::new("one \"1\n\"\ntwo = one");
    world.rename("one", "moved").unwrap();
    let base = world.change_base();
    fs::write(base.join("saved"), "saved\n").unwrap();
    fs::rename(base.join("saved"), base.join("one")).unwrap();
    fs::write(base.join("two"), "person\n").unwrap();
    assert_eq!(world.cat("two"), "person\n");
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(world.cat("two"), "person\n");
    assert_eq!(fs::read(base.join("moved")).unwrap(), b"saved\n");
}

/// The person edits the file at the other name; `apply` of one name makes two files of it.
#[test]
fn the_other_name_of_a_file_keeps_the_change_after_one_name_was_applied() {
    for further in [false, true] {
        let mut world = World::new(&format!("{TREE} two = dir/text"));
        change_first_line(&world);
        if further {
            world.link("two", "more").unwrap();
        }
        let base = world.change_base();
        fs::write(base.join("two"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
        assert_eq!(apply_served(&world, &only(&["dir/text"])).skipped, []);
        assert_eq!(base_text(&world), "ONE\ntwo\nthree\nfour\nFIVE\n");
        assert_eq!(fs::read_to_string(base.join("two")).unwrap(), "one\ntwo\nthree\nfour\nFIVE\n");
        assert_eq!(world.cat("two"), "ONE\ntwo\nthree\nfour\nfive\n");
        assert_eq!(world.stat("two").nlink, 1 + u32::from(further));
        world.reopen();
        assert!(merged_paths(&world, &all()).contains(&("/two".to_owned(), false)));
        assert_eq!(apply_served(&world, &all()).skipped, []);
        assert_eq!(fs::read_to_string(base.join("two")).unwrap(), base_text(&world));
    }
}

/// `discard` of one name leaves the change at the other, with what the session started from.
#[test]
fn the_other_name_of_a_file_is_merged_after_one_name_was_discarded() {
    let mut world = World::new(&format!("{TREE} two = dir/text"));
    change_first_line(&world);
    world.wait(world.overlay.discard(&world.caller, vec![path("dir/text")])).unwrap();
    let base = world.change_base();
    fs::write(base.join("two"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    assert_eq!(merged_paths(&world, &all()), [("/two".to_owned(), false)]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(base_text(&world), "one\ntwo\nthree\nfour\nFIVE\n");
    let two = fs::read_to_string(base.join("two")).unwrap();
    assert_eq!(two, "ONE\ntwo\nthree\nfour\nFIVE\n");
}

/// An editor that saves by rename makes two files of one: clients see the base's at the other name,
/// and so do a review and an apply.
#[test]
fn a_name_that_a_person_parted_from_the_file_is_the_bases() {
    let mut world = World::new(&format!("{TREE} two = dir/text"));
    change_first_line(&world);
    let base = world.change_base();
    fs::write(base.join("saved"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    fs::rename(base.join("saved"), base.join("dir/text")).unwrap();
    let start = "one\ntwo\nthree\nfour\nfive\n";
    assert_eq!(world.cat("two"), start);
    assert_eq!(merged_paths(&world, &all()), [("/dir/text".to_owned(), false)]);
    let before = fs::metadata(base.join("two")).unwrap();
    assert_eq!(apply_served(&world, &all()).skipped, []);
    let after = fs::metadata(base.join("two")).unwrap();
    assert_eq!((after.ino(), after.mtime()), (before.ino(), before.mtime()));
    assert_eq!(base_text(&world), "ONE\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(world.cat("two"), start);
}

/// Clients see the session's file at that name: so does a review.
#[test]
fn a_name_that_a_person_gave_a_copied_file_is_a_change() {
    let mut world = World::new(TREE);
    change_first_line(&world);
    let base = world.change_base();
    fs::hard_link(base.join("dir/text"), base.join("further")).unwrap();
    assert!(world.cat("further").starts_with("ONE\n"));
    let plan = planned(&open(&world), None, &all()).unwrap();
    let paths: Vec<_> = plan.changes.iter().map(|c| c.path.display().to_string()).collect();
    assert_eq!(&paths[paths.len() - 2..], ["/dir/text", "/further"]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(fs::read_to_string(base.join("further")).unwrap(), base_text(&world));
    let number = |name: &str| fs::metadata(base.join(name)).unwrap().ino();
    assert_eq!(number("dir/text"), number("further"));
}

/// The base's file is not the session's, so its name goes, and the link keeps the session's.
#[test]
fn a_link_that_the_session_made_stays_apart_from_a_merged_file() {
    let mut world = World::new(TREE);
    change_first_line(&world);
    world.link("dir/text", "more").unwrap();
    let base = world.change_base();
    fs::write(base.join("dir/text"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    assert_eq!(apply_served(&world, &only(&["dir/text"])).skipped, []);
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert!(plan.changes.iter().all(|change| change.from.is_none()), "{plan:?}");
    for _ in 0..2 {
        assert_eq!(base_text(&world), "ONE\ntwo\nthree\nfour\nFIVE\n");
        assert_eq!(world.cat("dir/text"), base_text(&world));
        assert_eq!(world.cat("more"), "ONE\ntwo\nthree\nfour\nfive\n");
        assert_eq!(apply_served(&world, &all()).skipped, []);
    }
}
