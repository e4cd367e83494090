//! Whether a directory that is to be removed holds only what the plan saw there.

use std::collections::HashMap;
use std::ops::Bound;

use super::journal::Journal;
use super::step_failure::StepFailure;
use super::step_runner::{MOVED_OUT_CHANGED, StepRunner};
use super::target_dir::stat_in;
use crate::base::{BaseAttr, BaseError, BasePath};
use crate::vfs::FileKind;
use crate::writeback::{SeenObject, StagingDir};

/// Files that get, lose or change a name by a step: device and inode number, and the state in
/// which the plan saw them, without ctime.
#[derive(Debug, Default)]
pub(super) struct TouchedFiles(HashMap<(u64, u64), SeenObject>);

impl TouchedFiles {
    /// Includes the files to which an undo links restored files, before its first step.
    pub fn of(journal: &Journal) -> Self {
        let taken = journal.steps.takes.iter().map(|take| &take.seen);
        let made = journal.steps.puts.iter().filter_map(|put| Some(&put.made.as_ref()?.seen));
        let inside = journal.inside.iter().map(|inside| &inside.seen);
        let files = taken.chain(made).chain(inside).filter(|seen| !seen.is_dir());
        let without_ctime = |seen: &SeenObject| SeenObject { ctime: None, ..seen.clone() };
        Self(files.map(|seen| ((seen.dev, seen.ino), without_ctime(seen))).collect())
    }

    /// Whether only a step can have changed the ctime of a file.
    fn has_only_steps(&self, now: &BaseAttr) -> bool {
        let seen = self.0.get(&(now.dev, now.ino));
        now.nlink > 1 && seen.is_some_and(|seen| seen.is_as_seen(&SeenObject::from(now)))
    }
}

impl StepRunner<'_> {
    /// Refuses to remove a directory that still holds an object which was to move out first.
    pub(super) fn check_moved_out(&self, top: &BasePath) -> Result<(), StepFailure> {
        let below = [top.as_bytes(), b"/"].concat();
        let from = (Bound::Excluded(below.as_slice()), Bound::Unbounded);
        let inside = self.moved.range::<[u8], _>(from);
        for (_, slot) in inside.take_while(|(path, _)| path.as_bytes().starts_with(&below)) {
            if self.staging.look(StagingDir::Taken, *slot)?.is_none() {
                return Err(StepFailure::Skip(MOVED_OUT_CHANGED.to_owned()));
            }
        }
        Ok(())
    }

    /// Refuses to remove a directory in which something changed since the plan was begun. The
    /// directory's own ctime shows a name that came of a touched file.
    pub(super) fn check_unchanged_since_begun(&self, top: &BasePath) -> Result<(), StepFailure> {
        let skip = |error: BaseError| StepFailure::Skip(error.to_string());
        let reader = self.target.reader();
        let mut open = vec![top.clone()];
        while let Some(path) = open.pop() {
            let Some(attr) = stat_in(reader, &path).map_err(skip)? else { continue };
            let is_ours = match attr.kind {
                FileKind::Directory => {
                    let entries = &reader.list(&path).map_err(skip)?.entries;
                    open.extend(entries.iter().map(|entry| path.join(&entry.name)));
                    self.source_dirs.contains(&path)
                }
                _ => self.touched_files.has_only_steps(&attr),
            };
            if !is_ours && attr.ctime > self.journal.begun {
                let why = "something in it changed after the plan was made";
                return Err(StepFailure::Skip(why.to_owned()));
            }
        }
        Ok(())
    }
}
