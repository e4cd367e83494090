//! The drafts of an export, by file and client.
//!
//! A client address has one draft per file, shared by all its users. Drafts of different clients
//! are separate; the last one that is published replaces the file as a whole.
//!
//! Each operation runs in its own task, so that a disconnecting client cannot cancel it halfway.

mod expire;
mod publish;
mod truncated_mark;
mod write;

use std::collections::HashMap;
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use siphasher::sip::SipHasher24;
use tokio::sync::Mutex as Held;

use crate::request_id::OfRequest;
use crate::vfs::{
    Attr, Caller, FileId, FsError, Locator, Outcome, Stability, Time, Wcc, WccAttr, WriteVerifier,
    Written,
};

use super::draft::Draft;
use super::limits::Periods;
use super::published::Published;
use super::resources::{DraftRoom, ExportResources};
use super::rules::Guards;
use super::validator::Validator;

use truncated_mark::TruncatedMark;

/// The parts of a [`DraftTable`].
pub struct DraftTableParts<P> {
    /// The tree whose files are guarded.
    pub tree: P,
    /// Path patterns with their validators.
    pub guards: Guards,
    /// The export's part of the shared resources.
    pub resources: Arc<ExportResources>,
    /// The clock for the times that a draft's writer sees.
    pub clock: Arc<dyn Fn() -> Time + Send + Sync>,
    /// A random number of this process: drafts do not survive it.
    pub boot: u64,
    /// Timeouts of idle drafts.
    pub periods: Periods,
}

/// The drafts of an export.
pub struct DraftTable<P> {
    parts: DraftTableParts<P>,
    entries: Mutex<HashMap<DraftKey, Arc<DraftEntry>>>,
    /// Number of events that may have lost acknowledged pieces.
    losses: AtomicU64,
    /// Whether the task that expires drafts is running.
    is_tended: AtomicBool,
}

/// Client address and file of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct DraftKey {
    client: IpAddr,
    file: FileId,
}

#[derive(Default)]
struct DraftEntry {
    /// Locked for the whole operation on the draft, including validation.
    state: Held<DraftState>,
    /// What all calls of the client show: see [`OpenDraft::shown_by_all`]. Locked only briefly.
    shown: Mutex<Option<DraftView>>,
}

#[derive(Default)]
enum DraftState {
    #[default]
    Nothing,
    Open(Box<OpenDraft>),
    /// The draft was discarded; the next write starts with empty content.
    Cut(Box<TruncatedMark>),
    /// The content was rejected. Pieces still in flight belong to it, and must not start a new
    /// draft over the old content.
    Refused {
        error: FsError,
        at: Instant,
    },
}

/// A draft in progress.
struct OpenDraft {
    draft: Draft,
    room: DraftRoom,
    /// The caller that changed the draft last.
    caller: Caller,
    file: Locator,
    /// The validators at the start of the draft.
    validators: Vec<Arc<Validator>>,
    shown: DraftView,
    /// Number of changes of the whole tree when the draft began.
    tree_changes: u64,
    changed: Instant,
    /// Whether the draft has UNSTABLE writes, so that a COMMIT will follow.
    has_pieces: bool,
    /// Whether a publish was attempted since the last change.
    is_tried: bool,
}

/// Size and times that the draft's writer sees.
#[derive(Debug, Clone, Copy)]
struct DraftView {
    size: u64,
    /// Shown as mtime and ctime.
    time: Time,
}

impl DraftView {
    fn apply(self, attr: &mut Attr) {
        attr.size = self.size;
        attr.used = self.size.div_ceil(512) * 512;
        attr.mtime = self.time;
        attr.ctime = attr.ctime.max(self.time);
    }

    fn before(self) -> WccAttr {
        WccAttr { size: self.size, mtime: self.time, ctime: self.time }
    }
}

impl OpenDraft {
    /// What calls other than those on the draft show to the client: an empty file, if empty content
    /// is valid and nothing was written since.
    ///
    /// Without this, an append after a truncation would go to the end of the old content. Nothing
    /// else is shown, because readers at the same address must see the published size. A Linux
    /// client with uncommitted pieces uses its own idea of the size.
    fn shown_by_all(&self) -> Option<DraftView> {
        let is_valid = self.validators.iter().all(|validator| validator.is_by_line());
        (self.is_emptied() && is_valid).then_some(self.shown)
    }

    /// Whether the file was truncated to zero and nothing was written since.
    fn is_emptied(&self) -> bool {
        self.draft.content().is_empty() && !self.has_pieces
    }
}

impl<P: Published> DraftTable<P> {
    /// A table of drafts over `parts.tree`.
    pub fn new(parts: DraftTableParts<P>) -> Arc<Self> {
        Arc::new(Self {
            parts,
            entries: Mutex::default(),
            losses: AtomicU64::new(0),
            is_tended: AtomicBool::new(false),
        })
    }

    /// WRITE to a guarded file with the published attributes `attr`; the caller has write
    /// permission.
    pub async fn write(
        self: &Arc<Self>,
        caller: &Caller,
        file: &Locator,
        attr: Option<Attr>,
        (offset, data): (u64, Bytes),
        stability: Stability,
    ) -> Outcome<Written, Wcc> {
        let (desk, caller, file) = (Arc::clone(self), caller.clone(), file.clone());
        run(async move { desk.write_now((&caller, &file), attr, (offset, &data), stability).await })
            .await
    }

    /// SETATTR of a guarded file's size; the caller has write permission.
    pub async fn set_size(
        self: &Arc<Self>,
        caller: &Caller,
        file: &Locator,
        attr: Attr,
        size: u64,
    ) -> Outcome<(), Wcc> {
        let (desk, caller, file) = (Arc::clone(self), caller.clone(), file.clone());
        run(async move { desk.set_size_now((&caller, &file), attr, size).await }).await
    }

    /// COMMIT of the client's draft; `None` if the client has none.
    pub async fn commit(
        self: &Arc<Self>,
        caller: &Caller,
        file: &Locator,
    ) -> Option<Outcome<WriteVerifier, Wcc>> {
        let entry = self.find(key(caller, file))?;
        let (desk, file) = (Arc::clone(self), file.clone());
        let committed = OfRequest::new(async move { desk.commit_now(&entry, &file).await });
        tokio::spawn(committed).await.unwrap_or_else(|_| Some(FsError::Fault.into()))
    }

    /// Discards the client's draft of a file that is no longer guarded, after a direct write. The
    /// write verifier changes, so the client sends its pieces again.
    pub async fn abandon(&self, caller: &Caller, file: &Locator) {
        let Some(entry) = self.find(key(caller, file)) else { return };
        let mut state = entry.state.lock().await;
        match *state {
            DraftState::Open(_) => self.lose(&entry, &mut state),
            DraftState::Cut(_) => *state = DraftState::Nothing,
            DraftState::Nothing | DraftState::Refused { .. } => {}
        }
    }

    /// Shows an emptied file to the client that emptied it, until the client writes.
    pub fn show(&self, caller: &Caller, attr: &mut Attr) {
        let entry = self.find(DraftKey { client: caller.client.ip(), file: attr.fileid });
        if let Some(shown) = entry.and_then(|entry| *lock(&entry.shown)) {
            shown.apply(attr);
        }
    }

    /// The write verifier for every file of the export, instead of the tree's. It also changes when
    /// drafts were lost, by a restart or otherwise.
    pub fn verifier(&self, of_tree: WriteVerifier) -> WriteVerifier {
        let losses = self.losses.load(Ordering::Acquire);
        let mut hasher = SipHasher24::new_with_keys(self.parts.boot, losses);
        hasher.write(&of_tree.0);
        WriteVerifier(hasher.finish().to_be_bytes())
    }

    /// Whether there are no drafts.
    pub fn is_idle(&self) -> bool {
        lock(&self.entries).is_empty()
    }

    /// The validators of a file with these paths.
    fn validators_of(&self, paths: &[Vec<u8>]) -> Vec<Arc<Validator>> {
        paths.iter().flat_map(|path| self.parts.guards.of(path)).collect()
    }

    fn find(&self, key: DraftKey) -> Option<Arc<DraftEntry>> {
        lock(&self.entries).get(&key).cloned()
    }

    /// The entry of a key, added if missing; `None` if there are too many.
    fn entry(self: &Arc<Self>, key: DraftKey) -> Option<Arc<DraftEntry>> {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(&key) {
            return Some(Arc::clone(entry));
        }
        if self.is_full(&entries, key.client) {
            forget_nothing(&mut entries);
            if self.is_full(&entries, key.client) && !self.make_room(&mut entries, key.client) {
                return None;
            }
        }
        let entry = Arc::<DraftEntry>::default();
        entries.insert(key, Arc::clone(&entry));
        drop(entries);
        self.start_expiry();
        Some(entry)
    }

    fn is_full(&self, entries: &HashMap<DraftKey, Arc<DraftEntry>>, client: IpAddr) -> bool {
        entries.len() >= self.parts.resources.most_drafts() || self.has_many(entries, client)
    }

    /// Whether a client has reached its limit of entries.
    fn has_many(&self, entries: &HashMap<DraftKey, Arc<DraftEntry>>, client: IpAddr) -> bool {
        let of_client = entries.keys().filter(|key| key.client == client).count();
        of_client >= self.parts.resources.all.limits.client_drafts
    }

    /// Discards a draft whose client cannot know: the write verifier changes.
    fn lose(&self, entry: &DraftEntry, state: &mut DraftState) {
        *state = DraftState::Nothing;
        *lock(&entry.shown) = None;
        self.losses.fetch_add(1, Ordering::AcqRel);
    }
}

/// Removes unused entries without a draft.
fn forget_nothing(entries: &mut HashMap<DraftKey, Arc<DraftEntry>>) {
    entries.retain(|_, entry| {
        let is_nothing =
            entry.state.try_lock().is_ok_and(|state| matches!(*state, DraftState::Nothing));
        !is_nothing || Arc::strong_count(entry) > 1
    });
}

fn key(caller: &Caller, file: &Locator) -> DraftKey {
    DraftKey { client: caller.client.ip(), file: file.fileid() }
}

/// Runs an operation to completion, even if its caller is cancelled.
async fn run<T: Send + 'static, C: Default + Send + 'static>(
    operation: impl Future<Output = Outcome<T, C>> + Send + 'static,
) -> Outcome<T, C> {
    tokio::spawn(OfRequest::new(operation)).await.unwrap_or_else(|_| FsError::Fault.into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
