//! Searches and comparisons that are stopped.

use std::ops::ControlFlow;
use std::time::Duration;

use acetate::inspect::InspectError;
use acetate::inspect::between::Moments;
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::search::{SearchLimits, TextSearch, compile, search};
use acetate::inspect::stop::StopFlag;

use super::checkpoints::open_at;
use crate::support::world::World;

#[test]
fn a_flag_stops_searches_and_comparisons() {
    let world = World::new("a \"text\"\nb \"text\"\n");
    let point = world.checkpoint();
    world.put("a", "changed");
    world.put("b", "changed");
    let (then, now) = (open_at(&world, Some(&point)), open_at(&world, None));
    let stop = StopFlag::default();
    let options = DiffOptions { stop: stop.clone(), ..DiffOptions::default() };
    let limits = SearchLimits {
        matches: 10,
        bytes: 1 << 20,
        time: Duration::from_secs(3600),
        stop: stop.clone(),
    };
    let wanted = TextSearch { pattern: compile("changed", false).unwrap(), name: None, limits };
    let searched = || now.with_tree(|view| search(view, &view.root().unwrap(), &wanted));
    let moments = Moments { old: &then, new: &now, from: &point, until: None };
    // After the first difference, the flag is seen before the next one.
    let mut seen = 0;
    let compared = diff(&now, &options, &mut |_, _| {
        seen += 1;
        stop.stop();
        Ok(ControlFlow::Continue(()))
    });
    assert!(matches!(compared, Err(InspectError::Stopped)) && seen == 1, "{compared:?} {seen}");
    assert!(matches!(searched(), Err(InspectError::Stopped)));
    assert!(matches!(moments.differences(&options), Err(InspectError::Stopped)));
}
