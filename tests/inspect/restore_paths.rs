//! Restoring paths.

use std::collections::{BTreeMap, BTreeSet};

use acetate::delta::{
    Checkpoint, CheckpointId, MergedPath, RestoreOutcome, RestorePaths, RestoreRequest,
    RestoredTree, StoreError,
};
use acetate::inspect::restore::RestorePlan;
use acetate::inspect::restore_paths::plan_restore_paths;
use acetate::overlay::CopyLimits;
use acetate::vfs::{FsError, Time};

use super::checkpoints::{open_at, step_or_discard, tree};
use crate::support::check::assert_consistent;
use crate::support::random::Random;
use crate::support::world::{Setup, World};

fn merged(path: &str) -> MergedPath {
    MergedPath::from_user(path.as_bytes()).unwrap()
}

fn plan(world: &World, to: &Checkpoint, paths: &[&str]) -> RestorePlan {
    let paths: Vec<_> = paths.iter().map(|path| merged(path)).collect();
    plan_restore_paths(&open_at(world, None), None, to, &paths).unwrap()
}

fn restore_plan(world: &World, to: &Checkpoint, plan: &RestorePlan) -> RestoredTree {
    let restore = RestoreRequest { to: to.id, seen: Some(plan.seen), time: Time::default() };
    let closed = plan.scope.as_ref().unwrap().closed.clone();
    match world.wait(world.overlay.restore_paths(&world.caller, restore, closed)).unwrap() {
        RestoreOutcome::Restored(restored) => restored,
        other => panic!("{other:?}"),
    }
}

/// Restores paths; returns those that went along.
fn restore(world: &World, to: &Checkpoint, paths: &[&str]) -> Vec<String> {
    let plan = plan(world, to, paths);
    restore_plan(world, to, &plan);
    plan.scope.unwrap().along().map(|path| path.display().to_string()).collect()
}

/// What is said of an object, but for its last times: `times` is 1 for the ctime, and 2 for both.
fn without_times(what: &str, times: usize) -> &str {
    (0..times).fold(what, |what, _| what.rsplit_once(" Time").unwrap().0)
}

/// The same, without the number of names, which is last.
fn without_links(what: &str) -> &str {
    what.rsplit_once(' ').unwrap().0
}

/// The file number in what is said of an object.
fn number(what: &str) -> &str {
    what.split_once("FileId(").unwrap().1.split_once(')').unwrap().0
}

fn is_within(path: &str, paths: &BTreeSet<MergedPath>) -> bool {
    let path = merged(path);
    paths.iter().any(|above| path.is_within(above))
}

/// Checks that the tree `now` is `then` at the closed paths, and `before` elsewhere.
fn check_restored(
    closed: &RestorePaths,
    then: &BTreeMap<String, String>,
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    what: &str,
) {
    let parents: BTreeSet<_> =
        closed.paths.union(&closed.dirs).map(|path| path.parent().display().to_string()).collect();
    let is_restored = |path: &String| is_within(path, &closed.paths);
    let all = then.iter().chain(before);
    let restored: BTreeSet<_> =
        all.filter(|(path, _)| is_restored(path)).map(|(_, what)| number(what)).collect();
    for path in then.keys().chain(before.keys()).chain(now.keys()) {
        let is_alone = closed.dirs.contains(&merged(path));
        let is_there = is_alone || is_restored(path);
        let expected = if is_there { then.get(path) } else { before.get(path) };
        let strip = |what: &String| match is_there {
            true if is_alone => without_times(what, 2).to_owned(),
            true => without_times(what, 1).to_owned(),
            // The entries of a directory above change its times.
            false if parents.contains(path) => without_times(what, 2).to_owned(),
            // Another name of the same base file may have come or gone.
            false if restored.contains(number(what)) => {
                let (before, mtime) = without_times(what, 1).rsplit_once(" Time").unwrap();
                without_links(before).to_owned() + mtime
            }
            false => what.clone(),
        };
        let (is, expected) = (now.get(path).map(strip), expected.map(strip));
        assert_eq!(is, expected, "{what}: {path}: {closed:?}\n{before:#?}\n{then:#?}\n{now:#?}");
    }
}

/// Random changes, and random paths that are restored: these are what they were, all else stays,
/// the session is sound, and an undo takes it back.
#[test]
fn restored_paths_are_those_of_their_moment() {
    let base =
        "a/a \"aa\"\na/b \"ab\"\na/c/a \"aca\"\nb/a \"ba\"\nb/b = b/a\nc \"c\"\nd/a/b \"dab\"\n";
    let seeds = std::env::var("ACETATE_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(16) {
        let mut world = World::new(base);
        let mut random = Random::new(seed);
        let mut known: BTreeMap<CheckpointId, (Checkpoint, BTreeMap<String, String>)> =
            BTreeMap::new();
        for round in 0..9 {
            for _ in 0..random.below(12) {
                step_or_discard(&world, &mut random);
            }
            if known.is_empty() || random.below(3) == 0 {
                let made = world.checkpoint();
                known.insert(made.id, (made, tree(&world, None)));
                continue;
            }
            if random.below(4) == 0 {
                world.reopen();
            }
            let (to, then) = known.values().nth(random.below(known.len())).cloned().unwrap();
            let before = tree(&world, None);
            let all: BTreeSet<_> =
                then.keys().chain(before.keys()).filter(|path| *path != "/").collect();
            if all.is_empty() {
                continue;
            }
            let all: Vec<_> = all.into_iter().collect();
            let count = 1 + random.below(2);
            let paths: Vec<_> = (0..count).map(|_| all[random.below(all.len())].as_str()).collect();
            let what = format!("seed {seed}, round {round}, checkpoint {}: {paths:?}", to.id);
            let plan = plan(&world, &to, &paths);
            world.tick(1);
            let restored = restore_plan(&world, &to, &plan);
            let now = tree(&world, None);
            let scope = plan.scope.unwrap();
            check_restored(&scope.closed, &then, &before, &now, &what);
            for path in &paths {
                let [is, was] = [&now, &then].map(|tree| tree.get(*path));
                let is_restored = is_within(path, &scope.closed.paths);
                // Nothing but the number of names elsewhere may be left to differ.
                let strip = |what: &String| {
                    let what = without_times(what, 2);
                    if is_restored { what } else { without_links(what) }.to_owned()
                };
                assert_eq!(is.map(strip), was.map(strip), "{what}: {path}");
            }
            assert_consistent(&world.session());
            let listed = open_at(&world, None).session().checkpoints().unwrap();
            let safety = listed.into_iter().find(|one| one.id == restored.before).unwrap();
            known.entry(safety.id).or_insert((safety.clone(), before.clone()));
            if random.below(3) == 0 {
                let all = RestoreRequest { to: safety.id, seen: None, time: Time::default() };
                world.wait(world.overlay.restore(&world.caller, all)).unwrap();
                let undone = tree(&world, None);
                for path in undone.keys().chain(before.keys()) {
                    let strip = |what: &String| without_times(what, 1).to_owned();
                    let (is, was) = (undone.get(path), before.get(path));
                    assert_eq!(is.map(strip), was.map(strip), "{what}: undo: {path}");
                }
            }
            for (id, (checkpoint, then)) in &known {
                let shown = tree(&world, Some(checkpoint));
                assert_eq!(&shown, then, "{what}: {id}");
            }
        }
        world.close();
    }
}

fn read(world: &World, path: &str) -> String {
    String::from_utf8(world.read(path).unwrap()).unwrap()
}

#[test]
fn other_paths_stay() {
    let mut world = World::new("dir/base \"base\"\ndir/kept \"kept\"\n");
    for name in ["dir/edited", "dir/goes", "other"] {
        world.put(name, "then");
    }
    let goes = world.find("dir/goes").unwrap();
    let checkpoint = world.checkpoint();
    world.put("dir/edited", "now");
    world.put("other", "now");
    world.remove("dir/goes").unwrap();
    world.remove("dir/base").unwrap();
    world.put("dir/kept", "now");
    world.put("dir/later", "now");
    let later = world.find("dir/later").unwrap();
    assert_eq!(restore(&world, &checkpoint, &["dir/edited"]), [""; 0]);
    assert_eq!((read(&world, "dir/edited"), read(&world, "other")), ("then".into(), "now".into()));
    assert!(world.find("dir/goes").is_err());
    restore(&world, &checkpoint, &["dir/goes", "dir/base"]);
    assert_eq!(
        (read(&world, "dir/goes"), read(&world, "dir/base")),
        ("then".into(), "base".into())
    );
    assert_eq!(world.getattr(&goes.object).unwrap().fileid, goes.attr.fileid);
    assert!(world.find("dir/later").is_ok() && read(&world, "dir/kept") == "now");
    restore(&world, &checkpoint, &["dir/later"]);
    assert_eq!(world.getattr(&later.object), Err(FsError::Stale));
    // The base's object shows again, and is no copy.
    restore(&world, &checkpoint, &["dir/kept"]);
    assert_eq!(read(&world, "dir/kept"), "kept");
    let copies = "SELECT count(*) FROM acetate_origin WHERE base_path LIKE 'dir/%'";
    assert_eq!(world.sql_value::<i64>(copies), 0);
    assert_eq!(world.whiteouts(), [""; 0]);
    assert_eq!(read(&world, "other"), "now");
    world.close();
}

/// A restore of one path.
struct ClosureCase {
    /// The changes after the checkpoint.
    change: fn(&World),
    /// The path that is restored.
    path: &'static str,
    /// The paths that must go along.
    along: &'static [&'static str],
    /// All paths of the tree afterwards.
    left: &'static [&'static str],
}

const BASE: &str = "d/in/x \"x\"\nd/in/y \"y\"\nd/z \"z\"\nf \"f\"\nl \"l\"\nm = l\n";

const CASES: &[ClosureCase] = &[
    // Both ends of a move.
    ClosureCase {
        change: |world| world.rename("f", "d/g").unwrap(),
        path: "f",
        along: &["/d/g"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "f", "l", "m"],
    },
    ClosureCase {
        change: |world| world.rename("f", "d/g").unwrap(),
        path: "d/g",
        along: &["/f"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "f", "l", "m"],
    },
    // All names of a file.
    ClosureCase {
        change: |world| {
            world.put("m", "M");
            world.remove("f").unwrap();
        },
        path: "l",
        along: &["/m"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "l", "m"],
    },
    ClosureCase {
        change: |world| {
            world.link("f", "d/g").unwrap();
            world.put("f", "F");
        },
        path: "d/g",
        along: &["/f"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "f", "l", "m"],
    },
    // A directory that moved goes along with what changed in it, by either path.
    ClosureCase {
        change: |world| {
            world.rename("d", "e").unwrap();
            world.put("e/in/x", "X");
            world.remove("f").unwrap();
        },
        path: "e/in/x",
        along: &["/d", "/e"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "l", "m"],
    },
    ClosureCase {
        change: |world| {
            world.rename("d", "e").unwrap();
            world.remove("e/in/x").unwrap();
        },
        path: "d/in/x",
        along: &["/d", "/e"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "f", "l", "m"],
    },
    // What is new in it does not need the directory.
    ClosureCase {
        change: |world| {
            world.rename("d", "e").unwrap();
            world.put("e/in/new", "new");
        },
        path: "e/in/new",
        along: &[],
        left: &["e", "e/in", "e/in/x", "e/in/y", "e/z", "f", "l", "m"],
    },
    // Directories above that are missing come back alone.
    ClosureCase {
        change: |world| remove_dir(world),
        path: "d/in/x",
        along: &["/d", "/d/in"],
        left: &["d", "d/in", "d/in/x", "f", "l", "m"],
    },
    // What is in the place of a directory goes along.
    ClosureCase {
        change: |world| {
            remove_dir(world);
            world.put("d", "a file");
        },
        path: "d/in/x",
        along: &["/d"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "f", "l", "m"],
    },
    ClosureCase {
        change: |world| {
            remove_dir(world);
            world.mkdir("d").unwrap();
            world.put("d/new", "new");
        },
        path: "d/z",
        along: &["/d"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "f", "l", "m"],
    },
    ClosureCase {
        change: |world| {
            world.remove("f").unwrap();
            world.mkdir("f").unwrap();
            world.rename("d/in", "f/in").unwrap();
        },
        path: "f",
        along: &["/d/in"],
        left: &["d", "d/in", "d/in/x", "d/in/y", "d/z", "f", "l", "m"],
    },
];

fn remove_dir(world: &World) {
    for path in ["d/in/x", "d/in/y", "d/z"] {
        world.remove(path).unwrap();
    }
    world.rmdir("d/in").unwrap();
    world.rmdir("d").unwrap();
}

#[test]
fn paths_on_which_a_restored_one_depends_go_along() {
    for (at, case) in CASES.iter().enumerate() {
        // Over the base, and of copies that the session made before.
        for is_copied in [false, true] {
            let mut world = World::new(BASE);
            if is_copied {
                for path in ["d/in/x", "d/z", "f", "l"] {
                    world.chmod(path, 0o600).unwrap();
                }
                world.chmod("d/in", 0o700).unwrap();
            }
            let checkpoint = world.checkpoint();
            let then = tree(&world, None);
            (case.change)(&world);
            let before = tree(&world, None);
            let plan = plan(&world, &checkpoint, &[case.path]);
            world.tick(1);
            let restored = restore_plan(&world, &checkpoint, &plan);
            let scope = plan.scope.unwrap();
            let along: Vec<_> = scope.along().map(|path| path.display().to_string()).collect();
            let what = format!("{at}: {} {is_copied}", case.path);
            assert_eq!(along, case.along, "{what}");
            let now = tree(&world, None);
            let left: Vec<_> =
                now.keys().filter(|path| *path != "/").map(|path| &path[1..]).collect();
            assert_eq!(left, case.left, "{what}");
            check_restored(&scope.closed, &then, &before, &now, &what);
            let shown = open_at(&world, None).session().checkpoints().unwrap();
            let safety = shown.into_iter().find(|one| one.id == restored.before).unwrap();
            assert_eq!(tree(&world, Some(&safety)), before, "{what}");
            world.close();
        }
    }
}

/// A directory that came back alone is the same one: the rest can follow.
#[test]
fn the_rest_of_a_directory_can_follow() {
    let mut world = World::new(BASE);
    world.put("d/own", "own");
    let dir = world.find("d").unwrap();
    let checkpoint = world.checkpoint();
    let then = tree(&world, None);
    world.remove("d/own").unwrap();
    remove_dir(&world);
    assert_eq!(restore(&world, &checkpoint, &["d/own"]), ["/d"]);
    assert_eq!(world.getattr(&dir.object).unwrap().fileid, dir.attr.fileid);
    assert_eq!(restore(&world, &checkpoint, &["d/in/y"]), ["/d/in"]);
    assert_eq!(restore(&world, &checkpoint, &["d/in", "d/z"]), [""; 0]);
    for (path, was) in &then {
        let is = tree(&world, None)[path].clone();
        assert_eq!(without_times(&is, 2), without_times(was, 2), "{path}");
    }
    world.close();
}

#[test]
fn a_path_in_a_moved_base_directory_comes_back_at_its_new_place() {
    let mut world = World::new(BASE);
    world.rename("d", "e").unwrap();
    world.put("e/in/x", "X");
    let checkpoint = world.checkpoint();
    world.remove("e/in/x").unwrap();
    world.remove("e/in/y").unwrap();
    world.put("e/z", "Z");
    assert_eq!(restore(&world, &checkpoint, &["e/in/y"]), [""; 0]);
    assert_eq!(read(&world, "e/in/y"), "y");
    assert!(world.find("e/in/x").is_err());
    assert_eq!(restore(&world, &checkpoint, &["e/in/x"]), [""; 0]);
    assert_eq!((read(&world, "e/in/x"), read(&world, "e/z")), ("X".into(), "Z".into()));
    world.rename("e", "g").unwrap();
    assert_eq!(restore(&world, &checkpoint, &["g/z"]), ["/e", "/g"]);
    assert_eq!(read(&world, "e/z"), "z");
    assert!(world.find("g").is_err() && world.find("d").is_err());
    world.close();
}

#[test]
fn a_path_that_was_never_there_is_refused_with_similar_paths() {
    let world = World::new("src/main.rs \"m\"\nsrc/lib.rs \"l\"\n");
    world.put("src/gone.rs", "gone");
    let checkpoint = world.checkpoint();
    world.remove("src/gone.rs").unwrap();
    let now = open_at(&world, None);
    for (path, instead) in [
        ("src/gnoe.rs", "similar paths: /src/gone.rs"),
        ("src/lin.rs", "similar paths: /src/lib.rs, /src/main.rs"),
        ("src/main.rs/x", "similar paths: /src/main.rs"),
        ("lib/other", "the closest directory above is /"),
    ] {
        let refused = plan_restore_paths(&now, None, &checkpoint, &[merged(path)]).unwrap_err();
        let expected = format!("/{path}: neither there now nor at the checkpoint; {instead}");
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn a_plan_is_refused_after_a_later_change() {
    let world = World::new("f \"f\"\n");
    let checkpoint = world.checkpoint();
    world.put("f", "now");
    let plan = plan(&world, &checkpoint, &["f"]);
    world.rename("f", "g").unwrap();
    let to = RestoreRequest { to: checkpoint.id, seen: Some(plan.seen), time: Time::default() };
    let closed = plan.scope.unwrap().closed;
    let done = world.wait(world.overlay.restore_paths(&world.caller, to, closed));
    assert_eq!(done.unwrap(), RestoreOutcome::ChangedSince);
    assert_eq!(read(&world, "g"), "now");
}

/// What is still to be copied of other files stays so, and pieces of one file come back.
#[test]
fn content_of_other_files_stays_as_it_is() {
    let (one, two) = ("a".repeat(4000), "b".repeat(4000));
    let base = Some(format!("dir/one \"{one}\"\ndir/two \"{two}\"\n"));
    let copy_up = CopyLimits::of(1000, 1024);
    let mut world = World::with(Setup { base, chunk_bytes: 512, copy_up, ..Setup::default() });
    world.write("dir/one", 0, b"1").unwrap();
    world.write("dir/two", 0, b"2").unwrap();
    let checkpoint = world.checkpoint();
    for path in ["dir/one", "dir/two"] {
        world.write(path, 700, b"changed").unwrap();
        world.truncate(path, 3000).unwrap();
    }
    assert_eq!(restore(&world, &checkpoint, &["dir/one"]), [""; 0]);
    let changed = format!("2{}changed{}", "b".repeat(699), "b".repeat(3000 - 707));
    let check = |world: &World| {
        assert!(read(world, "dir/one") == one.replacen('a', "1", 1));
        assert!(read(world, "dir/two") == changed);
    };
    check(&world);
    let pending = "SELECT count(*) FROM acetate_copy_up";
    assert_eq!(world.sql_value::<i64>(pending), 2);
    world.finish_copies();
    assert_eq!(world.sql_value::<i64>(pending), 0);
    check(&world);
    restore(&world, &checkpoint, &["dir/two"]);
    assert!(read(&world, "dir/two") == two.replacen('b', "2", 1));
    world.close();
}

/// A full disk stops a restore of paths at any step: nothing has changed.
#[test]
fn a_restore_of_paths_that_fails_changes_nothing() {
    for (method, call) in [("restore", 1), ("add_whiteout", 1), ("record", 1), ("commit", 2)] {
        let mut world = World::new(BASE);
        let checkpoint = world.checkpoint();
        remove_dir(&world);
        let before = tree(&world, None);
        let found = plan(&world, &checkpoint, &["d/in/x"]);
        world.faults.fail(method, call, StoreError::full("full"));
        let to = RestoreRequest { to: checkpoint.id, seen: None, time: Time::default() };
        let closed = found.scope.unwrap().closed;
        let failed = world.wait(world.overlay.restore_paths(&world.caller, to, closed));
        assert_eq!(failed.unwrap_err(), FsError::NoSpace.into(), "{method}");
        assert!(!world.faults.clear(), "{method} was not called");
        assert_eq!(tree(&world, None), before, "{method}");
        restore(&world, &checkpoint, &["d/in/x"]);
        assert_eq!(read(&world, "d/in/x"), "x");
        world.close();
    }
}
