//! An apply or undo by an ordinary user that is killed while it has changed the mode of a file or
//! directory: the next run restores it.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use acetate::base::BasePath;
use acetate::inspect::apply::{ApplyEvent, ApplyOptions, Consent, apply, clear, resume, undo};
use acetate::writeback::{Cloner, Hooks, Target};

use super::undo::{go_on, keeping, undoing};
use super::undo_as_user::{as_user, changed, give, is_root};
use super::undo_killed::stop_at;
use super::{copy, only, open};
use crate::support::applied::{assert_same, on_host, planned};
use crate::support::world::World;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Leaves `path` in `top` as a run does that is killed while it reads the file.
fn widen(staging: &Path, top: &Path, path: &str) {
    let file = top.join(path);
    let note = format!("{} {}\0{}\0{path}", fs::metadata(&file).unwrap().ino(), 0, top.display());
    fs::write(staging.join("mode"), note).unwrap();
    set_mode(&file, 0o400);
}

/// A file with another name, both closed to their owner; the session removes one.
fn with_closed_file() -> World {
    let mut world = World::new("one \"linked\"\ntwo = one\nnew \"n\"\n");
    set_mode(&world.change_base().join("one"), 0);
    give(&world.base());
    world.reopen();
    world.tick(60);
    world.remove("one").unwrap();
    world.close();
    give(world.scratch());
    world
}

#[test]
fn the_mode_of_a_file_is_noted_before_it_changes() {
    if !is_root() {
        return;
    }
    let world = with_closed_file();
    let (base, staging) = (world.base(), world.base().join(".acetate-apply"));
    let copied = |to: &str| {
        let path = |path: &str| BasePath::from_bytes(path.as_bytes()).unwrap();
        as_user(|| {
            let target = Target::open(&base).unwrap();
            let staging = target.staging(true).unwrap().unwrap();
            let mut cloner = Cloner::new(&staging);
            cloner.copy((&target, &path("one")), (&target, &path(to)), Hooks::NONE)
        })
    };
    fs::create_dir(&staging).unwrap();
    set_mode(&staging, 0o700);
    // Nothing can be noted.
    fs::create_dir(staging.join("mode")).unwrap();
    give(&staging);
    let changed = |meta: fs::Metadata| (meta.ctime(), meta.ctime_nsec());
    let before = changed(fs::metadata(base.join("one")).unwrap());
    copied("copy").unwrap_err();
    assert_eq!(changed(fs::metadata(base.join("one")).unwrap()), before);
    fs::remove_dir(staging.join("mode")).unwrap();
    copied("other").unwrap();
    assert_eq!((mode(&base.join("one")), mode(&base.join("other"))), (0, 0));
    assert_eq!(fs::read(base.join("other")).unwrap(), b"linked");
    assert!(!staging.join("mode").exists());
}

#[test]
fn a_file_that_a_killed_run_was_reading_gets_its_mode() {
    if !is_root() {
        return;
    }
    for at in 0.. {
        let world = with_closed_file();
        let to = world.base();
        let before = on_host(&to);
        let staging = to.join(".acetate-apply");
        let is_broken_off = as_user(|| {
            let opened = open(&world);
            let plan = planned(&opened, None, &keeping()).unwrap();
            let consent = Consent::Shown(&plan);
            let report = apply(&opened, None, &keeping(), consent, None, &mut stop_at(at));
            report.unwrap().broken_off.is_some()
        });
        let name = if to.join("one").exists() { "one" } else { "two" };
        if is_broken_off {
            widen(&staging, &to, name);
            as_user(|| resume(&open(&world), None, None, &mut go_on).unwrap().unwrap());
        }
        assert_eq!(mode(&to.join("two")), 0, "after {at} events");
        // Before an undo writes its journal.
        as_user(|| drop(Target::open(&to).unwrap().staging(true).unwrap()));
        let undo_dir = world.scratch().join("session.db-undo");
        let mut rounds = fs::read_dir(&undo_dir).unwrap().map(|entry| entry.unwrap().path());
        let round: PathBuf = rounds.find(|path| path.is_dir()).unwrap();
        let kept = fs::read_dir(round).unwrap().next().unwrap().unwrap().path();
        widen(&staging, &undo_dir, kept.strip_prefix(&undo_dir).unwrap().to_str().unwrap());
        give(&staging);
        as_user(|| {
            clear(&open(&world), None).unwrap();
            undo(&open(&world), None, &undoing(), None, None, &mut go_on).unwrap();
        });
        assert_same(&on_host(&to), &before);
        if !is_broken_off {
            break;
        }
    }
}

#[test]
fn a_mode_that_was_set_since_is_left() {
    if !is_root() {
        return;
    }
    let world = with_closed_file();
    let to = copy(&world, "copy");
    give(&to);
    let staging = to.join(".acetate-apply");
    fs::create_dir(&staging).unwrap();
    set_mode(&staging, 0o700);
    widen(&staging, &to, "two");
    give(&staging);
    set_mode(&to.join("two"), 0o640);
    as_user(|| clear(&open(&world), Some(&to)).unwrap());
    assert_eq!(mode(&to.join("two")), 0o640);
    assert!(!staging.exists());
}

/// Applies and then begins an undo, which is killed while it has opened directories.
fn with_opened_dirs(world: &World, to: &Path) {
    let kill = &mut |event| match event {
        ApplyEvent::Making { .. } => panic!("killed"),
        _ => ControlFlow::Continue(()),
    };
    as_user(|| {
        let opened = open(world);
        let plan = planned(&opened, Some(to), &keeping()).unwrap();
        apply(&opened, Some(to), &keeping(), Consent::Shown(&plan), None, &mut go_on).unwrap();
        assert_eq!(mode(&to.join("new/closed")), 0);
        let undone = || undo(&opened, Some(to), &undoing(), None, None, kill).map(drop);
        catch_unwind(AssertUnwindSafe(undone)).unwrap_err();
    });
    assert_eq!(mode(&to.join("new/closed")), 0o700);
}

#[test]
fn directories_that_a_killed_undo_opened_are_closed_by_an_apply_that_keeps_nothing() {
    if !is_root() {
        return;
    }
    let world = changed();
    let to = copy(&world, "copy");
    give(world.scratch());
    with_opened_dirs(&world, &to);
    as_user(|| {
        let opened = open(&world);
        clear(&opened, Some(&to)).unwrap();
        let options = ApplyOptions { keep: None, force: true, ..only(&["dir/x"]) };
        let plan = planned(&opened, Some(&to), &options).unwrap();
        let consent = Consent::Shown(&plan);
        apply(&opened, Some(&to), &options, consent, None, &mut go_on).unwrap();
    });
    assert_eq!([mode(&to.join("new/closed")), mode(&to.join("dir"))], [0, 0o500]);
}

#[test]
fn directories_that_a_killed_undo_opened_are_closed_by_an_apply_to_another_directory() {
    if !is_root() {
        return;
    }
    let world = changed();
    let (to, other) = (copy(&world, "copy"), copy(&world, "other"));
    give(world.scratch());
    with_opened_dirs(&world, &to);
    as_user(|| {
        let opened = open(&world);
        let plan = planned(&opened, Some(&other), &keeping()).unwrap();
        let consent = Consent::Shown(&plan);
        apply(&opened, Some(&other), &keeping(), consent, None, &mut go_on).unwrap();
    });
    assert_eq!([mode(&to.join("new/closed")), mode(&to.join("dir"))], [0, 0o500]);
}
