//! Random trees, random changes of the session and of the base: `apply --skip-drifted` does all of
//! its plan, loses nothing of either side, and leaves nothing to be done but what it left out.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use acetate::inspect::apply::{ApplyOptions, ApplyPlan};
use acetate::inspect::diff::{DiffOptions, diff};

use super::undo_random::{Random, change_base, change_session, now, texts};
use super::{apply_served, open};
use crate::support::applied::{all, merged, on_host, planned};
use crate::support::fixture::FEW_NAMES;
use crate::support::world::World;

/// So many worlds, which are changed at the same moments.
const CASES: u64 = 16;

/// What a person makes, moves, removes and retypes.
fn change_tree(base: &Path, random: &mut Random, number: usize) -> Option<String> {
    let at = base.join(random.path());
    let text = format!("person {number}\n");
    let is_dir = at.symlink_metadata().ok().map(|meta| meta.is_dir());
    let _may_fail = match (random.below(6), is_dir) {
        (0, Some(true)) => fs::remove_dir_all(&at),
        (0 | 1, Some(false)) => fs::remove_file(&at),
        // A directory in the place of a file, and a file in that of a directory.
        (2, Some(false)) => {
            fs::remove_file(&at).and_then(|()| fs::create_dir(&at)).unwrap();
            fs::write(at.join("a"), &text).unwrap();
            return Some(text);
        }
        (2, Some(true)) => {
            fs::remove_dir_all(&at).and_then(|()| fs::write(&at, &text)).unwrap();
            return Some(text);
        }
        _ => return change_base(base, random, number),
    };
    None
}

fn left_out(plan: &ApplyPlan) -> BTreeSet<(String, String)> {
    plan.left_out.iter().map(|left| (left.path.display().to_string(), left.why.clone())).collect()
}

fn paths(left_out: &BTreeSet<(String, String)>) -> BTreeSet<String> {
    left_out.iter().map(|(path, _)| path.clone()).collect()
}

/// The paths that `diff` shows.
fn told(world: &World) -> BTreeSet<String> {
    let options = DiffOptions { droppings: true, times: true, exact: true, ..Default::default() };
    let mut told = BTreeSet::new();
    diff(&open(world), &options, &mut |_, difference| {
        told.insert(difference.change.path.display().to_string());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    told
}

/// What clients see, but for files that got something of the base.
fn seen(world: &World, plan: &ApplyPlan) -> Vec<(String, String)> {
    let merged_paths = plan.merged.iter().map(|merged| &merged.path);
    let unchanged = plan.unchanged.iter().map(|unchanged| &unchanged.copy.path);
    let other: BTreeSet<_> =
        merged_paths.chain(unchanged).map(|path| path.as_bytes()[1..].to_vec()).collect();
    let tree = merged(&world.session(), Some(&world.base()));
    let names: BTreeSet<_> =
        other.iter().filter_map(|path| tree.get(path)).map(|object| &object.first).collect();
    let same = tree
        .iter()
        .filter(|(path, object)| !other.contains(*path) && !names.contains(&object.first));
    same.map(|(path, object)| {
        let path = path.escape_ascii().to_string();
        (path, format!("{:?} {}", object.kind, object.content.escape_ascii()))
    })
    .collect()
}

fn check(world: &mut World, written: &BTreeSet<String>) -> bool {
    let base = world.base();
    let options = ApplyOptions { skip_drifted: true, ..all() };
    let plan = planned(&open(world), None, &options).unwrap();
    let (persons, before) = (texts(&base, written), seen(world, &plan));
    let report = apply_served(world, &options);
    let skipped = report.skipped.iter();
    let skipped: BTreeSet<_> =
        skipped.map(|skipped| (skipped.path.display().to_string(), skipped.why.clone())).collect();
    let left = left_out(&plan);
    assert_eq!(skipped, left, "skipped at its step, not left out of the plan");
    assert_eq!(texts(&base, written), persons, "a person's text is lost");
    let (after, told) = (seen(world, &plan), told(world));
    assert_eq!(after, before, "what clients see");
    let missing: Vec<_> = left.iter().filter(|(path, _)| !told.contains(path)).collect();
    assert!(missing.is_empty(), "not in the diff: {missing:?}, {told:?}");

    let again = planned(&open(world), None, &options).unwrap();
    assert_eq!(paths(&left_out(&again)), paths(&left), "what is left out again");
    let host = on_host(&base);
    let report = apply_served(world, &options);
    let skipped: BTreeSet<_> =
        report.skipped.iter().map(|s| s.path.display().to_string()).collect();
    assert_eq!(skipped, paths(&left));
    let (text, host) = (|tree| format!("{tree:?}"), host);
    assert_eq!(text(on_host(&base)), text(host));
    !left.is_empty()
}

#[test]
fn what_drifted_is_left_out_whole_and_all_else_is_applied() {
    let first: u64 = std::env::var("ACETATE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let count: u64 = std::env::var("ACETATE_CASES").map_or(CASES, |count| count.parse().unwrap());
    let mut cases: Vec<_> = (first..first + count)
        .map(|seed| {
            let mut world = World::new(FEW_NAMES);
            world.change_base();
            (seed, world, Random::new(seed), BTreeSet::new())
        })
        .collect();
    // The second tells which of a removal and a change came first.
    let second = Duration::from_millis(1100);
    std::thread::sleep(second);
    for (_, world, random, _) in &mut cases {
        world.tick(now() - world.now());
        for number in 0..1 + random.below(12) {
            change_session(world, random, number);
        }
        world.keep_removed();
    }
    std::thread::sleep(second);
    for (_, world, random, written) in &mut cases {
        for number in 0..1 + random.below(6) {
            written.extend(change_tree(&world.base(), random, number));
        }
    }
    let (mut failed, mut leaving) = (Vec::new(), 0);
    for (seed, world, _, written) in &mut cases {
        match catch_unwind(AssertUnwindSafe(|| check(world, written))) {
            Ok(left_out) => leaving += u64::from(left_out),
            Err(_) => failed.push(*seed),
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
    assert!(leaving > count / 4, "{leaving} of {count}");
}
