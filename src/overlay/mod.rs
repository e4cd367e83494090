//! The merged tree: a copy-on-write union of the base (lower layer) and the delta (upper layer).
//!
//! The merge rules are synchronous functions of a transaction and the base, one file per operation:
//! `resolve` and `lookup` find objects, `attr` and `access` read attributes and check permissions,
//! `read` and `readdir` read content and listings. `copy_up` copies a base object into the delta
//! before its first change; `write`, `setattr`, `create`, `link`, `remove` and `rename` change
//! objects. `quota` counts the space that changes use and limits it.
//! `copy_up_pending` tracks content of large files that `copy_up_background` has not copied yet. A
//! [`Scope`] restricts what an export shows of the tree and may change. `service` implements
//! [`Vfs`](crate::vfs::Vfs): it runs these functions on the worker. `tools` has what tools and
//! commands need: the tree by paths, differences, giving changes up.
//!
//! No file here knows SQL, the wire format or sockets.
//!
//! Merge rules (docs/SEMANTICS.md has the full list):
//! - A delta entry hides a base entry of the same name.
//! - A whiteout hides the base object at exactly its merged path; no live entry has a whiteout.
//! - A delta directory shows the base directory at its own path, or the target of its redirect.
//! - A copied-up object keeps its file number and its handle: its origin row stores both.

mod access;
mod atime;
mod attr;
mod base_names;
mod bulk;
mod cache;
mod change;
mod copy_up;
mod copy_up_background;
mod copy_up_pending;
mod create;
mod edit;
mod error;
mod figures;
mod followed;
mod guarded;
mod hanging;
mod leased;
mod limits;
mod link;
mod listings;
mod lookup;
mod memo;
mod moved_out;
mod node;
mod ordered;
mod original;
mod quota;
mod read;
mod read_buffers;
mod readdir;
mod remove;
mod removed;
mod rename;
mod replace;
mod resolve;
mod saving;
mod scope;
mod service;
mod setattr;
mod snapshot;
mod tools;
mod trail;
mod weighted_lru;
mod write;
mod writer_memo;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::{Base, WatchedBase};
use crate::delta::postgres::HeldLease;
use crate::delta::{Limits, Store};
use crate::vfs::{CallId, FileId, Locator, Time};
use crate::worker::{CommitSequence, Worker};

use atime::Atimes;
use cache::Caches;
use copy_up_background::Copies;
use original::OriginalsTotal;
use quota::{Membership, QuotaAccount};
use read_buffers::ReadBufferPool;
use removed::RemovedOriginals;
use tools::automatic::CheckpointPolicy;
use tools::checkpoint_space::CheckpointBound;
use tools::needed_dirs::NeededDirs;
use writer_memo::WriterMemo;

pub use bulk::{BulkContent, BulkItem, Removal};
pub use copy_up_background::CopyStep;
pub use copy_up_pending::is_as_it_was;
pub use figures::SessionFigures;
pub use guarded::Arrival;
pub use limits::CopyLimits;
pub use listings::LargeListings;
pub use original::BlobDigest;
pub use quota::Group;
pub use scope::{GuardedPaths, Scope};
pub use snapshot::FIRST_NAME_COOKIE;
pub use tools::automatic::AutomaticCheckpoints;
pub use tools::changes::{BaseObject, Change, ChangesError, DeniedChange, original_of_dir};
pub use tools::data::{DataPiece, DataReader};
pub use tools::discard_extent::{DiscardExtent, Idle};
pub use tools::layer::LostDir;
pub use tools::needed_dirs::{NeededDir, TreeChangeError};
pub use tools::path_rows::PathRows;
pub use tools::rebase::{MergedParts, RebaseItem};
pub use tools::rebase_part::AppliedPart;
pub use tools::rebase_unchanged::{BaseVersion, UnchangedCopy};
pub use tools::seal::{SealError, SealStep, Sealed, Sealing};
pub use tools::step_trial::{ContentAfterSteps, StepContents, StepFilter};
pub use tools::steps::{ChangeStep, ChangeSteps, StepsOutcome};
pub use tools::tree::{BaseOfDir, Tree, TreeObject, TreeView};

/// The clock that an overlay reads; tests inject their own.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// The layers and options of an overlay.
pub struct OverlayParts {
    /// The upper layer outside transactions: disk usage, limits, and calls recorded before a crash.
    pub store: Arc<dyn Store>,
    /// Runs transactions on the session.
    pub worker: Arc<Worker>,
    /// The lower layer.
    pub base: Arc<dyn Base>,
    /// The clock that stamps changes.
    pub clock: Clock,
    /// Identifies the export in attributes (`fsid`).
    pub fsid: u64,
    /// Key of the hash that makes listing cookies: clients cannot choose names whose cookies
    /// collide.
    pub cookie_key: u64,
    /// Refuse every change with NFS3ERR_ROFS.
    pub read_only: bool,
    /// Limits of copy-up.
    pub copy_up: CopyLimits,
    /// Which checkpoints are made without a user asking for each.
    pub checkpoints: AutomaticCheckpoints,
}

/// The merged tree of a base and a session, restricted to a [`Scope`].
#[derive(Clone)]
pub struct Overlay {
    store: Arc<dyn Store>,
    worker: Arc<Worker>,
    core: Arc<Core>,
    scope: Arc<Scope>,
    /// Groups whose quotas apply to changes through this scope.
    memberships: Arc<[Arc<Membership>]>,
}

/// State that the merge rules share across transactions.
struct Core {
    base: Arc<dyn Base>,
    /// `base` again, with its type: it also reports calls that hang.
    watched: Arc<WatchedBase>,
    clock: Clock,
    fsid: u64,
    cookie_key: u64,
    /// Set once; never cleared.
    read_only: AtomicBool,
    copy_up: CopyLimits,
    copies: Copies,
    originals: OriginalsTotal,
    removed: RemovedOriginals,
    checkpoints: CheckpointPolicy,
    checkpoint_bound: CheckpointBound,
    needed_dirs: NeededDirs,
    /// Number of changes of the whole tree. Set by the change itself: content for the tree before
    /// it is not published after it.
    tree_changes: AtomicU64,
    caches: Caches,
    writer_memo: Arc<WriterMemo>,
    atimes: Atimes,
    buffers: ReadBufferPool,
    /// Usage of the session against its quota.
    quota: Arc<QuotaAccount>,
    /// Operations of the previous server that were committed before it was killed, by call id: see
    /// [`edit::Edit::already_applied`].
    unacknowledged_ops: HashMap<CallId, FileId>,
    /// The unrestricted scope, for work that no client requested.
    whole: Arc<Scope>,
    /// The lease without which nothing may be answered.
    lease: Option<Arc<HeldLease>>,
}

impl Core {
    /// Whether every change is refused.
    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// State for tools: read-only, with empty caches.
    fn offline(base: Arc<dyn Base>, clock: Clock, copy_up: CopyLimits) -> Self {
        let watched = Arc::new(WatchedBase::new(base));
        Self {
            unacknowledged_ops: HashMap::new(),
            whole: Arc::default(),
            lease: None,
            base: watched.clone(),
            watched,
            clock,
            fsid: 0,
            cookie_key: 0,
            read_only: AtomicBool::new(true),
            copy_up,
            copies: Copies::default(),
            originals: OriginalsTotal::default(),
            removed: RemovedOriginals::default(),
            checkpoints: CheckpointPolicy::default(),
            checkpoint_bound: CheckpointBound::default(),
            needed_dirs: NeededDirs::default(),
            tree_changes: AtomicU64::new(0),
            caches: Caches::new(Arc::<CommitSequence>::default(), Arc::default()),
            writer_memo: Arc::new(WriterMemo::new()),
            atimes: Atimes::default(),
            buffers: ReadBufferPool::default(),
            quota: Arc::new(QuotaAccount::new(Limits::default())),
        }
    }
}

impl Overlay {
    /// Joins the layers; the scope is the whole tree.
    #[cfg(feature = "internals")]
    pub fn new(parts: OverlayParts) -> Self {
        Self::with_listings(parts, Arc::default())
    }

    /// As [`Self::new`], with limits on large listings that overlays share through `listings`.
    pub fn with_listings(parts: OverlayParts, listings: Arc<LargeListings>) -> Self {
        let late = parts.store.unacknowledged_ops().iter();
        let watched = Arc::new(WatchedBase::new(parts.base));
        let core = Core {
            unacknowledged_ops: late.map(|change| (change.call, change.fileid)).collect(),
            whole: Arc::default(),
            lease: parts.store.lease(),
            base: watched.clone(),
            watched,
            clock: parts.clock,
            fsid: parts.fsid,
            cookie_key: parts.cookie_key,
            read_only: AtomicBool::new(parts.read_only),
            copy_up: parts.copy_up,
            copies: Copies::default(),
            originals: OriginalsTotal::default(),
            removed: RemovedOriginals::default(),
            checkpoints: CheckpointPolicy::new(parts.checkpoints),
            checkpoint_bound: CheckpointBound::default(),
            needed_dirs: NeededDirs::default(),
            tree_changes: AtomicU64::new(0),
            caches: Caches::new(parts.worker.commits(), listings),
            writer_memo: Arc::new(WriterMemo::new()),
            atimes: Atimes::default(),
            buffers: ReadBufferPool::default(),
            quota: Arc::new(QuotaAccount::new(parts.store.limits())),
        };
        let scope = Arc::clone(&core.whole);
        let memberships = Arc::default();
        Self { store: parts.store, worker: parts.worker, core: Arc::new(core), scope, memberships }
    }

    /// Returns the tree restricted to `scope`. All scopes share one session and one set of caches.
    pub fn within(&self, scope: Scope) -> Self {
        Self { scope: Arc::new(scope), ..self.clone() }
    }

    /// Refuses every change from now on, in all scopes.
    pub fn turn_read_only(&self) {
        self.core.read_only.store(true, Ordering::Release);
    }

    /// Frees memory, connections and descriptors that only make later calls faster, as far as no
    /// call uses them. May block.
    pub fn rest(&self) {
        self.core.caches.clear();
        self.core.writer_memo.clear();
        self.core.base.rest();
        self.worker.rest();
    }

    /// Whether its base should not be closed to be opened again later ([`Base::must_stay_open`]).
    pub fn must_stay_open(&self) -> bool {
        self.core.base.must_stay_open()
    }

    /// Whether every change is refused: it is read-only, or a write failed in a way that leaves no
    /// other choice.
    pub fn refuses_changes(&self) -> bool {
        self.core.is_read_only() || self.worker.is_read_only()
    }

    /// The root directory.
    pub fn root(&self) -> Locator {
        self.scope.root.clone().unwrap_or(Locator::ROOT)
    }

    /// Number of the filesystem, as clients see it (`fsid` of fattr3).
    pub fn fsid(&self) -> u64 {
        self.core.fsid
    }
}
