//! A base, a session and the overlay of the two: what the overlay's tests live in.
//!
//! The clock stands still until a test moves it. Every mutation goes through [`Client`], which
//! checks on the way what holds for all of them (see there).

use std::future::poll_fn;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;

use acetate::base::{Base, BasePath, Empty, HostDir, HostDirOptions};
use acetate::delta::sqlite::{
    CheckOptions, ChunkSize, CreateOptions, Host, OpenMode, RootAttr, Session,
};
use acetate::delta::{Checkpoint, Store};
use acetate::inspect::check::check;
use acetate::overlay::{AutomaticCheckpoints, CopyLimits, Group};
use acetate::vfs::Time;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::client::Client;
use super::database::session::{TestSession, watched};
use super::faulty_store::{Faults, FaultyStore};
use super::fixture;
use super::host_tree::HostTree;
use super::served::{self, Served, Serving};

/// When the tests' clock stands at the beginning: after every base object's times.
pub const START_SECS: i64 = 2_000_000_000;

/// Polls a future once, which is not ready.
pub async fn begin<F: Future>(mut future: Pin<Box<F>>) -> Pin<Box<F>> {
    assert!(poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await);
    future
}

/// How a [`World`] is made.
#[derive(Clone, Default)]
pub struct Setup {
    /// The base's objects (see [`fixture`]); `None` for a plain session.
    pub base: Option<String>,
    /// Chunk size of the session, in bytes; 0 for the default.
    pub chunk_bytes: u64,
    /// Serve without changes.
    pub read_only: bool,
    /// How files are copied up, where it is not as usual.
    pub copy_up: CopyLimits,
    /// Limits that it shares with other worlds.
    pub group: Option<Arc<Group>>,
    /// Which checkpoints are made by themselves.
    pub checkpoints: AutomaticCheckpoints,
    /// Put the session file into the base, under this name.
    pub session_in_base: Option<String>,
}

/// A served tree on a base and a session of its own.
pub struct World {
    dir: Arc<TempDir>,
    /// The session file.
    file: PathBuf,
    setup: Setup,
    clock: Arc<AtomicI64>,
    runtime: Arc<Runtime>,
    before: Option<HostTree>,
    open: Option<Served>,
    /// What the session's rows fail at.
    pub faults: Faults,
}

/// Takes what the host gives randomly, so that a session can be made twice alike.
fn host() -> Host {
    Host::current().unwrap()
}

impl World {
    /// A session over a base with the objects of `base` (see [`fixture`]).
    #[track_caller]
    pub fn new(base: &str) -> Self {
        Self::with(Setup { base: Some(base.to_owned()), ..Setup::default() })
    }

    /// A session without a base.
    #[track_caller]
    pub fn plain() -> Self {
        Self::with(Setup::default())
    }

    /// Any other.
    #[track_caller]
    pub fn with(setup: Setup) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let file = match &setup.session_in_base {
            Some(name) => dir.path().join("base").join(name),
            None => dir.path().join("session.db"),
        };
        let mut world = Self {
            dir,
            file,
            setup,
            clock: Arc::new(AtomicI64::new(START_SECS)),
            runtime: served::runtime(),
            before: None,
            open: None,
            faults: Faults::default(),
        };
        if let Some(base) = &world.setup.base {
            std::fs::create_dir(world.base()).unwrap();
            fixture::build(&world.base(), base);
            if world.setup.session_in_base.is_none() {
                world.before = Some(HostTree::read(&world.base()));
            }
        }
        let session = world.create_session();
        world.serve(session);
        world
    }

    fn create_session(&self) -> TestSession {
        let with_base = self.setup.base.is_some();
        let mut options = CreateOptions {
            base_path: with_base.then(|| self.base()),
            root: with_base.then(|| self.root_attr()),
            ..CreateOptions::default()
        };
        if self.setup.chunk_bytes > 0 {
            options.chunk_size = ChunkSize::new(self.setup.chunk_bytes).unwrap();
        }
        TestSession::created(Session::create(&self.session(), &options, &host()).unwrap())
    }

    fn root_attr(&self) -> RootAttr {
        let base = HostDir::open(&self.base(), HostDirOptions::default()).unwrap();
        let attr = base.stat(&BasePath::root()).unwrap();
        RootAttr {
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
        }
    }

    fn serve(&mut self, session: TestSession) {
        let base: Arc<dyn Base> = if self.setup.base.is_some() {
            let base = self.base().canonicalize().unwrap();
            let files = session.files();
            let hidden = files.iter().filter_map(|file| file.strip_prefix(&base).ok());
            let hidden =
                hidden.filter_map(|file| BasePath::from_bytes(file.as_os_str().as_bytes()));
            let options = HostDirOptions { hidden: hidden.collect() };
            Arc::new(HostDir::open(&self.base(), options).unwrap())
        } else {
            Arc::new(Empty)
        };
        let prepares = matches!(session, TestSession::Kept(_));
        let faults = self.faults.clone();
        let store = Arc::new(FaultyStore { inner: session, faults, prepares });
        let how = Serving {
            clock: self.clock.clone(),
            runtime: self.runtime.clone(),
            strict: false,
            read_only: self.setup.read_only,
            copy_up: self.setup.copy_up,
            group: self.setup.group.clone(),
            checkpoints: self.setup.checkpoints,
        };
        self.open = Some(Served::start(store, base, how));
    }

    /// The base directory.
    pub fn base(&self) -> PathBuf {
        self.dir.path().join("base")
    }

    /// The session file.
    pub fn session(&self) -> PathBuf {
        self.file.clone()
    }

    /// A directory for whatever else a test needs.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    /// Moves the clock on.
    pub fn tick(&self, secs: i64) {
        self.clock.fetch_add(secs, Ordering::SeqCst);
    }

    /// What the clock says, in seconds.
    pub fn now(&self) -> i64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Shuts the server down, checks what it left behind, and opens it again with empty caches.
    #[track_caller]
    pub fn reopen(&mut self) {
        self.close();
        self.open_again();
    }

    /// Opens the session again after [`World::close`].
    #[track_caller]
    pub fn open_again(&mut self) {
        let session = TestSession::opened(&self.session(), &host()).unwrap();
        self.serve(session);
    }

    /// Ends the server as a kill does, and opens the session again.
    #[track_caller]
    pub fn kill(&mut self) {
        let files = ["", "-wal"].map(|suffix| format!("{}{suffix}", self.session().display()));
        let killed = files.clone().map(|file| std::fs::read(file).unwrap());
        self.close();
        for (file, bytes) in files.iter().zip(killed) {
            std::fs::write(file, bytes).unwrap();
        }
        super::check::assert_consistent(&self.session());
        self.open_again();
    }

    /// The same with the next server refusing every change.
    #[track_caller]
    pub fn reopen_read_only(&mut self) {
        self.setup.read_only = true;
        self.reopen();
    }

    /// Whether a server has the session.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Forks the session at a checkpoint, and serves the fork over the same base.
    #[track_caller]
    pub fn fork(&self, at: &Checkpoint, name: &str) -> Self {
        let file = self.scratch().join(name);
        Session::fork_to(&self.session(), &file, at, &host(), &mut |_, _| {}).unwrap();
        let mut fork = Self {
            dir: Arc::clone(&self.dir),
            file,
            setup: self.setup.clone(),
            clock: Arc::clone(&self.clock),
            runtime: Arc::clone(&self.runtime),
            before: self.before.as_ref().map(|_| HostTree::read(&self.base())),
            open: None,
            faults: Faults::default(),
        };
        fork.open_again();
        fork
    }

    /// Prunes the audit log to its last row, as if long after the last change.
    #[track_caller]
    pub fn prune_log(&mut self) {
        self.close();
        let session = Session::open(&self.session(), OpenMode::Serve, &host()).unwrap();
        let mut writer = session.writer().unwrap();
        writer.begin(false).unwrap();
        let late = Time { secs: i64::MAX, nanos: 0 };
        writer.txn().prune_audit(i64::MAX, late, u32::MAX).unwrap();
        writer.commit().unwrap();
        writer.close().unwrap();
        drop((writer, session));
        assert!(self.sql_value::<i64>("SELECT count(*) FROM acetate_op") <= 1);
        self.open_again();
    }

    /// Shuts the server down and checks what it left behind.
    #[track_caller]
    pub fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.stop().unwrap();
        }
        super::check::assert_consistent(&self.session());
        self.assert_sound();
        self.assert_base_untouched();
    }

    /// Lets go of a session that takes no changes any more, and so is not closed cleanly.
    #[track_caller]
    pub fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            assert!(open.stop().is_err());
        }
    }

    /// Asserts that the program's own check agrees with the tests'.
    #[track_caller]
    fn assert_sound(&self) {
        let options = CheckOptions { most: 10, quick: true };
        // Without the base: tests change it below what is pending.
        let sound = check(&self.session(), Some(Path::new("/nowhere")), &options).unwrap();
        assert!(sound.is_sound(), "{sound:#?}");
    }

    /// The permission bits that an object has in the base.
    pub fn base_mode(&self, path: &str) -> u32 {
        use std::os::unix::fs::PermissionsExt;
        self.base().join(path).symlink_metadata().unwrap().permissions().mode() & 0o7777
    }

    /// Asserts that the base is what it was.
    #[track_caller]
    pub fn assert_base_untouched(&self) {
        if let Some(before) = &self.before {
            assert_eq!(*before, HostTree::read(&self.base()), "the base changed");
        }
    }

    /// Lets the test change the base itself: it is no longer compared with its first state.
    pub fn change_base(&mut self) -> PathBuf {
        self.before = None;
        self.base()
    }

    /// Copies so many pieces of what copy-up left to the background; whether there were as many.
    /// Nothing else runs it here.
    #[track_caller]
    pub fn copy_pieces(&self, pieces: usize) -> bool {
        (0..pieces).all(|_| self.wait(self.overlay.copy_piece()).unwrap())
    }

    /// Copies all of it; how many files are left, because their base file changed.
    #[track_caller]
    pub fn finish_copies(&self) -> u64 {
        self.wait(self.overlay.finish_copies(|_| {})).unwrap().files
    }

    /// Keeps the originals of what was removed, as the background does.
    pub fn keep_removed(&self) {
        self.wait(self.overlay.keep_all_removed());
    }

    /// A connection of another program to the session.
    pub fn sql(&self) -> rusqlite::Connection {
        watched(&self.session())
    }

    /// The only value of a query's only row.
    #[track_caller]
    pub fn sql_value<T: rusqlite::types::FromSql>(&self, query: &str) -> T {
        self.sql().query_row(query, [], |row| row.get(0)).unwrap()
    }

    /// The first column of a query, as text.
    #[track_caller]
    pub fn sql_list(&self, query: &str) -> Vec<String> {
        let conn = self.sql();
        let mut statement = conn.prepare(query).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// The paths whited out, in order.
    pub fn whiteouts(&self) -> Vec<String> {
        self.sql_list("SELECT CAST(path AS TEXT) FROM fs_whiteout ORDER BY path")
    }
}

/// A test that failed already is not told of more.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.close();
        }
    }
}

/// The world as the superuser sees it.
impl Deref for World {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.open.as_ref().expect("the world is closed").root
    }
}
