//! Copies a session at one point in time, while a server may have it.
//!
//! SQLite's backup copies page by page, here within one read transaction. Otherwise the backup
//! would restart with each commit of another program, and a served session has some every second.
//! The drawback is that the session's WAL cannot restart until the copy is done.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::delta::{Result, StoreError};

use super::new_file::{NewFile, SessionCopy};
use crate::delta::sqlite::file::connect::{self, Role};
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::host::Host;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, epoch};
use crate::delta::sqlite::table::{dentry, meta, schema, tree_sum};
use crate::delta::sqlite::wal::frames;

/// Pages copied between two progress reports.
const STEP_PAGES: i32 = 1024;

impl Session {
    /// Copies the current state of the session file `path` to the new file `to`. The copy is
    /// synced, has mode 0600, and gets the original's owner if the system permits that.
    ///
    /// The copy is a session of its own, with a new id and handle key (invariant M1). Afterwards
    /// both sessions change independently and allocate the same inode numbers for different
    /// objects. A handle of one must not reach an object of the other, so the copy refuses it
    /// (`NFS3ERR_STALE`). The export's `fsid`, which is derived from the id, distinguishes the
    /// equal file numbers.
    ///
    /// `tell` receives progress: bytes copied and bytes in total.
    ///
    /// # Errors
    /// See [`OpenError`]. In particular, `to` exists, or there is no space for it. The session is
    /// unchanged, and a partial copy is removed.
    pub fn copy_to(
        path: &Path,
        to: &Path,
        host: &Host,
        tell: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<SessionCopy, OpenError> {
        copy(path, to, Some(host), tell)
    }
}

/// Copies the session file `path` to the new file `to`, with its id and key, as a backup before a
/// migration or repair. The two files must not be served at the same time.
pub(super) fn back_up(
    path: &Path,
    to: &Path,
    tell: &mut dyn FnMut(u64, u64),
) -> std::result::Result<SessionCopy, OpenError> {
    copy(path, to, None, tell)
}

/// Copies `path` to `to`; with `host` as a session of its own.
fn copy(
    path: &Path,
    to: &Path,
    host: Option<&Host>,
    tell: &mut dyn FnMut(u64, u64),
) -> std::result::Result<SessionCopy, OpenError> {
    let new = NewFile::create(path, to)?;
    let id = fill(&new, host, tell)?;
    new.finish(id)
}

/// Copies the session to the new file, and returns the copy's id.
fn fill(
    new: &NewFile,
    host: Option<&Host>,
    tell: &mut dyn FnMut(u64, u64),
) -> std::result::Result<Option<String>, OpenError> {
    let failed = |source| new.failed(source);
    let from = open_read_only(new.original()).map_err(failed)?;
    let (pages, page_bytes) = hold(&from).map_err(failed)?;
    let bytes = pages.saturating_mul(page_bytes);
    new.require_room(bytes)?;
    let copied = copy_pages(&from, new.unfinished(), page_bytes, tell);
    let identified =
        copied.and_then(|()| host.map_or(Ok(None), |host| identify(new.unfinished(), host)));
    identified.map_err(|source| new.failed_with(source, bytes))
}

/// Begins a read transaction on the current state of the session. Returns the number of pages and
/// the page size in bytes.
fn hold(from: &Connection) -> Result<(u64, u64)> {
    from.execute_batch("BEGIN")?;
    let pages = from.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0))?;
    Ok((pages.cast_unsigned(), connect::page_bytes(from)?))
}

fn copy_pages(
    from: &Connection,
    copy: &Path,
    page_bytes: u64,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut conn = connect::open(copy, Role::Writer)?;
    // Synced at the end, and removed if the end is not reached.
    conn.pragma_update(None, "synchronous", "OFF")?;
    conn.query_row("PRAGMA journal_mode = MEMORY", [], |_| Ok(()))?;
    let backup = Backup::new(from, &mut conn)?;
    loop {
        let step = backup.step(STEP_PAGES)?;
        let progress = backup.progress();
        let (all, left) = (to_u64(progress.pagecount), to_u64(progress.remaining));
        tell(all.saturating_sub(left) * page_bytes, all * page_bytes);
        match step {
            StepResult::More => {}
            StepResult::Done => return Ok(()),
            _ => return Err(StoreError::busy("another program has the copy open")),
        }
    }
}

fn to_u64(pages: i32) -> u64 {
    u64::try_from(pages).unwrap_or_default()
}

/// Gives the copy a new id and key, and returns the id. A file that acetate never served gets them
/// when it is first served: `None`.
fn identify(copy: &Path, host: &Host) -> Result<Option<String>> {
    let conn = connect::open(copy, Role::Writer)?;
    let is_ours = schema::has_table(&conn, "acetate_meta")?
        && meta::get::<i64>(&conn, meta::FORMAT)?.is_some();
    if !is_ours {
        return Ok(None);
    }
    connect::prepare_to_write(&conn)?;
    let transaction = Transaction::new_unchecked(&conn, TransactionBehavior::Immediate)?;
    config::identify(&transaction, host)?;
    if !epoch::is_clean(&transaction)? {
        // No reply was ever sent from the copy, and it is synced as a whole before it gets its name
        // (invariant M4).
        meta::put(&transaction, meta::CLEAN, 1)?;
        meta::put(&transaction, meta::LAST_DENTRY, dentry::last_id(&transaction)?)?;
        tree_sum::store(&transaction)?;
    }
    // The original's last calls cannot be retransmitted to the copy.
    meta::delete(&transaction, meta::LATE_OP)?;
    transaction.commit()?;
    frames::checkpoint(&conn, "TRUNCATE")?;
    meta::get(&conn, meta::SESSION_ID)
}
