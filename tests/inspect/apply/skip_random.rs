//! Random trees, random changes of the session and of the base: `apply --skip-drifted` does all of
//! its plan, loses nothing of either side, and leaves nothing to be done but what it left out.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use acetate::inspect::apply::{ApplyOptions, ApplyPlan};
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::vfs::FileKind;

use super::undo_random::{Case, Random, cases, change_base, change_both, change_session, texts};
use super::{apply_served, open};
use crate::support::applied::{all, assert_same, merged, on_host, planned};
use crate::support::fixture::FEW_NAMES;
use crate::support::world::World;

/// So many worlds, which are changed at the same moments.
const CASES: u64 = 16;

/// A path, which often is one where something is.
fn path(random: &mut Random, exists: &dyn Fn(&str) -> bool) -> String {
    let mut path = random.path();
    for _ in 0..random.below(8) {
        if exists(&path) {
            break;
        }
        path = random.path();
    }
    path
}

/// What clients make, change, move, remove and retype.
fn change_merged(world: &World, random: &mut Random, number: usize) {
    let at = path(random, &|path| world.exists(path));
    if !world.exists(&at) {
        return change_session(world, random, number);
    }
    let is_dir = world.stat(&at).kind == FileKind::Directory;
    let remove = |at: &str| if is_dir { world.rm_rf(at) } else { world.remove(at).unwrap() };
    match random.below(6) {
        0 if is_dir => {
            world.rm_rf(&at);
            world.put(&at, &format!("agent {number}"));
        }
        0 => {
            world.remove(&at).unwrap();
            world.mkdir(&at).unwrap();
            world.put(format!("{at}/b"), &format!("agent {number}"));
        }
        1 => remove(&at),
        2 | 3 => {
            let to = random.path();
            if to.rsplit_once('/').is_none_or(|(dir, _)| world.exists(dir)) {
                let _may_fail = world.rename(&at, &to);
            }
        }
        4 if is_dir && !world.exists(format!("{at}/d")) => {
            world.put(format!("{at}/d"), &format!("agent {number}"));
        }
        _ => change_session(world, random, number),
    }
}

/// What a person makes, moves, removes and retypes.
fn change_tree(base: &Path, random: &mut Random, number: usize) -> Option<String> {
    let at = base.join(path(random, &|path| base.join(path).symlink_metadata().is_ok()));
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
        (3, Some(_)) => fs::rename(&at, base.join(random.path())),
        (4, Some(false)) => {
            return fs::write(&at, &text).ok().map(|()| text);
        }
        (4, Some(true)) if at.join("b").symlink_metadata().is_err() => {
            fs::write(at.join("b"), &text).unwrap();
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
    let options =
        DiffOptions { client_temp_files: true, times: true, exact: true, ..Default::default() };
    let mut told = BTreeSet::new();
    diff(&open(world), &options, &mut |_, difference| {
        told.insert(difference.change.path.display().to_string());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    told
}

/// What clients see, but for these names.
fn seen(world: &World, without: &BTreeSet<Vec<u8>>) -> Vec<(String, String)> {
    let tree = merged(&world.session(), Some(&world.base()));
    let seen = tree.iter().filter(|(path, _)| !without.contains(*path));
    seen.map(|(path, object)| {
        let path = path.escape_ascii().to_string();
        (path, format!("{:?} {}", object.kind, object.content.escape_ascii()))
    })
    .collect()
}

/// All names of the files that get something of the base.
fn names_of_both(world: &World, plan: &ApplyPlan) -> BTreeSet<Vec<u8>> {
    let unchanged = plan.unchanged.iter().map(|unchanged| &unchanged.copy.path);
    let paths = plan.merged.iter().map(|merged| &merged.path).chain(unchanged);
    let paths: BTreeSet<_> = paths.map(|path| path.as_bytes()[1..].to_vec()).collect();
    let tree = merged(&world.session(), Some(&world.base()));
    let firsts: BTreeSet<_> =
        paths.iter().filter_map(|path| tree.get(path)).map(|object| &object.first).collect();
    let names = tree.iter().filter(|(_, object)| firsts.contains(&object.first));
    names.map(|(path, _)| path.clone()).chain(paths).collect()
}

fn check(world: &mut World, written: &BTreeSet<String>) -> bool {
    let base = world.base();
    let options = ApplyOptions { skip_drifted: true, ..all() };
    let plan = planned(&open(world), None, &options).unwrap();
    let both = names_of_both(world, &plan);
    let (persons, before) = (texts(&base, written), seen(world, &both));
    let report = apply_served(world, &options);
    let skipped = report.skipped.iter();
    let skipped: BTreeSet<_> =
        skipped.map(|skipped| (skipped.path.display().to_string(), skipped.why.clone())).collect();
    let left = left_out(&plan);
    assert_eq!(skipped, left, "skipped at its step, not left out of the plan");
    assert_eq!(texts(&base, written), persons, "a person's text is lost");
    let (after, told) = (seen(world, &both), told(world));
    assert_eq!(after, before, "what clients see");
    let missing: Vec<_> = left.iter().filter(|(path, _)| !told.contains(path)).collect();
    assert!(missing.is_empty(), "not in the diff: {missing:?}, {told:?}");

    let again = left_out(&planned(&open(world), None, &options).unwrap());
    // A copy that was dropped may have hidden what the base has at its place.
    let is_same = paths(&again) == paths(&left);
    assert!(is_same || !plan.unchanged.is_empty(), "left out again: {again:?}, before: {left:?}");
    let host = on_host(&base);
    let report = apply_served(world, &options);
    let skipped: BTreeSet<_> =
        report.skipped.iter().map(|skipped| skipped.path.display().to_string()).collect();
    assert_eq!(skipped, paths(&again));
    assert_same(&on_host(&base), &host);
    !left.is_empty()
}

#[test]
fn what_drifted_is_left_out_whole_and_all_else_is_applied() {
    // For more of them.
    let first: u64 = std::env::var("ACETATE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let count: u64 = std::env::var("ACETATE_CASES").map_or(CASES, |count| count.parse().unwrap());
    let mut cases = cases(first..first + count, FEW_NAMES, |_, _| BTreeSet::new());
    let clients = |world: &World, random: &mut Random| {
        for number in 0..1 + random.below(12) {
            change_merged(world, random, number);
        }
    };
    change_both(&mut cases, clients, |Case { world, random, written, .. }| {
        for number in 0..1 + random.below(6) {
            written.extend(change_tree(&world.base(), random, number));
        }
    });
    let (mut failed, mut leaving) = (Vec::new(), 0);
    for Case { seed, world, written, .. } in &mut cases {
        match catch_unwind(AssertUnwindSafe(|| check(world, written))) {
            Ok(left_out) => leaving += u64::from(left_out),
            Err(_) => failed.push(*seed),
        }
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
    assert!(count < CASES || leaving > count / 8, "{leaving} of {count}");
}
