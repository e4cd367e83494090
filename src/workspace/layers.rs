//! Assembles the layers: session, base, worker, overlay, and the RPC programs on top.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;

use super::database::HeldReplica;
use super::error::{Error, Result};
use super::opening::{OpenedSession, open_session, union};
pub use super::opening::{check_base, record_moved_base, remember_hidden};
use crate::base::{Base, BasePath, Empty, Hiding, HostDir, HostDirOptions, ListingLock};
use crate::delta::sqlite::{
    BatchMark, ChunkSize, CreateOptions, LogKeep, MemoryBound, RootAttr, Session, SessionIdentity,
    SessionKeys, identity_at_rest,
};
use crate::delta::{BackgroundThreads, CheckpointKeep, Store};
use crate::inspect::opened::{below, host, open_session as open_to_inspect};
use crate::nfs::{HandleCodec, Handles, MountProgram, Nfs, Nlm};
use crate::overlay::{AutomaticCheckpoints, CopyLimits, LargeListings, Overlay, OverlayParts};
use crate::pattern::PatternSet;
use crate::server::{LockManager, RpcProgram};
use crate::vfs::{Time, Vfs};
use crate::worker::{Limits as WorkerLimits, ThreadWatch, Worker, WorkerOptions, WorkerPool};

/// Number of reads of one session that run at once on the pool's threads.
const READERS: std::ops::RangeInclusive<usize> = 2..=4;

/// Tag in file handles of a session that is served alone.
const EXPORT: u16 = 0;

/// How to open a session.
#[derive(Debug)]
pub struct LayerOptions<'a> {
    /// The session file.
    pub session: &'a Path,
    /// The base directory; `None` for the recorded one, or none.
    pub base: Option<&'a Path>,
    /// Chunk size of a new session, in bytes.
    pub chunk_size: Option<u64>,
    /// Refuse every change with NFS3ERR_ROFS.
    pub read_only: bool,
    /// Sync every change before its reply.
    pub strict: bool,
    /// Base paths to hide, in addition to those that the session records.
    pub hide: Arc<PatternSet>,
    /// Whether to record these patterns in the session.
    pub remember_hidden: bool,
    /// Largest base file whose original is kept at its first change, in bytes; `None` for the
    /// default.
    pub keep_originals: Option<u64>,
    /// Bound of the audit log; `None` for the session's own.
    pub keep_log: Option<LogKeep>,
    /// Which checkpoints are made without a user asking for each.
    pub checkpoints: AutomaticCheckpoints,
    /// Automatic checkpoints that the session keeps from now on; `None` for the session's own.
    pub keep_checkpoints: Option<CheckpointKeep>,
    /// Fail if the session does not exist.
    pub existing: bool,
    /// `base` is the tree of the session's recorded base, at another path.
    pub moved: bool,
    /// Limit on the session's files if they are in memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory for large listings, shared with other sessions.
    pub listings: Arc<ListingMemory>,
    /// The session in a database that [`Self::session`] is a replica of.
    pub database: Option<Arc<HeldReplica>>,
}

/// Limits on large listings, shared by sessions: one listing of a base and one merged listing are
/// built at a time.
#[derive(Default)]
pub struct ListingMemory {
    base: Arc<ListingLock>,
    merged: Arc<LargeListings>,
}

impl fmt::Debug for ListingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListingMemory").finish_non_exhaustive()
    }
}

impl<'a> LayerOptions<'a> {
    /// The default options.
    pub fn new(session: &'a Path, base: Option<&'a Path>) -> Self {
        Self {
            session,
            base,
            chunk_size: None,
            read_only: false,
            strict: false,
            hide: Arc::default(),
            remember_hidden: false,
            keep_originals: None,
            keep_log: None,
            checkpoints: AutomaticCheckpoints::default(),
            keep_checkpoints: None,
            existing: false,
            moved: false,
            memory_bytes: None,
            listings: Arc::default(),
            database: None,
        }
    }
}

/// An open session with all its layers.
pub struct SessionLayers {
    /// The session file.
    pub session: PathBuf,
    /// Whether the session was created by this call.
    pub is_new: bool,
    /// The base directory, if there is one.
    pub base: Option<PathBuf>,
    /// The session's secret key, for handles.
    pub handle_key: [u8; 16],
    /// The merged tree. The owner must finish its copies before closing.
    pub overlay: Arc<Overlay>,
    /// Runs the transactions. The owner must shut it down.
    pub worker: Arc<Worker>,
    /// The threads of the server.
    pub pool: Arc<WorkerPool>,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Base paths that are hidden.
    pub hidden: Arc<PatternSet>,
    /// The hidden paths that the caller asked for.
    pub asked_hidden: Arc<PatternSet>,
    /// [`LayerOptions::keep_originals`]
    pub keep_originals: Option<u64>,
    /// [`LayerOptions::keep_log`]
    pub keep_log: Option<LogKeep>,
    /// The bound of the audit log: this one, or the session's own.
    pub log_bound: LogKeep,
    /// [`LayerOptions::checkpoints`]
    pub checkpoints: AutomaticCheckpoints,
    /// [`LayerOptions::keep_checkpoints`]
    pub keep_checkpoints: Option<CheckpointKeep>,
    /// Limit on the session's files, if they are in memory.
    pub memory: Option<MemoryBound>,
    /// The session in a database that this is a replica of.
    pub(super) database: Option<Arc<HeldReplica>>,
    /// The session; its lock is released with the last reference.
    pub(super) store: Weak<dyn Store>,
    /// The base, if it is a directory.
    pub(super) host_dir: Option<Arc<HostDir>>,
}

impl SessionLayers {
    /// NFS, MOUNT and NLM for this session, exported at `/`.
    pub fn programs(&self) -> Vec<Arc<dyn RpcProgram>> {
        let handles = HandleCodec::new(self.handle_key, EXPORT);
        programs(Arc::clone(&self.overlay), handles)
    }

    /// Whether its file is kept, and all that there is of it.
    pub fn is_only_in_file(&self) -> bool {
        self.memory.is_none() && self.database.is_none()
    }

    /// The term of the session's lease, if it is in a database.
    pub fn lease_term(&self) -> Option<Duration> {
        self.database.as_ref().map(|held| held.hold.row.lease.term)
    }

    /// What identifies the session in handles.
    pub(super) fn keys(&self) -> SessionKeys {
        (self.handle_key, self.overlay.fsid())
    }

    /// Hides these host files, as far as they are in the base.
    pub fn hide(&self, files: &[PathBuf]) {
        if let (Some(host_dir), Some(base)) = (&self.host_dir, &self.base) {
            host_dir.hide(below(files, base));
        }
    }
}

/// NFS, MOUNT and NLM for a filesystem.
pub fn programs<V: Vfs, H: Handles<V::Object>>(
    vfs: Arc<V>,
    handles: H,
) -> Vec<Arc<dyn RpcProgram>> {
    vec![
        Arc::new(Nfs::new(Arc::clone(&vfs), handles.clone())),
        Arc::new(MountProgram::new(Arc::clone(&vfs), handles.clone())),
        Arc::new(LockManager::new(Nlm::new(vfs, handles))),
    ]
}

/// Opens or creates a session, and starts its worker in `pool`.
///
/// # Errors
/// The session or its base cannot be opened. No connection is open then.
pub fn open(wanted: &LayerOptions<'_>, pool: &Arc<WorkerPool>) -> Result<SessionLayers> {
    let OpenedSession { mut session, base: base_path, is_new, mark } = open_session(wanted)?;
    if let Some(keep) = wanted.keep_checkpoints.filter(|_| !wanted.read_only) {
        let recorded = session.record_checkpoint_keep(keep);
        recorded.map_err(|source| Error::store(session.path(), source))?;
    }
    let memory = wanted.memory_bytes.map(MemoryBound::new);
    if let Some(bound) = &memory {
        session.keep_in_memory(bound.clone());
    }
    session.run_background_on(Arc::clone(pool) as Arc<dyn BackgroundThreads>);
    let host_dir = match &base_path {
        Some(path) => {
            let options = HostDirOptions { hidden: below(&session.files(), path) };
            let opened = HostDir::open(path, options);
            let opened = opened.map_err(|source| Error::base(path, source))?;
            Some(Arc::new(opened.with_turn(Arc::clone(&wanted.listings.base))))
        }
        None => None,
    };
    let hidden = Arc::new(union(session.hidden(), &wanted.hide)?);
    let base: Arc<dyn Base> = match host_dir.clone() {
        Some(host_dir) => Hiding::over(host_dir, &hidden),
        None => Arc::new(Empty),
    };
    warn_of_exposed(&session);
    let key = session.handle_key();
    let log_bound = wanted.keep_log.unwrap_or(session.log_keep());
    let id = session.id().to_owned();
    let session_path = session.path().to_owned();
    let (store, strict) = store(wanted, session, mark);
    let options = WorkerOptions { strict, readers: readers(), callers: readers() };
    let worker = Worker::start_in(pool, Arc::clone(&store), options, WorkerLimits::default())
        .map_err(|source| Error::store(&session_path, source))?;
    let worker = Arc::new(worker);
    let released = Arc::downgrade(&store);
    let parts = OverlayParts {
        store,
        worker: Arc::clone(&worker),
        base,
        clock: Arc::new(now),
        fsid: fsid(&id),
        cookie_key: digest(b"cookies", &key),
        read_only: wanted.read_only,
        copy_up: CopyLimits::keeping_originals(wanted.keep_originals),
        checkpoints: wanted.checkpoints,
    };
    let listings = Arc::clone(&wanted.listings.merged);
    let overlay = Arc::new(Overlay::with_listings(parts, listings));
    Ok(SessionLayers {
        session: session_path,
        is_new,
        base: base_path,
        handle_key: key,
        overlay,
        worker,
        pool: Arc::clone(pool),
        read_only: wanted.read_only,
        hidden,
        asked_hidden: Arc::clone(&wanted.hide),
        keep_originals: wanted.keep_originals,
        keep_log: wanted.keep_log,
        log_bound,
        checkpoints: wanted.checkpoints,
        keep_checkpoints: wanted.keep_checkpoints,
        memory,
        database: wanted.database.clone(),
        store: released,
        host_dir,
    })
}

/// The store of an open session, and whether every change is synced before its reply.
fn store(
    wanted: &LayerOptions<'_>,
    session: Session,
    mark: Option<BatchMark>,
) -> (Arc<dyn Store>, bool) {
    match wanted.database.as_ref().zip(mark) {
        // The database keeps each change before its reply.
        Some((held, mark)) => (Arc::new(held.store((session, mark))), true),
        None => (Arc::new(session), wanted.strict),
    }
}

/// The handle key and the fsid of a session; `None` if there is no file.
///
/// # Errors
/// The file is not a session, or cannot be read.
pub(super) fn identity(file: &Path) -> Result<Option<SessionKeys>> {
    if file.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    if let Some(SessionIdentity { id, handle_key }) = identity_at_rest(file) {
        return Ok(Some((handle_key, fsid(&id))));
    }
    let session = open_to_inspect(file)?;
    Ok(Some((session.handle_key(), fsid(session.id()))))
}

/// The fsid of the session with this id.
pub(super) fn fsid(id: &str) -> u64 {
    digest(b"fsid", id.as_bytes())
}

/// Warns of session files with permissions for group or others, as other programs may have created
/// them.
fn warn_of_exposed(session: &Session) {
    let exposed = session.exposed_files();
    if !exposed.is_empty() {
        let files: Vec<_> = exposed.iter().map(|file| file.path.to_string_lossy()).collect();
        tracing::warn!("others may read or write the session: chmod go= {}", files.join(" "));
    }
}

/// Creates a session over `base`, or without one.
pub fn create(
    path: &Path,
    base: Option<&Path>,
    chunk_size: Option<u64>,
    hidden: &PatternSet,
) -> Result<Session> {
    let host = host()?;
    let chunk_size = chunk_size.map(ChunkSize::new).transpose()?.unwrap_or_default();
    let base_path = base.map(real_base).transpose()?;
    let root = base_path.as_deref().map(root_attr).transpose()?;
    let options = CreateOptions { chunk_size, base_path, root, hidden: hidden.clone() };
    Ok(Session::create(path, &options, &host)?)
}

/// Closes a session that was just created.
pub fn close(session: &Session) -> Result<()> {
    let closed = session.writer().and_then(|mut writer| writer.close());
    closed.map_err(|source| Error::store(session.path(), source))
}

/// The real path of the base directory.
pub(super) fn real_base(path: &Path) -> Result<PathBuf> {
    let real = fs::canonicalize(path).map_err(|error| Error::base(path, error.into()))?;
    if real.is_dir() {
        return Ok(real);
    }
    let error = std::io::Error::from(std::io::ErrorKind::NotADirectory);
    Err(Error::base(path, error.into()))
}

/// Initial attributes of the export's root: those of the base's root.
fn root_attr(base: &Path) -> Result<RootAttr> {
    let attr = HostDir::open(base, HostDirOptions::default())
        .and_then(|dir| dir.stat(&BasePath::root()))
        .map_err(|source| Error::base(base, source))?;
    Ok(RootAttr {
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
    })
}

fn readers() -> usize {
    cores().clamp(*READERS.start(), *READERS.end())
}

/// Runtime threads that never run operations that may block.
const FREE_NETWORK_THREADS: usize = 2;

/// Number of runtime threads. If the bases of two sessions hang, each blocks one inline write and
/// all inline reads that may run at once; some threads are left.
pub fn network_threads() -> usize {
    cores().max(FREE_NETWORK_THREADS + 2 * (readers() + 1))
}

/// Upper bound of the threads of a server while none is held up: these, and those for each core.
const THREADS: usize = 8;

/// See [`THREADS`].
const THREADS_PER_CORE: usize = 4;

/// Threads of a server beside the runtime's and the pool's: the main thread, and the watch.
const OTHER_THREADS: usize = 2;

/// Upper bound of the pool's threads on large machines: enough to sync many sessions at once.
const MAX_POOL_THREADS: usize = 64;

/// Number of the pool's threads: what the bound of the process leaves, and at least as many as one
/// session may use at once.
pub fn pool_threads() -> usize {
    let bound = THREADS + THREADS_PER_CORE * cores();
    let left = bound.saturating_sub(network_threads() + OTHER_THREADS);
    left.clamp(1 + readers(), MAX_POOL_THREADS)
}

/// The threads for all sessions of a server, with a watch over them and those of its `runtime`,
/// which has [`network_threads`].
pub fn pool(runtime: &Handle) -> Arc<WorkerPool> {
    let inline = network_threads() - FREE_NETWORK_THREADS;
    WorkerPool::new(pool_threads(), ThreadWatch::new(inline, Some(runtime.clone())))
}

/// Opens and closes a base, to detect one that hangs: only this call blocks then.
///
/// # Errors
/// The base cannot be opened.
pub fn probe(base: &Path) -> Result<()> {
    let opened = HostDir::open(&real_base(base)?, HostDirOptions::default());
    opened.map(drop).map_err(|source| Error::base(base, source))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { secs: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

/// A hash of a session's secret or id, for one purpose.
pub(super) fn digest(purpose: &[u8], of: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = siphasher::sip::SipHasher24::new();
    hasher.write(purpose);
    hasher.write(of);
    hasher.finish()
}
