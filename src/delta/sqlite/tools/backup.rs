//! Copies a session at one point in time, while a server may have it.
//!
//! SQLite's backup copies page by page, here within one read transaction. Otherwise the backup
//! would restart with each commit of another program, and a served session has some every second.
//! The drawback is that the session's WAL cannot restart until the copy is done.
//!
//! The copy is written under a temporary name, synced, and then renamed: there is a whole copy or
//! none.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::delta::{Result, StoreError, StoreErrorKind};

use crate::delta::sqlite::file::connect::{self, Role, companion_path};
use crate::delta::sqlite::file::create::absolute;
use crate::delta::sqlite::file::error::OpenError;
use crate::delta::sqlite::file::host::Host;
use crate::delta::sqlite::file::lock::SessionLock;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::file::{config, disk, epoch};
use crate::delta::sqlite::file::{disk::byte_len, probe};
use crate::delta::sqlite::table::{dentry, meta, schema};
use crate::delta::sqlite::wal::schedule;

/// Suffix of an unfinished copy's name; unlikely to be the name of a session.
const SUFFIX: &str = "-snapshot-unfinished";

/// Pages copied between two progress reports.
const STEP_PAGES: i32 = 1024;

/// Free space required beyond the copied pages, in bytes: for the WAL of the last step.
const MARGIN_BYTES: u64 = 1 << 20;

/// A copy of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCopy {
    /// Its absolute path.
    pub path: PathBuf,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Its own session id; `None` if acetate never served the original.
    pub id: Option<String>,
}

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
    let path = &Session::existing(path)?;
    let to = &absolute(to)?;
    // Check first: beside an existing file nothing is created or removed.
    require_absent(to)?;
    match probe::check(path) {
        // An old version can be copied without understanding its rows.
        Ok(()) | Err(OpenError::OldSpec { .. }) => {}
        Err(error) => return Err(error),
    }
    // Keeps other processes from creating a session or a copy under this name.
    let _lock = SessionLock::take(to, true)?;
    require_absent(to)?;
    let unfinished = Unfinished(companion_path(to, SUFFIX));
    if unfinished.0 == *path {
        return Err(OpenError::Exists { path: path.clone() });
    }
    // Left by a killed copy; the lock shows that none is running.
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

/// Refuses a name that exists, or that has a WAL or journal beside it. SQLite would take that file
/// for the copy's, and the session that it belongs to may need it.
pub(super) fn require_absent(to: &Path) -> std::result::Result<(), OpenError> {
    if to.symlink_metadata().is_ok() {
        return Err(OpenError::Exists { path: to.to_owned() });
    }
    let logs = ["-wal", "-journal"].map(|suffix| companion_path(to, suffix));
    match logs.into_iter().find(|log| byte_len(log) > 0) {
        Some(log) => Err(OpenError::LeftoverWal { wal: log }),
        None => Ok(()),
    }
}

/// The unfinished copy; dropping it removes the file.
struct Unfinished(PathBuf);

impl Unfinished {
    /// Creates an empty file that only its owner may read.
    fn create(&self) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&self.0).map(drop)
    }

    fn remove(&self) -> std::io::Result<()> {
        for suffix in ["", "-journal", "-wal", "-shm"] {
            match std::fs::remove_file(companion_path(&self.0, suffix)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Renames the copy of `original` to `to`, durably.
    fn finish(&self, original: &Path, to: &Path) -> std::io::Result<()> {
        self.permit(original)?;
        File::open(&self.0)?.sync_all()?;
        disk::rename_new(&self.0, to)?;
        File::open(to.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// Gives the copy the original's owner, if the system permits that. The mode stays 0600,
    /// because the copy holds the content of files that other users may not read.
    fn permit(&self, original: &Path) -> std::io::Result<()> {
        let wanted = original.metadata()?;
        // Only root may change a file's owner.
        let _given = chown(&self.0, Some(wanted.uid()), Some(wanted.gid()));
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Copies the session `path` to the empty file `copy`, which will become `to`. Returns the copy's
/// id.
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
    copied.map_err(|error| match error.kind {
        // Another program used the free space.
        StoreErrorKind::Full => no_room(to, needed),
        _ => failed(error),
    })
}

/// Begins a read transaction on the current state of the session. Returns the number of pages and
/// the page size in bytes.
fn hold(from: &Connection) -> Result<(u64, u64)> {
    from.execute_batch("BEGIN")?;
    let pages = from.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0))?;
    Ok((pages.cast_unsigned(), connect::page_bytes(from)?))
}

/// Refuses to start without enough free space.
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
    }
    // The original's last calls cannot be retransmitted to the copy.
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
