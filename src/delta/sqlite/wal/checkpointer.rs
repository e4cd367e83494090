//! What is done to the log beside the writer.
//!
//! A checkpoint syncs the log, copies its pages into the database, and syncs that; then the log
//! starts over. Done by the writer alone it holds every change up. So a thread copies, again and
//! again until little is left that the writer has appended meanwhile, and syncs what it copied;
//! the writer does the last bit, because it alone can keep the log from growing.
//!
//! Where a client writes content as fast as it can, both syncs take as long as the copying. Then
//! two more threads sync ahead, one each file, so that the syncs that count find little to do.
//!
//! Linux tells each open file of a failed write (since 4.13), so what is heard ahead SQLite hears
//! as well. On other systems, and where the filesystem may tell one sync for all, nothing is synced
//! but by SQLite.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use crate::delta::{Result, StoreError};

use super::background::{Task, TriggerCount};
use super::schedule::checkpoint;
use crate::wal_shim;

/// What the thread leaves to the writer, in bytes.
const FEW_BYTES: u64 = 2 << 20;

/// Whether each open file hears of a write of the session that failed, so that SQLite does though
/// we did.
pub(super) fn syncs_ahead(session: &Path) -> bool {
    cfg!(target_os = "linux") && wal_shim::tells_each_write(session)
}

/// How long what is written gathers before it is synced ahead.
const PAUSE: Duration = Duration::from_micros(500);

/// Copies the log into the database, and syncs that.
#[derive(Clone)]
pub(super) struct WalCheckpointer {
    /// Pages in the log, as of the last commit.
    pub pages: Arc<AtomicU32>,
    /// What a page takes in it, in bytes.
    pub frame_bytes: u64,
    /// Whether it may sync by itself: [`syncs_ahead`].
    pub syncs: bool,
}

impl Task for WalCheckpointer {
    const NAME: &'static str = "acetate-log";

    fn once(&self, conn: &Connection) -> Result<()> {
        let mut copied = 0;
        loop {
            let before = std::mem::replace(&mut copied, checkpoint(conn, "PASSIVE")?);
            let left = self.pages.load(Ordering::Relaxed).saturating_sub(copied);
            // It gets no further where a reader needs the database as it is.
            if u64::from(left) * self.frame_bytes <= FEW_BYTES || copied <= before {
                return if self.syncs { Ok(wal_shim::sync_database(conn)?) } else { Ok(()) };
            }
        }
    }
}

/// Syncs the log ahead of the syncs that promises rest on, until all of it is copied.
#[derive(Clone)]
pub(super) struct WalPresync {
    /// The log's file.
    pub log: PathBuf,
    /// What copies it.
    pub copying: Arc<TriggerCount>,
}

impl Task for WalPresync {
    const NAME: &'static str = "acetate-synclog";

    fn once(&self, _: &Connection) -> Result<()> {
        // No lock hangs on the log's file, as one does on the database's: to open and close it
        // beside SQLite lets go of nothing. Not every file system syncs a file that is open to be
        // read. Without a descriptor for it, the log is not synced ahead.
        let Ok(log) = OpenOptions::new().write(true).open(&self.log) else { return Ok(()) };
        while_busy(&self.copying, || {
            log.sync_data().map_err(|error| StoreError::Io(error.to_string()))
        })
    }
}

/// Syncs the database ahead, until the log is copied.
#[derive(Clone)]
pub(super) struct DbPresync {
    /// What copies the log.
    pub copying: Arc<TriggerCount>,
}

impl Task for DbPresync {
    const NAME: &'static str = "acetate-syncdb";

    fn once(&self, conn: &Connection) -> Result<()> {
        while_busy(&self.copying, || Ok(wal_shim::sync_database(conn)?))
    }
}

/// Syncs once, and again and again as long as `copying` is at work.
fn while_busy(copying: &TriggerCount, mut sync: impl FnMut() -> Result<()>) -> Result<()> {
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
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::super::background::BackgroundThread;
    use super::*;
    use crate::delta::Poison;
    use crate::delta::sqlite::file::connect::{self, Role};

    /// 100,000 times the letter.
    const ROW: &str = "INSERT INTO t VALUES (replace(hex(zeroblob(50000)), '0', 'x'))";

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

    /// The rows whose content is in the database, whatever is in the log; a little of one is in a
    /// page with others.
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
        let pages = Arc::new(AtomicU32::new(u32::MAX));
        let copying = WalCheckpointer { pages, frame_bytes: 4120, syncs: true };
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

    /// Is at it until it is told something.
    #[derive(Clone)]
    struct Held(Arc<Mutex<Receiver<()>>>);

    impl Task for Held {
        const NAME: &'static str = "held";

        fn once(&self, _: &Connection) -> Result<()> {
            let _ = self.0.lock().unwrap().recv_timeout(Duration::from_secs(30));
            Ok(())
        }
    }

    /// Something that is copied until the sender is used.
    fn held(path: &Path) -> (Sender<()>, BackgroundThread<Held>) {
        let (release, held) = mpsc::channel();
        let mut copying =
            BackgroundThread::of(path, Held(Arc::new(Mutex::new(held))), &Poison::default());
        copying.trigger();
        (release, copying)
    }

    /// Asserts that work beside something that is copied goes on until that is done.
    fn goes_on(
        path: &Path,
        of: impl FnOnce(Arc<TriggerCount>) -> Box<dyn FnOnce(&Connection) + Send>,
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
        let log = connect::beside(&path, "-wal");
        goes_on(&path, |copying| {
            Box::new(move |conn| WalPresync { log, copying }.once(conn).unwrap())
        });
        goes_on(&path, |copying| Box::new(move |conn| DbPresync { copying }.once(conn).unwrap()));
        // Without a log to be had, nothing is waited for.
        let (release, copying) = held(&path);
        let state = copying.progress();
        let log = path.join("is not there");
        WalPresync { log, copying: Arc::clone(&state) }.once(&writer).unwrap();
        assert!(state.is_busy());
        release.send(()).unwrap();
    }
}
