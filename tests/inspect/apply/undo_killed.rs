//! An apply or an undo that ends in the middle and is finished keeps which names are one file.

use std::ops::ControlFlow;
use std::path::Path;

use acetate::inspect::apply::{ApplyEvent, Consent, Report, apply, interrupted, resume, undo};
use acetate::inspect::opened::OpenSession;

use super::undo::{go_on, keeping, undoing, undone};
use super::{copy, open};
use crate::support::applied::{assert_same, merged, on_host, planned};
use crate::support::world::World;

/// Files of which a part of the names goes, is replaced, or moves.
const TREE: &str = r#"
    gone/one "one"
    gone/sub/one = gone/one
    gone/sub/two "two"
    stays/one = gone/one
    stays/two = gone/sub/two
    three "three"
    stays/three = three
    stays/sub/three = three
    four "four"
    stays/four = four
    moved/four = four
    five "five"
    gone/five = five
"#;

fn changed() -> World {
    let world = World::new(TREE);
    world.tick(60);
    world.rm_rf("gone");
    world.remove("three").unwrap();
    world.put("new", "new");
    world.rename("new", "four").unwrap();
    world.rename("moved", "elsewhere").unwrap();
    world.remove("five").unwrap();
    world
}

/// Breaks off at an event between the first step and the end.
pub fn stop_at(at: usize) -> impl FnMut(ApplyEvent) -> ControlFlow<()> {
    let mut events = 0;
    move |event| {
        if matches!(event, ApplyEvent::Step { .. }) {
            events += 1;
            if events > at {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

/// Goes on with what was broken off; whether it was.
#[track_caller]
fn finish(opened: &OpenSession, to: &Path, report: Report) -> bool {
    if report.broken_off.is_none() {
        return false;
    }
    assert!(interrupted(opened, Some(to)).unwrap().is_some());
    let report = resume(opened, Some(to), None, &mut go_on).unwrap().unwrap();
    assert_eq!((report.skipped, report.broken_off), (Vec::new(), None));
    true
}

#[test]
fn after_whichever_event_of_an_apply() {
    let world = changed();
    let opened = open(&world);
    let after = merged(&world.session(), Some(&world.base()));
    let mut failed = Vec::new();
    for at in 0.. {
        let to = copy(&world, &at.to_string());
        let before = on_host(&to);
        let plan = planned(&opened, Some(&to), &keeping()).unwrap();
        let consent = Consent::Shown(&plan);
        let report = apply(&opened, Some(&to), &keeping(), consent, None, &mut stop_at(at));
        let is_broken_off = finish(&opened, &to, report.unwrap());
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            assert_same(&on_host(&to), &after);
            for wanted in [&before, &after, &before] {
                assert_eq!(undone(&opened, Some(&to), &undoing()).skipped, []);
                assert_same(&on_host(&to), wanted);
            }
        }));
        failed.extend(checked.is_err().then_some(at));
        if !is_broken_off {
            assert!(at > 12, "{at}");
            break;
        }
    }
    assert!(failed.is_empty(), "after {failed:?} events");
}

#[test]
fn after_whichever_event_of_an_undo() {
    let world = changed();
    let opened = open(&world);
    let to = copy(&world, "copy");
    let before = on_host(&to);
    let plan = planned(&opened, Some(&to), &keeping()).unwrap();
    apply(&opened, Some(&to), &keeping(), Consent::Shown(&plan), None, &mut go_on).unwrap();
    let after = on_host(&to);
    for at in 0.. {
        let mut is_broken_off = false;
        for wanted in [&before, &after] {
            let report = undo(&opened, Some(&to), &undoing(), None, None, &mut stop_at(at));
            is_broken_off |= finish(&opened, &to, report.unwrap());
            assert_same(&on_host(&to), wanted);
        }
        if !is_broken_off {
            assert!(at > 12, "{at}");
            break;
        }
    }
}
