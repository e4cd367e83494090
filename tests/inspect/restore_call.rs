//! Restoring what one tool call changed.

use std::collections::BTreeMap;

use acetate::delta::sqlite::{AgentAccess, CallBegin, NewCall};
use acetate::delta::{Checkpoint, RestoreOutcome, RestoreRequest};
use acetate::inspect::InspectError;
use acetate::inspect::restore::RestorePlan;
use acetate::inspect::restore_call::{CallPlan, CallRefusal, RestorableCall, plan_restore_call};
use acetate::inspect::tool::ToolCalls;
use acetate::vfs::Time;

use super::checkpoints::{open_at, step_or_discard, tree};
use crate::support::check::assert_consistent;
use crate::support::random::Random;
use crate::support::world::World;

const BASE: &str =
    "a/a \"aa\"\na/b \"ab\"\na/c/a \"aca\"\nb/a \"ba\"\nb/b = b/a\nc \"c\"\nd/a/b \"dab\"\n";

/// A change, now and then of a mode.
fn step(world: &World, random: &mut Random) {
    match random.below(8) {
        0 => {
            let (path, mode) = (random.path(), [0o700, 0o750][random.below(2)]);
            if world.find(&path).is_ok() {
                world.chmod(&path, mode).unwrap();
            }
        }
        _ => step_or_discard(world, random),
    }
}

fn go_back(world: &World, to: &Checkpoint) {
    let restore = RestoreRequest { to: to.id, seen: None, time: Time::default() };
    let done = world.wait(world.overlay.restore(&world.caller, restore)).unwrap();
    assert!(matches!(done, RestoreOutcome::Restored(_)));
}

fn plan(world: &World) -> Result<CallPlan, CallRefusal> {
    let now = open_at(world, None);
    let planned = RestorableCall::find(now.session(), 1)
        .and_then(|call| plan_restore_call(&now, None, &call));
    planned.map_err(|error| match error {
        InspectError::CallRefused { why, .. } => why,
        error => panic!("{error}"),
    })
}

fn restore(world: &World, to: &Checkpoint, plan: RestorePlan) {
    let restore = RestoreRequest { to: to.id, seen: Some(plan.seen), time: Time::default() };
    let done = match plan.scope {
        None => world.wait(world.overlay.restore(&world.caller, restore)),
        Some(scope) => {
            world.wait(world.overlay.restore_paths(&world.caller, restore, scope.closed))
        }
    };
    assert!(matches!(done.unwrap(), RestoreOutcome::Restored(_)));
}

/// What is said of an object, but for its times, how many names it has, and its number: a discard
/// of one name of a base file gives the others a new one.
fn lasting(what: Option<&String>) -> Option<&str> {
    let what = what?.rsplit_once(" Time")?.0.rsplit_once(" Time")?.0;
    Some(what.rsplit_once(" FileId")?.0)
}

/// Random changes before, during and after a call, with restores in between: where a restore of
/// the call is not refused, what changed after it stays, and all else is what it was before.
#[test]
fn a_call_goes_back_and_what_changed_since_stays() {
    let seeds = std::env::var("ACETATE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let (mut restored, mut refused) = (0, 0);
    for seed in 0..seeds.unwrap_or(24) {
        let mut world = World::new(BASE);
        let mut random = Random::new(seed);
        let changes = |most: usize, random: &mut Random| {
            for _ in 0..random.below(most) {
                step(&world, random);
            }
        };
        changes(12, &mut random);
        let calls = ToolCalls::open(&world.session(), AgentAccess::Write).unwrap();
        let before = world.checkpoint();
        let begin = CallBegin { checkpoint: Some(before.id), ..calls.begin().unwrap() };
        changes(6, &mut random);
        let within = world.checkpoint();
        changes(4, &mut random);
        let (name, outcome) = ("tool", Ok("1"));
        let call = NewCall {
            name,
            parameters: None,
            outcome,
            started_at: 0,
            completed_at: 1,
            begin: Some(begin),
        };
        calls.record(&call).unwrap();
        let mut end = tree(&world, None);
        changes(3, &mut random);
        if let Some(to) = [&before, &within].get(random.below(8)) {
            // That takes back what changed since, and the call or a part of it.
            go_back(&world, to);
            end = tree(&world, None);
        }
        changes(9, &mut random);
        let now = tree(&world, None);
        match plan(&world) {
            Err(CallRefusal::ChangedAgain { .. } | CallRefusal::DirAttributes { .. }) => {
                refused += 1;
                continue;
            }
            Err(why) => panic!("seed {seed}: {why}"),
            Ok(CallPlan::Nothing(_)) => {}
            Ok(CallPlan::Restore(plan)) => restore(&world, &before, plan),
        }
        restored += 1;
        let (then, is) = (tree(&world, Some(&before)), tree(&world, None));
        check(seed, [&then, &end, &now, &is]);
        world.close();
        assert_consistent(&world.session());
    }
    assert!(restored >= 10 && refused >= 1, "{restored}, {refused}");
}

fn check(seed: u64, [then, end, now, is]: [&BTreeMap<String, String>; 4]) {
    for path in then.keys().chain(end.keys()).chain(now.keys()).chain(is.keys()) {
        let at = |tree: &'_ BTreeMap<String, String>| lasting(tree.get(path)).map(str::to_owned);
        let is_same = at(end) == at(now);
        let expected = if is_same { at(then) } else { at(now) };
        assert_eq!(
            at(is),
            expected,
            "seed {seed}: {path}\nthen {then:#?}\nend {end:#?}\nnow {now:#?}\nis {is:#?}"
        );
    }
}
