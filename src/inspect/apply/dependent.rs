//! Changes that cannot be applied because of a move that the plan leaves out by a rule of its own.
//! Where the user did not choose that move, the plan is refused instead, with the path to name.

use std::collections::{BTreeSet, HashSet};

use super::Skipped;
use super::planner::Planner;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::overlay::Change;

impl Planner<'_> {
    /// Leaves out, by name, a change in a directory whose move is left out; whether it is left out.
    pub(super) fn leave_out_if_its_directory_stays(&mut self, change: &Change) -> Result<bool> {
        let Some(dir) = self.moved_above(&change.path) else { return Ok(false) };
        if !self.plan.left_out.iter().any(|left| left.path == dir) {
            return Ok(false);
        }
        if self.difference(change.clone())?.is_some() {
            let why = format!("in {}, which was moved, and that is left out", dir.display());
            self.plan.left_out.push(Skipped { path: change.path.clone(), why });
        }
        Ok(true)
    }

    /// Leaves out what would come to where the base has something of which the move is left out,
    /// and all that would come into it. Each of these may be a move itself.
    pub(super) fn leave_out_where_moves_stay(&mut self) {
        if self.staying.is_empty() || self.plan.left_out.is_empty() {
            return;
        }
        let mut by_rule: BTreeSet<MergedPath> =
            self.plan.left_out.iter().map(|left| left.path.clone()).collect();
        let mut refused: HashSet<_> = self.plan.refused.iter().map(|(change, _)| *change).collect();
        loop {
            let puts = self.plan.steps.puts.iter();
            let blocked = puts.filter(|put| put.over.is_none() && !refused.contains(&put.change));
            let blocked: Vec<_> = blocked
                .filter_map(|put| Some((put.change, self.staying.get(&put.to)?.clone())))
                .filter(|(_, moved)| by_rule.contains(moved))
                .collect();
            if blocked.is_empty() {
                return;
            }
            for (number, moved) in blocked {
                let top = self.plan.changes[number].path.clone();
                let why =
                    format!("what is there was moved to {}, and that is left out", moved.display());
                self.refuse_with(number, why, &mut refused);
                for inside in 0..self.plan.changes.len() {
                    let path = &self.plan.changes[inside].path;
                    if path.is_within(&top) && *path != top {
                        let why = format!("in {}, which is left out", top.display());
                        self.refuse_with(inside, why, &mut refused);
                    }
                }
            }
            by_rule.extend(self.plan.left_out.iter().map(|left| left.path.clone()));
        }
    }

    /// Leaves out a change; what it would take away stays.
    fn refuse_with(&mut self, number: usize, why: String, refused: &mut HashSet<usize>) {
        let path = self.plan.changes[number].path.clone();
        let takes = self.plan.steps.takes.iter();
        let taken = takes.filter(|take| take.change == number && !take.stays);
        self.staying.extend(taken.map(|take| (take.from.clone(), path.clone())));
        refused.insert(number);
        self.refuse(number, Skipped { path, why });
    }
}
