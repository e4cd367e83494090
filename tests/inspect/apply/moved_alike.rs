//! Directories and files that session and base moved to the same place.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::status::touched;

use super::{apply_served, open};
use crate::support::applied::{all, applied, copy, planned};
use crate::support::world::World;

const TEXT: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

fn over(tree: &str) -> World {
    World::new(&tree.replace("TEXT", &TEXT.replace('\n', "\\n")))
}

/// `d` with files, which the session moves to `d2`.
fn moved() -> World {
    let world = over(
        "d/f1 \"TEXT\"\nd/f2 \"TEXT\"\nd/f3 \"TEXT\"\n\
         d/sub/deep \"TEXT\"\nd/sub/two \"TEXT\"\nx \"x\"",
    );
    world.rename("d", "d2").unwrap();
    world
}

/// How a person gets the same move into the base.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Renamed,
    /// Other numbers, as `git merge` makes them.
    Copied,
}

const BOTH: [How; 2] = [How::Renamed, How::Copied];

fn move_in_base(world: &mut World, how: How, from: &str, to: &str) {
    let base = world.change_base();
    let (from, to) = (base.join(from), base.join(to));
    match how {
        How::Renamed => fs::rename(&from, &to).unwrap(),
        How::Copied => {
            copy(&from, &to);
            match from.is_dir() {
                true => fs::remove_dir_all(&from).unwrap(),
                false => fs::remove_file(&from).unwrap(),
            }
        }
    }
    world.reopen();
}

fn edit(path: &Path, line: &str) {
    let text = fs::read_to_string(path).unwrap();
    fs::write(path, text.replace(&format!("{line}\n"), &format!("{line} person\n"))).unwrap();
}

/// As `sed -i` saves.
fn edit_by_rename(path: &Path, line: &str) {
    let saved = path.with_extension("new");
    fs::copy(path, &saved).unwrap();
    edit(&saved, line);
    fs::rename(saved, path).unwrap();
}

fn with(lines: &[(&str, &str)]) -> String {
    lines.iter().fold(TEXT.to_owned(), |text, (line, who)| {
        text.replace(&format!("{line}\n"), &format!("{line} {who}\n"))
    })
}

/// The differences, those that drifted with a `!`.
fn differences(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    diff(&open(world), &DiffOptions::default(), &mut |_, difference| {
        let mark = if difference.change.has_drifted() { "!" } else { "" };
        let (kind, path) = (difference.kind, difference.path.display());
        found.push(format!("{kind:?}{mark} {path}"));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

#[track_caller]
fn assert_nothing_to_apply(world: &World, how: How) {
    assert_eq!(differences(world), [""; 0], "{how:?}");
    let plan = planned(&open(world), None, &all()).unwrap();
    let paths: u64 = plan.changes.iter().map(|change| change.paths).sum();
    assert_eq!((paths, plan.drifted), (0, vec![]), "{how:?}");
    assert_eq!(touched(&open(world)).unwrap(), Default::default(), "{how:?}");
}

#[test]
fn a_directory_that_both_sides_moved_shows_the_base_s_content() {
    for how in BOTH {
        let mut world = moved();
        move_in_base(&mut world, how, "d", "d2");
        edit(&world.base().join("d2/f1"), "1");
        fs::write(world.base().join("d2/new"), "new").unwrap();
        assert_nothing_to_apply(&world, how);
        assert_eq!(world.cat("d2/f1"), with(&[("1", "person")]), "{how:?}");
        assert_eq!(world.cat("d2/new"), "new");
        assert_eq!(world.cat("d2/sub/deep"), TEXT);
        // A change of the session is applied at the new place.
        world.write("d2/sub/deep", 0, b"0").unwrap();
        assert_eq!(differences(&world), ["Modified /d2/sub/deep"]);
        assert_eq!(apply_served(&world, &all()).skipped, []);
        assert!(fs::read_to_string(world.base().join("d2/sub/deep")).unwrap().starts_with('0'));
        assert_nothing_to_apply(&world, how);
        // The session has no moves left: the base moves on alone.
        assert_eq!(world.sql_list("SELECT delta_ino || '' FROM acetate_redirect"), [""; 0]);
        move_in_base(&mut world, How::Renamed, "d2", "d3");
        assert_eq!(world.cat("d3/f2"), TEXT);
    }
}

#[test]
fn edits_below_a_directory_that_both_sides_moved_are_merged() {
    for how in BOTH {
        let mut world = moved();
        world.write("d2/f1", 8, b"five\n6\n7\n8\n9\n").unwrap();
        world.write("d2/sub/deep", 0, b"0").unwrap();
        world.remove("d2/f3").unwrap();
        world.remove("d2/sub/two").unwrap();
        world.keep_removed();
        move_in_base(&mut world, how, "d", "d2");
        edit(&world.base().join("d2/f1"), "1");
        let wanted = ["Modified! /d2/f1", "Deleted /d2/f3", "Modified /d2/sub/deep"];
        let mut found = differences(&world);
        found.retain(|line| !line.ends_with("two"));
        assert_eq!(found, wanted, "{how:?}");
        let plan = planned(&open(&world), None, &all()).unwrap();
        assert_eq!((plan.drifted, plan.merged.len()), (vec![], 1), "{how:?}");
        assert_eq!(apply_served(&world, &all()).skipped, [], "{how:?}");
        let text = fs::read_to_string(world.base().join("d2/f1")).unwrap();
        assert_eq!(text, with(&[("1", "person")]).replace("5\n", "five\n"));
        assert!(!world.base().join("d2/f3").exists());
        assert!(!world.base().join("d2/sub/two").exists());
        assert_eq!(world.cat("d2/f1"), text);
        assert_nothing_to_apply(&world, how);
        assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_original"), 0);
    }
}

#[test]
fn what_the_session_moved_out_of_it_is_moved() {
    for how in BOTH {
        let mut world = over("d/f1 \"TEXT\"\nd/f2 \"TEXT\"\nd/sub/deep \"TEXT\"");
        world.rename("d/f1", "out").unwrap();
        world.rename("d/sub", "subdir").unwrap();
        world.rename("d", "d2").unwrap();
        move_in_base(&mut world, how, "d", "d2");
        assert_eq!(differences(&world), ["Renamed /out", "Renamed /subdir"], "{how:?}");
        assert_eq!(world.cat("subdir/deep"), TEXT);
        assert_eq!(apply_served(&world, &all()).skipped, []);
        assert!(!world.base().join("d2/f1").exists() && !world.base().join("d2/sub").exists());
        assert_eq!(fs::read_to_string(world.base().join("subdir/deep")).unwrap(), TEXT);
        assert_eq!(fs::read_to_string(world.base().join("out")).unwrap(), TEXT);
        assert_nothing_to_apply(&world, how);
    }
}

#[test]
fn a_new_directory_at_the_old_path_stays_hidden_and_is_told() {
    let mut world = moved();
    move_in_base(&mut world, How::Renamed, "d", "d2");
    fs::create_dir(world.base().join("d")).unwrap();
    fs::write(world.base().join("d/f1"), "another").unwrap();
    world.reopen();
    assert_eq!(world.cat("d2/f1"), TEXT);
    assert_eq!(differences(&world), ["Deleted! /d"]);
}

/// The base's directory at the new path was never the session's.
#[test]
fn a_directory_that_the_session_replaced_does_not_come_back() {
    let mut world = over("d/f1 \"TEXT\"\nd2/old \"TEXT\"");
    world.rm_rf("d2");
    world.rename("d", "d2").unwrap();
    world.keep_removed();
    fs::remove_dir_all(world.change_base().join("d")).unwrap();
    world.reopen();
    assert!(!world.exists("d2/old"));
}

#[test]
fn a_directory_moved_to_different_places_moves_on_to_the_session_s() {
    let mut world = moved();
    move_in_base(&mut world, How::Renamed, "d", "d3");
    // The session's directory has lost its content, which shows where the base has it now.
    assert_eq!(world.cat("d3/f1"), TEXT);
    assert!(!world.exists("d2/f1"));
}

#[test]
fn a_file_that_both_sides_moved_is_merged_though_the_base_saved_it_by_rename() {
    for is_edited in [false, true] {
        let mut world = over("d/f1 \"TEXT\"\nd/f2 \"TEXT\"");
        world.rename("d/f1", "d/a2").unwrap();
        if is_edited {
            world.write("d/a2", 0, b"0").unwrap();
        }
        move_in_base(&mut world, How::Renamed, "d/f1", "d/a2");
        edit_by_rename(&world.base().join("d/a2"), "8");
        let wanted: &[&str] = if is_edited { &["Modified! /d/a2"] } else { &[] };
        assert_eq!(differences(&world), wanted);
        assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
        assert_eq!(apply_served(&world, &all()).skipped, []);
        let mut text = with(&[("8", "person")]);
        if is_edited {
            text = text.replacen('1', "0", 1);
        }
        assert_eq!(fs::read_to_string(world.base().join("d/a2")).unwrap(), text);
        assert_eq!(world.cat("d/a2"), text);
        assert_eq!(differences(&world), [""; 0]);
        assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_original"), 0);
    }
}

#[test]
fn a_copy_of_the_base_from_before_the_move_gets_the_move() {
    for how in BOTH {
        let mut world = moved();
        let before = super::copy(&world, "before");
        world.write("d2/f2", 0, b"0").unwrap();
        world.remove("d2/f3").unwrap();
        world.remove("d2/sub/two").unwrap();
        world.keep_removed();
        move_in_base(&mut world, how, "d", "d2");
        let report = applied(&open(&world), Some(&before), &all()).unwrap();
        assert_eq!(report.skipped, [], "{how:?}");
        assert!(!before.join("d").exists(), "{how:?}");
        assert_eq!(fs::read_to_string(before.join("d2/f1")).unwrap(), TEXT, "{how:?}");
        assert!(fs::read_to_string(before.join("d2/f2")).unwrap().starts_with('0'));
        assert!(!before.join("d2/f3").exists() && !before.join("d2/sub/two").exists(), "{how:?}");
        assert_eq!(fs::read_to_string(before.join("d2/sub/deep")).unwrap(), TEXT, "{how:?}");
    }
}
