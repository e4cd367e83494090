//! Copies pending content in the background, one piece per transaction, between client changes.
//!
//! A piece is a writer operation without an audit row: the change that began the copy-up has one.
//! Pending content is recorded in the session, so the next process continues after a crash.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::delta::{CopyUp, Ino, InodeRow, PendingCopies, UsageDelta, WriteTxn};
use crate::vfs::FsError;
use crate::worker::{Background, BackgroundPiece, Cost, OpResult};

use super::copy_up_pending::{
    check_origin, count_missing_chunks, missing_chunks, next_origin_data, read_origin,
};
use super::error::{OpError, Result, from_store, from_work};
use super::hanging::reject_if_refused;
use super::limits::{COPY_PROGRESS_INTERVAL, COPY_SYNC_BYTES, MAX_LOST_NOTED};
use super::memo::NoMemo;
use super::quota::QuotaReservation;
use super::resolve::View;
use super::{Core, Overlay};

/// Size of a piece in the writer's queue, besides its data, in bytes.
const PIECE_OVERHEAD_BYTES: usize = 512;

/// Time after which copies that an earlier server left are continued: the first calls come first.
const LEFT_COPIES_AFTER: Duration = Duration::from_secs(1);

/// State of the background copy between pieces.
#[derive(Default)]
pub(super) struct Copies {
    pub background: Background,
    /// Whether content may be pending. If not, the background queues no writer operation: the first
    /// one of a session writes and syncs the file.
    may_pend: AtomicBool,
    state: Mutex<FinishState>,
}

#[derive(Default)]
struct FinishState {
    /// Inode at which the next piece starts; 0 starts a new round.
    at: u64,
    /// Upper bound of bytes copied since the last synced piece.
    unsynced_bytes: u64,
    /// Files whose lost content is already logged. Bounded: beyond that, each failure is logged.
    lost: HashSet<Ino>,
}

/// Progress of [`Overlay::copy_for`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyStep {
    /// The inode to continue with; `None` at the end of a round.
    pub next: Option<Ino>,
    /// Whether any piece was copied.
    pub has_copied: bool,
    /// Content that is still pending.
    pub left: PendingCopies,
}

/// Result of copying one piece.
enum CopyOutcome {
    /// A piece is copied; the round continues at this inode.
    Copied(Ino),
    /// A file whose content is lost is skipped; the round continues at this inode.
    Skipped(Ino),
    /// The round is complete.
    Over,
}

impl Copies {
    fn state(&self) -> MutexGuard<'_, FinishState> {
        self.state.lock()
    }

    /// Records that content became pending. The caller must wake the background.
    pub fn begin(&self) {
        self.may_pend.store(true, Ordering::Relaxed);
    }

    /// Whether the loss of this file's content was not logged before.
    pub fn is_first_loss(&self, ino: Ino) -> bool {
        let mut state = self.state();
        if state.lost.len() < MAX_LOST_NOTED { state.lost.insert(ino) } else { true }
    }

    /// Each loss is logged again: files may have other content now.
    pub fn forget_losses(&self) {
        self.state().lost.clear();
    }

    /// Whether the next piece, of at most `bytes`, must be synced. Bounds the data that a COMMIT
    /// waits for.
    fn is_sync_due(&self, bytes: u64) -> bool {
        let mut state = self.state();
        state.unsynced_bytes += bytes;
        let due = state.unsynced_bytes >= COPY_SYNC_BYTES;
        if due {
            state.unsynced_bytes = 0;
        }
        due
    }
}

impl Overlay {
    /// Copies pending content and stores originals of removed objects. Returns only when the
    /// session accepts no more changes.
    pub async fn copy_in_background(&self) {
        self.core.copies.background.begin_after(LEFT_COPIES_AFTER).await;
        if self.pending_copies().await.map_or(true, |left| left.files > 0) {
            self.core.copies.begin();
        }
        loop {
            let kept = self.keep_removed_if_due().await;
            let copied = match self.core.copies.may_pend.swap(false, Ordering::Relaxed) {
                false => Ok(false),
                true => self.copy_piece().await,
            };
            if copied != Ok(false) {
                self.core.copies.begin();
            }
            let piece = match copied {
                Ok(true) => BackgroundPiece::More,
                Ok(false) => kept,
                Err(FsError::ReadOnly) => BackgroundPiece::Finished,
                Err(_) => BackgroundPiece::Failed,
            };
            if !self.core.copies.background.next_after(piece).await {
                return;
            }
        }
    }

    /// Copies one piece; `false` if nothing is left that can be copied.
    ///
    /// # Errors
    /// The session rejects the change. The error is already logged.
    pub async fn copy_piece(&self) -> std::result::Result<bool, FsError> {
        let from = Ino(self.core.copies.state().at);
        let step = self.copy_next(from).await;
        self.core.copies.state().at = match step {
            Ok(CopyOutcome::Copied(next) | CopyOutcome::Skipped(next)) => next.0,
            Ok(CopyOutcome::Over) | Err(_) => 0,
        };
        step.map(|step| !matches!(step, CopyOutcome::Over))
    }

    /// Copies the next piece of the first file at or after the inode `from`.
    async fn copy_next(&self, from: Ino) -> std::result::Result<CopyOutcome, FsError> {
        if self.is_base_stuck() {
            // A piece would block the writer until the base responds.
            return Err(FsError::TryLater);
        }
        let core = self.core.clone();
        let bytes = core.copy_up.piece_bytes;
        let durable = core.copies.is_sync_due(bytes);
        let job = move |txn: &mut dyn WriteTxn| {
            let done = reject_if_refused(|| step(&core, txn, from));
            let value = done.unwrap_or(Err(FsError::TryLater.into()));
            let keep = matches!(value, Ok(CopyOutcome::Copied(_)));
            // The full size was charged when the copy-up began; a piece can only lower it.
            let growth = if keep { txn.growth() } else { UsageDelta::default() };
            let charge = core.quota.charge(growth, None).unwrap_or_default();
            OpResult {
                value,
                commit: keep,
                after_commit: Some(Box::new(move || QuotaReservation::commit(charge))),
            }
        };
        let held = PIECE_OVERHEAD_BYTES + usize::try_from(bytes).unwrap_or(usize::MAX);
        let done = self.worker.write(Cost::Offload, held, durable, job).await;
        let step = done.map_err(|error| from_work(&error))?;
        step.value.map_err(OpError::into_fs)
    }

    /// Copies pieces from the inode `from` on, for about `most`. The position is the caller's,
    /// independent of the background's. At the end of a round all copied content is synced, so that
    /// the caller may then change the base.
    ///
    /// # Errors
    /// The session rejects the change. The error is already logged.
    pub async fn copy_for(
        &self,
        from: Ino,
        most: Duration,
    ) -> std::result::Result<CopyStep, FsError> {
        let begun = Instant::now();
        let (mut next, mut has_copied) = (Some(from), false);
        while let Some(from) = next {
            next = match self.copy_next(from).await? {
                CopyOutcome::Copied(next) => {
                    has_copied = true;
                    Some(next)
                }
                CopyOutcome::Skipped(next) => Some(next),
                CopyOutcome::Over => None,
            };
            if begun.elapsed() >= most {
                break;
            }
        }
        if next.is_none() {
            self.worker.sync().await.map_err(|error| from_work(&error))?;
        }
        Ok(CopyStep { next, has_copied, left: self.pending_copies().await? })
    }

    /// Content of large files that is not copied yet.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn pending_copies(&self) -> std::result::Result<PendingCopies, FsError> {
        let looked = self.worker.read(Cost::Inline, |txn| txn.pending_copies()).await;
        looked.map_err(|error| from_work(&error))?.map_err(|error| from_store(&error))
    }

    /// Copies all pending content and reports progress. Returns what cannot be copied because the
    /// base changed.
    ///
    /// # Errors
    /// The session rejects the change. The error is already logged.
    pub async fn finish_copies(
        &self,
        mut progress: impl FnMut(PendingCopies),
    ) -> std::result::Result<PendingCopies, FsError> {
        let mut turn = self.copy_for(Ino(0), COPY_PROGRESS_INTERVAL).await?;
        while let Some(next) = turn.next {
            progress(turn.left);
            turn = self.copy_for(next, COPY_PROGRESS_INTERVAL).await?;
        }
        Ok(turn.left)
    }
}

/// Copies the next piece of the first file at or after the inode `from`.
fn step(core: &Core, txn: &mut dyn WriteTxn, from: Ino) -> Result<CopyOutcome> {
    let Some(ino) = txn.pending_copy(from)? else { return Ok(CopyOutcome::Over) };
    let outcome = match txn.inode(ino)? {
        Some(row) => copy_piece(core, txn, row),
        // Another program deleted the file.
        None => txn.put_copy_up(ino, None).map(|()| true).map_err(OpError::from),
    };
    match outcome {
        Ok(done) => Ok(CopyOutcome::Copied(Ino(ino.0 + u64::from(done)))),
        Err(OpError::Lost) => Ok(CopyOutcome::Skipped(Ino(ino.0 + 1))),
        Err(error) => Err(error),
    }
}

/// Copies the next piece of a file; returns whether that was the last one.
pub(super) fn copy_piece(core: &Core, txn: &mut dyn WriteTxn, row: InodeRow) -> Result<bool> {
    txn.put_copied(Some(row.ino))?;
    let done = copy_chunks(core, txn, row);
    txn.put_copied(None)?;
    done
}

fn copy_chunks(core: &Core, txn: &mut dyn WriteTxn, mut row: InodeRow) -> Result<bool> {
    let Some(pending) = row.copy_up else { return Ok(true) };
    let before = row.clone();
    let chunk = txn.chunk_bytes();
    let all = pending.chunks(chunk);
    let piece = all.start..all.end.min(all.start + (core.copy_up.piece_bytes / chunk).max(1));
    let missing = missing_chunks(
        &View { txn, core, memo: &NoMemo, scope: &core.whole },
        row.ino,
        piece.clone(),
    )?;
    let mut next = piece.end;
    if !missing.is_empty() {
        for run in missing {
            next = next.max(copy_run(core, txn, &mut row, run, pending.end)?);
        }
        // A hole at the end may reach beyond the pending range.
        next = next.min(all.end);
        let view = View { txn, core, memo: &NoMemo, scope: &core.whole };
        // Skipped chunks are holes, if the base file is unchanged.
        check_origin(&view, &row)?;
        row.holes += count_missing_chunks(&view, row.ino, &(piece.start..next))?;
    }
    if row != before {
        txn.put_inode(&row)?;
    }
    let left = CopyUp { next: next.saturating_mul(chunk), ..pending };
    let done = next >= all.end;
    txn.put_copy_up(row.ino, (!done).then_some(left))?;
    Ok(done)
}

/// Copies the base's data in a run of missing chunks, up to byte `end`. Returns the next chunk that
/// may have data: beyond the run, if a hole extends past it.
fn copy_run(
    core: &Core,
    txn: &mut dyn WriteTxn,
    row: &mut InodeRow,
    run: std::ops::Range<u64>,
    end: u64,
) -> Result<u64> {
    let chunk = txn.chunk_bytes();
    let mut at = run.start;
    while at < run.end {
        let view = View { txn, core, memo: &NoMemo, scope: &core.whole };
        let Some((start, stop)) = next_origin_data(&view, row, at * chunk, end)? else {
            return Ok(end.div_ceil(chunk));
        };
        let data = (start / chunk).max(at)..stop.div_ceil(chunk).min(run.end);
        if data.start >= run.end {
            return Ok(data.start);
        }
        let bytes = data.start * chunk..data.end.saturating_mul(chunk).min(end);
        let mut buffer = vec![0; (bytes.end - bytes.start) as usize];
        read_origin(&view, row, bytes.start, &mut buffer)?;
        // `write_data` counts every missing chunk that it fills as a former hole.
        row.holes += data.end - data.start;
        txn.write_data(row, bytes.start, &buffer)?;
        at = data.end;
    }
    Ok(run.end)
}
