//! Runs that end in the middle.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;

use acetate::inspect::InspectError;
use acetate::inspect::apply::{AppliedChange, ApplyEvent, clear, interrupted, resume};
use acetate::vfs::{FileKind, Time};
use acetate::writeback::{Attrs, Target};

use super::{Noting, copy, open, watched};
use crate::support::applied::{all, applied, assert_same, merged, on_host, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/sub/deep "deep"
    dir/sub/deeper "deeper"
    gone/a "a"
    hard/one "linked"
    hard/two = hard/one
    two/file "two"
    type "a file"
"#;

/// With all kinds of steps.
fn changed() -> World {
    let world = World::new(TREE);
    world.tick(60);
    world.rename("dir/sub", "sub").unwrap();
    world.rename("dir", "t").unwrap();
    world.rename("two", "dir").unwrap();
    world.rename("t", "two").unwrap();
    world.put("two/new", "new");
    world.link("two/new", "sub/new").unwrap();
    world.link("two/file", "sub/file").unwrap();
    world.write("sub/deep", 0, b"DEEP").unwrap();
    world.rm_rf("gone");
    world.rename("hard/one", "dir/one").unwrap();
    world.chmod("hard/two", 0o600).unwrap();
    world.remove("type").unwrap();
    world.mkdir("type").unwrap();
    world.chmod("type", 0o500).unwrap();
    world
}

#[test]
fn after_whichever_step() {
    let world = changed();
    let opened = open(&world);
    let wanted = merged(&world.session(), Some(&world.base()));
    let before = on_host(&world.base());
    for at in 0.. {
        let to = copy(&world, &at.to_string());
        let mut steps = 0;
        let report = watched(&opened, Some(&to), &all(), &mut |event| match event {
            ApplyEvent::Step { done, all } => {
                steps = all;
                if done == at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            ApplyEvent::Making { .. } | ApplyEvent::Copying(_) => ControlFlow::Continue(()),
        });
        let report = report.unwrap();
        if report.broken_off.is_none() {
            assert!(at > 20 && at == steps + 1, "{at} of {steps}");
            assert_same(&on_host(&to), &wanted);
            break;
        }
        assert_eq!(report.broken_off, Some((at, steps)));
        assert_eq!(interrupted(&opened, Some(&to)).unwrap().map(|left| left.steps), Some(steps));
        if at == 0 {
            assert_same_but_staging(&to, &before);
        }
        let mut book = Noting::default();
        let mut go_on = |_: ApplyEvent| ControlFlow::Continue(());
        let report = resume(&opened, Some(&to), Some(&mut book), &mut go_on).unwrap().unwrap();
        assert_eq!((report.skipped, report.broken_off), (Vec::new(), None), "after {at} steps");
        // The host's times of what was put are not in the plan.
        let applied =
            book.0.into_iter().map(|applied| AppliedChange { base_ctime: None, ..applied });
        let applied: Vec<_> = applied.collect();
        assert_eq!(applied, planned(&opened, None, &all()).unwrap().changes, "after {at} steps");
        assert_same(&on_host(&to), &wanted);
        assert_eq!(interrupted(&opened, Some(&to)).unwrap(), None);
    }
}

#[track_caller]
fn assert_same_but_staging(to: &std::path::Path, before: &crate::support::applied::Exact) {
    let mut now = on_host(to);
    now.retain(|path, _| !path.starts_with(b".acetate-apply"));
    let top = before[&b""[..]].clone();
    now.insert(Vec::new(), top);
    assert_same(&now, before);
}

#[test]
fn again_and_again() {
    let world = changed();
    let opened = open(&world);
    let to = copy(&world, "copy");
    let one_step = |left: &mut usize| {
        *left = left.saturating_sub(1);
        if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut left = 0;
    let report = watched(&opened, Some(&to), &all(), &mut |event| match event {
        ApplyEvent::Step { .. } => one_step(&mut left),
        ApplyEvent::Making { .. } | ApplyEvent::Copying(_) => ControlFlow::Continue(()),
    });
    assert!(report.unwrap().broken_off.is_some());
    for steps in 2.. {
        let mut left = steps;
        let report = resume(&opened, Some(&to), None, &mut |_| one_step(&mut left));
        if report.unwrap().unwrap().broken_off.is_none() {
            break;
        }
    }
    assert_same(&on_host(&to), &merged(&world.session(), Some(&world.base())));
}

#[test]
fn before_anything_was_changed() {
    let world = changed();
    let opened = open(&world);
    let to = copy(&world, "copy");
    let before = on_host(&to);
    let stop = &mut |event| match event {
        ApplyEvent::Making { done, .. } if done > 0 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let report = watched(&opened, Some(&to), &all(), stop).unwrap();
    assert_eq!((report.broken_off, report.applied), (Some((0, 0)), Vec::new()));
    assert_same(&on_host(&to), &before);
}

#[test]
fn what_a_killed_run_left_is_cleared_away() {
    let world = changed();
    let to = copy(&world, "copy");
    let staging = to.join(".acetate-apply");
    fs::create_dir_all(staging.join("new/1/deep/deeper")).unwrap();
    fs::create_dir_all(staging.join("taken/2")).unwrap();
    fs::write(staging.join("new/1/deep/deeper/file"), "half").unwrap();
    fs::write(staging.join("journal-unfinished"), "{").unwrap();
    fs::set_permissions(&staging, fs::Permissions::from_mode(0o700)).unwrap();
    let opened = open(&world);
    assert_eq!(interrupted(&opened, Some(&to)).unwrap(), None);
    assert_eq!(applied(&opened, Some(&to), &all()).unwrap().skipped, []);
    assert_same(&on_host(&to), &merged(&world.session(), Some(&world.base())));
}

/// Before it begins, and after it has ended.
#[test]
fn the_top_gets_its_time_back_after_a_run_that_was_killed() {
    let world = changed();
    let to = copy(&world, "copy");
    let before = on_host(&to);
    let target = Target::open(&to).unwrap();
    let staging = target.staging(true).unwrap().unwrap();
    assert_ne!(on_host(&to)[&b""[..]], before[&b""[..]]);
    drop(staging);
    clear(&open(&world), Some(&to)).unwrap();
    assert_same(&on_host(&to), &before);
    let staging = target.staging(true).unwrap().unwrap();
    let mtime = Time { secs: 5, nanos: 6 };
    let top = Attrs { kind: FileKind::Directory, mode: 0o511, uid: 0, gid: 0, mtime };
    target.note_top(&staging, &top).unwrap();
    drop(staging);
    clear(&open(&world), Some(&to)).unwrap();
    let top = &on_host(&to)[&b""[..]];
    assert_eq!((top.mtime, top.mode), ((5, 6), 0o511));
    // Not where someone has changed the directory since.
    drop(target.staging(true).unwrap().unwrap());
    fs::write(to.join("later"), "").unwrap();
    clear(&open(&world), Some(&to)).unwrap();
    assert_ne!(on_host(&to)[&b""[..]].mtime, (5, 6));
}

#[test]
fn the_export_does_not_show_it() {
    let mut world = changed();
    let base = world.change_base();
    let opened = open(&world);
    let stop = &mut |event| match event {
        ApplyEvent::Step { done: 0, .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    assert!(watched(&opened, None, &all(), stop).unwrap().broken_off.is_some());
    assert!(base.join(".acetate-apply").is_dir());
    assert!(!world.ls("").contains(&".acetate-apply".to_owned()));
    assert!(!world.exists(".acetate-apply"));
}

#[test]
fn another_sessions_work_is_not_finished_by_this_one() {
    let (world, other) = (changed(), changed());
    let to = copy(&world, "copy");
    let stop = &mut |event| match event {
        ApplyEvent::Step { done: 3, .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    assert!(watched(&open(&world), Some(&to), &all(), stop).unwrap().broken_off.is_some());
    let other = open(&other);
    let refused = interrupted(&other, Some(&to)).unwrap_err();
    assert!(matches!(refused, InspectError::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("session.db was interrupted"), "{refused}");
    let mut go_on = |_: ApplyEvent| ControlFlow::Continue(());
    assert!(resume(&other, Some(&to), None, &mut go_on).is_err());
    resume(&open(&world), Some(&to), None, &mut go_on).unwrap().unwrap();
    assert_same(&on_host(&to), &merged(&world.session(), Some(&world.base())));
}

#[test]
fn nobody_else_comes_in_between() {
    let world = changed();
    let to = copy(&world, "copy");
    let mut said = None;
    let report = watched(&open(&world), Some(&to), &all(), &mut |_| {
        said.get_or_insert_with(|| interrupted(&open(&world), Some(&to)).unwrap_err().to_string());
        ControlFlow::Continue(())
    });
    assert_eq!(report.unwrap().skipped, []);
    assert!(said.unwrap().contains("another apply is running"));
}
