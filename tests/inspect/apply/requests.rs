//! Many changes, of which the session is told in several requests.

use std::ops::ControlFlow;

use acetate::delta::{Ino, MergedPath};
use acetate::inspect::Result;
use acetate::inspect::apply::{
    AppliedChange, ApplyEvent, Consent, DroppedCopy, SessionUpdater, apply,
};
use acetate::overlay::CopyStep;

use super::open;
use super::undo_random::Random;
use crate::support::applied::{Book, all, assert_same, merged, on_host, planned};
use crate::support::world::World;

/// Forgets so many changes at once.
struct InRequests<'a>(Book<'a>, usize);

impl SessionUpdater for InRequests<'_> {
    fn copy(&mut self, from: Ino) -> Result<CopyStep> {
        self.0.copy(from)
    }

    fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>> {
        let mut all_kept = Vec::new();
        for request in AppliedChange::in_requests(applied.iter().collect(), self.1) {
            let request: Vec<_> = request.into_iter().cloned().collect();
            all_kept.extend(self.0.forget(&request, is_first)?);
        }
        Ok(all_kept)
    }

    fn settle_moves(&mut self) -> Result<()> {
        self.0.settle_moves()
    }

    fn drop_unchanged(&mut self, copies: &[DroppedCopy]) {
        self.0.drop_unchanged(copies);
    }
}

/// Applies so many changes per request, and asserts that all is as it was, and that the session
/// has nothing left.
#[track_caller]
fn assert_is_let_go(mut world: World, most: usize) {
    let base = world.change_base();
    let before = merged(&world.session(), Some(&base));
    let opened = open(&world);
    let plan = planned(&opened, None, &all()).unwrap();
    assert!(plan.changes.len() > most, "{plan:#?}");
    let mut watch = |_: ApplyEvent| ControlFlow::Continue(());
    let mut book = InRequests(Book(&world), most);
    let report =
        apply(&opened, None, &all(), Consent::Shown(&plan), Some(&mut book), &mut watch).unwrap();
    assert_eq!(report.skipped, [], "{most} at once");
    assert_same(&on_host(&base), &before);
    drop(opened);
    world.reopen();
    assert_same(&merged(&world.session(), Some(&base)), &before);
    assert_eq!(world.whiteouts(), [""; 0]);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_dentry"), 0, "{most} at once");
}

#[test]
fn a_directory_that_moved_after_many_changes() {
    for most in 1..5 {
        let world = World::new("1/1 \"1\"\nfrom/dir/2 \"2\"");
        world.mkdir("new").unwrap();
        for name in ["a", "b", "new/a", "new/b"] {
            world.put(name, name);
        }
        world.rename("1", "one").unwrap();
        world.rename("from/dir", "new/dir").unwrap();
        assert_is_let_go(world, most);
    }
}

#[test]
fn a_directory_that_was_made_where_another_one_moved_away() {
    for most in 1..5 {
        let world = World::new("modules/old \"old\"\nmodules/a \"old a\"");
        world.rename("modules", "was").unwrap();
        world.mkdir("modules").unwrap();
        for name in ["modules/a", "modules/b", "modules/c"] {
            world.put(name, "new");
        }
        assert_is_let_go(world, most);
    }
}

#[test]
fn directories_that_changed_places_with_much_between_them() {
    for most in 1..5 {
        let world = World::new("a/in \"a\"\nx/in \"x\"");
        world.rename("a", "t").unwrap();
        world.rename("x", "a").unwrap();
        world.rename("t", "x").unwrap();
        for name in ["a/new", "b", "c", "x/new"] {
            world.put(name, "new");
        }
        assert_is_let_go(world, most);
    }
}

#[test]
fn directories_and_files_of_which_each_took_the_place_of_another() {
    for most in 1..8 {
        let world = World::new("a/s/in \"a\"\nb/s/in \"b\"\nc/in \"c\"\nf \"f\"\ng \"g\"");
        for (from, to) in [("c", "t"), ("b", "c"), ("a", "b"), ("t", "a"), ("f", "t"), ("g", "f")] {
            world.rename(from, to).unwrap();
        }
        world.rename("t", "g").unwrap();
        world.mkdir("new").unwrap();
        world.rename("a", "new/a").unwrap();
        world.put("new/more", "more");
        assert_is_let_go(world, most);
    }
}

/// Moves the entries of some directories, and the directories, each to the place of another.
fn rotate(world: &World, paths: &[String]) {
    let [first, .., last] = paths else { return };
    let (first, last) = (first.clone(), last.clone());
    world.rename(&last, "t").unwrap();
    for pair in paths.windows(2).rev() {
        world.rename(&pair[0], &pair[1]).unwrap();
    }
    world.rename("t", &first).unwrap();
}

#[test]
fn objects_of_rotated_directories_that_changed_places_too() {
    const DIRS: [&str; 3] = ["a", "b", "c"];
    const NAMES: [&str; 6] = ["d1", "d2", "d3", "f1", "f2", "f3"];
    let file = |dir: &str, name: &str| format!("{dir}/{name} \"{dir}/{name}\"\n");
    let entry = |dir: &str, name: &str| match name.starts_with('d') {
        true => file(dir, &format!("{name}/in")),
        false => file(dir, name),
    };
    let tree = DIRS.map(|dir| NAMES.map(|name| entry(dir, name)).concat()).concat();
    let first: u64 = std::env::var("ACETATE_SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut split = 0;
    for seed in first..first + 48 {
        let mut random = Random::new(seed);
        let world = World::new(&tree);
        for number in 0..3 {
            let mut paths: Vec<_> = DIRS.map(str::to_owned).to_vec();
            if number != 1 {
                let (one, other) = (DIRS[random.below(3)], DIRS[random.below(3)]);
                let kind = random.below(2) * 3;
                let path = |at: usize| format!("{}/{}", [one, other][at % 2], NAMES[kind + at]);
                paths = (0..3).map(path).collect();
            }
            if random.below(2) == 0 {
                paths.reverse();
            }
            rotate(&world, &paths);
        }
        let changes = planned(&open(&world), None, &all()).unwrap().changes;
        let most = AppliedChange::count_inseparable(&changes).max(1 + random.below(4));
        if most < changes.len() {
            split += 1;
            assert_is_let_go(world, most);
        }
    }
    assert!(split > 24, "{split}");
}
