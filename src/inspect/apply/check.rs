//! Whether everything can be done, before anything is: a refusal in the middle helps nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use super::planner::Planner;
use crate::base::BasePath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::vfs::FileKind;
use crate::writeback::{StagingDir, StagingSlot};

impl Planner<'_> {
    /// Refuses if a directory takes no changes of its entries.
    pub(super) fn check_directories(&self) -> Result<()> {
        for dir in self.directories() {
            // What is not there is told by what was to be put into it.
            if !self.place.stat(&dir)?.is_some_and(|attr| attr.kind == FileKind::Directory)
                && !dir.is_root()
            {
                continue;
            }
            let shown = || self.place.shown(&dir).display().to_string();
            let (what, hint) = match self.place.target.takes_entries(&dir) {
                Ok(true) => continue,
                Ok(false) => (
                    "nothing can be made or removed in it",
                    "see to its permissions, or name the paths to apply without it",
                ),
                Err(error) => match error.source.kind() {
                    ErrorKind::CrossesDevices => {
                        ("something else is mounted there", "name the paths to apply without it")
                    }
                    ErrorKind::ReadOnlyFilesystem => {
                        ("the filesystem is mounted read-only", super::open_staging::READ_ONLY_HINT)
                    }
                    _ => return Err(error.into()),
                },
            };
            return Err(InspectError::Refused { what: format!("{}: {what}", shown()), hint });
        }
        Ok(())
    }

    /// Refuses if something would come to where the base has what was moved on, and that move is
    /// not chosen: what is there would be put aside, and taken for gone.
    pub(super) fn check_chosen(&self) -> Result<()> {
        for put in self.plan.steps.puts.iter().filter(|put| put.over.is_none()) {
            if let Some(moved) = self.staying.get(&put.to) {
                let (shown, to) = (self.place.shown(&put.to), moved.to.display());
                let is = if moved.is_removed { "was" } else { "is" };
                let what = format!("{}: what {is} there was moved to {to}", shown.display());
                let hint = "name the path that it was moved to as well, to apply that move too";
                return Err(InspectError::Refused { what, hint });
            }
        }
        Ok(())
    }

    /// The directories of the target, as they are now, whose entries change.
    fn directories(&self) -> BTreeSet<BasePath> {
        let steps = &self.plan.steps;
        let parent = |path: &BasePath| path.split().map(|(parent, _)| parent);
        let from: BTreeMap<StagingSlot, &BasePath> =
            steps.takes.iter().map(|take| (take.slot, &take.from)).collect();
        let puts: BTreeMap<&BasePath, (StagingDir, StagingSlot)> =
            steps.puts.iter().map(|put| (&put.to, (put.shelf, put.slot))).collect();
        let mut dirs: BTreeSet<_> =
            steps.takes.iter().filter_map(|take| parent(&take.from)).collect();
        // Its `..` is an entry too.
        for take in steps.takes.iter().filter(|take| take.seen.is_dir()) {
            dirs.insert(take.from.clone());
        }
        for put in &steps.puts {
            let Some(dir) = parent(&put.to) else { continue };
            // What is in a directory that moves is where that is now.
            let mut above = Some(dir.clone());
            let moved = loop {
                let Some(at) = above else { break None };
                if let Some(found) = puts.get(&at) {
                    break Some((at, *found));
                }
                above = parent(&at);
            };
            match moved {
                None => drop(dirs.insert(dir)),
                Some((_, (StagingDir::New | StagingDir::Replaced, _))) => {}
                Some((at, (StagingDir::Taken, slot))) => {
                    let rest = &dir.as_bytes()[at.as_bytes().len()..];
                    let now = from.get(&slot).map(|from| [from.as_bytes(), rest].concat());
                    dirs.extend(now.and_then(|now| BasePath::from_bytes(&now)));
                }
            }
        }
        dirs
    }
}
