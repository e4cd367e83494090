//! Finishes copy-ups in the background: piece by piece, between the changes that clients make.
//!
//! A piece is an operation of the writer like any other, but without a row in the audit log: the
//! change that began the copy-up has one. What is pending is in the session, so that whatever
//! ends the process, the next one goes on.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::delta::{CopyUp, Ino, InodeRow, PendingCopies, UsageDelta, WriteTxn};
use crate::vfs::FsError;
use crate::worker::{Background, BackgroundPiece, Cost, OpResult};

use super::error::{OpError, Result, from_store, from_work};
use super::hanging::unless_refused;
use super::limits::{COPY_PROGRESS_INTERVAL, COPY_SYNC_BYTES, MAX_LOST_NOTED};
use super::quota::QuotaReservation;
use super::resolve::View;
use super::{Core, Overlay};

/// What a piece weighs in the writer's queue besides its data, in bytes.
const PIECE_OVERHEAD_BYTES: usize = 512;

/// The background's memory between pieces.
#[derive(Default)]
pub(super) struct Copies {
    pub background: Background,
    /// Whether there may be nothing to copy: then the writer is left alone.
    is_idle: AtomicBool,
    state: Mutex<FinishState>,
}

#[derive(Default)]
struct FinishState {
    /// The first inode that this round has not done with yet.
    at: u64,
    /// Bytes since the last piece that was synced, at most.
    unsynced_bytes: u64,
    /// Files whose rest is lost and in the log; further ones are logged each time.
    lost: HashSet<Ino>,
}

/// How far a while of copying came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyStep {
    /// The inode to go on with; none where the round is over.
    pub next: Option<Ino>,
    /// Whether there was anything that could be copied.
    pub has_copied: bool,
    /// What is still the base's.
    pub left: PendingCopies,
}

/// What a step came to.
enum CopyOutcome {
    /// A piece is copied; the round goes on with this inode.
    Copied(Ino),
    /// A file was passed over; the same.
    Skipped(Ino),
    /// The round is over.
    Over,
}

impl Copies {
    fn state(&self) -> MutexGuard<'_, FinishState> {
        self.state.lock()
    }

    /// Says that there is more to copy; the background has to be woken.
    pub fn begin(&self) {
        self.is_idle.store(false, Ordering::Relaxed);
    }

    /// Whether nobody was told yet that the rest of this file is lost.
    pub fn is_news(&self, ino: Ino) -> bool {
        let mut state = self.state();
        if state.lost.len() < MAX_LOST_NOTED { state.lost.insert(ino) } else { true }
    }

    /// Whether the next piece, of at most `bytes`, is to be synced: so no COMMIT waits for more.
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
    /// Copies what is pending, and keeps the originals of what was removed, whenever there is
    /// anything; never returns but when the session takes no more changes.
    pub async fn copy_in_background(&self) {
        loop {
            let kept = self.keep_removed_if_due().await;
            let copied = match self.core.copies.is_idle.swap(true, Ordering::Relaxed) {
                true => Ok(false),
                false => self.copy_piece().await,
            };
            if copied != Ok(false) {
                self.core.copies.begin();
            }
            let piece = match copied {
                Ok(true) => BackgroundPiece::More,
                Ok(false) => kept,
                Err(FsError::ReadOnly) => BackgroundPiece::Over,
                Err(_) => BackgroundPiece::Failed,
            };
            if !self.core.copies.background.next_after(piece).await {
                return;
            }
        }
    }

    /// Copies one piece; `false` where nothing is left that can be copied.
    ///
    /// # Errors
    /// The session does not take it; it is in the log.
    pub async fn copy_piece(&self) -> std::result::Result<bool, FsError> {
        let from = Ino(self.core.copies.state().at);
        let step = self.copy_next(from).await;
        self.core.copies.state().at = match step {
            Ok(CopyOutcome::Copied(next) | CopyOutcome::Skipped(next)) => next.0,
            Ok(CopyOutcome::Over) | Err(_) => 0,
        };
        step.map(|step| !matches!(step, CopyOutcome::Over))
    }

    /// Copies the next piece of the first file from the inode `from` on.
    async fn copy_next(&self, from: Ino) -> std::result::Result<CopyOutcome, FsError> {
        if self.is_base_stuck() {
            // Otherwise the writer would block next.
            return Err(FsError::TryLater);
        }
        let core = self.core.clone();
        let bytes = core.copy_up.piece_bytes;
        let durable = core.copies.is_sync_due(bytes);
        let job = move |txn: &mut dyn WriteTxn| {
            let done = unless_refused(|| step(&core, txn, from));
            let value = done.unwrap_or(Err(FsError::TryLater.into()));
            let keep = matches!(value, Ok(CopyOutcome::Copied(_)));
            // All of it was charged when the copy began: it can only turn out to be less.
            let growth = if keep { txn.growth() } else { UsageDelta::default() };
            let charge = core.ledger.charge(growth, None).unwrap_or_default();
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

    /// Copies for about as long as `most`, from the inode `from` on. It has its own place in the
    /// round, which the background, at work meanwhile, does not move. Where the round is over,
    /// all that was copied is synced: the base may change then.
    ///
    /// # Errors
    /// The session does not take it; it is in the log.
    pub async fn copy_turn(
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

    /// How much content is still the base's.
    ///
    /// # Errors
    /// The session cannot be read.
    pub async fn pending_copies(&self) -> std::result::Result<PendingCopies, FsError> {
        let looked = self.worker.read(Cost::Inline, |txn| txn.pending_copies()).await;
        looked.map_err(|error| from_work(&error))?.map_err(|error| from_store(&error))
    }

    /// Copies all that is pending, saying now and then how much is left; returns what cannot be
    /// copied because the base changed.
    ///
    /// # Errors
    /// The session does not take it; it is in the log.
    pub async fn finish_copies(
        &self,
        mut progress: impl FnMut(PendingCopies),
    ) -> std::result::Result<PendingCopies, FsError> {
        let mut turn = self.copy_turn(Ino(0), COPY_PROGRESS_INTERVAL).await?;
        while let Some(next) = turn.next {
            progress(turn.left);
            turn = self.copy_turn(next, COPY_PROGRESS_INTERVAL).await?;
        }
        Ok(turn.left)
    }
}

/// Copies the next piece of the first file from the inode `from` on.
fn step(core: &Core, txn: &mut dyn WriteTxn, from: Ino) -> Result<CopyOutcome> {
    let Some(ino) = txn.pending_copy(from)? else { return Ok(CopyOutcome::Over) };
    let outcome = match txn.inode(ino)? {
        Some(row) => copy_piece(core, txn, row),
        // Another program took the file away.
        None => txn.put_copy_up(ino, None).map(|()| true).map_err(OpError::from),
    };
    match outcome {
        Ok(done) => Ok(CopyOutcome::Copied(Ino(ino.0 + u64::from(done)))),
        Err(OpError::Lost) => Ok(CopyOutcome::Skipped(Ino(ino.0 + 1))),
        Err(error) => Err(error),
    }
}

/// Copies the next piece of a file; whether that was the last.
pub(super) fn copy_piece(core: &Core, txn: &mut dyn WriteTxn, mut row: InodeRow) -> Result<bool> {
    let Some(pending) = row.copy_up else { return Ok(true) };
    let before = row.clone();
    let chunk = txn.chunk_bytes();
    let all = pending.chunks(chunk);
    let piece = all.start..all.end.min(all.start + (core.copy_up.piece_bytes / chunk).max(1));
    let missing = View { txn, core, version: None, known: None, scope: &core.whole }
        .missing(row.ino, piece.clone())?;
    let mut next = piece.end;
    if !missing.is_empty() {
        for run in missing {
            next = next.max(copy_run(core, txn, &mut row, run, pending.end)?);
        }
        // Behind a last hole nothing is missing any more, however far it reaches.
        next = next.min(all.end);
        let view = View { txn, core, version: None, known: None, scope: &core.whole };
        // What is left out was a hole in the base, if the base is still the same.
        view.check_origin(&row)?;
        row.holes += view.count_missing(row.ino, &(piece.start..next))?;
    }
    if row != before {
        txn.put_inode(&row)?;
    }
    let left = CopyUp { next: next.saturating_mul(chunk), ..pending };
    let done = next >= all.end;
    txn.put_copy_up(row.ino, (!done).then_some(left))?;
    Ok(done)
}

/// Copies what the base has in a run of missing chunks, up to the byte `end`; returns the first
/// chunk that may hold more, which lies behind the run if a hole reaches beyond it.
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
        let view = View { txn, core, version: None, known: None, scope: &core.whole };
        let Some((start, stop)) = view.next_origin_data(row, at * chunk, end)? else {
            return Ok(end.div_ceil(chunk));
        };
        let data = (start / chunk).max(at)..stop.div_ceil(chunk).min(run.end);
        if data.start >= run.end {
            return Ok(data.start);
        }
        let bytes = data.start * chunk..data.end.saturating_mul(chunk).min(end);
        let mut buffer = vec![0; (bytes.end - bytes.start) as usize];
        view.read_origin(row, bytes.start, &mut buffer)?;
        // The store takes every missing chunk that it fills for a hole.
        row.holes += data.end - data.start;
        txn.write_data(row, bytes.start, &buffer)?;
        at = data.end;
    }
    Ok(run.end)
}
