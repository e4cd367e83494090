//! Whether an object is still as an apply or undo left it, and the directories that stay because
//! of one that is not.

use std::collections::{BTreeMap, HashMap};

use super::Skipped;
use super::keep::kept_name;
use super::record::{Placed, PlacedDescendant, PlacedState, Record};
use super::undo_plan::UndoPlanner;
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::overlay::BlobDigest;
use crate::vfs::FileKind;
use crate::writeback::{SeenObject, Target, TargetObject, UndoDir};

const NOT_KEPT: &str = "the copy that was kept is gone";

/// The state in which an apply left an object, as far as it is compared.
pub(super) struct LeftObject<'a> {
    seen: &'a SeenObject,
    mode: u32,
    /// `None` if it is not compared; of a directory, the mode is not compared then either.
    pub owner: Option<(u32, u32)>,
    digest: Option<&'a [u8]>,
}

/// Number of hard links of each file that an undo removes, by inode number.
#[derive(Debug, Default)]
pub(super) struct GoingNames(HashMap<u64, u64>);

impl GoingNames {
    /// Counts the names of placed objects that were not moved there.
    pub fn of(record: &Record) -> Self {
        let mut going = Self::default();
        let placed = record.placed.iter().filter(|placed| placed.from.is_none());
        let placed = placed.filter_map(|placed| Some(&placed.left.as_ref()?.seen));
        for seen in placed.chain(record.inside.iter().map(|inside| &inside.seen)) {
            *going.0.entry(seen.ino).or_default() += 1;
        }
        going
    }

    /// Whether a file has hard links that stay and keep its mode.
    fn leave(&self, now: &TargetObject) -> bool {
        !now.is_dir() && self.0.get(&now.seen.ino).is_some_and(|going| *going < now.nlink)
    }
}

/// Placed directories that stay, with an entry of each that stays; by the number of the change.
#[derive(Debug, Default)]
pub(super) struct Holders<'a>(BTreeMap<usize, (&'a BasePath, BasePath)>);

impl<'a> Holders<'a> {
    /// Adds a directory; of several entries, the first one counts.
    pub fn add(&mut self, dir: &'a Placed, entry: BasePath) {
        self.0.entry(dir.change).or_insert((&dir.path, entry));
    }

    /// The directories, with the numbers of their changes. Where the entry is such a directory too,
    /// the one that it holds is named.
    pub fn named(&self) -> impl Iterator<Item = (usize, Skipped)> {
        let by_dir: HashMap<_, _> = self.0.values().map(|(dir, entry)| (*dir, entry)).collect();
        self.0.iter().map(move |(change, (dir, entry))| {
            let mut entry = entry;
            while let Some(inside) = by_dir.get(entry) {
                entry = inside;
            }
            let why = format!("holds {}, which stays", MergedPath::of_base(entry).display());
            (*change, Skipped { path: MergedPath::of_base(dir), why })
        })
    }
}

impl<'a> From<&'a PlacedState> for LeftObject<'a> {
    fn from(left: &'a PlacedState) -> Self {
        let (mode, owner) = (left.attrs.mode, Some((left.attrs.uid, left.attrs.gid)));
        Self { seen: &left.seen, mode, owner, digest: left.digest.as_deref() }
    }
}

impl<'a> From<&'a PlacedDescendant> for LeftObject<'a> {
    fn from(inside: &'a PlacedDescendant) -> Self {
        let PlacedDescendant { seen, mode, owner, digest, .. } = inside;
        Self { seen, mode: *mode, owner: *owner, digest: digest.as_deref() }
    }
}

impl LeftObject<'_> {
    /// Whether the object at `path` has the type, content, mode and owner that were left; of a
    /// directory, the content is not compared. Mode and owner may differ if another hard link keeps
    /// them.
    pub fn is_now(
        &self,
        target: &Target,
        path: &BasePath,
        now: &TargetObject,
        going: &GoingNames,
    ) -> Result<bool> {
        if self.seen.kind != now.seen.kind {
            return Ok(false);
        }
        let has_mode = now.seen.kind == FileKind::Symlink || now.attrs.mode == self.mode;
        let has_owner = self.owner.is_none_or(|owner| owner == (now.attrs.uid, now.attrs.gid));
        let has_rights = has_mode && has_owner;
        if now.is_dir() {
            return Ok(has_rights || self.owner.is_none());
        }
        if !has_rights && !going.leave(now) {
            return Ok(false);
        }
        // Device numbers may differ after a reboot.
        let seen = SeenObject { dev: now.seen.dev, ..self.seen.clone() };
        if seen.is_as_seen(&now.seen) {
            return Ok(true);
        }
        let Some(digest) = self.digest.filter(|_| self.seen.size == now.seen.size) else {
            return Ok(false);
        };
        match target.content(path, now.seen.size) {
            Err(error) if error.is_of_object() => Ok(false),
            content => Ok(content?.is_some_and(|content| BlobDigest::of(&content)[..] == *digest)),
        }
    }
}

impl UndoPlanner<'_> {
    /// Leaves out the changes whose kept objects are gone.
    pub(super) fn note_missing(&mut self, dir: &UndoDir) -> Result<()> {
        let record = self.record;
        let removed = record.removed.iter().map(|r| (r.path.clone(), r.slot, r.change));
        let replaced = record.placed.iter().filter_map(|placed| {
            Some((self.moves.entry_before(&placed.path)?, placed.over?, placed.change))
        });
        let kept: Vec<_> = removed.chain(replaced).collect();
        for (path, slot, change) in kept {
            let place = UndoDir::place(&record.round(), &kept_name(slot, &path));
            if dir.target().object(&place)?.is_none() {
                self.note(&path, NOT_KEPT, true, change);
            }
        }
        Ok(())
    }
}
