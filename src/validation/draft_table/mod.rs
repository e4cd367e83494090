//! The drafts of an export, by file and client.
//!
//! A client address has one draft of a file, whoever writes there; those of several clients are
//! apart, and who publishes last has the file, as a whole.
//!
//! Each operation is a task of its own: a client that goes away in the middle leaves none half
//! done.

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

/// What a [`DraftTable`] is made of.
pub struct DeskParts<P> {
    /// The tree whose files are guarded.
    pub tree: P,
    /// Which files, and by what.
    pub guards: Guards,
    /// The export's part of what the guards of the server share.
    pub resources: Arc<ExportResources>,
    /// The clock that stamps what a draft's writer is shown.
    pub clock: Arc<dyn Fn() -> Time + Send + Sync>,
    /// A random number of this process: drafts do not outlive it.
    pub boot: u64,
    /// When what happens to a draft that nobody changes.
    pub periods: Periods,
}

/// The drafts of an export.
pub struct DraftTable<P> {
    parts: DeskParts<P>,
    entries: Mutex<HashMap<DraftKey, Arc<DraftEntry>>>,
    /// How often pieces that were taken may have been lost.
    losses: AtomicU64,
    /// Whether somebody looks after drafts that nobody changes.
    is_tended: AtomicBool,
}

/// Whose draft of which file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct DraftKey {
    client: IpAddr,
    file: FileId,
}

#[derive(Default)]
struct DraftEntry {
    /// Held as long as something is done to the draft, a program's verdict included.
    state: Held<DraftState>,
    /// What the writer's client is shown by every call: see [`OpenDraft::shown_by_all`]. Never held
    /// for long.
    shown: Mutex<Option<DraftView>>,
}

#[derive(Default)]
enum DraftState {
    #[default]
    Nothing,
    Open(Box<OpenDraft>),
    /// It was given up, and what comes begins from nothing.
    Cut(Box<TruncatedMark>),
    /// It was refused, but for pieces that are on their way: these belong to it, and would make a
    /// mixture with the old content.
    Refused {
        error: FsError,
        at: Instant,
    },
}

/// A draft.
struct OpenDraft {
    draft: Draft,
    room: DraftRoom,
    /// Who changed it last.
    caller: Caller,
    file: Locator,
    /// What the file was guarded by when the draft began.
    validators: Vec<Arc<Validator>>,
    shown: DraftView,
    changed: Instant,
    /// Whether there are pieces in it that were not asked to be stable, so that a COMMIT follows.
    has_pieces: bool,
    /// Whether it was tried to publish it, as nothing followed.
    is_tried: bool,
}

/// What the writer of a draft sees of the file.
#[derive(Debug, Clone, Copy)]
struct DraftView {
    size: u64,
    /// Of mtime and ctime.
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
    /// What calls other than those that change the draft show of it to the client: that the file
    /// is empty, where that is valid content and nothing else has come.
    ///
    /// Otherwise an append that follows a truncation would go behind the old content. More would
    /// be wrong: other readers have the same address, and what they read is what is published.
    /// A Linux client with pieces that it has not committed keeps to its own idea of the size.
    fn shown_by_all(&self) -> Option<DraftView> {
        let is_valid = self.validators.iter().all(|validator| validator.is_by_line());
        (self.is_emptied() && is_valid).then_some(self.shown)
    }

    /// Whether the file was cut to nothing, and nothing has come since.
    fn is_emptied(&self) -> bool {
        self.draft.content().is_empty() && !self.has_pieces
    }
}

impl<P: Published> DraftTable<P> {
    /// Drafts over `parts.tree`.
    pub fn new(parts: DeskParts<P>) -> Arc<Self> {
        Arc::new(Self {
            parts,
            entries: Mutex::default(),
            losses: AtomicU64::new(0),
            is_tended: AtomicBool::new(false),
        })
    }

    /// WRITE of a guarded file whose published attributes are `attr`, by a caller who may.
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

    /// SETATTR of a guarded file's size, by a caller who may.
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

    /// COMMIT of what the caller's client has drafted; `None` if that is nothing.
    pub async fn commit(
        self: &Arc<Self>,
        caller: &Caller,
        file: &Locator,
    ) -> Option<Outcome<WriteVerifier, Wcc>> {
        let entry = self.find(key(caller, file))?;
        let (desk, file) = (Arc::clone(self), file.clone());
        let committed = tokio::spawn(async move { desk.commit_now(&entry, &file).await });
        committed.await.unwrap_or_else(|_| Some(FsError::Fault.into()))
    }

    /// Gives up the client's draft of a file that was just written without one, as it is not
    /// guarded any more: the client is told to send its pieces again.
    pub async fn abandon(&self, caller: &Caller, file: &Locator) {
        let Some(entry) = self.find(key(caller, file)) else { return };
        let mut state = entry.state.lock().await;
        match *state {
            DraftState::Open(_) => self.lose(&entry, &mut state),
            DraftState::Cut(_) => *state = DraftState::Nothing,
            DraftState::Nothing | DraftState::Refused { .. } => {}
        }
    }

    /// Shows a client that it has emptied a file, if it did nothing else since.
    pub fn show(&self, caller: &Caller, attr: &mut Attr) {
        let entry = self.find(DraftKey { client: caller.client.ip(), file: attr.fileid });
        if let Some(shown) = entry.and_then(|entry| *lock(&entry.shown)) {
            shown.apply(attr);
        }
    }

    /// The write verifier that clients get instead of the tree's, for every file of the export:
    /// it changes too when drafts were lost, by a restart or otherwise.
    pub fn verifier(&self, of_tree: WriteVerifier) -> WriteVerifier {
        let losses = self.losses.load(Ordering::Acquire);
        let mut hasher = SipHasher24::new_with_keys(self.parts.boot, losses);
        hasher.write(&of_tree.0);
        WriteVerifier(hasher.finish().to_be_bytes())
    }

    /// Whether nobody has a draft.
    pub fn is_idle(&self) -> bool {
        lock(&self.entries).is_empty()
    }

    /// What a file with these paths is guarded by.
    fn validators_of(&self, paths: &[Vec<u8>]) -> Vec<Arc<Validator>> {
        paths.iter().flat_map(|path| self.parts.guards.of(path)).collect()
    }

    fn find(&self, key: DraftKey) -> Option<Arc<DraftEntry>> {
        lock(&self.entries).get(&key).cloned()
    }

    /// The entry of a key, or a new one; `None` if there are too many.
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
        self.tend();
        Some(entry)
    }

    fn is_full(&self, entries: &HashMap<DraftKey, Arc<DraftEntry>>, client: IpAddr) -> bool {
        entries.len() >= self.parts.resources.most_drafts() || self.has_many(entries, client)
    }

    /// Whether a client has as many entries as it may.
    fn has_many(&self, entries: &HashMap<DraftKey, Arc<DraftEntry>>, client: IpAddr) -> bool {
        let of_client = entries.keys().filter(|key| key.client == client).count();
        of_client >= self.parts.resources.all.limits.client_drafts
    }

    /// Drops a draft whose client does not know it yet: the verifier tells.
    fn lose(&self, entry: &DraftEntry, state: &mut DraftState) {
        *state = DraftState::Nothing;
        *lock(&entry.shown) = None;
        self.losses.fetch_add(1, Ordering::AcqRel);
    }
}

/// Forgets entries that nobody uses and that hold nothing.
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

/// Runs an operation to its end, whoever waits for it.
async fn run<T: Send + 'static, C: Default + Send + 'static>(
    operation: impl Future<Output = Outcome<T, C>> + Send + 'static,
) -> Outcome<T, C> {
    tokio::spawn(operation).await.unwrap_or_else(|_| FsError::Fault.into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
