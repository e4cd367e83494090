//! The mtimes of directories, which the steps of an apply change as they move entries.
//!
//! A directory gets the time of the plan only if nothing else changed its entries or its time. So
//! the mtime after each step is remembered, and compared before the next one. The notes get it when
//! the steps go on to another directory. After a kill, they lack the directory of the last step,
//! whose mtime is then that of the staging: one rename changed both.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::journal::{Journal, optional, time, to_time};
use super::target_dir::ApplyTarget;
use crate::base::BasePath;
use crate::vfs::Time;
use crate::writeback::{Attrs, ChangedDir, Result, SeenObject, Staging};

/// The largest difference of the mtimes of two directories that one rename changes, in nanoseconds:
/// two ticks of the slowest clock of Linux.
const RENAME_NANOS: i128 = 20_000_000;

/// The mtime of a directory after the last step in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirTime {
    /// Device and inode number.
    id: (u64, u64),
    /// The mtime that the plan saw, or that the last step left.
    left: Time,
    /// The last mtime that another program gave it before a step.
    other: Option<Time>,
}

impl DirTime {
    fn note(&self) -> String {
        let (id, other) = ([self.id.0, self.id.1], self.other.map(time));
        json!({ "dir_time": { "id": id, "left": time(self.left), "other": other } }).to_string()
    }

    pub fn read(value: &Value) -> Option<Self> {
        let id = value.get("id")?;
        Some(Self {
            id: (id.get(0)?.as_u64()?, id.get(1)?.as_u64()?),
            left: to_time(value.get("left")?)?,
            other: optional(value.get("other")?, to_time)?,
        })
    }
}

/// The mtimes of all directories whose attributes the journal sets.
#[derive(Debug, Default)]
pub(super) struct DirTimes {
    dirs: HashMap<(u64, u64), DirTime>,
    /// The path and id of the directory of the last step, unless its mtime is noted.
    current: Option<(BasePath, (u64, u64))>,
    /// The times of the last step of an interrupted run.
    last_step: Vec<Time>,
}

impl DirTimes {
    /// After an interrupted run, `noted` has its notes.
    pub fn new(
        journal: &Journal,
        target: &ApplyTarget<'_>,
        staging: &Staging,
        noted: Option<&[DirTime]>,
    ) -> Result<Self> {
        let mut times = Self::default();
        for set in &journal.steps.sets {
            if let (Some(seen), Some(from)) = (&set.seen, &set.from)
                && seen.is_dir()
            {
                times.add(DirTime { id: (seen.dev, seen.ino), left: from.mtime, other: None });
            }
        }
        let left = staging.noted_mtime()?.unwrap_or(target.top.mtime);
        times.add(DirTime { id: target.id(), left, other: None });
        if let Some(noted) = noted {
            noted.iter().for_each(|noted| times.add(*noted));
            times.last_step = staging.step_times()?.to_vec();
        }
        Ok(times)
    }

    fn add(&mut self, dir: DirTime) {
        self.dirs.insert(dir.id, dir);
    }

    fn is_of_last_step(&self, mtime: Time) -> bool {
        let nanos = |time: &Time| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
        let is_near =
            |step: &Time| nanos(step).abs_diff(nanos(&mtime)) <= RENAME_NANOS.unsigned_abs();
        self.last_step.iter().any(is_near)
    }

    /// Call before each step, with the directory in which it moves an entry.
    pub fn enter(&mut self, dir: Option<&BasePath>, staging: &Staging) -> Result<()> {
        if let Some((_, id)) = self.current.take_if(|(current, _)| Some(&*current) != dir)
            && let Some(left) = self.dirs.get(&id)
        {
            staging.note_unsynced(&left.note())?;
        }
        Ok(())
    }

    /// Call after each step that is done.
    pub fn changed(
        &mut self,
        path: Option<BasePath>,
        changed: ChangedDir,
        staging: &Staging,
    ) -> Result<()> {
        let is_ours = self.is_of_last_step(changed.before);
        let Some(dir) = self.dirs.get_mut(&changed.id) else { return Ok(()) };
        let is_new = dir.left != changed.before && !is_ours;
        dir.left = changed.after;
        if is_new {
            dir.other = Some(changed.before);
            staging.note_unsynced(&dir.note())?;
        }
        self.current = path.map(|path| (path, changed.id));
        Ok(())
    }

    /// The attributes from and to which a directory is to be changed that is `now`: if something
    /// else gave it a time before a step, it gets that time again.
    pub fn adjust(&self, now: &SeenObject, from: &mut Attrs, to: &mut Attrs) {
        let Some(dir) = self.dirs.get(&(now.dev, now.ino)) else { return };
        from.mtime = match self.is_of_last_step(now.mtime) {
            true => now.mtime,
            false => dir.left,
        };
        to.mtime = dir.other.unwrap_or(to.mtime);
    }
}
