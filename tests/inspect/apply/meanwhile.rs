//! What changes between the plan and the deed is left as it is.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use acetate::base::{Base, BaseError, BasePath, HostDir, HostDirOptions};
use acetate::inspect::InspectError;
use acetate::inspect::apply::{ApplyEvent, Consent, apply, resume};
use acetate::inspect::diff::{DiffOptions, diff};

use super::{copy, open, skipped};
use crate::support::applied::{Book, all, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    gone "gone"
    two/file "two"
"#;

/// Right before the first step.
fn first(world: &World) -> ApplyEvent {
    let to = copy(world, "counted");
    let mut all_steps = 0;
    let counted = super::watched(&open(world), Some(&to), &all(), &mut |event| {
        if let ApplyEvent::Step { all, .. } = event {
            all_steps = all;
        }
        std::ops::ControlFlow::Continue(())
    });
    counted.unwrap();
    ApplyEvent::Step { done: 0, all: all_steps }
}

#[test]
fn a_file_that_is_written_to() {
    let world = World::new(TREE);
    world.write("dir/file", 0, b"MINE").unwrap();
    world.write("dir/other", 0, b"MINE!").unwrap();
    let to = copy(&world, "copy");
    let skipped = skipped(&world, &to, first(&world), || {
        fs::write(to.join("dir/file"), "theirs").unwrap();
    });
    assert_eq!(skipped, ["/dir/file: it changed after the plan was made"]);
    assert_eq!(fs::read(to.join("dir/file")).unwrap(), b"theirs");
    assert_eq!(fs::read(to.join("dir/other")).unwrap(), b"MINE!");
}

#[test]
fn a_file_that_was_to_be_removed() {
    let world = World::new(TREE);
    world.remove("gone").unwrap();
    let to = copy(&world, "copy");
    let skipped = skipped(&world, &to, first(&world), || {
        fs::write(to.join("gone"), "theirs").unwrap();
    });
    assert_eq!(skipped, ["/gone: it changed after the plan was made"]);
    assert_eq!(fs::read(to.join("gone")).unwrap(), b"theirs");
}

#[test]
fn a_directory_that_was_to_be_removed() {
    let world = World::new(TREE);
    world.rename("dir/other", "other").unwrap();
    world.rm_rf("dir");
    let to = copy(&world, "copy");
    let event = first(&world);
    // What happens within one tick of the host's clock is told by nothing.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let skipped = skipped(&world, &to, event, || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(to.join("dir/new"), "theirs").unwrap();
    });
    assert_eq!(skipped, ["/dir: something in it changed after the plan was made"]);
    assert_eq!(fs::read(to.join("dir/new")).unwrap(), b"theirs");
    assert_eq!(fs::read(to.join("other")).unwrap(), b"other");
}

/// What is in it has not changed by that.
#[test]
fn a_directory_that_was_moved_into_one_to_be_removed() {
    let world = World::new(TREE);
    world.rename("dir/other", "other").unwrap();
    world.rm_rf("dir");
    let (to, theirs) = (copy(&world, "copy"), world.scratch().join("theirs"));
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("file"), "theirs").unwrap();
    let event = first(&world);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let skipped = skipped(&world, &to, event, || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::rename(&theirs, to.join("dir/theirs")).unwrap();
    });
    assert_eq!(skipped, ["/dir: something in it changed after the plan was made"]);
    assert_eq!(fs::read(to.join("dir/theirs/file")).unwrap(), b"theirs");
}

#[test]
fn something_that_comes_where_something_goes() {
    let world = World::new(TREE);
    world.put("new", "mine");
    world.rename("dir", "moved").unwrap();
    world.put("moved/new", "mine");
    let to = copy(&world, "copy");
    let skipped = skipped(&world, &to, first(&world), || {
        fs::write(to.join("new"), "theirs").unwrap();
        fs::create_dir(to.join("moved")).unwrap();
        fs::write(to.join("moved/theirs"), "theirs").unwrap();
        fs::write(to.join("moved/new"), "theirs").unwrap();
    });
    let came = |path: &str| format!("/{path}: a new object is at this path");
    assert_eq!(skipped, [came("moved"), came("moved/new"), came("new")]);
    assert_eq!(fs::read(to.join("new")).unwrap(), b"theirs");
    assert_eq!(fs::read(to.join("moved/theirs")).unwrap(), b"theirs");
    assert_eq!(fs::read(to.join("moved/new")).unwrap(), b"theirs");
    // What was to move is where it was.
    assert_eq!(fs::read(to.join("dir/file")).unwrap(), b"content");
}

#[test]
fn what_can_go_nowhere_is_kept() {
    let world = World::new(TREE);
    world.rename("dir/file", "a").unwrap();
    world.rename("dir", "b").unwrap();
    let to = copy(&world, "copy");
    let skipped = skipped(&world, &to, first(&world), || {
        fs::write(to.join("a"), "theirs").unwrap();
    });
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert_eq!(skipped[0], "/a: a new object is at this path");
    let kept = to.join(".acetate-kept");
    let file = kept.join("file");
    let why = format!("/dir/file: it could not be put back: moved to {}", file.display());
    assert_eq!(skipped[1], why);
    assert_eq!(fs::read(&file).unwrap(), b"content");
    assert_eq!(fs::metadata(&kept).unwrap().mode() & 0o777, 0o700);
    // It is not shown, nor taken for a difference.
    let shown = HostDir::open(&to, HostDirOptions::default()).unwrap();
    let kept = BasePath::from_bytes(b".acetate-kept/file").unwrap();
    assert!(matches!(shown.stat(&kept), Err(BaseError::NotFound)));
    assert_eq!(fs::read(to.join("a")).unwrap(), b"theirs");
    assert_eq!(fs::read(to.join("b/other")).unwrap(), b"other");
}

#[test]
fn a_link_that_leads_elsewhere_is_not_followed() {
    let world = World::new(TREE);
    world.write("dir/file", 0, b"MINE").unwrap();
    world.put("dir/new", "mine");
    world.write("two/file", 0, b"TWO").unwrap();
    let to = copy(&world, "copy");
    let outside = world.scratch().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "content").unwrap();
    let skipped = skipped(&world, &to, first(&world), || {
        fs::rename(to.join("dir"), to.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(&outside, to.join("dir")).unwrap();
    });
    let paths: Vec<_> = skipped.iter().map(|s| s.split_once(':').unwrap().0).collect();
    assert_eq!(paths, ["/dir/file", "/dir/new", "/dir"], "{skipped:?}");
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"content");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(to.join("two/file")).unwrap(), b"TWO");
}

#[test]
fn holes_stay_holes_and_readers_keep_what_they_have() {
    let world = World::new(TREE);
    world.write("dir/file", 8 << 20, b"end").unwrap();
    let to = copy(&world, "copy");
    let reader = fs::File::open(to.join("dir/file")).unwrap();
    assert_eq!(planned(&open(&world), Some(&to), &all()).unwrap().bytes, (8 << 20) + 3);
    super::check(&world);
    crate::support::applied::applied(&open(&world), Some(&to), &all()).unwrap();
    let meta = fs::metadata(to.join("dir/file")).unwrap();
    assert_eq!(meta.len(), (8 << 20) + 3);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    let mut old = [0; 7];
    reader.read_exact_at(&mut old, 0).unwrap();
    assert_eq!(&old, b"content");
}

/// The directory for what can be put back nowhere is not ours: what was taken stays in the staging
/// until the next run finds a place for it.
#[test]
fn what_cannot_even_be_kept_is_not_lost() {
    let world = World::new(TREE);
    world.rename("dir/file", "a").unwrap();
    world.rename("dir", "b").unwrap();
    let to = copy(&world, "copy");
    let kept = to.join(".acetate-kept");
    fs::create_dir(&kept).unwrap();
    fs::set_permissions(&kept, PermissionsExt::from_mode(0o755)).unwrap();
    let begin = first(&world);
    let mut change = Some(|| fs::write(to.join("a"), "theirs").unwrap());
    let failed = super::watched(&open(&world), Some(&to), &all(), &mut |event| {
        if event == begin
            && let Some(change) = change.take()
        {
            change();
        }
        ControlFlow::Continue(())
    });
    assert!(matches!(failed, Err(InspectError::Unfinished { .. })), "{failed:?}");
    let resumed = || {
        let go_on = &mut |_: ApplyEvent| ControlFlow::Continue(());
        resume(&open(&world), Some(&to), None, go_on)
    };
    assert!(matches!(resumed(), Err(InspectError::Unfinished { .. })));
    fs::set_permissions(&kept, PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(resumed().unwrap().unwrap().skipped.len(), 2);
    assert_eq!(fs::read(kept.join("file")).unwrap(), b"content");
    assert_eq!(fs::read(to.join("a")).unwrap(), b"theirs");
}

#[test]
fn a_file_that_a_client_moved_after_its_step_is_listed_once() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"MINE").unwrap();
    world.write("two/file", 0, b"TWO").unwrap();
    world.change_base();
    let opened = open(&world);
    let plan = planned(&opened, None, &all()).unwrap();
    let mut watch = |event: ApplyEvent| {
        if matches!(event, ApplyEvent::Step { done, all } if done == all) {
            world.rename("dir/file", "dir/went").unwrap();
        }
        ControlFlow::Continue(())
    };
    let consent = Consent::Shown(&plan);
    let report =
        apply(&opened, None, &all(), consent, Some(&mut Book(&world)), &mut watch).unwrap();
    assert_eq!(report.skipped.len(), 1, "{report:#?}");
    let mut found = Vec::new();
    diff(&open(&world), &DiffOptions::default(), &mut |_, difference| {
        found.push(format!("{:?} {}", difference.kind, difference.path.display()));
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(found, ["Renamed /dir/went"]);
    let plan = planned(&open(&world), None, &all()).unwrap();
    let changed = plan.changes.iter().filter(|change| change.paths > 0);
    let changed: Vec<_> = changed.map(|change| change.path.display().to_string()).collect();
    assert_eq!(((plan.deletions, plan.moves), changed), ((0, 1), vec!["/dir/went".to_owned()]));
    assert_eq!(plan.drifted, []);
}
