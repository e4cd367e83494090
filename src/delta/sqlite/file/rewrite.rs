//! Rewrites the session file without its free pages (docs/decisions/0014).
//!
//! First, `VACUUM INTO` writes the pages in use to a new file beside the session. Second, SQLite's
//! backup API copies that file over the session, in *one* transaction of its WAL. The process may
//! die at any point: until that transaction commits, the session is unchanged; afterwards the new
//! file is not needed. Other programs that have the session open see an ordinary commit.
//!
//! Rowids of `fs_data` may change. Only another store knows them: the
//! session is no replica any more.

use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

use crate::delta::{Compacted, Result, StoreError};
use crate::system_error::words;

use super::connect::{self, Role, companion_path};
use super::disk::{self, byte_len};
use super::error::OpenError;

/// Suffix of the new file's name.
pub const SUFFIX: &str = "-compact";

/// Suffix of the journal that SQLite keeps while it writes the new file.
pub const JOURNAL_SUFFIX: &str = "-compact-journal";

/// Interval between progress reports.
const TELL_INTERVAL: Duration = Duration::from_millis(100);

/// Pages copied back between two progress reports.
const STEP_PAGES: i32 = 1024;

/// Attempts, if another program writes to the session during the copy.
const ATTEMPTS: u32 = 3;

/// Free space required beyond the copied pages, in bytes: headers, and pages that are less filled.
const MARGIN_BYTES: u64 = 4 << 20;

/// A rewritten session whose WAL has yet to be checkpointed and truncated.
pub struct Rewritten {
    before_bytes: u64,
}

impl Rewritten {
    /// The result, once the WAL of the session file `path` was checkpointed.
    ///
    /// The WAL keeps its length until readers let it restart: see `wal`.
    pub fn finish(self, path: &Path) -> Compacted {
        let is_delayed = byte_len(&companion_path(path, "-wal")) > 0;
        let Self { before_bytes } = self;
        Compacted { before_bytes, after_bytes: whole_length(path), is_delayed }
    }
}

/// Rewrites on the server's own writing connection, between two batches, when everything committed
/// is synced.
pub fn by_writer(conn: &mut Connection, path: &Path) -> Result<Rewritten> {
    let copy = FileCopy::beside(path);
    let io = |error: std::io::Error| {
        StoreError::io(format!("{}: {}", copy.path.display(), words(&error))).with_source(error)
    };
    copy.remove().map_err(io)?;
    let before_bytes = whole_length(path);
    let used = UsedPages::of(conn)?;
    require_room(path, used.bytes())
        .map_err(|error| StoreError::full(error.to_string()).with_source(error))?;
    copy.create().map_err(io)?;
    rewrite(conn, path, &copy.path, used, &mut |_, _| {})?;
    copy.remove().map_err(io)?;
    Ok(Rewritten { before_bytes })
}

/// The lengths of the session file and its WAL, in bytes.
pub fn whole_length(path: &Path) -> u64 {
    byte_len(path) + byte_len(&companion_path(path, "-wal"))
}

/// The new file beside the session, and its journal; dropping this removes both.
pub struct FileCopy {
    pub path: PathBuf,
    journal: PathBuf,
}

impl FileCopy {
    /// The files for the session file `session`.
    pub fn beside(session: &Path) -> Self {
        Self {
            path: companion_path(session, SUFFIX),
            journal: companion_path(session, JOURNAL_SUFFIX),
        }
    }

    /// Creates an empty file that only its owner may read, as it will hold the session's content.
    pub fn create(&self) -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&self.path).map(drop)
    }

    pub fn remove(&self) -> std::io::Result<()> {
        for path in [&self.path, &self.journal] {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for FileCopy {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// The number of pages in use, and their size.
#[derive(Clone, Copy)]
pub struct UsedPages {
    pages: u64,
    page_bytes: u64,
}

impl UsedPages {
    pub fn of(conn: &Connection) -> Result<Self> {
        let ask = |sql| -> Result<u64> {
            Ok(conn.query_row(sql, [], |row| row.get::<_, i64>(0))?.cast_unsigned())
        };
        let (all, free) = (ask("PRAGMA page_count")?, ask("PRAGMA freelist_count")?);
        Ok(Self { pages: all.saturating_sub(free), page_bytes: ask("PRAGMA page_size")? })
    }

    pub fn bytes(self) -> u64 {
        self.pages.saturating_mul(self.page_bytes)
    }
}

/// Refuses to start without enough space: both the new file and the WAL will hold all pages in use.
pub fn require_room(path: &Path, used_bytes: u64) -> std::result::Result<(), OpenError> {
    let needed = used_bytes.saturating_mul(2).saturating_add(MARGIN_BYTES);
    match disk::usage(path) {
        Ok(disk) if disk.total_bytes > 0 && disk.available_bytes < needed => {
            let path = path.to_owned();
            Err(OpenError::NoRoom { path, needed, available: disk.available_bytes })
        }
        _ => Ok(()),
    }
}

/// Copies the pages in use to `copy`, and `copy` back over the session.
pub fn rewrite(
    conn: &mut Connection,
    path: &Path,
    copy: &Path,
    used: UsedPages,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let mut reader = connect::open(path, Role::Reader)?;
    for _ in 0..ATTEMPTS {
        let version = data_version(&reader)?;
        reader = vacuum_into(reader, copy, used, tell)?;
        let from = connect::open(copy, Role::ReadOnly)?;
        let backup = Backup::new(&from, conn)?;
        // The first step takes the session's write lock, and keeps it.
        let mut step = backup.step(1)?;
        if data_version(&reader)? != version {
            // Another program committed something that the copy lacks: dropping the backup rolls it
            // back.
            drop(backup);
            drop(from);
            std::fs::write(copy, b"")
                .map_err(|error| StoreError::io(words(&error)).with_source(error))?;
            continue;
        }
        while step == StepResult::More {
            step = backup.step(STEP_PAGES)?;
            let progress = backup.progress();
            let (all, left) = (to_u64(progress.pagecount), to_u64(progress.remaining));
            tell((all + all - left) * used.page_bytes, 2 * all * used.page_bytes);
        }
        if step == StepResult::Done {
            return Ok(());
        }
        return Err(StoreError::busy("another program has the session open"));
    }
    Err(StoreError::busy("another program keeps writing to the session"))
}

/// Changes whenever another connection commits.
fn data_version(conn: &Connection) -> Result<i64> {
    Ok(conn.query_row("PRAGMA data_version", [], |row| row.get(0))?)
}

/// Writes the pages in use to the empty file `copy`, and returns the connection.
fn vacuum_into(
    reader: Connection,
    copy: &Path,
    used: UsedPages,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Connection> {
    let (done, is_done) = mpsc::channel::<()>();
    let all = 2 * used.bytes();
    thread::scope(|scope| {
        let vacuum = scope.spawn(move || {
            let _done = done;
            // VACUUM INTO counts as a change in SQLite, though not of this database.
            reader.pragma_update(None, "query_only", false)?;
            reader.execute("VACUUM INTO ?1", [FileName(copy)])?;
            Ok(reader)
        });
        while is_done.recv_timeout(TELL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            tell(byte_len(copy).min(used.bytes()), all);
        }
        let ended = vacuum.join();
        ended.unwrap_or_else(|_| Err(StoreError::io("the copying thread panicked")))
    })
}

fn to_u64(pages: i32) -> u64 {
    u64::try_from(pages).unwrap_or_default()
}

/// A path as SQLite expects it: its bytes as TEXT, even if they are not UTF-8.
struct FileName<'p>(&'p Path);

impl ToSql for FileName<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0.as_os_str().as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_for_both_copies_is_refused() {
        let directory = std::env::temp_dir();
        let available = disk::usage(&directory).unwrap().available_bytes;
        assert!(require_room(&directory, 0).is_ok());
        // One copy would fit.
        let refused = require_room(&directory, available / 2 + (1 << 30));
        assert!(matches!(refused, Err(OpenError::NoRoom { needed, .. }) if needed > available));
    }
}
