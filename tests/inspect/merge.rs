//! Merges of forks.

use std::collections::BTreeSet;
use std::fs;

use acetate::delta::MergedPath;
use acetate::inspect::merge::{MergeChoice, MergePlan, MergeSide};
use acetate::overlay::CopyLimits;

use super::checkpoints::step;
use crate::support::forked::{Forked, plan};
use crate::support::looked::look;
use crate::support::random::Random;
use crate::support::three_way::{Seen, SeenTree, Sides, tree};
use crate::support::world::{Setup, World};

const BASE: &str = "a/a \"aa\"\na/b \"ab\"\na/c/a \"aca\"\nb/a \"ba\"\nb/b \"bb\"\nc \"c\"\n\
                    d/a/b \"dab\"\ne/a \"ea\"\ne/b \"eb\"\n";

fn take(side: MergeSide, path: &str) -> MergeChoice {
    MergeChoice { side, path: MergedPath::from_bytes(path.as_bytes()).unwrap() }
}

/// What is the same whatever numbers objects have.
fn without_numbers(tree: &SeenTree) -> SeenTree {
    tree.iter().map(|(path, seen)| (path.clone(), Seen { number: 0, ..seen.clone() })).collect()
}

fn random_fork(random: &mut Random, ours: usize, theirs: usize) -> Forked {
    let world = World::new(BASE);
    for _ in 0..random.below(10) {
        step(&world, random);
    }
    let forked = Forked::new(world);
    for _ in 0..ours {
        step(&forked.world, random);
    }
    for _ in 0..theirs {
        step(&forked.fork, random);
    }
    forked
}

/// As after another program changed the session: nothing is known of the tree at its checkpoints.
fn forget(world: &mut World) {
    world.close();
    let sql = world.sql();
    let mut old = "UPDATE acetate_checkpoint SET incomplete = 'other-program';".to_owned();
    let find = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'acetate_old_*'";
    let mut find = sql.prepare(find).unwrap();
    let tables = find.query_map([], |row| row.get::<_, String>(0)).unwrap();
    tables.for_each(|table| old.push_str(&format!("DELETE FROM {};", table.unwrap())));
    drop(find);
    sql.execute_batch(&old).unwrap();
    drop(sql);
    world.open_again();
}

/// A session that did not change gets exactly what the fork has.
#[test]
fn a_merge_alone_makes_the_tree_of_the_fork() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut forked = random_fork(&mut random, 0, 25);
        match seed % 3 {
            0 => {}
            1 => forget(&mut forked.world),
            _ => forget(&mut forked.fork),
        }
        let plan = forked.merge(&[]);
        assert_eq!(plan.conflicts, [], "seed {seed}");
        let merged = tree(&look(&forked.world.session(), None));
        let expected = without_numbers(&tree(&look(&forked.fork.session(), None)));
        let is = without_numbers(&merged);
        let paths: BTreeSet<_> = is.keys().chain(expected.keys()).collect();
        for path in paths {
            let path_shown = path.display();
            assert_eq!(is.get(path), expected.get(path), "seed {seed}: {path_shown} {plan:#?}");
        }
    }
}

/// Random changes on both sides, against a merge by numbers.
#[test]
fn what_one_side_changed_is_taken_from_it() {
    let (mut merges, mut conflicts) = (0, 0);
    for seed in 0..60 {
        let mut random = Random::new(1000 + seed);
        let mut forked = random_fork(&mut random, 22, 22);
        let old = tree(&look(&forked.world.session(), Some(&forked.point)));
        match seed % 3 {
            0 => {}
            1 => forget(&mut forked.world),
            _ => forget(&mut forked.fork),
        }
        let ours = tree(&look(&forked.world.session(), None));
        let theirs = tree(&look(&forked.fork.session(), None));
        let nothing = forked.merge(&[take(MergeSide::Ours, "/")]);
        assert_eq!((&nothing.changes[..], &nothing.conflicts[..]), (&[][..], &[][..]));
        let mut plan = forked.merge(&[]);
        if plan.conflicts.is_empty() {
            merges += 1;
            let sides = Sides { old, ours, theirs };
            println!("seed {seed}: {:#?}\n{sides}", plan.changes);
            sides.check_merged(&tree(&look(&forked.world.session(), None)));
            plan = forked.merge(&[]);
            assert_eq!(plan.conflicts, [], "seed {seed}");
        } else {
            conflicts += 1;
            assert_eq!(tree(&look(&forked.world.session(), None)), ours, "seed {seed}");
            let forced = forked.merge(&[take(MergeSide::Theirs, "/")]);
            assert_eq!(forced.conflicts, [], "seed {seed}");
        }
    }
    assert!(merges > 8 && conflicts > 8, "{merges} merges, {conflicts} conflicts");
}

/// The conflicts' paths.
fn conflicts(plan: &MergePlan) -> Vec<String> {
    plan.conflicts.iter().map(|conflict| conflict.path.display().to_string()).collect()
}

#[track_caller]
fn assert_settled(forked: &Forked, takes: &[MergeChoice]) {
    let plan = forked.merge(takes);
    assert_eq!(conflicts(&plan), Vec::<String>::new());
    let again = forked.merge(&[]);
    assert_eq!((&again.changes[..], &again.conflicts[..]), (&[][..], &[][..]), "{plan:#?}");
}

/// A file that got a second name, and whose first one moved, is settled by a merge.
#[test]
fn names_that_a_merge_made_are_no_conflict_afterwards() {
    let forked = Forked::new(World::new("d1/s/x \"x\"\nd2/b \"b\"\n"));
    forked.fork.link("d2/b", "n").unwrap();
    forked.fork.rename("d2/b", "d1/s/b").unwrap();
    let number = forked.world.stat("d2/b").fileid;
    assert_settled(&forked, &[]);
    assert_eq!(forked.world.stat("n").fileid, forked.world.stat("d1/s/b").fileid);
    assert_eq!(forked.world.stat("n").fileid, number, "it is the same file");
    assert!(!forked.world.exists("d2/b"));
}

/// The same where the session gave it another content: both stay one file.
#[test]
fn names_of_a_file_that_the_session_changed_stay_one_file() {
    let forked = Forked::new(World::new("a \"a\"\nd/x \"x\"\n"));
    forked.fork.link("a", "d/a").unwrap();
    forked.fork.rename("a", "d/b").unwrap();
    forked.world.put("a", "changed");
    assert_settled(&forked, &[]);
    assert_eq!((&*forked.world.cat("d/a"), &*forked.world.cat("d/b")), ("changed", "changed"));
    assert_eq!(forked.world.stat("d/a").nlink, 2);
}

/// Of a file with several names, each name is decided for itself if both sides changed them.
#[test]
fn a_name_that_one_side_moved_stays_where_the_other_deleted_it() {
    for is_moved_here in [true, false] {
        let forked = Forked::new(World::new("a \"a\"\nb = a\n"));
        let (mover, other) = match is_moved_here {
            true => (&forked.world, &forked.fork),
            false => (&forked.fork, &forked.world),
        };
        mover.rename("a", "c").unwrap();
        other.remove("a").unwrap();
        assert_settled(&forked, &[]);
        assert_eq!(forked.world.ls(""), ["b", "c"]);
        assert_eq!(forked.world.stat("b").fileid, forked.world.stat("c").fileid);
    }
}

/// Content that cannot be read is not needed where the session's side is taken.
#[test]
fn what_is_not_taken_is_not_read() {
    let base = format!("d/large \"{}\"\n", "x".repeat(3000));
    let copy_up = CopyLimits::of(700, 512);
    let setup = Setup { base: Some(base), chunk_bytes: 512, copy_up, ..Setup::default() };
    let mut forked = Forked::new(World::with(setup));
    // Most of it is still in the base alone.
    forked.fork.write("d/large", 0, b"changed").unwrap();
    forked.fork.put("new", "new");
    let base = forked.world.change_base();
    forked.fork.change_base();
    fs::write(base.join("d/large"), "y".repeat(3000)).unwrap();
    let error = plan(&forked.world.session(), &forked.fork.session(), &[]).unwrap_err();
    assert!(error.to_string().contains("/d/large"), "{error}");
    for path in ["/d/large", "/d"] {
        let (plan, _) =
            plan(&forked.world.session(), &forked.fork.session(), &[take(MergeSide::Ours, path)])
                .unwrap();
        assert_eq!((plan.changes.len(), &plan.conflicts[..]), (1, &[][..]), "{plan:?}");
        assert_eq!(plan.unused, [], "it decides something");
    }
    let takes = [take(MergeSide::Ours, "/"), take(MergeSide::Theirs, "/d/large")];
    assert!(plan(&forked.world.session(), &forked.fork.session(), &takes).is_err());
}
