//! What is done to the log beside the writer.
//!
//! A checkpoint syncs the log, copies its pages into the database, and syncs that; then the log
//! starts over. Done by the writer alone it holds every change up. So a thread copies, again and
//! again until little is left that the writer has appended meanwhile, and syncs what it copied;
//! the writer does the last bit, because it alone can keep the log from growing.
//!
//! Where a client writes content as fast as it can, both syncs take as long as the copying. Then
//! a second thread syncs both files ahead, so that the syncs that count find little to do. Linux
//! tells each open file of a failed write (since 4.13), so what is heard ahead SQLite hears as
//! well; on other systems nothing is synced ahead, because one sync may hear it for all.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use crate::delta::{Result, StoreError};

use super::beside::{State, Work};
use super::gather;
use super::log::checkpoint;

/// Pages that the thread leaves to the writer: some 2 MiB.
const FEW_PAGES: u32 = 512;

/// How long what is written gathers before it is synced ahead.
const PAUSE: Duration = Duration::from_millis(2);

/// Copies the log into the database, and syncs that.
#[derive(Clone)]
pub(super) struct Copying {
    /// Pages in the log, as of the last commit.
    pub pages: Arc<AtomicU32>,
}

impl Work for Copying {
    const NAME: &'static str = "acetate-log";

    fn once(&self, conn: &Connection) -> Result<()> {
        let mut copied = 0;
        loop {
            let before = std::mem::replace(&mut copied, checkpoint(conn, "PASSIVE")?);
            let left = self.pages.load(Ordering::Relaxed).saturating_sub(copied);
            // It gets no further where a reader needs the database as it is.
            if left <= FEW_PAGES || copied <= before {
                return Ok(gather::sync_database(conn)?);
            }
        }
    }
}

/// Syncs the log and the database, ahead of the syncs that promises rest on, until all is copied.
#[derive(Clone)]
pub(super) struct SyncingAhead {
    /// The log's file.
    pub log: PathBuf,
    /// What copies it.
    pub copying: Arc<State>,
}

impl Work for SyncingAhead {
    const NAME: &'static str = "acetate-sync";

    fn once(&self, conn: &Connection) -> Result<()> {
        if !cfg!(target_os = "linux") {
            return Ok(());
        }
        // No lock hangs on the log's file, as one does on the database's: to open and close it
        // beside SQLite lets go of nothing. Without a descriptor for it, the log is not synced
        // ahead.
        let log = File::open(&self.log).ok();
        loop {
            let synced = log.as_ref().map_or(Ok(()), File::sync_data);
            synced.map_err(|error| StoreError::Io(error.to_string()))?;
            gather::sync_database(conn)?;
            if !self.copying.is_busy() {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::connect::{self, Role};
    use super::*;

    const ROW: &str = "INSERT INTO t VALUES (zeroblob(100000))";

    /// A writer of a new file that holds a table, and whose log is empty.
    fn writer(path: &Path) -> Connection {
        drop(File::create(path).unwrap());
        let conn = connect::open(path, Role::Writer).unwrap();
        connect::prepare_to_write(&conn).unwrap();
        conn.execute_batch("CREATE TABLE t (x)").unwrap();
        checkpoint(&conn, "TRUNCATE").unwrap();
        conn
    }

    fn rows(conn: &Connection) -> u32 {
        conn.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    /// The rows whose content is in the database, whatever is in the log.
    fn rows_copied(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().len() / 100_000
    }

    #[test]
    fn all_is_copied_that_no_reader_keeps_from_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let writer = writer(&path);
        let beside = connect::open(&path, Role::Writer).unwrap();
        let copying = Copying { pages: Arc::new(AtomicU32::new(u32::MAX)) };
        writer.execute_batch(ROW).unwrap();
        let reader = connect::open(&path, Role::Reader).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(rows(&reader), 1);
        writer.execute_batch(ROW).unwrap();
        // However much is said to be left: it ends where it gets no further.
        copying.once(&beside).unwrap();
        assert_eq!(rows_copied(&path), 1);
        reader.execute_batch("COMMIT").unwrap();
        copying.once(&beside).unwrap();
        assert_eq!(rows_copied(&path), 2);
    }

    #[test]
    fn syncing_ahead_ends_with_the_copying() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let writer = writer(&path);
        writer.execute_batch(ROW).unwrap();
        for log in [connect::beside(&path, "-wal"), path.join("is not there")] {
            let ahead = SyncingAhead { log, copying: Arc::default() };
            ahead.once(&writer).unwrap();
        }
    }
}
