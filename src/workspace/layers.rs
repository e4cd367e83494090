//! Puts the layers together: session, base, worker, overlay, and the programs on top.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;

use super::error::{Error, Result};
pub use super::opening::remember_hidden;
use super::opening::{OpenedSession, open_session, union};
use crate::base::{Base, BasePath, Empty, Hiding, HostDir, HostDirOptions, ListingTurn};
use crate::delta::Store;
use crate::delta::sqlite::{ChunkSize, CreateOptions, LogKeep, MemoryBound, RootAttr, Session};
use crate::inspect::opened::{below, host};
use crate::nfs::{HandleCodec, Handles, MountProgram, Nfs, Nlm};
use crate::overlay::{CopyLimits, LargeListings, Overlay, OverlayParts};
use crate::server::{LockManager, RpcProgram};
use crate::vfs::{PatternSet, Time, Vfs};
use crate::worker::{Limits as WorkerLimits, ThreadWatch, Worker, WorkerOptions};

/// Threads that read the session, at least and at most.
const READERS: std::ops::RangeInclusive<usize> = 2..=4;

/// Number of the one export in file handles.
const EXPORT: u16 = 0;

/// What is asked for.
#[derive(Debug)]
pub struct LayerOptions<'a> {
    /// The session file.
    pub session: &'a Path,
    /// The base directory; `None` for the one that the session names, or none.
    pub base: Option<&'a Path>,
    /// Bytes per chunk of a new session.
    pub chunk_size: Option<u64>,
    /// Refuse every change.
    pub read_only: bool,
    /// Sync every change before it is answered.
    pub strict: bool,
    /// Paths of the base that are not shown, besides those that the session remembers.
    pub hide: Arc<PatternSet>,
    /// Whether the session is to remember them.
    pub remember_hidden: bool,
    /// The largest base file whose original is kept when it is first changed, in bytes; `None` for
    /// the usual size.
    pub keep_originals: Option<u64>,
    /// What stays of the audit log; `None` for what the session says.
    pub keep_log: Option<LogKeep>,
    /// Refuse to create the session.
    pub existing: bool,
    /// `base` is the tree that the session was made over, at another place.
    pub moved: bool,
    /// How much its files may take, in bytes, where the session is in memory.
    pub memory_bytes: Option<u64>,
    /// Bounds the memory of large listings, together with all that share it.
    pub listings: Arc<ListingMemory>,
}

/// Large listings of several sessions and their bases: one of each at a time.
#[derive(Default)]
pub struct ListingMemory {
    base: Arc<ListingTurn>,
    merged: Arc<LargeListings>,
}

impl fmt::Debug for ListingMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListingMemory").finish_non_exhaustive()
    }
}

impl<'a> LayerOptions<'a> {
    /// A session over a base, as it usually is.
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
            existing: false,
            moved: false,
            memory_bytes: None,
            listings: Arc::default(),
        }
    }
}

/// A session that is ready to be served.
pub struct SessionLayers {
    /// The session file.
    pub session: PathBuf,
    /// Whether the session was created for this.
    pub is_new: bool,
    /// The base directory, if there is one.
    pub base: Option<PathBuf>,
    /// The session's secret, for handles.
    pub handle_key: [u8; 16],
    /// The tree; its copies are to be finished at the end.
    pub overlay: Arc<Overlay>,
    /// Runs the session; to be shut down at the end.
    pub worker: Arc<Worker>,
    /// Whether every change is refused.
    pub read_only: bool,
    /// Paths of the base that are not shown.
    pub hidden: Arc<PatternSet>,
    /// Those that were asked for when it was opened.
    pub asked_hidden: Arc<PatternSet>,
    /// [`LayerOptions::keep_originals`]
    pub keep_originals: Option<u64>,
    /// [`LayerOptions::keep_log`]
    pub keep_log: Option<LogKeep>,
    /// How much its files may take, where the session is in memory.
    pub memory: Option<MemoryBound>,
    /// The base, where it is a directory.
    host_dir: Option<Arc<HostDir>>,
}

impl SessionLayers {
    /// NFS, MOUNT and NLM for this session alone, which is exported at `/`.
    pub fn programs(&self) -> Vec<Arc<dyn RpcProgram>> {
        let handles = HandleCodec::new(self.handle_key, EXPORT);
        programs(Arc::clone(&self.overlay), handles)
    }

    /// Hides files of this machine, should they be in the base.
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

/// Opens, or creates, the session, and sets up all that serves it, on threads that `watch`
/// watches.
pub fn open(wanted: &LayerOptions<'_>, watch: &Arc<ThreadWatch>) -> Result<SessionLayers> {
    let OpenedSession { mut session, base: base_path, is_new } = open_session(wanted)?;
    let memory = wanted.memory_bytes.map(MemoryBound::new);
    if let Some(bound) = &memory {
        session.keep_in_memory(bound.clone());
    }
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
    let id = session.id().to_owned();
    let session_path = session.path().to_owned();
    let store: Arc<dyn Store> = Arc::new(session);
    let options = WorkerOptions { strict: wanted.strict, readers: readers(), callers: readers() };
    let (limits, watch) = (WorkerLimits::default(), Arc::clone(watch));
    let worker = Worker::start_watched(Arc::clone(&store), options, limits, watch)
        .map_err(|source| Error::store(&session_path, source))?;
    let worker = Arc::new(worker);
    let parts = OverlayParts {
        store,
        worker: Arc::clone(&worker),
        base,
        clock: Arc::new(now),
        fsid: digest(b"fsid", id.as_bytes()),
        cookie_key: digest(b"cookies", &key),
        read_only: wanted.read_only,
        copy_up: CopyLimits::keeping_originals(wanted.keep_originals),
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
        read_only: wanted.read_only,
        hidden,
        asked_hidden: Arc::clone(&wanted.hide),
        keep_originals: wanted.keep_originals,
        keep_log: wanted.keep_log,
        memory,
        host_dir,
    })
}

/// Warns of files of the session that others may read or write: a file that another program made
/// has the mode that its umask gave it.
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

/// The absolute path, without symbolic links, of the directory `path`.
pub(super) fn real_base(path: &Path) -> Result<PathBuf> {
    let real = fs::canonicalize(path).map_err(|error| Error::base(path, error.into()))?;
    if real.is_dir() {
        return Ok(real);
    }
    let error = std::io::Error::from(std::io::ErrorKind::NotADirectory);
    Err(Error::base(path, error.into()))
}

/// The attributes that the export's root begins with: those of the base.
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

/// Threads of the runtime that never run what may block, however much of it there is.
const FREE_NETWORK_THREADS: usize = 2;

/// Threads for the connections: where the bases of two sessions hold up a write and as many reads
/// as may run on them, some are left.
pub fn network_threads() -> usize {
    cores().max(FREE_NETWORK_THREADS + 2 * (readers() + 1))
}

/// Watches the threads of a server whose runtime has [`network_threads`].
pub fn watch(runtime: &Handle) -> Arc<ThreadWatch> {
    ThreadWatch::new(network_threads() - FREE_NETWORK_THREADS, Some(runtime.clone()))
}

/// Looks whether a base can be opened, and leaves nothing open: what hangs, hangs here.
///
/// # Errors
/// It cannot.
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

/// A number made of a session's secret or id, for one purpose.
pub(super) fn digest(purpose: &[u8], of: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut hasher = siphasher::sip::SipHasher24::new();
    hasher.write(purpose);
    hasher.write(of);
    hasher.finish()
}
