//! Checkpoints and syncs the WAL beside the writer.
//!
//! A WAL checkpoint fsyncs the WAL, copies its pages into the database and fsyncs the database;
//! then the WAL restarts. If the writer did all of this, every change would wait. So another
//! thread copies repeatedly, until the writer has appended little since, and then syncs the
//! database. The writer copies the rest, because only the writer can keep the WAL from growing.
//!
//! If a client writes content at full speed, the fsyncs take as long as the copying. Two more
//! threads then sync early, one per file, so that the fsyncs that durability depends on have little
//! to write.
//!
//! Linux (since 4.13) reports a failed write to each open file, so SQLite still learns of an error
//! that our descriptor saw first. On other systems, and on filesystems that may report an error
//! only once, only SQLite syncs.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use crate::delta::{Result, StoreError};

use super::background::{Task, TaskProgress};
use super::frames::checkpoint;
use crate::delta::sqlite::file::wal_progress::WalProgress;
use crate::system_error::words;
use crate::wal_shim;

/// What the thread leaves for the writer to copy, in bytes.
const FEW_BYTES: u64 = 2 << 20;

/// Whether a failed write of the session is reported to each open file, so that our early syncs do
/// not hide it from SQLite.
pub(super) fn syncs_ahead(session: &Path) -> bool {
    cfg!(target_os = "linux") && wal_shim::tells_each_write(session)
}

/// Delay between two early fsyncs, so that writes accumulate.
const PAUSE: Duration = Duration::from_micros(500);

/// Copies the WAL into the database and syncs the database.
#[derive(Clone)]
pub(super) struct WalCheckpointer {
    /// Length of the WAL, as of the last commit.
    pub progress: Arc<WalProgress>,
    /// Whether it syncs the database itself: [`syncs_ahead`].
    pub syncs: bool,
}

impl Task for WalCheckpointer {
    const NAME: &'static str = "the WAL checkpoint";
    const CONNECTS: bool = true;

    fn once(&self, conn: Option<&Connection>) -> Result<()> {
        let Some(conn) = conn else { return Ok(()) };
        let mut copied = 0;
        loop {
            let before = std::mem::replace(&mut copied, checkpoint(conn, "PASSIVE")?);
            self.progress.note_copied(copied);
            // No progress: a reader still needs the database's current pages.
            if self.progress.left_bytes() <= FEW_BYTES || copied <= before {
                return if self.syncs { Ok(wal_shim::sync_database(conn)?) } else { Ok(()) };
            }
        }
    }
}

/// Fsyncs the WAL early and repeatedly, while it is copied.
#[derive(Clone)]
pub(super) struct WalPresync {
    /// Path of the WAL.
    pub wal: PathBuf,
    /// State of the [`WalCheckpointer`].
    pub copying: Arc<TaskProgress>,
}

impl Task for WalPresync {
    const NAME: &'static str = "the early sync of the WAL";
    const CONNECTS: bool = false;

    fn once(&self, _: Option<&Connection>) -> Result<()> {
        // SQLite holds no POSIX lock on the WAL, so closing this descriptor releases none (on the
        // database it would). Opened for writing, because some filesystems do not sync a read-only
        // descriptor. If the open fails, the WAL is not synced early.
        let Ok(wal) = OpenOptions::new().write(true).open(&self.wal) else { return Ok(()) };
        while_busy(&self.copying, || {
            wal.sync_data().map_err(|error| StoreError::io(words(&error)).with_source(error))
        })
    }
}

/// Fsyncs the database early and repeatedly, while the WAL is copied into it.
#[derive(Clone)]
pub(super) struct DbPresync {
    /// State of the [`WalCheckpointer`].
    pub copying: Arc<TaskProgress>,
}

impl Task for DbPresync {
    const NAME: &'static str = "the early sync of the database";
    const CONNECTS: bool = true;

    fn once(&self, conn: Option<&Connection>) -> Result<()> {
        let Some(conn) = conn else { return Ok(()) };
        while_busy(&self.copying, || Ok(wal_shim::sync_database(conn)?))
    }
}

/// Syncs at least once, and repeats while `copying` is busy.
fn while_busy(copying: &TaskProgress, mut sync: impl FnMut() -> Result<()>) -> Result<()> {
    loop {
        sync()?;
        if !copying.is_busy() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::super::background::BackgroundTask;
    use super::*;
    use crate::delta::sqlite::file::connect::{self, Role};
    use crate::delta::{BackgroundThreads, NewThreads, Poison};

    /// Inserts a string of 100,000 letters x.
    const ROW: &str = "INSERT INTO t VALUES (replace(hex(zeroblob(50000)), '0', 'x'))";

    /// A writer on a new file with one table and an empty WAL.
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

    /// The number of rows whose content is in the database file. Below 100,000 letters per row,
    /// because part of a row may be in a page with others.
    fn rows_copied(path: &Path) -> usize {
        let database = std::fs::read(path).unwrap();
        database.iter().filter(|&&byte| byte == b'x').count() / 90_000
    }

    #[test]
    fn all_is_copied_that_no_reader_keeps_from_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let writer = writer(&path);
        let beside = connect::open(&path, Role::Writer).unwrap();
        let progress = Arc::new(WalProgress::default());
        progress.begin(4120);
        progress.pages().store(u32::MAX, Ordering::Relaxed);
        let copying = WalCheckpointer { progress: Arc::clone(&progress), syncs: true };
        writer.execute_batch(ROW).unwrap();
        let reader = connect::open(&path, Role::Reader).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(rows(&reader), 1);
        writer.execute_batch(ROW).unwrap();
        // Even though `pages` says that much is left, it stops when it makes no progress.
        copying.once(Some(&beside)).unwrap();
        assert_eq!(rows_copied(&path), 1);
        reader.execute_batch("COMMIT").unwrap();
        copying.once(Some(&beside)).unwrap();
        assert_eq!(rows_copied(&path), 2);
        // Two rows of 100,000 bytes are some fifty pages.
        assert!((48..100).contains(&(u32::MAX - progress.left_pages())));
    }

    /// Runs until a message arrives.
    #[derive(Clone)]
    struct Held(Arc<Mutex<Receiver<()>>>);

    impl Task for Held {
        const NAME: &'static str = "held";
        const CONNECTS: bool = false;

        fn once(&self, _: Option<&Connection>) -> Result<()> {
            let _ = self.0.lock().unwrap().recv_timeout(Duration::from_secs(30));
            Ok(())
        }
    }

    /// A busy background task, until the sender is used.
    fn held(path: &Path) -> (Sender<()>, BackgroundTask<Held>) {
        let (release, held) = mpsc::channel();
        let threads: Arc<dyn BackgroundThreads> = Arc::new(NewThreads);
        let task = Held(Arc::new(Mutex::new(held)));
        let copying = BackgroundTask::of(path, task, &threads, &Poison::default());
        copying.trigger(false);
        (release, copying)
    }

    /// Asserts that a task beside a busy one runs until that one finishes.
    fn goes_on(
        path: &Path,
        of: impl FnOnce(Arc<TaskProgress>) -> Box<dyn FnOnce(&Connection) + Send>,
    ) {
        let (release, copying) = held(path);
        let once = of(copying.progress());
        let conn = connect::open(path, Role::Writer).unwrap();
        let thread = thread::spawn(move || once(&conn));
        thread::sleep(40 * PAUSE);
        assert!(!thread.is_finished());
        release.send(()).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn syncing_ahead_goes_on_until_all_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.db");
        let writer = writer(&path);
        writer.execute_batch(ROW).unwrap();
        let wal = connect::companion_path(&path, "-wal");
        goes_on(&path, |copying| {
            Box::new(move |conn| WalPresync { wal, copying }.once(Some(conn)).unwrap())
        });
        goes_on(&path, |copying| {
            Box::new(move |conn| DbPresync { copying }.once(Some(conn)).unwrap())
        });
        // If the WAL cannot be opened, the task does not wait.
        let (release, copying) = held(&path);
        let state = copying.progress();
        let wal = path.join("is not there");
        WalPresync { wal, copying: Arc::clone(&state) }.once(Some(&writer)).unwrap();
        assert!(state.is_busy());
        release.send(()).unwrap();
    }
}
