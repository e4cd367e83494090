//! Merges of forks.

use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, fs, io};

use acetate::delta::sqlite::{Host, Session};
use acetate::delta::{Checkpoint, MergedPath, NewCheckpoint};
use acetate::inspect::merge::{MergeChoice, MergePlan, MergeSide, fork_points, plan_merge};
use acetate::inspect::opened::OpenSession;
use acetate::inspect::walk::{WalkControl, walk};
use acetate::overlay::{ChangeStep, ChangeSteps, StepsOutcome};
use acetate::vfs::FileKind;

use super::checkpoints::{open_at, open_file, step};
use crate::support::random::Random;
use crate::support::world::World;

const BASE: &str = "a/a \"aa\"\na/b \"ab\"\na/c/a \"aca\"\nb/a \"ba\"\nb/b \"bb\"\nc \"c\"\n\
                    d/a/b \"dab\"\ne/a \"ea\"\ne/b \"eb\"\n";

struct Listed(Vec<ChangeStep>, usize);

impl ChangeSteps for Listed {
    fn restart(&mut self) -> io::Result<()> {
        self.1 = 0;
        Ok(())
    }

    fn next(&mut self) -> io::Result<Option<ChangeStep>> {
        self.1 += 1;
        Ok(self.0.get(self.1 - 1).cloned())
    }
}

/// The number and the properties of each object, by path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    number: u64,
    is_dir: bool,
    mode: u32,
    content: Vec<u8>,
}

fn tree(opened: &OpenSession) -> BTreeMap<MergedPath, Seen> {
    let mut tree = BTreeMap::new();
    opened
        .with_tree(|view| {
            let root = view.root().unwrap();
            walk(view, &root, &mut |_, object, _| {
                let attr = object.attr();
                let mut content = Vec::new();
                match attr.kind {
                    FileKind::Regular => {
                        content = vec![0; attr.size as usize];
                        view.read(object, 0, &mut content).unwrap();
                    }
                    FileKind::Symlink => content = view.target(object).unwrap().to_vec(),
                    _ => {}
                }
                let (number, is_dir) = (attr.fileid.0, attr.kind == FileKind::Directory);
                let seen = Seen { number, is_dir, mode: attr.mode, content };
                tree.insert(object.path().clone(), seen);
                Ok(WalkControl::Deeper)
            })
            .map(drop)
        })
        .unwrap();
    tree
}

/// A session and a fork of it.
struct Forked {
    world: World,
    point: Checkpoint,
}

impl Forked {
    fn new(world: World) -> Self {
        let point = world.checkpoint();
        let to = world.scratch().join("fork.db");
        let host = Host::current().unwrap();
        Session::fork_to(&world.session(), &to, &point, &host, &mut |_, _| {}).unwrap();
        Self { world, point }
    }

    /// Changes the fork, which is served in place of the session.
    fn in_fork(&mut self, change: impl FnOnce(&World)) {
        let world = &mut self.world;
        let (fork, session) = (world.scratch().join("fork.db"), world.session());
        let apart = world.scratch().join("session-apart.db");
        world.close();
        fs::rename(&session, &apart).unwrap();
        fs::rename(&fork, &session).unwrap();
        world.open_again();
        change(world);
        world.close();
        fs::rename(&session, &fork).unwrap();
        fs::rename(&apart, &session).unwrap();
        world.open_again();
    }

    fn open_fork(&self) -> OpenSession {
        open_file(&self.world.scratch().join("fork.db"), None)
    }

    /// Merges, unless there are conflicts.
    fn merge(&self, takes: &[MergeChoice]) -> MergePlan {
        let (ours, theirs) = (open_at(&self.world, None), self.open_fork());
        let (point, first) = fork_points(&ours, &theirs).unwrap();
        assert_eq!(point.id, self.point.id);
        let mut steps = Vec::new();
        let plan = plan_merge((&ours, &theirs), None, (&point, &first), takes, &mut |step| {
            steps.push(step);
            Ok(())
        });
        let plan = plan.unwrap();
        drop((ours, theirs));
        if !plan.conflicts.is_empty() {
            assert_eq!(steps, [], "{plan:?}");
            return plan;
        }
        let safety = NewCheckpoint::before("merge fork.db".to_owned());
        let listed = Box::new(Listed(steps.clone(), 0));
        let overlay = &self.world.overlay;
        let taken = overlay.take_steps(&self.world.caller, (plan.seen, safety), listed);
        let taken = self.world.wait(taken);
        let is_done = matches!(taken, Ok(StepsOutcome::Done { .. }));
        assert!(is_done, "{taken:?}: {plan:#?} {steps:#?}");
        plan
    }
}

fn take(side: MergeSide, path: &str) -> MergeChoice {
    MergeChoice { side, path: MergedPath::from_bytes(path.as_bytes()).unwrap() }
}

/// The trees of a merge: at the fork point, on both sides, and merged.
struct Trees {
    old: BTreeMap<MergedPath, Seen>,
    ours: BTreeMap<MergedPath, Seen>,
    theirs: BTreeMap<MergedPath, Seen>,
    merged: BTreeMap<MergedPath, Seen>,
}

impl fmt::Display for Trees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old, ours, theirs, merged } = self;
        for (what, tree) in [("old", old), ("ours", ours), ("theirs", theirs), ("merged", merged)] {
            for (path, Seen { number, mode, content, .. }) in tree {
                let (path, bytes) = (path.display(), content.len());
                writeln!(f, "{what} {path} {number} {mode:o} {bytes}")?;
            }
        }
        Ok(())
    }
}

type Place<'a> = (&'a MergedPath, &'a Seen);

/// The only name of an object of the fork point.
fn only(tree: &BTreeMap<MergedPath, Seen>, number: u64) -> Option<Place<'_>> {
    let mut names = tree.iter().filter(|(_, seen)| seen.number == number);
    names.next().filter(|_| names.next().is_none())
}

impl Trees {
    fn is_old(&self, number: u64) -> bool {
        self.old.values().any(|seen| seen.number == number)
    }

    fn has_links(&self) -> bool {
        [&self.old, &self.ours, &self.theirs].into_iter().any(|tree| {
            let numbers: BTreeSet<_> = tree.values().map(|seen| seen.number).collect();
            numbers.len() < tree.len()
        })
    }

    /// Whether a side has another object where the fork point had this one.
    fn is_replaced(&self, (path, seen): Place<'_>) -> bool {
        let other = |tree: &BTreeMap<MergedPath, Seen>| {
            tree.get(path).is_some_and(|now| now.number != seen.number && !self.is_old(now.number))
        };
        other(&self.ours) || other(&self.theirs)
    }

    /// Checks an object of the fork point that has one name in each tree.
    fn check_old(&self, (path, old): Place<'_>) {
        if self.is_replaced((path, old)) || only(&self.old, old.number).is_none() {
            return;
        }
        let [ours, theirs, merged] =
            [&self.ours, &self.theirs, &self.merged].map(|tree| only(tree, old.number));
        let names = |tree: &BTreeMap<MergedPath, Seen>| {
            tree.values().filter(|seen| seen.number == old.number).count()
        };
        if names(&self.ours) > 1 || names(&self.theirs) > 1 {
            return;
        }
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            assert!(merged.is_none(), "{} is still there", path.display());
            return;
        };
        let merged = merged.unwrap_or_else(|| panic!("{} is lost", path.display()));
        let is_theirs = theirs.1.content != old.content;
        match (is_theirs, ours.1.content != old.content) {
            (true, false) => assert_eq!(merged.1.content, theirs.1.content, "{}", path.display()),
            (false, _) => assert_eq!(merged.1.content, ours.1.content, "{}", path.display()),
            (true, true) => {}
        }
        let mode = if theirs.1.mode == old.mode { ours.1.mode } else { theirs.1.mode };
        assert_eq!(merged.1.mode, mode, "{}", path.display());
        let place = |tree: &BTreeMap<MergedPath, Seen>, path: &MergedPath| {
            let dir = tree.get(&path.parent()).map(|dir| dir.number);
            (dir.filter(|dir| self.is_old(*dir)), path.name())
        };
        let has_moved = place(&self.theirs, theirs.0) != place(&self.old, path);
        let (tree, at) = if has_moved { (&self.theirs, theirs.0) } else { (&self.ours, ours.0) };
        assert_eq!(place(&self.merged, merged.0), place(tree, at), "{}", path.display());
    }

    /// Where the merged tree has an object of a side.
    fn expected(&self, side: &BTreeMap<MergedPath, Seen>, path: &MergedPath) -> Option<MergedPath> {
        let Some(name) = path.name() else { return Some(path.clone()) };
        let seen = &side[path];
        if self.is_old(seen.number) {
            return only(&self.merged, seen.number).map(|(path, _)| path.clone());
        }
        self.expected(side, &path.parent()).map(|dir| dir.join(&name))
    }

    /// Checks what a side made.
    fn check_new(&self, side: &BTreeMap<MergedPath, Seen>) {
        for (path, seen) in side.iter().filter(|(_, seen)| !self.is_old(seen.number)) {
            if self.old.contains_key(path) {
                continue;
            }
            let Some(expected) = self.expected(side, path) else { continue };
            let merged = self.merged.get(&expected);
            let same = |merged: &Seen| {
                (merged.is_dir, merged.mode, &merged.content)
                    == (seen.is_dir, seen.mode, &seen.content)
            };
            assert!(
                merged.is_some_and(same),
                "{} is not at {}: {:#?}",
                path.display(),
                expected.display(),
                self.merged
            );
        }
    }

    fn check(&self) {
        self.old.iter().for_each(|place| self.check_old(place));
        self.check_new(&self.ours);
        self.check_new(&self.theirs);
    }
}

/// What is the same whatever numbers objects have.
fn without_numbers(tree: &BTreeMap<MergedPath, Seen>) -> BTreeMap<MergedPath, Seen> {
    tree.iter().map(|(path, seen)| (path.clone(), Seen { number: 0, ..seen.clone() })).collect()
}

fn random_fork(random: &mut Random, ours: usize, theirs: usize) -> Forked {
    let world = World::new(BASE);
    for _ in 0..random.below(10) {
        step(&world, random);
    }
    let mut forked = Forked::new(world);
    for _ in 0..ours {
        step(&forked.world, random);
    }
    forked.in_fork(|world| (0..theirs).for_each(|_| step(world, random)));
    forked
}

/// A session that did not change gets exactly what the fork has.
#[test]
fn a_merge_alone_makes_the_tree_of_the_fork() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let forked = random_fork(&mut random, 0, 25);
        let plan = forked.merge(&[]);
        assert_eq!(plan.conflicts, [], "seed {seed}");
        let merged = tree(&open_at(&forked.world, None));
        let expected = without_numbers(&tree(&forked.open_fork()));
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
    for seed in 0..40 {
        let mut random = Random::new(1000 + seed);
        let forked = random_fork(&mut random, 22, 22);
        let old = tree(&open_at(&forked.world, Some(&forked.point)));
        let ours = tree(&open_at(&forked.world, None));
        let theirs = tree(&forked.open_fork());
        let nothing = forked.merge(&[take(MergeSide::Ours, "/")]);
        assert_eq!((&nothing.changes[..], &nothing.conflicts[..]), (&[][..], &[][..]));
        let mut plan = forked.merge(&[]);
        if plan.conflicts.is_empty() {
            merges += 1;
            let merged = tree(&open_at(&forked.world, None));
            let trees = Trees { old, ours, theirs, merged };
            println!("seed {seed}: {:#?}\n{trees}", plan.changes);
            trees.check();
            // Of a file with several names on either side, a merge may make another one.
            if trees.has_links() {
                continue;
            }
            plan = forked.merge(&[]);
            assert_eq!((&plan.changes[..], &plan.conflicts[..]), (&[][..], &[][..]), "seed {seed}");
        } else {
            conflicts += 1;
            assert_eq!(tree(&open_at(&forked.world, None)), ours, "seed {seed}");
            let forced = forked.merge(&[take(MergeSide::Theirs, "/")]);
            assert_eq!(forced.conflicts, [], "seed {seed}");
        }
    }
    assert!(merges > 8 && conflicts > 8, "{merges} merges, {conflicts} conflicts");
}
