//! Moves, and whether the place of an object is free.

use std::collections::BTreeSet;

use super::Decider;
use crate::delta::MergedPath;
use crate::inspect::diff::{Difference, DifferenceKind};
use crate::inspect::error::Result;
use crate::inspect::merge::side::{ObjectId, describe};

impl Decider<'_> {
    /// Whether an object moves to where the fork has it.
    pub(super) fn moves(
        &mut self,
        theirs: &Difference,
        ours: Option<&Difference>,
        old: &MergedPath,
    ) -> bool {
        let Some(ours) = ours.filter(|ours| ours.kind == DifferenceKind::Renamed) else {
            return true;
        };
        let is_same = self.is_same_place(&ours.path, &theirs.path);
        let both = (describe(ours), describe(theirs));
        !is_same && self.takes_theirs((&ours.path, Some(old)), both)
    }

    /// Whether a path of the session and one of the fork are the same place, also in a directory
    /// that both made.
    fn is_same_place(&self, ours: &MergedPath, theirs: &MergedPath) -> bool {
        if ours.name() != theirs.name() {
            return false;
        }
        let (our_dir, their_dir) = (ours.parent(), theirs.parent());
        match (self.ours.id_of(&our_dir), self.theirs.id_of(&their_dir)) {
            (ObjectId::Old(ours), ObjectId::Old(theirs)) => ours == theirs,
            (ObjectId::New(ours), ObjectId::New(theirs)) => self.is_same_place(&ours, &theirs),
            _ => false,
        }
    }

    /// Looks at the places to which objects move.
    pub(super) fn check_moves(&mut self) -> Result<()> {
        while let Some((old, to)) = self.unchecked.pop() {
            let theirs = format!("moved to {}", to.display());
            if self.is_circle(&old, &to) {
                let ours = "what would hold it was moved into it".to_owned();
                if self.takes_theirs((&to, Some(&old)), (ours, theirs)) {
                    self.give_up_moves_above(&to);
                }
                continue;
            }
            if !self.ensure_dir(&to, &theirs)? {
                continue;
            }
            let Some(place) = self.place_now(&to) else { continue };
            if self.ours.new_path(&old).as_ref() != Some(&place)
                && self.ours.find(&place)?.is_some()
                && !self.is_vacated(&place)
            {
                let both = ("another object is there".to_owned(), theirs);
                if self.takes_theirs((&place, Some(&to)), both) {
                    self.clear_place(place);
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_move(&mut self, old: MergedPath, to: MergedPath) {
        if self.made.moved.insert(old.clone(), to.clone()).as_ref() != Some(&to) {
            self.unchecked.push((old, to));
        }
    }

    /// Whether an object would be moved into itself.
    fn is_circle(&self, old: &MergedPath, to: &MergedPath) -> bool {
        let mut seen = BTreeSet::from([old.clone()]);
        let mut dir = self.theirs.id_of(&to.parent());
        while let ObjectId::Old(above) = dir {
            if above.name().is_none() {
                return false;
            }
            if !seen.insert(above.clone()) {
                return true;
            }
            dir = match self.made.moved.get(&above) {
                Some(to) => self.theirs.id_of(&to.parent()),
                None => match self.ours.new_path(&above) {
                    Some(path) => self.ours.id_of(&path.parent()),
                    None => return false,
                },
            };
        }
        false
    }

    /// Moves the directories above a path of the fork to where the fork has them.
    fn give_up_moves_above(&mut self, path: &MergedPath) {
        for dir in path.above() {
            if let ObjectId::Old(old) = self.theirs.id_of(&dir)
                && self.ours.change(&old).is_some_and(|ours| ours.kind == DifferenceKind::Renamed)
            {
                self.add_move(old, dir);
            }
        }
    }

    /// Frees a place for an object of the fork: what the session moved there moves to where the
    /// fork has it, and anything else goes.
    pub(super) fn clear_place(&mut self, place: MergedPath) {
        if let ObjectId::Old(old) = self.ours.id_of(&place) {
            if self.made.removed.contains(&old) {
                return;
            }
            if let Some(theirs) = self.theirs.new_path(&old) {
                self.add_move(old, theirs);
                return;
            }
        }
        self.made.replaced.insert(place);
    }

    /// Where a path of the fork is in the session now; `None` if its directory is not there.
    pub(super) fn place_now(&self, path: &MergedPath) -> Option<MergedPath> {
        let dir = match self.theirs.id_of(&path.parent()) {
            ObjectId::Old(old) => self.ours.new_path(&old)?,
            ObjectId::New(dir) => self.made.joined.get(&dir)?.clone(),
        };
        path.name().map(|name| dir.join(&name))
    }

    /// Whether the object at a path of the session moves away or goes.
    pub(super) fn is_vacated(&self, path: &MergedPath) -> bool {
        let ObjectId::Old(old) = self.ours.id_of(path) else { return false };
        self.made.removed.contains(&old) || self.made.moved.contains_key(&old)
    }
}
