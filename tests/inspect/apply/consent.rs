//! What was agreed to is applied, and nothing else, however busy clients are.

use std::ops::ControlFlow;

use acetate::inspect::apply::{Consent, Event, Plan, Report, ShowPlan, apply};
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
    let report = applied(world, Consent::Shown(&plan));
    assert_eq!(seen(world), before);
    let mut skipped: Vec<_> = report.skipped.iter().map(|s| s.path.display().to_string()).collect();
    skipped.sort();
    skipped
}

fn applied(world: &World, consent: Consent<'_>) -> Report {
    let watch = &mut |_: Event| ControlFlow::Continue(());
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
fn consent_to_all_takes_what_is_there() {
    struct Told<'a>(&'a World, Vec<String>, usize);
    impl ShowPlan for Told<'_> {
        fn difference(&mut self, difference: &Difference) {
            self.1.push(difference.path.display().to_string());
        }

        fn plan(&mut self, plan: &Plan) {
            assert_eq!(plan.changes.len(), self.1.len());
            // Of the next moment.
            self.0.put("later", "later");
            self.2 += 1;
        }
    }
    let world = changed();
    world.put("just now", "now");
    let mut told = Told(&world, Vec::new(), 0);
    let report = applied(&world, Consent::All(&mut told));
    assert_eq!((report.skipped, told.2), (Vec::new(), 1));
    assert!(told.1.contains(&"/just now".to_owned()));
    assert_eq!(std::fs::read(world.base().join("just now")).unwrap(), b"now");
    assert!(!world.base().join("later").exists());
    assert_eq!(world.cat("later"), "later");
}
