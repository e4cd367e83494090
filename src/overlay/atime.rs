//! Access times of delta objects: noted by readers, written with the next change.
//!
//! As `relatime` does: a read moves atime only if it was not after the last change, or is a day
//! old. Nothing is written for a read alone, and nothing is lost that anyone was promised.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::delta::{Ino, InodeRow, WriteTxn};
use crate::vfs::Time;

use super::error::Result;

/// Objects whose new atime waits for a change at most; further ones are forgotten.
const MAX_PENDING: usize = 4096;

/// The age at which `relatime` moves an atime without a change, in seconds.
const STALE_AFTER_SECS: i64 = 24 * 60 * 60;

/// Access times that are not written yet.
#[derive(Default)]
pub(super) struct Atimes(Mutex<HashMap<Ino, Time>>);

impl Atimes {
    /// Notes that an object was read.
    pub fn note(&self, row: &InodeRow, now: Time) {
        let due = row.atime <= row.mtime
            || row.atime <= row.ctime
            || now.secs - row.atime.secs >= STALE_AFTER_SECS;
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if due && now > row.atime && (pending.len() < MAX_PENDING) {
            pending.insert(row.ino, now);
        }
    }

    /// The atime to show for a row.
    pub fn shown(&self, row: &InodeRow) -> Time {
        let pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.get(&row.ino).copied().unwrap_or(row.atime).max(row.atime)
    }

    /// Forgets what was noted of an object whose atime is set explicitly.
    pub fn forget(&self, ino: Ino) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino);
    }

    /// Writes what is pending, as part of a change.
    pub fn write(&self, txn: &mut dyn WriteTxn) -> Result<()> {
        let pending = {
            let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if pending.is_empty() {
                return Ok(());
            }
            std::mem::take(&mut *pending)
        };
        for (ino, atime) in pending {
            if let Some(mut row) = txn.inode(ino)?
                && row.atime < atime
            {
                row.atime = atime;
                txn.put_inode(&row)?;
            }
        }
        Ok(())
    }
}
