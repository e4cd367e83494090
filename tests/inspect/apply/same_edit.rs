//! Edits that session and base made alike, such as after a `git merge` of the agent's branch in the
//! base.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use acetate::inspect::apply::{ApplyEvent, ApplyOptions, Consent, Report, apply, resume};
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::status::touched;

use super::{apply_served, copy, open};
use crate::support::applied::{Book, all, applied, planned};
use crate::support::skip::skip;
use crate::support::world::World;

const TREE: &str = r#"
    dir/text "one\ntwo\nthree\nfour\nfive\n"
    dir/mode "mode"
    dir/link -> text
    moved "one\ntwo\nthree\nfour\nfive\n"
"#;

const EDITED: &str = "ONE\ntwo\nthree\nfour\nfive\n";

/// Session and base changed the same: content, mode and target, and a file that both moved too.
fn changed_alike() -> World {
    let mut world = World::new(TREE);
    world.write("dir/text", 0, b"ONE").unwrap();
    world.chmod("dir/mode", 0o755).unwrap();
    world.remove("dir/link").unwrap();
    world.symlink("mode", "dir/link").unwrap();
    world.rename("moved", "went").unwrap();
    world.write("went", 0, b"ONE").unwrap();
    let base = world.change_base();
    fs::write(base.join("dir/text"), EDITED).unwrap();
    fs::set_permissions(base.join("dir/mode"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(base.join("dir/link")).unwrap();
    symlink("mode", base.join("dir/link")).unwrap();
    fs::remove_file(base.join("moved")).unwrap();
    fs::write(base.join("went"), EDITED).unwrap();
    world
}

fn differences(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    diff(&open(world), &DiffOptions::default(), &mut |_, difference| {
        found.push(format!("{:?} {}", difference.kind, difference.path.display()));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

/// The paths that a plan changes, times of directories apart.
fn changes(world: &World, options: &ApplyOptions) -> Vec<String> {
    let plan = planned(&open(world), None, options).unwrap();
    assert_eq!((plan.merged, plan.drifted), (vec![], vec![]));
    let changes = plan.changes.iter().filter(|change| change.paths > 0);
    changes.map(|change| change.path.display().to_string()).collect()
}

#[test]
fn what_both_sides_edited_alike_is_no_difference() {
    let world = changed_alike();
    assert_eq!(differences(&world), [""; 0]);
    assert_eq!(touched(&open(&world)).unwrap().drifted, 0);
    assert_eq!(changes(&world, &all()), [""; 0]);
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert_eq!(plan.attributes, Default::default());
    let dropped = plan.unchanged.iter();
    let mut dropped: Vec<_> =
        dropped.map(|d| (d.copy.path.display().to_string(), d.is_drifted)).collect();
    dropped.sort();
    let expected = ["/dir/link", "/dir/mode", "/dir/text", "/went"];
    assert_eq!(dropped, expected.map(|path| (path.to_owned(), false)));
    let time = || fs::metadata(world.base().join("dir/text")).unwrap().modified().unwrap();
    let before = time();
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(time(), before, "it is not written");
    // The session has no copies left.
    for name in ["dir/text", "went"] {
        fs::write(world.base().join(name), "later\n").unwrap();
        assert_eq!(world.cat(name), "later\n");
    }
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_original"), 0);
}

#[test]
fn a_base_that_has_the_edit_and_more_is_not_written() {
    let world = changed_alike();
    let text = world.base().join("dir/text");
    fs::write(&text, "ONE\ntwo\nthree\nfour\nFIVE\n").unwrap();
    assert_eq!(changes(&world, &all()), [""; 0]);
    let before = fs::metadata(&text).unwrap().modified().unwrap();
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(fs::metadata(&text).unwrap().modified().unwrap(), before);
    assert_eq!(world.cat("dir/text"), "ONE\ntwo\nthree\nfour\nFIVE\n");
}

/// The content is alike, and the session set a mode too.
#[test]
fn what_the_session_alone_changed_beside_is_applied() {
    let mut world = changed_alike();
    world.reopen();
    world.chmod("dir/text", 0o700).unwrap();
    world.change_base();
    assert_eq!(differences(&world), ["Modified /dir/text"]);
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert_eq!((plan.attributes.modes, plan.attributes.times), (1, 0));
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(world.base_mode("dir/text") & 0o777, 0o700);
    assert_eq!(fs::read_to_string(world.base().join("dir/text")).unwrap(), EDITED);
}

#[test]
fn an_owner_that_both_sides_set_alike_is_no_difference() {
    if !rustix::process::geteuid().is_root() {
        skip("only root gives files away");
        return;
    }
    let mut world = World::new(TREE);
    world.chown("dir/text", 1234, 4321).unwrap();
    let text = world.change_base().join("dir/text");
    chown(&text, Some(1234), Some(4321)).unwrap();
    assert_eq!(differences(&world), [""; 0]);
    assert_eq!(changes(&world, &all()), [""; 0]);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    assert_eq!(fs::metadata(&text).unwrap().uid(), 1234);
}

/// A copy may still have what the session began with.
#[test]
fn an_old_copy_gets_what_the_base_has_already() {
    let mut world = World::new(TREE);
    world.write("dir/text", 0, b"ONE").unwrap();
    let base = world.change_base();
    let to = copy(&world, "start");
    fs::write(base.join("dir/text"), EDITED).unwrap();
    assert_eq!(applied(&open(&world), Some(&to), &all()).unwrap().skipped, []);
    assert_eq!(fs::read_to_string(to.join("dir/text")).unwrap(), EDITED);
}

#[test]
fn an_option_that_overwrites_the_base_says_nothing_of_a_merge() {
    let world = changed_alike();
    let plan = planned(&open(&world), None, &ApplyOptions { force: true, ..all() }).unwrap();
    assert_eq!(plan.merged, []);
}

/// What the base's `dir/text` had before both sides edited it.
const START: &str = "one\ntwo\nthree\nfour\nfive\n";

/// Applies a plan that was made before `text` got its old content again.
fn applied_after_revert(world: &World, watch: &mut dyn FnMut(ApplyEvent)) -> Report {
    let opened = open(world);
    let plan = planned(&opened, None, &all()).unwrap();
    let mut watch = |event: ApplyEvent| {
        watch(event);
        ControlFlow::Continue(())
    };
    let consent = Consent::Shown(&plan);
    apply(&opened, None, &all(), consent, Some(&mut Book(world)), &mut watch).unwrap()
}

#[test]
fn an_edit_that_the_base_took_back_after_the_plan_was_shown_is_not_written() {
    let world = changed_alike();
    world.put("new", "new");
    let opened = open(&world);
    let plan = planned(&opened, None, &all()).unwrap();
    fs::write(world.base().join("dir/text"), START).unwrap();
    let mut watch = |_: ApplyEvent| ControlFlow::Continue(());
    let consent = Consent::Shown(&plan);
    let report =
        apply(&opened, None, &all(), consent, Some(&mut Book(&world)), &mut watch).unwrap();
    let skipped = report.skipped.iter().map(|s| (s.path.display().to_string(), s.why.clone()));
    let why = "it changed after the plan was shown".to_owned();
    assert_eq!(skipped.collect::<Vec<_>>(), [("/dir/text".to_owned(), why)]);
    assert_eq!(fs::read_to_string(world.base().join("dir/text")).unwrap(), START);
    assert_eq!((world.cat("dir/text"), world.cat("new")), (EDITED.into(), "new".into()));
    assert_eq!(differences(&world), ["Modified /dir/text"]);
}

#[test]
fn an_edit_that_the_base_takes_back_during_an_apply_stays_in_the_session() {
    let world = changed_alike();
    world.put("new", "new");
    let text = world.base().join("dir/text");
    let report = applied_after_revert(&world, &mut |event| {
        if let ApplyEvent::Step { done: 0, .. } = event {
            fs::write(&text, START).unwrap();
        }
    });
    assert_eq!(report.broken_off, None);
    assert_eq!(fs::read_to_string(&text).unwrap(), START);
    assert_eq!((world.cat("dir/text"), world.cat("new")), (EDITED.into(), "new".into()));
    // What the base still has is dropped.
    assert_eq!(differences(&world), ["Modified /dir/text"]);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_original"), 1);
}

#[test]
fn an_edit_that_the_base_takes_back_between_two_runs_stays_in_the_session() {
    let world = changed_alike();
    world.put("new", "new");
    let opened = open(&world);
    let plan = planned(&opened, None, &all()).unwrap();
    let mut stop = |event: ApplyEvent| match event {
        ApplyEvent::Step { done: 1, .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let mut book = Book(&world);
    let consent = Consent::Shown(&plan);
    let report = apply(&opened, None, &all(), consent, Some(&mut book), &mut stop).unwrap();
    assert!(report.broken_off.is_some());
    fs::write(world.base().join("dir/text"), START).unwrap();
    let mut go_on = |_: ApplyEvent| ControlFlow::Continue(());
    resume(&opened, None, Some(&mut book), &mut go_on).unwrap().unwrap();
    assert_eq!(world.cat("dir/text"), EDITED);
    assert_eq!(differences(&world), ["Modified /dir/text"]);
}

#[test]
fn a_mode_that_both_sides_gave_a_directory_is_no_difference() {
    let mut world = World::new(TREE);
    world.chmod("dir", 0o700).unwrap();
    let base = world.change_base();
    fs::set_permissions(base.join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(differences(&world), [""; 0]);
    assert_eq!(changes(&world, &all()), [""; 0]);
    world.put("new", "new");
    assert_eq!(changes(&world, &all()), ["/new"]);
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert_eq!(plan.attributes, Default::default());
    assert_eq!(apply_served(&world, &all()).skipped, []);
    // The session has no mode of its own left.
    fs::set_permissions(base.join("dir"), fs::Permissions::from_mode(0o750)).unwrap();
    world.reopen();
    assert_eq!(world.stat("dir").mode & 0o777, 0o750);
    // Of one that only the session changed, the mode is applied.
    world.chmod("dir", 0o711).unwrap();
    world.change_base();
    assert_eq!(differences(&world), ["Modified /dir"]);
}

#[test]
fn a_mode_that_the_base_took_back_after_the_plan_was_shown_is_not_written() {
    for (path, mode) in [("dir", 0o700), ("dir", 0o4755), ("dir/mode", 0o4755), ("dir/mode", 0o600)]
    {
        let mut world = World::new(TREE);
        world.chmod(path, mode).unwrap();
        world.put("new", "new");
        let at = world.change_base().join(path);
        let before = fs::metadata(&at).unwrap().permissions();
        fs::set_permissions(&at, fs::Permissions::from_mode(mode)).unwrap();
        let options = ApplyOptions { special: false, ..all() };
        let opened = open(&world);
        let plan = planned(&opened, None, &options).unwrap();
        fs::set_permissions(&at, before.clone()).unwrap();
        let mut watch = |_: ApplyEvent| ControlFlow::Continue(());
        let consent = Consent::Shown(&plan);
        let report =
            apply(&opened, None, &options, consent, Some(&mut Book(&world)), &mut watch).unwrap();
        assert_eq!(fs::metadata(&at).unwrap().permissions(), before);
        let skipped: Vec<_> = report.skipped.iter().map(|s| s.path.display().to_string()).collect();
        assert_eq!((skipped, report.left_out), (vec![format!("/{path}")], vec![]), "{mode:o}");
    }
}

#[test]
fn a_set_user_id_file_that_the_base_has_too_is_not_left_out() {
    for more in ["", "more"] {
        let mut world = World::new(TREE);
        world.chmod("dir/mode", 0o4755).unwrap();
        let file = world.change_base().join("dir/mode");
        fs::write(&file, format!("mode{more}")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(differences(&world), [""; 0]);
        let options = ApplyOptions { special: false, ..all() };
        let plan = planned(&open(&world), None, &options).unwrap();
        assert_eq!((plan.left_out, plan.leaves_special_out), (vec![], false), "{more}");
        assert_eq!(changes(&world, &options), [""; 0]);
        assert_eq!(apply_served(&world, &options).skipped, []);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("mode{more}"));
    }
}

/// `diff` shows the file: the base has another text than the session.
#[test]
fn a_dropped_edit_that_the_base_has_with_others_is_named() {
    let world = changed_alike();
    fs::write(world.base().join("dir/text"), "ONE\ntwo\nthree\nfour\nFIVE\n").unwrap();
    assert_eq!(differences(&world), ["Modified /dir/text"]);
    let plan = planned(&open(&world), None, &all()).unwrap();
    let named = plan.unchanged.iter().filter(|dropped| dropped.is_drifted);
    let named: Vec<_> = named.map(|dropped| dropped.copy.path.display().to_string()).collect();
    assert_eq!(named, ["/dir/text"]);
}
