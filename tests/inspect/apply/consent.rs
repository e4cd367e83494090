//! Changes that were shown are applied; changes made after that are left out and named.

use std::ops::ControlFlow;

use acetate::inspect::InspectError;
use acetate::inspect::apply::{
    ApplyEvent, ApplyOptions, ApplyPlan, Consent, Report, ShowPlan, apply,
};
use acetate::inspect::diff::Difference;

use super::open;
use super::session_meanwhile::{changed, seen};
use crate::support::applied::{Book, all, on_host, planned};
use crate::support::world::World;

/// Shows the plan, lets clients make changes, and applies what was shown; the paths of what is left
/// out, in order.
fn skipped_after(world: &World, meanwhile: impl FnOnce()) -> Vec<String> {
    let opened = open(world);
    let plan = planned(&opened, None, &all()).unwrap();
    meanwhile();
    let before = seen(world);
    let report = apply_all(world, Consent::Shown(&plan));
    assert_eq!(seen(world), before);
    let mut skipped: Vec<_> = report.skipped.iter().map(|s| s.path.display().to_string()).collect();
    skipped.sort();
    skipped
}

fn apply_all(world: &World, consent: Consent<'_>) -> Report {
    let watch = &mut |_: ApplyEvent| ControlFlow::Continue(());
    let mut book = Book(world);
    apply(&open(world), None, &all(), consent, Some(&mut book), watch).unwrap()
}

/// What a client changes between the plan that is shown and the deed is left out, and named; what
/// else was shown is applied.
#[test]
fn what_changed_since_the_plan_was_shown_is_left_out() {
    let world = changed();
    let skipped = skipped_after(&world, || {
        world.put("later", "later");
        world.write("dir/file", 0, b"LATER").unwrap();
        world.rename("kept", "kept2").unwrap();
        world.put("newdir/later", "later");
        world.put("moved/later", "later");
    });
    let left_out = ["/dir/file", "/kept", "/kept2", "/later", "/moved/later", "/newdir/later"];
    assert_eq!(skipped, left_out);
    let host = on_host(&world.base());
    let content = |path: &[u8]| host.get(path).map(|object| object.content.clone());
    assert_eq!(content(b"dir/file").unwrap(), b"content");
    assert_eq!(content(b"keep").unwrap(), b"keep");
    assert_eq!(content(b"moved/file").unwrap(), b"TWO");
    assert_eq!(content(b"newdir/file").unwrap(), b"in newdir");
    assert_eq!(content(b"new").unwrap(), b"new");
    assert_eq!(content(b"over"), None);
    assert_eq!(content(b"later").or(content(b"newdir/later")).or(content(b"moved/later")), None);
}

/// A directory that a client moves after it was shown stays with what is in it.
#[test]
fn a_directory_that_moved_since_it_was_shown_is_left_out_whole() {
    let world = changed();
    let skipped = skipped_after(&world, || {
        world.rename("moved", "moved2").unwrap();
        world.rename("newdir", "newdir2").unwrap();
    });
    assert_eq!(
        skipped,
        [
            "/moved",
            "/moved/file",
            "/moved2",
            "/moved2/file",
            "/newdir",
            "/newdir/file",
            "/newdir2",
            "/newdir2/file"
        ]
    );
    assert!(world.base().join("two/file").exists());
}

/// Who agrees to all gets the plan of the moment, however busy a client is.
#[test]
fn consent_to_all_applies_the_plan_of_the_snapshot() {
    struct Told<'a> {
        world: &'a World,
        paths: Vec<String>,
        plans: usize,
    }
    impl ShowPlan for Told<'_> {
        fn difference(&mut self, difference: &Difference) {
            self.paths.push(difference.path.display().to_string());
        }

        fn plan(&mut self, plan: &ApplyPlan) -> ControlFlow<()> {
            assert_eq!(plan.changes.len(), self.paths.len());
            // Of the next moment.
            self.world.put("later", "later");
            self.plans += 1;
            ControlFlow::Continue(())
        }
    }
    let world = changed();
    world.put("just now", "now");
    let mut told = Told { world: &world, paths: Vec::new(), plans: 0 };
    let report = apply_all(&world, Consent::All(&mut told));
    assert_eq!((report.skipped, told.plans), (Vec::new(), 1));
    assert!(told.paths.contains(&"/just now".to_owned()));
    assert_eq!(std::fs::read(world.base().join("just now")).unwrap(), b"now");
    assert!(!world.base().join("later").exists());
    assert_eq!(world.cat("later"), "later");
}

/// What a client makes of a change, so that it needs an option or another place: that change alone
/// is left out.
#[test]
fn what_needs_more_than_was_agreed_to_is_left_out_alone() {
    let world = changed();
    world.chmod("moved/file", 0o600).unwrap();
    let opened = open(&world);
    let plain = ApplyOptions { special: false, ..all() };
    let plan = planned(&opened, None, &plain).unwrap();
    world.chmod("new", 0o4755).unwrap();
    world.chmod("newdir", 0o700).unwrap();
    // Left without a difference, in a directory that moves on.
    world.write("moved/below/file", 0, b"below").unwrap();
    world.rename("moved", "moved2").unwrap();
    let mut book = Book(&world);
    let watch = &mut |_: ApplyEvent| ControlFlow::Continue(());
    let consent = Consent::Shown(&plan);
    let report = apply(&opened, None, &plain, consent, Some(&mut book), watch).unwrap();
    let skipped: Vec<_> = report.skipped.iter().map(|s| s.path.display().to_string()).collect();
    for path in ["/new", "/newdir", "/moved", "/moved2"] {
        assert!(skipped.contains(&path.to_owned()), "{path}: {skipped:?}");
    }
    let base = world.base();
    assert!(!base.join("new").exists() && base.join("two/file").exists());
    assert!(base.join("sub/deep").exists() && !base.join("over").exists());
}

/// Nobody agreed to overwrite what was not shown.
#[test]
fn drift_that_was_not_shown_is_not_overwritten_even_with_force() {
    let world = changed();
    let opened = open(&world);
    let force = ApplyOptions { force: true, ..all() };
    let plan = planned(&opened, None, &force).unwrap();
    assert_eq!(plan.drifted, []);
    std::fs::write(world.base().join("dir/file"), "theirs").unwrap();
    let before = on_host(&world.base());
    let mut watch = |_: ApplyEvent| ControlFlow::Continue(());
    let mut applied_to = |plan: &ApplyPlan| {
        let mut book = Book(&world);
        apply(&opened, None, &force, Consent::Shown(plan), Some(&mut book), &mut watch)
    };
    let refused = applied_to(&plan);
    assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
    assert_eq!(on_host(&world.base()), before);
    let plan = planned(&opened, None, &force).unwrap();
    assert_eq!(applied_to(&plan).unwrap().skipped, []);
    assert_eq!(std::fs::read(world.base().join("dir/file")).unwrap(), b"CONTENT");
}
