//! A fork of the session, which has a reference of its own, merges of it, and undos.

use std::collections::BTreeSet;
use std::mem;

use acetate::delta::CheckpointId;
use acetate::inspect::merge::{MergeChoice, MergePlan, MergeSide};
use acetate::inspect::restore::{plan_restore, undo_targets};

use super::Op;
use super::reference::Reference;
use super::run::Case;
use crate::support::forked::{merge, plan};
use crate::support::looked::look;
use crate::support::three_way::{Sides, tree};
use crate::support::tree::{assert_same, read_tree};
use crate::support::world::World;

/// More choices than a merge of so few objects asks for.
const MAX_ROUNDS: u32 = 20;

/// A served fork.
pub struct Fork {
    world: World,
    reference: Reference,
    /// The session's checkpoint at which it began.
    point: CheckpointId,
}

impl Case {
    /// Forks the session as it is, or at a checkpoint; an earlier fork ends.
    pub fn fork(&mut self, at: u16) {
        self.forks += 1;
        self.fork = None;
        let index = usize::from(at) % (self.checkpoints.len() + 1);
        if index == self.checkpoints.len() {
            self.checkpoint();
        }
        let (point, then) = self.checkpoints[index].clone();
        let at = look(&self.world.session(), None).session().checkpoint(point).unwrap().unwrap();
        let world = self.world.fork(&at, &format!("fork-{}.db", self.forks));
        self.fork = Some(Fork { world, reference: then.forked(self.forks), point });
        self.in_fork(|case| case.compare());
    }

    /// Does something with the fork in place of the session.
    pub fn in_fork(&mut self, work: impl FnOnce(&mut Self)) {
        let Some(mut fork) = self.fork.take() else { return };
        let checkpoints = mem::take(&mut self.checkpoints);
        mem::swap(&mut self.world, &mut fork.world);
        mem::swap(&mut self.reference, &mut fork.reference);
        work(self);
        mem::swap(&mut self.world, &mut fork.world);
        mem::swap(&mut self.reference, &mut fork.reference);
        self.checkpoints = checkpoints;
        self.fork = Some(fork);
    }

    pub fn step_in_fork(&mut self, op: &Op) {
        self.in_fork(|case| case.step(op));
    }

    /// Merges the fork; each conflict is decided by a bit of `sides`.
    pub fn merge(&mut self, sides: u16) {
        self.compare();
        self.in_fork(|case| case.compare());
        let Some(fork) = self.fork.take() else { return };
        let point = self.checkpoints.iter().find(|(id, _)| *id == fork.point).cloned();
        match point {
            Some((_, then)) => self.merge_from(&fork, &then, sides),
            None => {
                let error = plan(&self.world.session(), &fork.world.session(), &[]).unwrap_err();
                assert!(error.to_string().contains("was removed"), "{error}");
            }
        }
        self.fork = Some(fork);
    }

    fn merge_from(&mut self, fork: &Fork, then: &Reference, sides: u16) {
        let opened = look(&self.world.session(), None);
        let point = opened.session().checkpoint(fork.point).unwrap().unwrap();
        let old = look(&self.world.session(), Some(&point));
        let trees = Sides {
            old: tree(&old),
            ours: tree(&opened),
            theirs: tree(&look(&fork.world.session(), None)),
        };
        assert_same(&trees.old_tree(), &then.tree(), "the tree of the fork point");
        drop((opened, old));
        let before = self.reference.clone();
        let mut takes: Vec<MergeChoice> = Vec::new();
        let mut merged = merge(&self.world, &fork.world, &takes);
        if merged.conflicts.is_empty() {
            trees.check_merged(&tree(&look(&self.world.session(), None)));
        } else {
            let at = merged.conflicts.iter().map(|conflict| conflict.path.clone());
            trees.check_conflicts(&at.collect());
            assert_same(&read_tree(&self.world), &before.tree(), "nothing was merged");
        }
        for round in 0.. {
            if merged.conflicts.is_empty() {
                break;
            }
            assert!(round < MAX_ROUNDS, "{merged:#?} {takes:?}");
            decide(&mut takes, &merged, sides);
            merged = merge(&self.world, &fork.world, &takes);
        }
        self.note_checkpoints(&before);
        self.adopt_tree();
        self.compare();
        // Choices and the names of hard links are compared again.
        if takes.is_empty() && !trees.have_links() {
            let (again, _) = plan(&self.world.session(), &fork.world.session(), &[]).unwrap();
            assert_eq!(again.conflicts, [], "after {merged:#?}\n{trees}");
        }
    }

    /// Notes the checkpoint that a merge made, if it did.
    fn note_checkpoints(&mut self, then: &Reference) {
        let known: BTreeSet<_> = self.checkpoints.iter().map(|(id, _)| *id).collect();
        let all = look(&self.world.session(), None).session().checkpoints().unwrap();
        let new = all.iter().map(|one| one.id).filter(|id| !known.contains(id));
        self.checkpoints.extend(new.map(|id| (id, then.clone())));
    }

    /// Takes the tree as it is for the reference; objects are known by their numbers.
    fn adopt_tree(&mut self) {
        let world = &self.world;
        let tree = read_tree(world);
        let find = |path: &[u8]| {
            let found = world.find(path).unwrap();
            (found.attr.fileid, found.object)
        };
        self.reference.adopt(tree, find);
    }

    /// Goes back to the newest checkpoint with another tree.
    pub fn undo(&mut self) {
        let opened = look(&self.world.session(), None);
        let differs = |id: &CheckpointId| {
            let to = opened.session().checkpoint(*id).unwrap().unwrap();
            !plan_restore(&opened, None, &to).unwrap().differences.is_empty()
        };
        let targets = undo_targets(opened.session()).unwrap();
        let target = targets.iter().map(|target| target.id).find(differs);
        let now = self.reference.tree();
        for (id, then) in &self.checkpoints {
            if target.is_none_or(|target| *id > target) {
                assert_same(&then.tree(), &now, "a checkpoint that an undo passes by");
            }
        }
        drop(opened);
        let Some(target) = target else { return };
        let index = self.checkpoints.iter().position(|(id, _)| *id == target);
        self.restore(index.expect("the reference knows each checkpoint"));
    }
}

/// Adds a choice for each conflict.
fn decide(takes: &mut Vec<MergeChoice>, plan: &MergePlan, sides: u16) {
    for conflict in &plan.conflicts {
        let path = conflict.path.clone();
        let is_decided = takes.iter().any(|take| take.path == path);
        assert!(!is_decided, "{} is decided: {plan:#?} {takes:?}", path.display());
        if takes.iter().all(|take| take.path != path) {
            let side = match sides >> (takes.len() % 16) & 1 {
                0 => MergeSide::Ours,
                _ => MergeSide::Theirs,
            };
            takes.push(MergeChoice { side, path });
        }
    }
}
