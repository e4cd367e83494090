//! Names of one file of which only some are applied: the session keeps no copy in which nothing
//! differs.

use std::fs::OpenOptions;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use acetate::inspect::apply::{ApplyEvent, ApplyOptions, Consent, apply, resume};
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::hunks::Pick;

use super::undo::{keeping, undoing, undone};
use super::{apply_served, only, open, path};
use crate::support::applied::{Book, all, planned};
use crate::support::world::World;

const TREE: &str = "b \"1\\n2\\n3\\n\"\nother \"other\"\nd/file \"file\"";

/// What `diff` lists.
fn listed(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    let options = DiffOptions { times: true, ..DiffOptions::default() };
    diff(&open(world), &options, &mut |_, difference| {
        found.push(format!("{:?} {}", difference.kind, difference.path.display()));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

/// A file of the base has one more name in the session, and a person appends to it.
fn linked() -> World {
    let mut world = World::new(TREE);
    world.link("b", "d/link").unwrap();
    world.write("other", 0, b"OTHER").unwrap();
    append(&world.change_base().join("b"));
    world
}

fn append(file: &Path) {
    OpenOptions::new().append(true).open(file).unwrap().write_all(b"person\n").unwrap();
}

#[track_caller]
fn assert_nothing_left(world: &mut World) {
    for reopened in [false, true] {
        assert_eq!(listed(world), [""; 0], "reopened: {reopened}");
        let plan = planned(&open(world), None, &all()).unwrap();
        let only_times = plan.changes.iter().all(|change| change.paths == 0);
        assert!(only_times && plan.drifted.is_empty(), "{plan:#?}");
        for name in ["b", "d/link"] {
            assert_eq!(world.cat(name), "1\n2\n3\nperson\n", "{name}, reopened: {reopened}");
        }
        assert_eq!(world.stat("b").fileid, world.stat("d/link").fileid);
        let files = "SELECT count(*) FROM fs_inode WHERE mode & 61440 = 32768";
        assert_eq!(world.sql_value::<i64>(files), 0);
        world.reopen();
    }
}

#[test]
fn one_file_of_both_names_is_no_difference_after_one_was_applied() {
    let chosen = ["d/link", "other"].map(|name| (path(name), Pick::Whole));
    let chosen = Some(Arc::new(chosen.into_iter().collect()));
    for options in [only(&["d/link", "other"]), ApplyOptions { chosen, ..all() }] {
        let mut world = linked();
        assert_eq!(apply_served(&world, &options).skipped, []);
        assert_nothing_left(&mut world);
    }
}

#[test]
fn one_file_of_both_names_is_no_difference_after_an_apply_that_was_finished_later() {
    for at in 0.. {
        let mut world = linked();
        let (opened, options) = (open(&world), only(&["d/link", "other"]));
        let plan = planned(&opened, None, &options).unwrap();
        let mut stop = |event: ApplyEvent| match event {
            ApplyEvent::Step { done, .. } if done == at => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let mut book = Book(&world);
        let consent = Consent::Shown(&plan);
        let report = apply(&opened, None, &options, consent, Some(&mut book), &mut stop).unwrap();
        if report.broken_off.is_none() {
            assert!(at > 3);
            break;
        }
        let mut go_on = |_: ApplyEvent| ControlFlow::Continue(());
        let report = resume(&opened, None, Some(&mut book), &mut go_on).unwrap().unwrap();
        assert_eq!((report.skipped, report.broken_off), (Vec::new(), None));
        drop(opened);
        assert_nothing_left(&mut world);
    }
}

/// The base's file gets all that the session has of it, under each name.
#[test]
fn a_mode_that_is_applied_with_a_further_name_is_no_difference_of_the_first_one() {
    let mut world = World::new(TREE);
    world.chmod("b", 0o600).unwrap();
    world.link("b", "d/link").unwrap();
    let base = world.change_base();
    assert_eq!(apply_served(&world, &only(&["d/link"])).skipped, []);
    assert_eq!(world.base_mode("b") & 0o777, 0o600);
    append(&base.join("b"));
    assert_nothing_left(&mut world);
}

/// A name that is not applied stays in the session, and nothing else of the file.
#[test]
fn of_three_names_the_one_that_is_left_is_a_link() {
    let mut world = linked();
    world.link("b", "more").unwrap();
    assert_eq!(apply_served(&world, &only(&["d/link"])).skipped, []);
    assert_eq!(listed(&world), ["Added /more", "Modified /other"]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    world.reopen();
    let theirs = "1\n2\n3\nperson\n";
    assert_eq!(["b", "d/link", "more"].map(|name| world.cat(name)), [theirs; 3]);
    assert_eq!(world.stat("b").fileid, world.stat("more").fileid);
    assert_eq!(listed(&world), [""; 0]);
}

/// Both sides write the same, which is no change: the apply only drops the session's copy.
#[test]
fn an_apply_that_changes_nothing_leaves_what_is_kept_of_the_last_one() {
    let mut world = World::new(TREE);
    world.write("other", 0, b"OTHER").unwrap();
    let base = world.change_base();
    assert_eq!(apply_served(&world, &keeping()).skipped, []);
    world.write("b", 0, b"one").unwrap();
    std::fs::write(base.join("b"), world.cat("b")).unwrap();
    let plan = planned(&open(&world), None, &keeping()).unwrap();
    assert_eq!((plan.changes.len(), plan.drifted.len()), (0, 0));
    let report = apply_served(&world, &keeping());
    assert_eq!((report.skipped, report.kept), (Vec::new(), None));
    assert_eq!(listed(&world), [""; 0]);
    undone(&open(&world), None, &undoing());
    assert_eq!(std::fs::read(base.join("other")).unwrap(), b"other");
    assert!(std::fs::read(base.join("b")).unwrap().starts_with(b"one"));
}
