//! Checks before the first step that every step can be done: an apply must not stop halfway.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use super::advice::ApplyAdvice;
use super::planner::Planner;
use crate::base::BasePath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::vfs::FileKind;
use crate::writeback::{StagingDir, StagingSlot};

impl Planner<'_> {
    /// Refuses if entries of a directory cannot be made or removed.
    pub(super) fn check_directories(&self) -> Result<()> {
        for dir in self.directories() {
            // The step that puts an object into a missing directory reports it.
            if !self.target.stat(&dir)?.is_some_and(|attr| attr.kind == FileKind::Directory)
                && !dir.is_root()
            {
                continue;
            }
            let shown = || self.target.shown(&dir).display().to_string();
            let (what, advice) = match self.target.dir.takes_entries(&dir) {
                Ok(true) => continue,
                Ok(false) => {
                    ("nothing can be made or removed in it", ApplyAdvice::PermitOrLeaveOut)
                }
                Err(error) => match error.source.kind() {
                    ErrorKind::CrossesDevices => {
                        ("something else is mounted there", ApplyAdvice::LeavePathOut)
                    }
                    ErrorKind::ReadOnlyFilesystem => {
                        ("the filesystem is mounted read-only", ApplyAdvice::MountReadWrite)
                    }
                    _ => return Err(error.into()),
                },
            };
            return Err(InspectError::Refused { what: format!("{}: {what}", shown()), advice });
        }
        Ok(())
    }

    /// Refuses to put an object at the path of a base object that the session moved, if the move is
    /// not chosen. The base object is still at that path, or the session still finds it by that
    /// path.
    pub(super) fn check_chosen(&self) -> Result<()> {
        for put in self.plan.steps.puts.iter().filter(|put| put.over.is_none()) {
            if let Some(moved) = self.staying.get(&put.to) {
                let (shown, to) = (self.target.shown(&put.to), moved.to.display());
                let is = if moved.is_removed { "that was there" } else { "there" };
                let what = format!("{}: the object {is} was moved to {to}", shown.display());
                return Err(InspectError::Refused { what, advice: ApplyAdvice::NameMovedTo });
            }
        }
        Ok(())
    }

    /// The directories of the target, at their present paths, whose entries change.
    fn directories(&self) -> BTreeSet<BasePath> {
        let steps = &self.plan.steps;
        let parent = |path: &BasePath| path.split().map(|(parent, _)| parent);
        let from: BTreeMap<StagingSlot, &BasePath> =
            steps.takes.iter().map(|take| (take.slot, &take.from)).collect();
        let puts: BTreeMap<&BasePath, (StagingDir, StagingSlot)> =
            steps.puts.iter().map(|put| (&put.to, (put.dir, put.slot))).collect();
        let mut dirs: BTreeSet<_> =
            steps.takes.iter().filter_map(|take| parent(&take.from)).collect();
        // A move of a directory changes its `..` entry.
        for take in steps.takes.iter().filter(|take| take.seen.is_dir()) {
            dirs.insert(take.from.clone());
        }
        for put in &steps.puts {
            let Some(dir) = parent(&put.to) else { continue };
            // A directory below one that moves is still below the old path.
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
