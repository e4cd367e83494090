//! Originals of base objects that clients removed, stored in the background.
//!
//! A removal only queues the attributes in memory. Reading the content and storing a row in the
//! same transaction would make a REMOVE a third slower. The base still has the object, so the
//! background reads it soon after. Without an original (queue full, base changed first, process
//! killed), drift is judged by ctime.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::base::{BaseAttr, BasePath};
use crate::delta::{Original, WriteTxn};
use crate::vfs::{FileKind, FsError};
use crate::worker::{BackgroundPiece, Cost, OpResult};

use super::edit::Edit;
use super::error::{Result, from_work};
use super::hanging::reject_if_refused;
use super::limits::{
    MAX_REMOVED, MAX_REMOVED_PATH_BYTES, REMOVED_BATCH, REMOVED_BATCH_BYTES, REMOVED_END_WAIT,
    REMOVED_QUIET,
};
use super::memo::NoMemo;
use super::original::{BlobDigest, base_digest, original_of};
use super::resolve::View;
use super::{Core, Overlay};

/// Size of an original in the writer's queue, in bytes.
const ENTRY_BYTES: usize = 256;

/// Removed base objects whose originals are not stored yet.
#[derive(Default)]
pub(super) struct RemovedOriginals(Mutex<RemovedQueue>);

#[derive(Default)]
struct RemovedQueue {
    entries: VecDeque<Original>,
    /// Total length of the paths, in bytes.
    path_bytes: usize,
    is_full_logged: bool,
    /// When the last entry was added.
    last: Option<Instant>,
}

impl RemovedOriginals {
    /// Queues the objects that a change removed, within the limits.
    pub fn add(&self, removed: Vec<Original>) {
        if removed.is_empty() {
            return;
        }
        let mut queue = self.queue();
        queue.last = Some(Instant::now());
        for original in removed {
            let path_bytes = queue.path_bytes + original.path.as_bytes().len();
            if queue.entries.len() < MAX_REMOVED && path_bytes <= MAX_REMOVED_PATH_BYTES {
                queue.path_bytes = path_bytes;
                queue.entries.push_back(original);
            } else if !queue.is_full_logged {
                queue.is_full_logged = true;
                tracing::info!(
                    entries = MAX_REMOVED,
                    "removals are faster than the base is read: whether the base changed what was \
                     removed is judged by its ctime for some of it"
                );
            }
        }
    }

    /// Whether the queue should be drained before further removals.
    pub fn is_half_full(&self) -> bool {
        let queue = self.queue();
        queue.entries.len() > MAX_REMOVED / 2 || queue.path_bytes > MAX_REMOVED_PATH_BYTES / 2
    }

    /// Whether nothing was added for [`REMOVED_QUIET`].
    fn is_quiet(&self) -> bool {
        self.queue().last.is_none_or(|last| last.elapsed() >= REMOVED_QUIET)
    }

    fn queue(&self) -> MutexGuard<'_, RemovedQueue> {
        self.0.lock()
    }

    /// Takes the oldest entries for one transaction, which reads files of up to `largest` bytes.
    fn take(&self, largest: u64) -> Vec<Original> {
        let mut queue = self.queue();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < REMOVED_BATCH
            && bytes < REMOVED_BATCH_BYTES
            && let Some(original) = queue.entries.pop_front()
        {
            queue.path_bytes -= original.path.as_bytes().len();
            bytes += if original.size > largest { 0 } else { original.size };
            batch.push(original);
        }
        batch
    }
}

/// Records the removal of a base object; `path` is its path in the base.
pub(super) fn note_removed(edit: &mut Edit<'_>, path: &BasePath, attr: &BaseAttr) {
    let has_content =
        matches!(attr.kind, FileKind::Regular | FileKind::Symlink | FileKind::Directory);
    if has_content {
        edit.removed.push(original_of(path, attr));
    }
}

impl Overlay {
    /// Stores the originals of one batch of removed objects; returns whether the queue had any.
    /// Originals that cannot be read or stored are dropped.
    pub async fn keep_removed(&self) -> bool {
        if self.is_base_stuck() {
            return false;
        }
        let batch = self.core.removed.take(self.core.copy_up.original_bytes);
        if batch.is_empty() {
            return false;
        }
        if let Err(error) = self.keep_all(batch).await {
            tracing::debug!(%error, "cannot keep the originals of what was removed");
        }
        true
    }

    /// As [`Self::keep_removed`], but only after a pause of removals or with the queue half full:
    /// it slows down concurrent removals.
    pub(super) async fn keep_removed_if_due(&self) -> BackgroundPiece {
        let removed = &self.core.removed;
        if removed.is_quiet() || removed.is_half_full() {
            return if self.keep_removed().await {
                BackgroundPiece::More
            } else {
                BackgroundPiece::Idle
            };
        }
        BackgroundPiece::NotDue
    }

    /// Drains the queue, for at most 5 s.
    pub async fn keep_all_removed(&self) {
        let begun = Instant::now();
        while begun.elapsed() < REMOVED_END_WAIT && self.keep_removed().await {}
    }

    /// Whether the queue should be drained before further removals.
    pub(super) fn is_much_removed(&self) -> bool {
        self.core.removed.is_half_full()
    }

    async fn keep_all(&self, batch: Vec<Original>) -> std::result::Result<(), FsError> {
        let core = self.core.clone();
        let read = self.worker.read(Cost::Offload, move |txn| {
            let view = View { txn, core: &core, memo: &NoMemo, scope: &core.whole };
            let read = || batch.iter().filter_map(|removed| read_removed(&view, removed)).collect();
            reject_if_refused(read).unwrap_or_default()
        });
        let kept: Vec<Original> = read.await.map_err(|error| from_work(&error))?;
        let core = self.core.clone();
        let bytes = kept.len() * ENTRY_BYTES;
        let job = move |txn: &mut dyn WriteTxn| {
            let stored = reject_if_refused(|| store(&core, txn, &kept));
            let value = stored.unwrap_or(Err(FsError::TryLater.into()));
            OpResult { commit: value.is_ok(), value, after_commit: None }
        };
        let stored = self.worker.write(Cost::Offload, bytes, false, job).await;
        stored.map_err(|error| from_work(&error))?.value.map_err(|error| error.into_fs())
    }
}

/// The original of a removed base object, with a digest if the content is small enough to keep.
/// `None` if the object changed since the removal or cannot be read.
fn read_removed(view: &View<'_>, removed: &Original) -> Option<Original> {
    let path = &removed.path;
    let now = view.core.base.stat(path).ok()?;
    if original_of(path, &now) != *removed {
        return None;
    }
    let digest = match now.kind {
        FileKind::Regular if now.size <= view.core.copy_up.original_bytes => {
            Some(base_digest(view, path, &now).ok()??)
        }
        FileKind::Symlink => Some(BlobDigest::of(&view.core.base.read_link(path).ok()?)),
        _ => None,
    };
    Some(Original { digest, ..removed.clone() })
}

/// Whether the base object at a path shows in the merged tree.
fn is_shown(view: &View<'_>, original: &Original) -> Result<bool> {
    match original.kind {
        FileKind::Directory => Ok(view.place_of_base(&original.path)?.is_some()),
        _ => Ok(view.shown_name(&original.path)?.is_some()),
    }
}

/// Stores the originals of objects that are still removed.
fn store(core: &Core, txn: &mut dyn WriteTxn, kept: &[Original]) -> Result<()> {
    for original in kept {
        let view = View { txn, core, memo: &NoMemo, scope: &core.whole };
        // The removal was discarded: the next change stores an original of its own.
        if is_shown(&view, original)? {
            continue;
        }
        let times = |of: &Original| (of.fileid, of.size, of.mtime, of.ctime);
        match txn.original(&original.path)? {
            Some(known) if times(&known) == times(original) => continue,
            // Removing a directory's original would also remove those below it.
            Some(known) if known.kind == FileKind::Directory => continue,
            // The base object was replaced, and the client removed the new one.
            Some(_) => core.originals.forget(txn.remove_originals(&original.path)?),
            None => {}
        }
        txn.put_original(original, None)?;
    }
    Ok(())
}
