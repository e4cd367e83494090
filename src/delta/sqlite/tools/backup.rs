//! A copy of a session as it was at one moment, whoever serves it meanwhile.
//!
//! SQLite's backup copies page by page, within one read transaction: it would begin anew with
//! each commit of another program otherwise, and a served session has some every second. The
//! price is that the session's log cannot start over until the copy is done.
//!
//! The copy is written under a name of its own, synced, and gets the one that was asked for at
//! the end: there is a whole copy or none.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::delta::{Result, StoreError};

use crate::delta::sqlite::file::connect::{self, Role, beside};
use crate::delta::sqlite::file::create::absolute;
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::host::Host;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, disk, epoch};
use crate::delta::sqlite::file::{disk::byte_len, probe};
use crate::delta::sqlite::table::{dentry, meta, schema};
use crate::delta::sqlite::wal::schedule;

/// Ends the name of a copy that is not finished; nobody would give it to a session.
const SUFFIX: &str = "-snapshot-unfinished";

/// Pages that are copied between two reports.
const STEP_PAGES: i32 = 1024;

/// Room beyond what is copied, in bytes: for the log of the last step.
const MARGIN_BYTES: u64 = 1 << 20;

/// A copy of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCopy {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Its own session id; `None` where acetate never served the original.
    pub id: Option<String>,
}

impl Session {
    /// Copies the session file `path`, as it is now, to the new file `to`. The copy is synced,
    /// belongs to the original's owner where the system allows it, and has mode 0600.
    ///
    /// It is a session of its own, with another id and another key of handles (invariant M1). From
    /// the copy on both go their own ways and give out the same inode numbers for different
    /// objects, beside each other or one in the other's place. A client that holds a handle of one
    /// must not get the other's object by it, so the copy refuses it (`NFS3ERR_STALE`); and the
    /// export's `fsid`, which follows from the id, tells their equal numbers apart.
    ///
    /// `tell` hears how many bytes of how many are copied, every now and then.
    ///
    /// # Errors
    /// See [`OpenError`]; above all, there is a file `to` already, or no room for one. The session
    /// is as it was, and nothing is left of the copy.
    pub fn copy_to(
        path: &Path,
        to: &Path,
        host: &Host,
        tell: &mut dyn FnMut(u64, u64),
    ) -> std::result::Result<SessionCopy, OpenError> {
        copy(path, to, Some(host), tell)
    }
}

/// Copies the session file `path` as it is, id and key included, to the new file `to`: to go back
/// to, before a change that is not done every day. Both must not be served beside each other.
pub(super) fn back_up(
    path: &Path,
    to: &Path,
    tell: &mut dyn FnMut(u64, u64),
) -> std::result::Result<SessionCopy, OpenError> {
    copy(path, to, None, tell)
}

/// Copies `path` to `to`, as a session of its own where there is a `host` to make it one.
fn copy(
    path: &Path,
    to: &Path,
    host: Option<&Host>,
    tell: &mut dyn FnMut(u64, u64),
) -> std::result::Result<SessionCopy, OpenError> {
    let path = &Session::existing(path)?;
    let to = &absolute(to)?;
    // First: beside a name that is taken nothing is made, and nothing goes.
    require_absent(to)?;
    match probe::check(path) {
        // Nothing has to be understood of what is only copied.
        Ok(()) | Err(OpenError::OldSpec { .. }) => {}
        Err(error) => return Err(error),
    }
    // Nobody else makes a session, or a copy, under this name until the end.
    let _lock = SessionLock::take(to, true)?;
    require_absent(to)?;
    let unfinished = Unfinished(beside(to, SUFFIX));
    if unfinished.0 == *path {
        return Err(OpenError::Exists { path: path.clone() });
    }
    // What a copy left that was killed; none runs now.
    unfinished.remove().map_err(|error| OpenError::io(&unfinished.0, error))?;
    unfinished.create().map_err(|error| OpenError::io(&unfinished.0, error))?;
    let id = fill(path, &unfinished.0, to, host, tell)?;
    let bytes = byte_len(&unfinished.0);
    let finished = unfinished.finish(path, to);
    finished.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => OpenError::Exists { path: to.clone() },
        _ => OpenError::io(to, error),
    })?;
    Ok(SessionCopy { path: to.clone(), bytes, id })
}

/// Refuses a name that is taken, or that a log lies beside: SQLite would take that for the
/// copy's, and the session whose it was may need it.
pub(super) fn require_absent(to: &Path) -> std::result::Result<(), OpenError> {
    if to.symlink_metadata().is_ok() {
        return Err(OpenError::Exists { path: to.to_owned() });
    }
    let logs = ["-wal", "-journal"].map(|suffix| beside(to, suffix));
    match logs.into_iter().find(|log| byte_len(log) > 0) {
        Some(log) => Err(OpenError::LeftoverLog { log }),
        None => Ok(()),
    }
}

/// The copy until it is whole; it goes with this.
struct Unfinished(PathBuf);

impl Unfinished {
    /// An empty file that only its owner may read.
    fn create(&self) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&self.0).map(drop)
    }

    fn remove(&self) -> std::io::Result<()> {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            match std::fs::remove_file(beside(&self.0, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives the copy of `original` the name `to`, for good.
    fn finish(&self, original: &Path, to: &Path) -> std::io::Result<()> {
        self.permit(original)?;
        File::open(&self.0)?.sync_all()?;
        disk::rename_new(&self.0, to)?;
        File::open(to.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// Gives the copy the original's owner, where the system lets us. Its mode stays 0600: it holds
    /// the content of files that others may not read, whatever the original's mode is.
    fn permit(&self, original: &Path) -> std::io::Result<()> {
        let wanted = original.metadata()?;
        // Only root gives files away.
        let _given = chown(&self.0, Some(wanted.uid()), Some(wanted.gid()));
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Copies the session `path` to the empty file `copy`, which will be `to`, and returns the
/// copy's id.
fn fill(
    path: &Path,
    copy: &Path,
    to: &Path,
    host: Option<&Host>,
    tell: &mut dyn FnMut(u64, u64),
) -> std::result::Result<Option<String>, OpenError> {
    let failed =
        |source: StoreError| OpenError::Copy { path: path.to_owned(), to: to.to_owned(), source };
    let from = open_read_only(path).map_err(failed)?;
    let (pages, page_bytes) = hold(&from).map_err(failed)?;
    let needed = pages.saturating_mul(page_bytes).saturating_add(MARGIN_BYTES);
    require_room(to, needed)?;
    let copied = copy_pages(&from, copy, page_bytes, tell);
    let copied = copied.and_then(|()| host.map_or(Ok(None), |host| identify(copy, host)));
    copied.map_err(|error| match error {
        // Another program took the room.
        StoreError::Full(_) => no_room(to, needed),
        error => failed(error),
    })
}

/// Begins a transaction that sees the session as it is now, to its end. Returns how many pages it
/// has, of how many bytes.
fn hold(from: &Connection) -> Result<(u64, u64)> {
    from.execute_batch("BEGIN")?;
    let pages = from.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0))?;
    Ok((pages.cast_unsigned(), connect::page_bytes(from)?))
}

/// Refuses to begin what cannot end.
fn require_room(to: &Path, needed: u64) -> std::result::Result<(), OpenError> {
    match disk::usage(folder(to)) {
        Ok(disk) if disk.total_bytes > 0 && disk.available_bytes < needed => {
            Err(no_room(to, needed))
        }
        _ => Ok(()),
    }
}

fn no_room(to: &Path, needed: u64) -> OpenError {
    let available = disk::usage(folder(to)).map_or(0, |disk| disk.available_bytes);
    OpenError::NoRoomForCopy { path: to.to_owned(), needed, available }
}

fn folder(to: &Path) -> &Path {
    to.parent().unwrap_or(Path::new("/"))
}

fn copy_pages(
    from: &Connection,
    copy: &Path,
    page_bytes: u64,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut conn = connect::open(copy, Role::Writer)?;
    // It is synced at the end, and goes if that is not reached.
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
            _ => return Err(StoreError::Busy("another program has the copy open".to_owned())),
        }
    }
}

fn to_u64(pages: i32) -> u64 {
    u64::try_from(pages).unwrap_or_default()
}

/// Makes the copy a session of its own, and returns its id; a file of another implementation
/// becomes one when it is served first.
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
        // Nothing was ever acknowledged by the copy, and it is synced whole before it gets its
        // name (invariant M4).
        meta::put(&transaction, meta::CLEAN, 1)?;
        meta::put(&transaction, meta::LAST_DENTRY, dentry::last_id(&transaction)?)?;
    }
    // The original's last calls are not its own.
    meta::delete(&transaction, meta::LATE_OP)?;
    transaction.commit()?;
    schedule::checkpoint(&conn, "TRUNCATE")?;
    meta::get(&conn, meta::SESSION_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_refused_and_the_error_says_how_much_it_takes() {
        let to = std::env::temp_dir().join("copy.db");
        assert!(require_room(&to, 0).is_ok());
        let refused = require_room(&to, 1 << 60).unwrap_err();
        let said = refused.to_string();
        assert!(said.contains("the copy needs 1099511627776 MiB"), "{said}");
    }
}
