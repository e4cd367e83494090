//! An undo by an ordinary user, whose own modes keep that user out of directories and files.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use acetate::inspect::apply::{
    ApplyEvent, Consent, Report, UndoOptions, apply, plan_undo, resume, undo,
};
use acetate::inspect::opened::OpenSession;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::process::{Gid, Uid, geteuid};

use super::undo::{go_on, keeping, undoing};
use super::undo_killed::stop_at;
use super::{copy, open};
use crate::support::applied::{self, Exact, assert_same, on_host, planned};
use crate::support::skip::skip;
use crate::support::world::World;

/// An ordinary user.
pub const USER: u32 = 65_534;

const TREE: &str = r#"
    top/f/deep "deep"
    top/plain "plain"
    top/ro/ 555
    top/ro/shared "shared"
    shared = top/ro/shared
    replaced "replaced"
    one "linked"
    two = one
    dir/x "x"
    dir/y "y"
"#;

/// With directories and files that their owner may not read.
pub fn changed() -> World {
    let mut world = World::new(TREE);
    give(&world.change_base());
    world.reopen();
    world.tick(60);
    world.rm_rf("top");
    world.remove("one").unwrap();
    world.remove("replaced").unwrap();
    world.put("replaced", "new");
    world.chmod("replaced", 0).unwrap();
    world.mkdir("new").unwrap();
    for dir in ["new/closed", "new/listed"] {
        world.mkdir(dir).unwrap();
        world.put(format!("{dir}/file"), "new");
        world.mkdir(format!("{dir}/sub")).unwrap();
        world.put(format!("{dir}/sub/file"), "new");
        world.chmod(format!("{dir}/sub"), 0o500).unwrap();
    }
    world.put("new/zero", "new");
    world.chmod("new/zero", 0).unwrap();
    world.link("new/zero", "new/closed/zero").unwrap();
    world.chmod("new/closed", 0).unwrap();
    world.chmod("new/listed", 0o600).unwrap();
    world.write("dir/x", 0, b"X").unwrap();
    world.remove("dir/y").unwrap();
    world.chmod("dir", 0o500).unwrap();
    world.close();
    world
}

/// Gives the user a tree.
pub fn give(top: &Path) {
    let mut open = vec![top.to_owned()];
    while let Some(path) = open.pop() {
        let meta = path.symlink_metadata().unwrap();
        // A change of the base's ctimes would be drift.
        if meta.uid() != USER {
            lchown(&path, Some(USER), Some(USER)).unwrap();
        }
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
}

/// To Linux, a thread has a user.
pub fn as_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let in_thread = || {
        let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        work()
    };
    std::thread::scope(|scope| match scope.spawn(in_thread).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// The paths in a directory, and their modes.
fn modes(tree: &Exact) -> Vec<(Vec<u8>, u32)> {
    let ours = |path: &&Vec<u8>| !path.starts_with(b".acetate-apply");
    let paths = tree.keys().filter(ours);
    paths.map(|path| (path.clone(), tree[path].mode)).collect()
}

/// Undoes, and where that is broken off, goes on.
fn undo_once(opened: &OpenSession, to: &Path, at: usize) -> bool {
    let finish = |report: Report| {
        let is_broken_off = report.broken_off.is_some();
        let report = match is_broken_off {
            true => resume(opened, Some(to), None, &mut go_on).unwrap().unwrap(),
            false => report,
        };
        assert_eq!(report.skipped, [], "after {at} events");
        is_broken_off
    };
    finish(undo(opened, Some(to), &undoing(), None, None, &mut stop_at(at)).unwrap())
}

fn check(world: &World, to: &Path) {
    give(world.scratch());
    give(to);
    let before = on_host(to);
    as_user(|| {
        let opened = open(world);
        let plan = planned(&opened, Some(to), &keeping()).unwrap();
        let report =
            apply(&opened, Some(to), &keeping(), Consent::Shown(&plan), None, &mut go_on).unwrap();
        assert_eq!(report.skipped, []);
    });
    let after = on_host(to);
    assert_eq!((after[&b"new/closed"[..]].mode, after[&b"dir"[..]].mode), (0, 0o500));
    as_user(|| {
        let plan = plan_undo(&open(world), Some(to), &undoing()).unwrap().unwrap();
        assert_eq!(plan.drifted, []);
    });
    assert_same(&on_host(to), &after);
    for at in 0.. {
        let mut is_broken_off = false;
        for wanted in [&before, &after] {
            is_broken_off |= as_user(|| undo_once(&open(world), to, at));
            assert_same(&on_host(to), wanted);
        }
        if !is_broken_off {
            assert!(at > 20, "{at}");
            break;
        }
    }
    // Before the first step.
    as_user(|| {
        let stop = &mut |event| match event {
            ApplyEvent::Making { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let report = undo(&open(world), Some(to), &undoing(), None, None, stop).unwrap();
        assert_eq!(report.broken_off, Some((0, 0)));
    });
    assert_same(&on_host(to), &after);
}

pub fn is_root() -> bool {
    if !geteuid().is_root() {
        skip("only root makes a thread of another user");
    }
    geteuid().is_root()
}

#[test]
fn what_the_owner_may_not_read_comes_back() {
    if !is_root() {
        return;
    }
    let world = changed();
    check(&world, &copy(&world, "copy"));
}

#[test]
fn what_the_owner_may_not_read_comes_back_from_another_filesystem() {
    if !is_root() {
        return;
    }
    let world = changed();
    let other = tempfile::tempdir_in("/dev/shm").ok().filter(|other| {
        let dev = |path: &Path| fs::metadata(path).unwrap().dev();
        dev(other.path()) != dev(world.scratch())
    });
    let Some(other) = other else {
        skip("/dev/shm is no other filesystem");
        return;
    };
    give(other.path());
    let to = other.path().join("copy");
    applied::copy(&world.base(), &to);
    check(&world, &to);
}

#[test]
fn an_apply_that_is_broken_off_leaves_modes_and_names_as_planned() {
    if !is_root() {
        return;
    }
    let world = changed();
    let mut wanted = None;
    for at in (0..).step_by(3) {
        let to = copy(&world, &format!("copy-{at}"));
        give(world.scratch());
        let before = on_host(&to);
        let is_broken_off = as_user(|| {
            let opened = open(&world);
            let plan = planned(&opened, Some(&to), &keeping()).unwrap();
            let consent = Consent::Shown(&plan);
            let report = apply(&opened, Some(&to), &keeping(), consent, None, &mut stop_at(at));
            let is_broken_off = report.unwrap().broken_off.is_some();
            if is_broken_off {
                let report = resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
                assert_eq!(report.skipped, [], "after {at} events");
            }
            is_broken_off
        });
        let after = modes(&on_host(&to));
        assert_eq!(&after, wanted.get_or_insert(after.clone()), "after {at} events");
        as_user(|| undo_once(&open(&world), &to, usize::MAX));
        assert_same(&on_host(&to), &before);
        if !is_broken_off {
            break;
        }
    }
}

#[test]
fn a_directory_that_cannot_be_read_and_is_to_be_removed_is_named_with_a_next_step() {
    if !is_root() {
        return;
    }
    let mut world = World::new("dir/closed/x \"x\"\n");
    world.rm_rf("dir");
    world.close();
    let closed = world.change_base().join("dir/closed");
    give(world.scratch());
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let error = as_user(|| planned(&open(&world), None, &keeping()).unwrap_err());
    assert!(error.to_string().contains("dir/closed: the host denies access"), "{error}");
    assert!(error.hint().unwrap().contains("permissions"), "{:?}", error.hint());
}

fn with_attribute(tree: &str, mode: u32) -> Option<World> {
    let mut world = World::new(tree);
    let one = world.change_base().join("one");
    if setxattr(&one, "user.k", b"value", XattrFlags::empty()).is_err() {
        skip("cannot set extended attributes here");
        return None;
    }
    fs::set_permissions(&one, fs::Permissions::from_mode(mode)).unwrap();
    give(&world.base());
    world.reopen();
    world.tick(60);
    Some(world)
}

#[test]
fn extended_attributes_that_the_owner_may_not_read_come_back() {
    if !is_root() {
        return;
    }
    for mode in [0, 0o200] {
        let Some(mut world) = with_attribute("one \"linked\"\ntwo = one\n", mode) else { return };
        world.remove("one").unwrap();
        world.close();
        give(world.scratch());
        let before = on_host(&world.base());
        as_user(|| {
            let opened = open(&world);
            let plan = planned(&opened, None, &keeping()).unwrap();
            let consent = Consent::Shown(&plan);
            let report = apply(&opened, None, &keeping(), consent, None, &mut go_on).unwrap();
            assert_eq!((report.skipped, report.losses), (vec![], vec![]));
        });
        let kept = fs::read_dir(world.scratch().join("session.db-undo")).unwrap();
        let round = kept.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
        let copy = fs::read_dir(round).unwrap().next().unwrap().unwrap().path();
        let mut value = [0; 5];
        assert_eq!(getxattr(&copy, "user.k", &mut value[..]).unwrap(), 5);
        assert_eq!(&value, b"value");
        as_user(|| {
            let report = undo(&open(&world), None, &undoing(), None, None, &mut go_on).unwrap();
            assert_eq!(report.skipped, []);
        });
        assert_same(&on_host(&world.base()), &before);
    }
}

#[test]
fn a_file_with_extended_attributes_that_its_owner_may_not_read_is_left_out_by_name() {
    if !is_root() {
        return;
    }
    let Some(mut world) = with_attribute("one \"alone\"\n", 0) else { return };
    world.remove("one").unwrap();
    world.put("one", "new");
    world.put("other", "new");
    world.close();
    give(world.scratch());
    let report = as_user(|| {
        let opened = open(&world);
        let plan = planned(&opened, None, &keeping()).unwrap();
        apply(&opened, None, &keeping(), Consent::Shown(&plan), None, &mut go_on).unwrap()
    });
    let left = report.skipped.iter().map(|s| format!("{}: {}", s.path.display(), s.why));
    let why = "/one: the extended attribute user.k of the base's file cannot be read";
    assert_eq!(left.collect::<Vec<_>>(), [why]);
    assert_eq!(fs::read(world.base().join("one")).unwrap(), b"alone");
    assert!(world.base().join("other").exists());
}

#[test]
fn an_undo_in_a_directory_that_is_closed_to_its_owner_is_refused_with_a_next_step() {
    if !is_root() {
        return;
    }
    let mut world = World::new("one \"old\"\n");
    give(&world.change_base());
    world.reopen();
    world.tick(60);
    world.write("one", 0, b"NEW").unwrap();
    world.chmod("", 0o600).unwrap();
    world.close();
    give(world.scratch());
    let base = world.base();
    as_user(|| {
        let opened = open(&world);
        let plan = planned(&opened, None, &keeping()).unwrap();
        apply(&opened, None, &keeping(), Consent::Shown(&plan), None, &mut go_on).unwrap();
    });
    assert_eq!(fs::metadata(&base).unwrap().mode() & 0o7777, 0o600);
    as_user(|| {
        let errors = [
            plan_undo(&open(&world), None, &undoing()).map(drop).unwrap_err(),
            undo(&open(&world), None, &undoing(), None, None, &mut go_on).map(drop).unwrap_err(),
        ];
        for error in errors {
            let refused = error.to_string().ends_with(": its mode 0600 keeps its owner out");
            assert!(refused, "{error}");
        }
    });
    fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).unwrap();
    // The mode of the top has changed since the apply: it stays.
    let options = UndoOptions { skip_drifted: true, ..undoing() };
    as_user(|| undo(&open(&world), None, &options, None, None, &mut go_on).map(drop).unwrap());
    assert_eq!(fs::read(base.join("one")).unwrap(), b"old");
}
