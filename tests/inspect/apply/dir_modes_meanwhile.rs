//! Modes of moved and of new directories that a person or a client sets while the apply runs: the
//! directories keep their rows in the session.

use std::fs::{self, Permissions};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use acetate::inspect::apply::{ApplyEvent, Consent, Report, apply};

use super::open;
use crate::support::applied::{Book, all, planned};
use crate::support::world::World;

/// A directory that moved and has another mode, and a new directory.
fn changed() -> World {
    let mut world = World::new("d/f \"1\"\n");
    world.change_base();
    world.rename("d", "moved").unwrap();
    world.chmod("moved", 0o750).unwrap();
    world.mkdir("new").unwrap();
    world.chmod("new", 0o750).unwrap();
    world.put("new/f", "1");
    world
}

/// Applies the session to its base, and acts once when both directories are there, before their
/// modes are set.
fn apply_and(world: &World, act: &mut dyn FnMut(&Path)) -> Report {
    let opened = open(world);
    let plan = planned(&opened, None, &all()).unwrap();
    let base = world.base();
    let mut has_acted = false;
    let watch = &mut |event: ApplyEvent| {
        let are_there = || ["moved", "new"].iter().all(|dir| base.join(dir).exists());
        if matches!(event, ApplyEvent::Step { .. }) && !has_acted && are_there() {
            has_acted = true;
            act(&base);
        }
        ControlFlow::Continue(())
    };
    let consent = Consent::Shown(&plan);
    let report = apply(&opened, None, &all(), consent, Some(&mut Book(world)), watch).unwrap();
    assert!(has_acted);
    report
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn close_to_group(base: &Path) {
    ["moved", "new"].iter().for_each(|dir| set_mode(&base.join(dir), 0o711));
}

fn kept(report: &Report) -> Vec<String> {
    report.kept_attributes.iter().map(|kept| kept.path.display().to_string()).collect()
}

#[test]
fn the_modes_that_a_person_sets_stay_after_the_next_apply() {
    let world = changed();
    let report = apply_and(&world, &mut close_to_group);
    assert_eq!(
        (report.skipped.as_slice(), kept(&report)),
        (&[][..], vec!["/moved".to_owned(), "/new".to_owned()])
    );
    let plan = planned(&open(&world), None, &all()).unwrap();
    assert!(plan.changes.is_empty() && plan.drifted.is_empty(), "{plan:?}");
    for dir in ["moved", "new"] {
        assert_eq!((world.base_mode(dir), world.stat(dir).mode), (0o711, 0o711), "{dir}");
    }
}

#[test]
fn the_modes_that_a_client_sets_too_stay_in_the_session_as_drift() {
    let world = changed();
    let report = apply_and(&world, &mut |base| {
        close_to_group(base);
        ["moved", "new"].iter().for_each(|dir| world.chmod(dir, 0o700).unwrap());
    });
    assert_eq!(kept(&report), ["/moved", "/new"]);
    let plan = planned(&open(&world), None, &all()).unwrap();
    let drifted: Vec<_> = plan.drifted.iter().map(|d| d.path.display().to_string()).collect();
    assert_eq!(drifted, ["/moved", "/new"]);
    for dir in ["moved", "new"] {
        assert_eq!((world.base_mode(dir), world.stat(dir).mode), (0o711, 0o700), "{dir}");
    }
}
