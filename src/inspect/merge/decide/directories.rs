//! Directories that one side removed and the other has something in.

use super::{Addition, Decider};
use crate::delta::MergedPath;
use crate::inspect::diff::DifferenceKind;
use crate::inspect::error::Result;
use crate::inspect::merge::side::{ObjectId, describe, is_new};

impl Decider<'_> {
    /// Makes an object as it is in the fork, with the directories above that the session removed.
    pub(super) fn remake(&mut self, path: &MergedPath) -> Result<()> {
        let mut path = path.clone();
        while !self.made.added.contains_key(&path) {
            let Some(object) = self.theirs.find(&path)? else { return Ok(()) };
            if let Some(place) = self.place_now(&path)
                && self.ours.find(&place)?.is_some()
            {
                self.clear_place(place);
            }
            self.made.added.insert(path.clone(), Addition::Object(Box::new(object)));
            path = path.parent();
            match self.theirs.id_of(&path) {
                ObjectId::Old(dir) if self.ours.new_path(&dir).is_none() => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Keeps directories that the fork removed if the session added something to them.
    pub(super) fn keep_our_additions(&mut self) {
        for ours in &self.ours.differences {
            if !is_new(ours) && ours.kind != DifferenceKind::Renamed {
                continue;
            }
            for dir in ours.path.above() {
                let ObjectId::Old(old) = self.ours.id_of(&dir) else { continue };
                if self.made.removed.contains(&old) {
                    let both = (describe(ours), format!("deleted {}", old.display()));
                    if !self.takes_theirs((&ours.path, None), both) {
                        self.kept.insert(old);
                    }
                }
                break;
            }
        }
        for kept in &self.kept {
            self.made.removed.remove(kept);
            for dir in kept.above() {
                self.made.removed.remove(&dir);
            }
        }
    }

    /// Whether the directory of a path of the fork is there, or the user takes it back; notes a
    /// conflict otherwise.
    pub(super) fn ensure_dir(&mut self, path: &MergedPath, theirs: &str) -> Result<bool> {
        let dir = path.parent();
        let ObjectId::Old(old) = self.theirs.id_of(&dir) else { return Ok(true) };
        if self.ours.new_path(&old).is_some() || self.made.added.contains_key(&dir) {
            return Ok(true);
        }
        let both = (format!("deleted {}", old.display()), theirs.to_owned());
        let remakes = self.takes_theirs((path, None), both);
        if remakes {
            self.remake(&dir)?;
        }
        Ok(remakes)
    }
}
