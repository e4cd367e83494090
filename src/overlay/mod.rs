//! The merged tree: the base below, the delta above, one filesystem for the caller.
//!
//! The merge rules are plain synchronous functions over a transaction and the base, grouped by
//! what they do, in overlayfs's words: `resolve` and `lookup` find objects, `attr` and `access`
//! describe and guard them, `read` and `readdir` show them, `copy_up` brings them into the
//! delta, and `write`, `setattr`, `create`, `link`, `remove`, `rename` change them; `discard`
//! gives changes up (`undo` says what that takes), `rebase` those that were applied.
//! What a change takes is counted and limited by `quota`.
//! Content of large files is `pending` until the background has copied it (`finish`).
//! A [`Scope`] says which part of it is whose.
//! `service` ships these functions to the worker and so implements [`Vfs`](crate::vfs::Vfs);
//! [`Tree`] shows the same tree to tools, by paths and without a server.
//!
//! Nothing here knows SQL, the wire or sockets.
//!
//! The rules, in short (docs/SEMANTICS.md has them in full):
//! - A delta entry wins over a base entry of the same name.
//! - A whiteout hides the base object at exactly its merged path; a live entry never has one.
//! - A delta directory shows the base directory at its own place, or the one of its redirect.
//! - An object copied up keeps its number and its handle: its origin says what they were.

mod access;
mod atime;
mod attr;
mod base_names;
mod bulk;
mod cache;
mod changes;
mod copy_up;
mod copy_up_background;
mod copy_up_pending;
mod create;
mod data;
mod discard;
mod edit;
mod error;
mod guarded;
mod hanging;
mod layer;
mod limits;
mod lineage;
mod link;
mod listings;
mod lookup;
mod name_state;
mod node;
mod ordered;
mod original;
mod prune;
mod quota;
mod read;
mod read_buffers;
mod readdir;
mod rebase;
mod rebase_part;
mod rebase_unchanged;
mod remove;
mod removed;
mod rename;
mod replace;
mod resolve;
mod scope;
mod seal;
mod service;
mod setattr;
mod snapshot;
mod trail;
mod tree;
mod undo;
mod weighed;
mod write;
mod writer_memo;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Base, WatchedBase};
use crate::delta::{Limits, Store};
use crate::vfs::{CallId, FileId, Locator, Time};
use crate::worker::{Commits, Worker};

use atime::Atimes;
use cache::Caches;
use copy_up_background::Copies;
use original::OriginalsKept;
use quota::{Membership, QuotaAccount};
use read_buffers::ReadBufferPool;
use removed::RemovedOriginals;
use writer_memo::WriterMemo;

pub use bulk::{BulkContent, BulkItem, Removal};
pub use changes::{BaseObject, Change, ChangesError};
pub use copy_up_background::CopyStep;
pub use copy_up_pending::is_as_it_was;
pub use data::{DataPiece, DataReader};
pub use guarded::Arrival;
pub use limits::CopyLimits;
pub use listings::LargeListings;
pub use name_state::NameState;
pub use original::BlobDigest;
pub use quota::Group;
pub use rebase::RebaseItem;
pub use rebase_part::AppliedPart;
pub use rebase_unchanged::UnchangedCopy;
pub use scope::{GuardedPaths, Scope};
pub use seal::{SealError, SealStep, Sealed, Sealing};
pub use snapshot::FIRST_NAME_COOKIE;
pub use tree::{Tree, TreeObject, TreeView};
pub use undo::{Idle, Undo};

/// Where the time comes from.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// What an overlay is made of.
pub struct OverlayParts {
    /// The upper layer: the session's figures that no transaction holds.
    pub store: Arc<dyn Store>,
    /// Runs transactions on it.
    pub worker: Arc<Worker>,
    /// The lower layer.
    pub base: Arc<dyn Base>,
    /// The clock that stamps changes.
    pub clock: Clock,
    /// Identifies the export in attributes (`fsid`).
    pub fsid: u64,
    /// Keys the cookies of listings, so that nobody can choose names whose cookies collide.
    pub cookie_key: u64,
    /// Refuse every change.
    pub read_only: bool,
    /// How files are copied up.
    pub copy_up: CopyLimits,
}

/// A copy-on-write tree of a base and a session, or what a [`Scope`] shows of it.
#[derive(Clone)]
pub struct Overlay {
    store: Arc<dyn Store>,
    worker: Arc<Worker>,
    core: Arc<Core>,
    scope: Arc<Scope>,
    /// The groups of sessions whose limits bind changes that come this way.
    asked: Arc<[Arc<Membership>]>,
}

/// What the merge rules need besides a transaction.
struct Core {
    base: Arc<dyn Base>,
    /// The same, with what is known of its calls.
    watched: Arc<WatchedBase>,
    clock: Clock,
    fsid: u64,
    cookie_key: u64,
    /// Set once, and never cleared.
    read_only: AtomicBool,
    copy_up: CopyLimits,
    copies: Copies,
    originals: OriginalsKept,
    removed: RemovedOriginals,
    caches: Caches,
    known: Arc<WriterMemo>,
    atimes: Atimes,
    buffers: ReadBufferPool,
    /// What the session takes.
    ledger: Arc<QuotaAccount>,
    /// What calls changed before the last server was killed: see [`edit::Edit::made_before`].
    late_changes: HashMap<CallId, FileId>,
    /// For what is not done on a client's behalf.
    whole: Arc<Scope>,
}

impl Core {
    /// Whether every change is refused.
    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// What there is without a server.
    fn offline(base: Arc<dyn Base>, clock: Clock, copy_up: CopyLimits) -> Self {
        let watched = Arc::new(WatchedBase::new(base));
        Self {
            late_changes: HashMap::new(),
            whole: Arc::default(),
            base: watched.clone(),
            watched,
            clock,
            fsid: 0,
            cookie_key: 0,
            read_only: AtomicBool::new(true),
            copy_up,
            copies: Copies::default(),
            originals: OriginalsKept::default(),
            removed: RemovedOriginals::default(),
            caches: Caches::new(Arc::<Commits>::default(), Arc::default()),
            known: Arc::new(WriterMemo::new()),
            atimes: Atimes::default(),
            buffers: ReadBufferPool::default(),
            ledger: Arc::new(QuotaAccount::new(Limits::default())),
        }
    }
}

impl Overlay {
    /// Joins the layers; all is shown.
    pub fn new(parts: OverlayParts) -> Self {
        Self::with_listings(parts, Arc::default())
    }

    /// The same, with large listings by turns with all that share `listings`.
    pub fn with_listings(parts: OverlayParts, listings: Arc<LargeListings>) -> Self {
        let late = parts.store.late_changes().iter();
        let watched = Arc::new(WatchedBase::new(parts.base));
        let core = Core {
            late_changes: late.map(|change| (change.call, change.fileid)).collect(),
            whole: Arc::default(),
            base: watched.clone(),
            watched,
            clock: parts.clock,
            fsid: parts.fsid,
            cookie_key: parts.cookie_key,
            read_only: AtomicBool::new(parts.read_only),
            copy_up: parts.copy_up,
            copies: Copies::default(),
            originals: OriginalsKept::default(),
            removed: RemovedOriginals::default(),
            caches: Caches::new(parts.worker.commits(), listings),
            known: Arc::new(WriterMemo::new()),
            atimes: Atimes::default(),
            buffers: ReadBufferPool::default(),
            ledger: Arc::new(QuotaAccount::new(parts.store.limits())),
        };
        let scope = Arc::clone(&core.whole);
        let asked = Arc::default();
        Self { store: parts.store, worker: parts.worker, core: Arc::new(core), scope, asked }
    }

    /// The same tree, as a scope shows it: one session and one set of caches, however many there
    /// are.
    pub fn within(&self, scope: Scope) -> Self {
        Self { scope: Arc::new(scope), ..self.clone() }
    }

    /// Refuses every change from now on, in all scopes.
    pub fn turn_read_only(&self) {
        self.core.read_only.store(true, Ordering::Release);
    }

    /// The root directory.
    pub fn root(&self) -> Locator {
        self.scope.root.clone().unwrap_or(Locator::ROOT)
    }

    /// Identifies the session in attributes (`fsid`).
    pub fn fsid(&self) -> u64 {
        self.core.fsid
    }
}
