//! Files that the session changed, and the base too.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use acetate::inspect::InspectError;
use acetate::inspect::apply::{ApplyOptions, DriftReason};
use proptest::prelude::*;

use super::{apply_served, open, path};
use crate::support::applied::{all, applied, planned};
use crate::support::client::size;
use crate::support::skip::skip;
use crate::support::world::World;

pub const TREE: &str = r#"
    dir/text "one\ntwo\nthree\nfour\nfive\n"
    dir/other "other\n"
    dir/binary "a"
"#;

/// Replaces the first line of the session's text.
pub fn change_first_line(world: &World) {
    world.write("dir/text", 0, b"ONE").unwrap();
}

pub fn base_text(world: &World) -> String {
    fs::read_to_string(world.base().join("dir/text")).unwrap()
}

pub fn drift(world: &World, options: &ApplyOptions) -> Vec<(String, DriftReason)> {
    let plan = planned(&open(world), None, options).unwrap();
    plan.drifted.iter().map(|d| (d.path.display().to_string(), d.reason)).collect()
}

pub fn merged_paths(world: &World, options: &ApplyOptions) -> Vec<(String, bool)> {
    let plan = planned(&open(world), None, options).unwrap();
    plan.merged.iter().map(|m| (m.path.display().to_string(), m.has_conflicts)).collect()
}

#[test]
fn lines_that_only_one_side_changed_are_merged() {
    let mut world = World::new(TREE);
    change_first_line(&world);
    world.write("dir/other", 0, b"mine!\n").unwrap();
    fs::write(world.change_base().join("dir/text"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    assert_eq!(drift(&world, &all()), []);
    assert_eq!(merged_paths(&world, &all()), [("/dir/text".to_owned(), false)]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(base_text(&world), "ONE\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(world.cat("dir/text"), "ONE\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(fs::read(world.base().join("dir/other")).unwrap(), b"mine!\n");
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_original"), 0);
}

/// A build that compares times makes again what depends on a text that neither side had. A text of
/// the session alone has the session's time.
#[test]
fn a_merged_text_has_the_time_of_the_apply() {
    let mut world = World::new(TREE);
    change_first_line(&world);
    world.write("dir/other", 0, b"mine!\n").unwrap();
    let base = world.change_base();
    fs::write(base.join("dir/text"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    let (of_session, since) = (world.now(), fs::metadata(base.join("dir/text")).unwrap().mtime());
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(base_text(&world), "ONE\ntwo\nthree\nfour\nFIVE\n");
    let time = |name: &str| fs::metadata(base.join(name)).unwrap().mtime();
    assert!((since..since + 60).contains(&time("dir/text")), "{}", time("dir/text"));
    assert_eq!(time("dir/other"), of_session);
}

/// git merges it, too: the person's lines go to where the agent moved the file.
#[test]
fn a_file_that_moved_gets_what_the_base_saved_at_its_old_name() {
    let mut world = World::new(TREE);
    world.rename("dir/text", "moved").unwrap();
    change_moved_line(&world);
    let base = world.change_base();
    let new = base.join("new");
    fs::write(&new, "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    fs::rename(&new, base.join("dir/text")).unwrap();
    let mut told = Vec::new();
    let opened = open(&world);
    acetate::inspect::diff::diff(&opened, &Default::default(), &mut |_, difference| {
        told.push(format!("{:?} {}", difference.kind, difference.path.display()));
        Ok(std::ops::ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(told, ["Renamed /moved"]);
    drop(opened);
    assert_eq!(drift(&world, &all()), []);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    let text = fs::read_to_string(world.base().join("moved")).unwrap();
    assert_eq!(text, "ONE\ntwo\nthree\nfour\nFIVE\n");
    assert!(!world.base().join("dir/text").exists());
}

fn change_moved_line(world: &World) {
    world.write("moved", 0, b"ONE").unwrap();
}

/// As editors save: a new file takes the place of the old one, on both sides.
#[test]
fn files_that_were_saved_by_renames_are_merged() {
    let mut world = World::new(TREE);
    world.put("saved", "ONE\ntwo\nthree\nfour\nfive\n");
    world.rename("saved", "dir/text").unwrap();
    let base = world.change_base();
    fs::write(base.join("saved"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    fs::rename(base.join("saved"), base.join("dir/text")).unwrap();
    assert_eq!(applied(&open(&world), None, &all()).unwrap().skipped, []);
    assert_eq!(base_text(&world), "ONE\ntwo\nthree\nfour\nFIVE\n");
}

#[test]
fn a_conflict_stops_the_apply_unless_an_option_says_what_to_do() {
    let conflict = |options: &ApplyOptions| {
        let mut world = World::new(TREE);
        change_first_line(&world);
        world.write("dir/other", 0, b"mine!\n").unwrap();
        fs::write(world.change_base().join("dir/text"), "1\ntwo\nthree\nfour\nfive\n").unwrap();
        assert_eq!(drift(&world, &all()), [("/dir/text".to_owned(), DriftReason::Conflict)]);
        let done = applied(&open(&world), None, options);
        let other = fs::read_to_string(world.base().join("dir/other")).unwrap();
        (done, base_text(&world), other)
    };
    let theirs = "1\ntwo\nthree\nfour\nfive\n";
    let (refused, text, other) = conflict(&all());
    assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
    assert_eq!((&*text, &*other), (theirs, "other\n"), "nothing is written");

    let (report, text, other) = conflict(&ApplyOptions { skip_drifted: true, ..all() });
    assert_eq!(
        report.unwrap().skipped.iter().map(|s| &s.path).collect::<Vec<_>>(),
        [&path("dir/text")]
    );
    assert_eq!((&*text, &*other), (theirs, "mine!\n"));

    let (report, text, _) = conflict(&ApplyOptions { conflict_markers: true, ..all() });
    assert_eq!(report.unwrap().skipped, []);
    let marked = "<<<<<<< base\n1\n=======\nONE\n>>>>>>> session\ntwo\nthree\nfour\nfive\n";
    assert_eq!(text, marked);

    let (report, text, _) = conflict(&ApplyOptions { take_session: vec![path("dir")], ..all() });
    assert_eq!(report.unwrap().skipped, []);
    assert_eq!(text, "ONE\ntwo\nthree\nfour\nfive\n");

    let (report, text, other) =
        conflict(&ApplyOptions { take_base: vec![path("dir/text")], ..all() });
    assert_eq!(report.unwrap().skipped.len(), 1);
    assert_eq!((&*text, &*other), (theirs, "mine!\n"));
}

#[test]
fn what_only_the_base_changed_stays() {
    let mut world = World::new(TREE);
    world.rename("dir/text", "moved").unwrap();
    world.chmod("moved", 0o600).unwrap();
    world.write("dir/other", 0, b"other\n").unwrap();
    let base = world.change_base();
    fs::write(base.join("dir/text"), "theirs\n").unwrap();
    fs::write(base.join("dir/other"), "theirs\n").unwrap();
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(fs::read(base.join("moved")).unwrap(), b"theirs\n");
    assert_eq!(world.base_mode("moved") & 0o777, 0o600);
    assert!(!base.join("dir/text").exists());
    assert_eq!(fs::read(base.join("dir/other")).unwrap(), b"theirs\n");
    assert_eq!((&*world.cat("moved"), &*world.cat("dir/other")), ("theirs\n", "theirs\n"));
}

#[test]
fn the_mode_of_the_base_stays_with_the_content_of_the_session() {
    let mut world = World::new(TREE);
    change_first_line(&world);
    let text = world.change_base().join("dir/text");
    fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(applied(&open(&world), None, &all()).unwrap().skipped, []);
    assert_eq!(base_text(&world), "ONE\ntwo\nthree\nfour\nfive\n");
    assert_eq!(world.base_mode("dir/text") & 0o777, 0o755);
}

/// A person's `chown`, `chgrp` and `touch` are no drift, and stay.
#[test]
fn the_owner_and_the_time_of_the_base_stay_with_the_content_of_the_session() {
    if !rustix::process::geteuid().is_root() {
        skip("only root gives files away");
        return;
    }
    let mut world = World::new(TREE);
    change_first_line(&world);
    world.chmod("dir/other", 0o600).unwrap();
    world.rename("dir/binary", "binary").unwrap();
    let base = world.change_base();
    let files = ["dir/text", "dir/other", "dir/binary"].map(|name| base.join(name));
    let touched = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    for file in &files {
        chown(file, Some(1234), Some(4321)).unwrap();
        fs::File::options().write(true).open(file).unwrap().set_modified(touched).unwrap();
    }
    let owner_differs = |world: &World| {
        let mut differs = Vec::new();
        acetate::inspect::diff::diff(&open(world), &Default::default(), &mut |_, difference| {
            differs.push(difference.differs.owner);
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
        differs
    };
    assert_eq!(owner_differs(&world), [false; 3]);
    let copy = super::copy(&world, "copy");
    for to in [Some(&copy), None] {
        let report = match to {
            Some(to) => applied(&open(&world), Some(to), &all()).unwrap(),
            None => apply_served(&world, &all()),
        };
        assert_eq!(report.skipped, []);
        let (base, mut owners) = (to.unwrap_or(&base), Vec::new());
        for name in ["dir/text", "dir/other", "binary"] {
            let meta = fs::metadata(base.join(name)).unwrap();
            owners.push((meta.uid(), meta.gid(), meta.mtime() == 1_000_000));
        }
        assert_eq!(owners, [(1234, 4321, false), (1234, 4321, true), (1234, 4321, true)]);
        let text = fs::read_to_string(base.join("dir/text")).unwrap();
        assert!(text.starts_with("ONE\n"), "{text}");
    }
    assert_eq!(world.base_mode("dir/other") & 0o777, 0o600);
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert!(plan.changes.is_empty() && plan.drifted.is_empty(), "{plan:?}");
}

/// Both sides changed it, and differently: only an option says whose it gets.
#[test]
fn an_owner_that_both_sides_set_is_drift() {
    if !rustix::process::geteuid().is_root() {
        skip("only root gives files away");
        return;
    }
    let mut world = World::new(TREE);
    world.chown("dir/other", 1, 2).unwrap();
    world.chown("dir/text", 1, 2).unwrap();
    let other = world.change_base().join("dir/other");
    chown(world.base().join("dir/text"), Some(1), Some(2)).unwrap();
    chown(&other, Some(1234), Some(2)).unwrap();
    assert_eq!(drift(&world, &all()), [("/dir/other".to_owned(), DriftReason::Attributes)]);
    let refused = applied(&open(&world), None, &all());
    assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
    let owner = || fs::metadata(&other).map(|meta| (meta.uid(), meta.gid())).unwrap();
    assert_eq!(owner(), (1234, 2));
    let options = ApplyOptions { take_session: vec![path("dir/other")], ..all() };
    assert_eq!(apply_served(&world, &options).skipped, []);
    assert_eq!(owner(), (1, 2));
}

/// A copy has the owner of the user who made it.
#[test]
fn an_owner_that_a_copy_has_is_no_drift() {
    if !rustix::process::geteuid().is_root() {
        skip("only root gives files away");
        return;
    }
    let world = World::new(TREE);
    world.chown("dir/other", 1, 2).unwrap();
    let to = super::copy(&world, "copy");
    let other = to.join("dir/other");
    for text in ["other\n", "person\n"] {
        fs::write(&other, text).unwrap();
        chown(&other, Some(1234), Some(4321)).unwrap();
        assert_eq!(applied(&open(&world), Some(&to), &all()).unwrap().skipped, []);
        let meta = fs::metadata(&other).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1, 2));
        assert_eq!(fs::read_to_string(&other).unwrap(), text);
    }
}

#[test]
fn a_mode_that_both_sides_set_is_drift_unless_it_is_the_same() {
    for (ours, theirs) in [(0o700, 0o600), (0o755, 0o711), (0o600, 0o600)] {
        let session = ApplyOptions { take_session: vec![path("dir/text")], ..all() };
        let base = ApplyOptions { take_base: vec![path("dir/text")], ..all() };
        let force = ApplyOptions { force: true, ..all() };
        for (options, taken) in [(session, ours), (base, theirs), (force, ours)] {
            let mut world = World::new(TREE);
            world.chmod("dir/text", ours).unwrap();
            let text = world.change_base().join("dir/text");
            fs::set_permissions(&text, fs::Permissions::from_mode(theirs)).unwrap();
            if ours == theirs {
                assert_eq!(drift(&world, &all()), []);
                assert_eq!(apply_served(&world, &all()).skipped, []);
            } else {
                let found = [("/dir/text".to_owned(), DriftReason::Attributes)];
                assert_eq!(drift(&world, &all()), found);
                let refused = applied(&open(&world), None, &all());
                assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
                assert_eq!(world.base_mode("dir/text") & 0o777, theirs);
                applied(&open(&world), None, &options).unwrap();
            }
            assert_eq!(world.base_mode("dir/text") & 0o777, taken, "{ours:o} {theirs:o}");
        }
    }
}

/// The modes conflict, though the contents do not.
#[test]
fn modes_of_both_sides_stop_the_merge_of_their_texts() {
    let mut world = World::new(TREE);
    change_first_line(&world);
    world.chmod("dir/text", 0o700).unwrap();
    let text = world.change_base().join("dir/text");
    fs::write(&text, "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    fs::set_permissions(&text, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(drift(&world, &all()), [("/dir/text".to_owned(), DriftReason::Attributes)]);
    fs::set_permissions(&text, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(base_text(&world), "ONE\ntwo\nthree\nfour\nFIVE\n");
}

#[test]
fn what_is_no_text_is_not_merged() {
    let mut world = World::new(TREE);
    world.write("dir/binary", 1, b"\0mine").unwrap();
    fs::write(world.change_base().join("dir/binary"), b"\0a").unwrap();
    assert_eq!(drift(&world, &all()), [("/dir/binary".to_owned(), DriftReason::NotText)]);
    let marks = ApplyOptions { conflict_markers: true, ..all() };
    assert_eq!(drift(&world, &marks), [("/dir/binary".to_owned(), DriftReason::NotText)]);
}

#[test]
fn both_sides_made_the_same_change() {
    let mut world = World::new(TREE);
    change_first_line(&world);
    let text = world.change_base().join("dir/text");
    fs::write(&text, "ONE\ntwo\nthree\nfour\nfive\n").unwrap();
    let mtime = fs::metadata(&text).unwrap().modified().unwrap();
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(fs::metadata(&text).unwrap().modified().unwrap(), mtime, "it is not written");
}

#[test]
fn a_base_that_changes_after_the_plan_was_shown_is_not_merged_unseen() {
    let mut world = World::new(TREE);
    change_first_line(&world);
    let base = world.change_base();
    let opened = open(&world);
    let plan = planned(&opened, None, &all()).unwrap();
    fs::write(base.join("dir/text"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    let consent = acetate::inspect::apply::Consent::Shown(&plan);
    let watch = &mut |_| std::ops::ControlFlow::Continue(());
    let done = acetate::inspect::apply::apply(&opened, None, &all(), consent, None, watch);
    assert!(matches!(done, Err(InspectError::Refused { .. })), "{done:?}");
    assert_eq!(base_text(&world), "one\ntwo\nthree\nfour\nFIVE\n");
}

/// What git makes of it; `None` where lines conflict.
fn merged_by_git(dir: &Path, start: &str, ours: &str, theirs: &str) -> Option<String> {
    for (name, text) in [("start", start), ("ours", ours), ("theirs", theirs)] {
        fs::write(dir.join(name), text).unwrap();
    }
    let args = ["merge-file", "-p", "ours", "start", "theirs"];
    let output = Command::new("git").args(args).current_dir(dir).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// An edit: the line, what replaces it, and how many lines it replaces.
fn edited(lines: &[String], edits: &[(usize, String, usize)]) -> String {
    let mut lines = lines.to_vec();
    for (at, text, count) in edits {
        let at = at % (lines.len() + 1);
        let end = (at + count).min(lines.len());
        lines.splice(at..end, text.split_terminator('|').map(str::to_owned));
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn edits() -> impl Strategy<Value = Vec<(usize, String, usize)>> {
    proptest::collection::vec((0..30_usize, "([xyz]\\|){0,2}", 0..3_usize), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The base holds what git makes of both sides, or still what the person wrote.
    #[test]
    fn nothing_of_the_person_is_lost(count in 0..24_usize, agent in edits(), person in edits()) {
        let lines: Vec<String> = (0..count).map(|line| format!("line {line}")).collect();
        let start = edited(&lines, &[]);
        let (session, theirs) = (edited(&lines, &agent), edited(&lines, &person));
        let mut world = World::new("dir/");
        fs::write(world.change_base().join("dir/text"), &start).unwrap();
        world.setattr("dir/text", size(0)).unwrap();
        world.write("dir/text", 0, session.as_bytes()).unwrap();
        fs::write(world.base().join("dir/text"), &theirs).unwrap();
        let options = ApplyOptions { skip_drifted: true, ..all() };
        apply_served(&world, &options);
        let got = base_text(&world);
        let git = merged_by_git(world.scratch(), &start, &theirs, &session);
        prop_assert!(got == theirs || Some(&got) == git.as_ref(), "{got:?}, git: {git:?}");
        if got == theirs {
            // The session keeps its side.
            prop_assert!(git.as_ref() == Some(&theirs) || world.cat("dir/text") == session);
        }
    }
}

#[test]
fn text_of_too_many_lines_is_not_merged() {
    let lines = "\n".repeat(400_000);
    let mut world = World::new(&format!("text {lines:?}"));
    world.put("text", &format!("agent{lines}"));
    let base = world.change_base();
    fs::write(base.join("text"), format!("{lines}person")).unwrap();
    assert_eq!(merged_paths(&world, &all()), [("/text".to_owned(), false)]);
    fs::write(base.join("text"), format!("{lines}person\n")).unwrap();
    assert_eq!(drift(&world, &all()), [("/text".to_owned(), DriftReason::NotText)]);
}
