//! An export of the table, which is open or is opened by the first call that needs it.
//!
//! What the server must know of a closed export is its [`ExportIdentity`]: it decodes handles, and
//! gives the numbers by which locks and shares of resources are counted. All else needs the
//! sessions, which [`OpenExport`] opens.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;

use super::clients::ExportClients;
use super::credentials::Admission;
use super::handles;
use super::numbers;
use super::tree::Export;
use crate::nfs::HandleCodec;
use crate::vfs::FsError;

/// The result of an opening: [`FsError::TryLater`] if the export cannot be opened now.
pub type OpenFuture<'a> = Pin<Box<dyn Future<Output = Result<Arc<Export>, FsError>> + Send + 'a>>;

/// Completes after a time.
pub type PauseFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What an export is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenPurpose {
    /// A client mounts it: missing sessions are created.
    Mount,
    /// The exports file is loaded: missing sessions are created.
    Load,
    /// A call on one of its objects: all sessions must exist.
    Call,
}

/// Opens an export.
pub trait OpenExport: Send + Sync {
    /// Opens the export, or waits until another caller has opened it.
    fn open(&self, purpose: OpenPurpose) -> OpenFuture<'_>;

    /// Waits for this time before another attempt, without a thread.
    fn pause(&self, time: Duration) -> PauseFuture<'_>;
}

/// Makes exports that are not in the table.
pub trait FindExport: Send + Sync {
    /// The export that a client mounts at this path, closed; `None` if there is none.
    fn find(&self, path: &[u8]) -> Option<Arc<ExportEntry>>;
}

/// What stays the same of an export however often it is closed and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportIdentity {
    fsid: u64,
    mounts: Box<[IdentityOfMount]>,
}

/// The part of an [`ExportIdentity`] that belongs to one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdentityOfMount {
    /// The tag in the mount's handles.
    pub(super) tag: u16,
    pub(super) codec: HandleCodec,
    /// The session's fsid, for the keys of locks.
    pub(super) session_fsid: u64,
    /// The export's fsid.
    export_fsid: u64,
}

impl IdentityOfMount {
    /// The export's fsid as the number of a tenant.
    pub(super) fn export_number(&self) -> NonZeroU64 {
        NonZeroU64::new(self.export_fsid).unwrap_or(NonZeroU64::MIN)
    }
}

/// What identifies a mount, as its session and the exports file say it.
#[derive(Debug, Clone, Copy)]
pub struct MountKeys<'a> {
    /// Mount point in the export.
    pub at: &'a str,
    /// The session's directory that is the root of the mount.
    pub subtree: &'a str,
    /// The session's secret key, for handles.
    pub handle_key: [u8; 16],
    /// The session's fsid.
    pub session_fsid: u64,
}

impl ExportIdentity {
    /// The identity of the export at `path` with these mounts, in the order of the exports file.
    pub fn new(path: &[u8], mounts: &[MountKeys<'_>]) -> Self {
        let root = mounts.iter().find(|mount| mount.at == "/");
        let fsid = numbers::fsid(root.map_or(0, |mount| mount.session_fsid), path);
        let identity = |mount: &MountKeys<'_>| {
            let (tag, codec) = handles::codec(mount.handle_key, path, mount.at, mount.subtree);
            let session_fsid = mount.session_fsid;
            IdentityOfMount { tag, codec, session_fsid, export_fsid: fsid }
        };
        Self { fsid, mounts: mounts.iter().map(identity).collect() }
    }

    /// Whether both are of the same sessions, apart from the mounts whose sessions may be others.
    fn is_same(&self, other: &Self, may_differ: &[bool]) -> bool {
        let same = |(index, (one, other)): (usize, (&IdentityOfMount, &IdentityOfMount))| {
            may_differ.get(index) == Some(&true) || one.codec == other.codec
        };
        self.mounts.len() == other.mounts.len()
            && self.mounts.iter().zip(&other.mounts).enumerate().all(same)
    }

    /// The fsid that clients see; stable across restarts.
    pub(super) fn fsid(&self) -> u64 {
        self.fsid
    }

    pub(super) fn mounts(&self) -> &[IdentityOfMount] {
        &self.mounts
    }
}

/// An export of the table.
pub struct ExportEntry {
    path: Bytes,
    is_secret: bool,
    admission: Admission,
    /// Unknown while a session does not exist: then no handle exists either, unless its filesystem
    /// is not mounted.
    identity: RwLock<Option<Arc<ExportIdentity>>>,
    open: RwLock<Option<Arc<Export>>>,
    /// Whether sessions that do not exist may be on a filesystem that is not mounted.
    is_awaited: AtomicBool,
    /// Whether a call came since [`Self::take_used`].
    is_used: AtomicBool,
    clients: Arc<ExportClients>,
    opener: Arc<dyn OpenExport>,
}

impl ExportEntry {
    /// A closed export. `identity` is unknown if a session does not exist yet; `clients` are those
    /// of an earlier entry.
    pub fn new(
        (path, is_secret): (Bytes, bool),
        admission: Admission,
        identity: Option<ExportIdentity>,
        clients: Arc<ExportClients>,
        opener: Arc<dyn OpenExport>,
    ) -> Self {
        Self {
            path,
            is_secret,
            admission,
            identity: RwLock::new(identity.map(Arc::new)),
            open: RwLock::default(),
            is_awaited: AtomicBool::new(false),
            is_used: AtomicBool::new(false),
            clients,
            opener,
        }
    }

    /// The path that clients mount.
    pub fn path(&self) -> &Bytes {
        &self.path
    }

    /// Whether the path is a secret.
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// Which callers it accepts.
    pub(super) fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The clients that have used or mounted it.
    pub fn clients(&self) -> &Arc<ExportClients> {
        &self.clients
    }

    /// What identifies it; `None` if it was never open.
    pub fn identity(&self) -> Option<Arc<ExportIdentity>> {
        self.identity.read().clone()
    }

    /// Whether its identity is unknown, and may be found: an unknown handle may be its.
    pub fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed) && self.identity.read().is_none()
    }

    /// Whether the sessions that do not exist may be on a filesystem that is not mounted.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    /// Records what identifies it, unless that is known.
    pub fn find_identity(&self, identity: ExportIdentity) {
        self.identity.write().get_or_insert_with(|| Arc::new(identity));
    }

    /// The export, if it is open.
    pub fn current(&self) -> Option<Arc<Export>> {
        self.open.read().clone()
    }

    /// Records that the export is open from now on; returns whether it is. It is not if its
    /// sessions have been replaced by others since its identity was recorded, apart from those that
    /// `may_differ`, by the index of the mount.
    #[must_use]
    pub fn put_open(&self, export: Arc<Export>, may_differ: &[bool]) -> bool {
        let mut identity = self.identity.write();
        let new = export.identity();
        if identity.as_ref().is_some_and(|known| !known.is_same(new, may_differ)) {
            return false;
        }
        if identity.as_deref() != Some(new) {
            *identity = Some(Arc::new(new.clone()));
        }
        self.is_used.store(true, Ordering::Relaxed);
        *self.open.write() = Some(export);
        true
    }

    /// Closes the export for new calls if no call uses it, and returns it.
    pub fn take_idle(&self) -> Option<Arc<Export>> {
        let mut open = self.open.write();
        let is_idle = open.as_ref().is_some_and(|export| {
            // Calls get their references from `open`, which is locked.
            Arc::strong_count(export) == 1 && export.is_idle()
        });
        if is_idle && !self.is_used.load(Ordering::Relaxed) { open.take() } else { None }
    }

    /// Closes the export for new calls, and returns it.
    pub fn take_open(&self) -> Option<Arc<Export>> {
        self.open.write().take()
    }

    /// Whether a call came since the last time this was asked.
    pub fn take_used(&self) -> bool {
        self.is_used.swap(false, Ordering::Relaxed)
    }

    /// The export; opens it if it is closed.
    ///
    /// # Errors
    /// It cannot be opened now.
    pub(super) async fn open(&self, purpose: OpenPurpose) -> Result<Arc<Export>, FsError> {
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Relaxed);
        }
        if let Some(export) = self.current().filter(|export| !export.is_lost()) {
            return Ok(export);
        }
        self.opener.open(purpose).await
    }

    /// Waits for this time.
    pub(super) async fn pause(&self, time: Duration) {
        self.opener.pause(time).await;
    }
}

impl fmt::Debug for ExportEntry {
    /// Omits the path: it can be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = self.open.read().is_some();
        f.debug_struct("ExportEntry").field("is_open", &is_open).finish_non_exhaustive()
    }
}
