//! A test's session: in its file, or in the database with the file as its replica.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use acetate::delta::postgres::{
    Followed, HeldLease, HeldSession, PostgresStore, SessionRow, SessionUrl, Shipper, catch_up,
    find, hydrate, take, upload,
};
use acetate::delta::sqlite::{BatchMark, Host, OpenError, OpenMode, Session, session_tables};
use acetate::delta::{
    Compacted, Limits, Poison, Reader, Result, Store, StoreError, UnacknowledgedOp, UsageDelta,
    WalSize, WriteTxn, Writer,
};
use acetate::vfs::FsStat;
use tempfile::TempDir;

use super::left_out;
use super::rows::{AllRows, RowKey, differences, rows_at_rest, rows_of_database};
use super::server::{TestDatabase, given};

/// No server of a test is silent for so long.
const TERM: Duration = Duration::from_secs(3600);

/// The file of the replica that follows.
const FOLLOWING: &str = "following.db";

/// A session's name in the database, and what became of its file.
#[derive(Clone)]
struct Registered {
    url: SessionUrl,
    /// The rows that tests changed in the file.
    foreign: Arc<Mutex<BTreeSet<RowKey>>>,
    /// The mark that the last server left in the file.
    left: Arc<Mutex<Option<BatchMark>>>,
}

/// The sessions of this process in the database, by their files.
static REGISTERED: LazyLock<Mutex<BTreeMap<PathBuf, Registered>>> = LazyLock::new(Mutex::default);

fn registered(path: &Path) -> Option<Registered> {
    let path = path.canonicalize().ok()?;
    REGISTERED.lock().unwrap().get(&path).cloned()
}

/// A connection of a test to a session file. Rows that the test changes while a server has the
/// session are not compared: the server does not know of them.
pub fn watched(path: &Path) -> rusqlite::Connection {
    let mut conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(5)).unwrap();
    if let Some(registered) = registered(path) {
        let watch = move |_, _: &str, table: &str, row: i64| {
            if session_tables().iter().any(|it| it.name == table && !it.is_outside) {
                registered.foreign.lock().unwrap().insert((table.to_owned(), row));
            }
        };
        conn.update_hook(Some(watch)).unwrap();
    }
    conn
}

/// An open session, which is a [`Store`].
pub enum TestSession {
    File(Session),
    Kept(KeptSession),
}

/// A session in the database.
pub struct KeptSession {
    store: PostgresStore,
    guard: Arc<Guard>,
}

/// Compares the two sides, and with them a replica that follows.
struct Guard {
    url: SessionUrl,
    id: i64,
    path: PathBuf,
    lease: Arc<HeldLease>,
    foreign: Arc<Mutex<BTreeSet<RowKey>>>,
    left: Arc<Mutex<Option<BatchMark>>>,
    /// The directory of the replica that follows; `None` for rows that a test made contradict each
    /// other.
    following: Option<TempDir>,
}

impl TestSession {
    /// A session that was just made, at its usual place.
    #[track_caller]
    pub fn created(session: Session) -> Self {
        match given().filter(|_| !left_out::is_left_out()) {
            Some(database) => keep(database, session),
            None => Self::File(session),
        }
    }

    /// Opens a session to be served. If the database has it: as the server does that takes it over.
    #[track_caller]
    pub fn opened(path: &Path, host: &Host) -> std::result::Result<Self, OpenError> {
        let Some(database) = given().filter(|_| !left_out::is_left_out()) else {
            return Session::open(path, OpenMode::Serve, host).map(Self::File);
        };
        let Some(old) = registered(path) else {
            return Ok(keep(database, Session::open(path, OpenMode::Serve, host)?));
        };
        let row =
            database.with(|client, runtime| runtime.block_on(find(client, &old.url)).unwrap());
        let is_foreign = !old.foreign.lock().unwrap().is_empty();
        let at_rest = rows_at_rest(path, host);
        let mark = at_rest.as_ref().ok().and_then(|(_, file)| file.replica_mark().unwrap());
        match at_rest {
            Ok((file, _)) if !is_foreign && mark == Some(row.mark) => {
                let kept = database.with(|client, runtime| {
                    runtime.block_on(rows_of_database(client, &old.url.schema, row.id))
                });
                let session = Session::open(path, OpenMode::Serve, host)?;
                match differences(&file, &kept, &BTreeSet::new()).is_empty() {
                    true => Ok(held(database, session, row.mark, (old.url, row))),
                    // Another program, or the test without the server, has changed the file.
                    false => Ok(keep(database, session)),
                }
            }
            Ok(_) if !is_foreign && (mark.is_some() || old.left.lock().unwrap().is_none()) => {
                drop(Session::open(path, OpenMode::Serve, host)?);
                let (session, mark) = database.with(|client, runtime| {
                    let hydrated = hydrate(client, (&old.url, row.id), (path, host));
                    runtime.block_on(hydrated).unwrap()
                });
                Ok(held(database, session, mark, (old.url, row)))
            }
            _ => Ok(keep(database, Session::open(path, OpenMode::Serve, host)?)),
        }
    }
}

/// Puts a session into the database, under a new name.
fn keep(database: &'static TestDatabase, mut session: Session) -> TestSession {
    let url = database.new_url();
    let row = database
        .with(|client, runtime| upload((client, runtime), &url, &session, TERM))
        .unwrap_or_else(|error| panic!("the session is not taken: {error}"));
    session.record_mark(row.mark).unwrap();
    let mark = row.mark;
    held(database, session, mark, (url, row))
}

/// Takes the lease, from a server that was killed too.
fn held(
    database: &'static TestDatabase,
    mut session: Session,
    mark: BatchMark,
    (url, row): (SessionUrl, SessionRow),
) -> TestSession {
    session.note_rows().unwrap();
    let lease = database.with(|client, runtime| {
        runtime.block_on(take(client, &url.schema, &row, ("a test", "here"))).unwrap().unwrap()
    });
    let (lease, path) = (Arc::new(lease), session.path().to_owned());
    let held = HeldSession {
        connection: url.connection.clone(),
        schema: url.schema.clone(),
        id: row.id,
        lease: Arc::clone(&lease),
    };
    let entry = Registered { url: url.clone(), foreign: Arc::default(), left: Arc::default() };
    let (foreign, left) = (Arc::clone(&entry.foreign), Arc::clone(&entry.left));
    REGISTERED.lock().unwrap().insert(path.clone(), entry);
    let shipper = Shipper::new(held, database.runtime().clone(), mark);
    let store = PostgresStore::new(session, Arc::clone(&lease), shipper);
    let following = begin_following(&url, row.id);
    let guard = Arc::new(Guard { url, id: row.id, path, lease, foreign, left, following });
    TestSession::Kept(KeptSession { store, guard })
}

/// Makes a second replica, which has all rows of now.
fn begin_following(url: &SessionUrl, id: i64) -> Option<TempDir> {
    let (dir, host) = (tempfile::tempdir().unwrap(), Host::current().unwrap());
    let path = dir.path().join(FOLLOWING);
    let hydrated = super::server::any().with(|client, runtime| {
        runtime.block_on(hydrate(client, (url, id), (&path, &host))).map(drop)
    });
    match hydrated {
        Ok(()) => Some(dir),
        Err(error) if error.to_string().contains("contradicts another one") => None,
        Err(error) => panic!("{error}"),
    }
}

impl Guard {
    /// Has the second replica follow; fails with the rows that differ from those of the database.
    fn follow(&self, kept: &AllRows, mark: BatchMark) -> std::result::Result<(), String> {
        let Some(following) = &self.following else { return Ok(()) };
        let (path, host) = (following.path().join(FOLLOWING), Host::current().unwrap());
        let followed = super::server::any().with(|client, runtime| {
            let session = (&self.url.schema, self.id);
            runtime.block_on(catch_up(client, session, (&path, &host)))
        });
        match followed {
            Ok(Followed::UpTo(followed)) if followed == mark => {}
            other => return Err(format!("the second replica does not follow: {other:?}")),
        }
        let (file, _session) = rows_at_rest(&path, &host)?;
        let differences = differences(&file, kept, &BTreeSet::new());
        match differences.is_empty() {
            true => Ok(()),
            false => Err(format!("the second replica and the database differ:\n{differences}")),
        }
    }

    /// Fails with the rows that differ.
    fn compare(&self) -> std::result::Result<(), String> {
        if self.lease.is_lost() || !self.path.exists() {
            return Ok(());
        }
        let (file, session) = rows_at_rest(&self.path, &Host::current().unwrap())?;
        // Without a mark, the file has rows of no batch, and is made again when it is used.
        let found = session.replica_mark().unwrap();
        *self.left.lock().unwrap() = found;
        let Some(mark) = found else { return Ok(()) };
        let (kept, row) = super::server::any().with(|client, runtime| {
            runtime.block_on(async {
                let rows = rows_of_database(client, &self.url.schema, self.id).await;
                (rows, find(client, &self.url).await.unwrap())
            })
        });
        if mark != row.mark {
            return Err(format!("the file is at {mark:?}, the database at {:?}", row.mark));
        }
        let differences = differences(&file, &kept, &self.foreign.lock().unwrap());
        match differences.is_empty() {
            true => self.follow(&kept, mark),
            false => Err(format!("the file and the database differ:\n{differences}")),
        }
    }
}

impl Drop for KeptSession {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.guard.compare().unwrap_or_else(|text| panic!("{text}"));
        }
    }
}

impl Deref for TestSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        match self {
            Self::File(session) => session,
            Self::Kept(kept) => kept.store.replica(),
        }
    }
}

/// Only where the session is in its file.
impl DerefMut for TestSession {
    fn deref_mut(&mut self) -> &mut Session {
        match self {
            Self::File(session) => session,
            Self::Kept(_) => panic!("the replica is already in use"),
        }
    }
}

impl TestSession {
    fn store(&self) -> &dyn Store {
        match self {
            Self::File(session) => session,
            Self::Kept(kept) => &kept.store,
        }
    }
}

impl Store for TestSession {
    fn writer(&self) -> Result<Box<dyn Writer>> {
        let inner = self.store().writer()?;
        Ok(match self {
            Self::File(_) => inner,
            Self::Kept(kept) => {
                let guard = Arc::clone(&kept.guard);
                Box::new(KeptWriter { inner, guard, is_prepared: false })
            }
        })
    }

    fn reader(&self) -> Result<Box<dyn Reader>> {
        self.store().reader()
    }

    fn epoch(&self) -> u64 {
        self.store().epoch()
    }

    fn unacknowledged_ops(&self) -> &[UnacknowledgedOp] {
        self.store().unacknowledged_ops()
    }

    fn limits(&self) -> Limits {
        self.store().limits()
    }

    fn disk_usage(&self) -> Result<FsStat> {
        self.store().disk_usage()
    }

    fn wal_size(&self) -> WalSize {
        self.store().wal_size()
    }
}

/// Prepares each commit, where the test does not, and compares at the close.
struct KeptWriter {
    inner: Box<dyn Writer>,
    guard: Arc<Guard>,
    is_prepared: bool,
}

impl Writer for KeptWriter {
    fn begin(&mut self, durable: bool) -> Result<()> {
        self.is_prepared = false;
        self.inner.begin(durable)
    }

    fn try_begin(&mut self, durable: bool) -> Result<bool> {
        self.is_prepared = false;
        self.inner.try_begin(durable)
    }

    fn next(&mut self) {
        self.inner.next();
    }

    fn has_changed(&self) -> bool {
        self.inner.has_changed()
    }

    fn check_batch(&self) -> Result<()> {
        self.inner.check_batch()
    }

    fn savepoint(&mut self) -> Result<()> {
        self.inner.savepoint()
    }

    fn release(&mut self) -> Result<()> {
        self.inner.release()
    }

    fn roll_back(&mut self) -> Result<()> {
        self.inner.roll_back()
    }

    fn prepare(&mut self) -> Result<()> {
        self.is_prepared = true;
        self.inner.prepare()
    }

    fn commit(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.is_prepared, true)
            && let Err(error) = self.inner.prepare()
        {
            return self.inner.abort().and(Err(error));
        }
        self.inner.commit()
    }

    fn abort(&mut self) -> Result<()> {
        self.inner.abort()
    }

    fn lacks_room(&self) -> bool {
        self.inner.lacks_room()
    }

    fn make_room(&mut self) -> Result<bool> {
        self.inner.make_room()
    }

    fn txn(&mut self) -> &mut dyn WriteTxn {
        self.inner.txn()
    }

    fn maintenance_at(&self) -> Option<Instant> {
        self.inner.maintenance_at()
    }

    fn maintenance(&mut self) {
        self.inner.maintenance();
    }

    fn compact(&mut self) -> Result<Compacted> {
        self.inner.compact()
    }

    fn count_usage(&mut self) -> Result<UsageDelta> {
        self.inner.count_usage()
    }

    fn poison(&self) -> Poison {
        self.inner.poison()
    }

    fn unsynced_bytes(&self) -> u64 {
        self.inner.unsynced_bytes()
    }

    fn sync(&mut self) -> Result<()> {
        self.inner.sync()
    }

    fn advance_epoch(&mut self) -> u64 {
        self.inner.advance_epoch()
    }

    fn rest(&mut self) {
        self.inner.rest();
    }

    fn close(&mut self) -> Result<()> {
        self.inner.close()?;
        self.guard.compare().map_err(StoreError::corrupt)
    }
}
