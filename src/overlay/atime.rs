//! Access times of delta objects: readers record them, the next change writes them.
//!
//! The rule is that of `relatime`: a read updates atime only if atime is not later than mtime and
//! ctime, or is a day old. A read alone never writes to the session. A crash may lose recorded
//! atimes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::delta::{Ino, InodeRow, WriteTxn};
use crate::vfs::Time;

use super::error::Result;
use super::limits::MAX_PENDING_ATIMES;

/// The age at which `relatime` moves an atime without a change, in seconds.
const STALE_AFTER_SECS: i64 = 24 * 60 * 60;

/// Access times that are not in the session yet.
#[derive(Default)]
pub(super) struct Atimes(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    /// Wait for the next change.
    pending: HashMap<Ino, Time>,
    /// Written by a change that is not committed yet.
    writing: HashMap<Ino, Time>,
}

/// Access times that a change writes. A drop before [`PendingAtimes::committed`] returns them to
/// the pending ones.
pub(super) struct PendingAtimes {
    noted: Arc<Mutex<Noted>>,
    rows: Vec<(Ino, Time)>,
}

fn lock(noted: &Mutex<Noted>) -> MutexGuard<'_, Noted> {
    noted.lock()
}

impl Noted {
    fn latest(&self, row: &InodeRow) -> Time {
        let noted = self.pending.get(&row.ino).max(self.writing.get(&row.ino));
        noted.copied().unwrap_or(row.atime).max(row.atime)
    }
}

impl Atimes {
    /// Records a read at `now`, if `relatime` would update the atime.
    pub fn note(&self, row: &InodeRow, now: Time) {
        let mut noted = lock(&self.0);
        let atime = noted.latest(row);
        let due = atime <= row.mtime
            || atime <= row.ctime
            || now.secs.saturating_sub(atime.secs) >= STALE_AFTER_SECS;
        if due && now > atime && noted.pending.len() + noted.writing.len() < MAX_PENDING_ATIMES {
            noted.pending.insert(row.ino, now);
        }
    }

    /// The atime to show for a row.
    pub fn shown(&self, row: &InodeRow) -> Time {
        lock(&self.0).latest(row)
    }

    /// Drops the recorded atime of an object whose atime is set explicitly.
    pub fn forget(&self, ino: Ino) {
        let mut noted = lock(&self.0);
        noted.pending.remove(&ino);
        noted.writing.remove(&ino);
    }

    /// Drops all recorded atimes: the rows are those of another moment.
    pub fn forget_all(&self) {
        let mut noted = lock(&self.0);
        noted.pending.clear();
        noted.writing.clear();
    }

    /// Writes all pending atimes as part of a change.
    pub fn write(&self, txn: &mut dyn WriteTxn) -> Result<PendingAtimes> {
        let rows = {
            let mut noted = lock(&self.0);
            let rows: Vec<_> = noted.pending.drain().collect();
            noted.writing.extend(rows.iter().copied());
            rows
        };
        let writing = PendingAtimes { noted: Arc::clone(&self.0), rows };
        for (ino, atime) in &writing.rows {
            if let Some(mut row) = txn.inode(*ino)?
                && row.atime < *atime
            {
                row.atime = *atime;
                txn.put_inode(&row)?;
            }
        }
        Ok(writing)
    }
}

impl PendingAtimes {
    /// The change is committed: the rows have these times.
    pub fn committed(mut self) {
        let mut noted = lock(&self.noted);
        for (ino, atime) in self.rows.drain(..) {
            if noted.writing.get(&ino) == Some(&atime) {
                noted.writing.remove(&ino);
            }
        }
    }
}

impl Drop for PendingAtimes {
    fn drop(&mut self) {
        let mut noted = lock(&self.noted);
        for (ino, atime) in self.rows.drain(..) {
            if noted.writing.get(&ino) == Some(&atime) {
                noted.writing.remove(&ino);
                noted.pending.entry(ino).or_insert(atime);
            }
        }
    }
}
