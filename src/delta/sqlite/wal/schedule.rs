//! [`Wal`]: decides when the WAL is checkpointed.
//!
//! acetate checkpoints itself, without `wal_autocheckpoint`: SQLite hides the failure of an
//! automatic checkpoint, and a failed fsync must not be missed (see writer.rs).

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks;

use crate::delta::{BackgroundThreads, Poison, Result};

use super::background::BackgroundTask;

use super::checkpointer::{DbPresync, WalCheckpointer, WalPresync, syncs_ahead};
use super::disk_reserve::DiskReserve;
use super::frames::{checkpoint, checkpoint_within, rewrite_frames};
use crate::delta::sqlite::file::connect::{self, companion_path};
use crate::delta::sqlite::file::disk::byte_len;
use crate::delta::sqlite::file::wal_progress::WalProgress;
use crate::wal_shim;

/// WAL length at which it is checkpointed, in bytes.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// A commit that adds at least this many bytes is large: a client writes content at full speed.
const LARGE_COMMIT_BYTES: u64 = 1 << 20;

/// WAL length for a checkpoint after a large commit, in bytes. Pages of content are not in the WAL
/// twice, so waiting longer saves no writes.
const EARLY_CHECKPOINT_BYTES: u64 = 4 << 20;

/// How much the WAL may grow until the next attempt, if readers kept it from restarting, in bytes.
const RETRY_BYTES: u64 = 8 << 20;

/// WAL length at which the writer waits for such readers, in bytes. Including the largest batch,
/// the WAL stays below 64 MiB.
const WAIT_FOR_READERS_BYTES: u64 = 40 << 20;

/// How long the writer waits for them. If a reader of another program takes longer, the WAL grows
/// on; the writer tries again at twice the length.
const READERS_WAIT: Duration = Duration::from_secs(2);

/// Length that the file keeps when the WAL restarts, in bytes: overwriting is cheaper than
/// extending.
const KEPT_BYTES: u64 = 20 << 20;

/// That length while commits are large or the WAL exceeds [`KEPT_BYTES`]: truncating and extending
/// the file each time would cost a tenth of the time.
const LONG_KEPT_BYTES: u64 = 64 << 20;

/// Time without a large commit or a long WAL after which the file is truncated.
const QUIET: Duration = Duration::from_secs(1);

/// Delay until the writer checks again whether a running checkpoint has ended, before truncating.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Length of the WAL's header, in bytes. The header changes each time that the WAL restarts.
const HEADER_BYTES: usize = 32;

/// Length of a frame's header, before its page, in bytes.
const FRAME_HEADER_BYTES: u64 = 24;

/// WAL length from which it is truncated to free space on an almost full disk, in bytes.
const ROOM_BYTES: u64 = 1 << 20;

/// How long that truncation waits for readers.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Delay until frames of an earlier process are rewritten again after a failure, unless a durable
/// commit needs it sooner.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The WAL of a session file.
pub struct Wal {
    session: PathBuf,
    path: PathBuf,
    /// Its length as of the last commit.
    progress: Arc<WalProgress>,
    /// Length after the last commit, in bytes.
    last: u64,
    /// How much of it is known to be synced, in bytes; `None` while it may hold unsynced frames of
    /// an earlier process.
    synced: Option<u64>,
    /// If it holds frames of an earlier process: when they are rewritten, unless a durable commit
    /// needs it sooner.
    inherited: Option<Instant>,
    /// WAL length at which the next checkpoint is due, in bytes.
    due_at: u64,
    /// When a commit was last large, or the WAL long; `None` once the file keeps [`KEPT_BYTES`]
    /// again.
    long_at: Option<Instant>,
    /// Whether a checkpoint ran since the last commit: the next commit may then restart the WAL and
    /// sync its header.
    starts_over: Cell<bool>,
    poison: Poison,
    /// The WAL's header after the last commit, if `wal_shim` does not see the commits.
    header: Option<[u8; HEADER_BYTES]>,
    /// When the WAL was opened.
    opened_at: Instant,
    /// Does most of the checkpointing.
    copying: BackgroundTask<WalCheckpointer>,
    /// They sync early while much is written, if [`syncs_ahead`] allows it.
    syncing: Option<(BackgroundTask<WalPresync>, BackgroundTask<DbPresync>)>,
}

impl Wal {
    /// The session file.
    pub fn session(&self) -> &Path {
        &self.session
    }

    /// The WAL of the session file `session`. A hook on the writer `conn` reports its length from
    /// now on, to `progress` too. `is_read` says that nothing will be written.
    pub fn of(
        session: &Path,
        conn: &mut Connection,
        is_read: bool,
        threads: &Arc<dyn BackgroundThreads>,
        poison: &Poison,
        progress: &Arc<WalProgress>,
    ) -> Result<Self> {
        keep(conn, KEPT_BYTES)?;
        let told = Arc::clone(progress.pages());
        conn.wal_hook(Some(move |_: &mut hooks::Wal, pages: i32| {
            told.store(pages.cast_unsigned(), Ordering::Relaxed);
            Ok(())
        }))?;
        progress.begin(FRAME_HEADER_BYTES + connect::page_bytes(conn)?);
        let path = companion_path(session, "-wal");
        let is_inherited = !is_read && byte_len(&path) > 0;
        let syncs = syncs_ahead(session);
        let copying = WalCheckpointer { progress: Arc::clone(progress), syncs };
        let copying = BackgroundTask::of(session, copying, threads, poison);
        let syncing = syncs.then(|| {
            let wal = WalPresync { wal: path.clone(), copying: copying.progress() };
            let database = DbPresync { copying: copying.progress() };
            (
                BackgroundTask::of(session, wal, threads, poison),
                BackgroundTask::of(session, database, threads, poison),
            )
        });
        Ok(Self {
            session: session.to_owned(),
            copying,
            syncing,
            path,
            progress: Arc::clone(progress),
            last: 0,
            synced: None,
            inherited: is_inherited.then(Instant::now),
            due_at: CHECKPOINT_BYTES,
            long_at: None,
            starts_over: Cell::new(false),
            poison: poison.clone(),
            header: None,
            opened_at: Instant::now(),
        })
    }

    /// Length of the frames in the WAL, in bytes.
    fn length(&self) -> u64 {
        self.progress.bytes()
    }

    /// Records the length of the WAL after a commit of this thread, and triggers a checkpoint in
    /// the background if it is long enough.
    pub fn note_length(&mut self, conn: &Connection) {
        let length = self.length();
        let mut before = std::mem::replace(&mut self.last, length);
        self.starts_over.set(false);
        if self.has_started_over(conn) || length < before {
            // The WAL's previous content is synced in the database.
            before = 0;
            self.due_at = CHECKPOINT_BYTES;
            self.synced = Some(0);
            self.progress.note_copied(0);
        }
        let is_large = length - before >= LARGE_COMMIT_BYTES;
        if is_large || length > KEPT_BYTES {
            let before = self.long_at.replace(Instant::now());
            if before.is_none() {
                // On failure the file is truncated, which only takes longer.
                let _ = keep(conn, LONG_KEPT_BYTES);
            }
        }
        let is_early = is_large && self.due_at == CHECKPOINT_BYTES;
        let due_at = if is_early { EARLY_CHECKPOINT_BYTES } else { self.due_at };
        if length >= due_at && !self.copying.is_done() {
            let keeps = self.long_at.is_some();
            self.copying.trigger(keeps);
            if is_large && let Some((wal, database)) = &self.syncing {
                wal.trigger_if_free(keeps);
                database.trigger_if_free(keeps);
            }
        }
    }

    /// Whether the last commit of this thread restarted the WAL.
    fn has_started_over(&mut self, conn: &Connection) -> bool {
        if wal_shim::sees_wal(conn) {
            return wal_shim::has_restarted();
        }
        let header = header(&self.path);
        let before = std::mem::replace(&mut self.header, header);
        header.is_none() || before != header
    }

    /// Whether the WAL holds, or may hold, frames of an earlier process.
    pub fn is_inherited(&self) -> bool {
        self.inherited.is_some()
    }

    /// Rewrites frames of an earlier process ([`rewrite_frames`]), if there are any.
    ///
    /// # Errors
    /// As [`rewrite_frames`]; the caller tries again.
    pub fn rewrite_inherited(&mut self, conn: &Connection) -> Result<()> {
        if self.inherited.is_some() {
            self.inherited = Some(Instant::now() + TRY_AGAIN);
            rewrite_frames(conn)?;
            self.inherited = None;
        }
        Ok(())
    }

    /// Records that the whole WAL is synced.
    pub fn note_sync(&mut self) {
        self.synced = Some(self.length());
    }

    /// Upper bound of the unsynced part of the WAL, in bytes.
    pub fn unsynced_bytes(&self) -> u64 {
        self.synced.map_or(u64::MAX, |synced| self.length().saturating_sub(synced))
    }

    /// When the writer next has work here, assuming no further commit.
    pub fn maintenance_at(&self) -> Option<Instant> {
        if self.is_due() {
            return Some(self.opened_at);
        }
        let quiet_at = self.long_at.map(|at| at + QUIET);
        // Waiting for a running checkpoint would block changes.
        let is_busy = self.copying.is_busy();
        let not_before = |at: Instant| at.max(Instant::now() + LOOK_AGAIN);
        let cut_at = quiet_at.map(|at| if is_busy { not_before(at) } else { at });
        self.inherited.into_iter().chain(cut_at).min()
    }

    /// Whether the writer itself has to checkpoint: the rest after the task has copied most, or
    /// everything if the task does not keep up.
    fn is_due(&self) -> bool {
        self.copying.is_done() || self.length() >= self.due_at.max(WAIT_FOR_READERS_BYTES)
    }

    /// Whether the next commit only appends to the WAL: it does not rewrite frames of an earlier
    /// process, restart the WAL or wait for a checkpoint.
    pub fn is_ready(&self) -> bool {
        self.inherited.is_none() && !self.starts_over.get() && !self.is_due()
    }

    /// Checkpoints if due. Returns whether it did; then everything is copied that readers allow.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub fn checkpoint_if_due(&mut self, conn: &Connection) -> Result<bool> {
        if !self.is_due() {
            return Ok(false);
        }
        self.copying.wait();
        self.copying.acknowledge();
        self.poison.check()?;
        let length = self.length();
        if length < WAIT_FOR_READERS_BYTES {
            // If a reader keeps the WAL from restarting, try again later.
            self.due_at = (length + RETRY_BYTES).min(WAIT_FOR_READERS_BYTES);
            self.note_checkpoint(checkpoint(conn, "PASSIVE"))?;
        } else {
            self.due_at = 2 * length;
            self.note_checkpoint(checkpoint_within(conn, READERS_WAIT, "RESTART"))?;
        }
        Ok(true)
    }

    /// Returns whether the next commit truncates the file, and lowers the length that SQLite keeps.
    /// That is so if the file is long, and for a while no commit was large and the WAL not long.
    /// `is_copied` says that the whole WAL was just copied, so that it will restart; otherwise this
    /// triggers the task.
    pub fn prepare_cut(&mut self, conn: &Connection, is_copied: bool) -> Result<bool> {
        let is_quiet = self.long_at.is_some_and(|at| at.elapsed() >= QUIET);
        if !is_quiet || self.copying.is_busy() {
            return Ok(false);
        }
        let is_long = byte_len(&self.path) > KEPT_BYTES;
        if is_long && !is_copied {
            self.copying.trigger(false);
            return Ok(false);
        }
        self.long_at = None;
        self.copying.disconnect();
        if let Some((_, database)) = &self.syncing {
            database.disconnect();
        }
        keep(conn, KEPT_BYTES)?;
        Ok(is_long)
    }

    /// Blocks until the background checkpoint has ended.
    pub fn wait(&self) {
        self.copying.wait();
    }

    /// Ends the background tasks and closes their connections, before the last checkpoint.
    pub fn stop(&self) {
        self.copying.stop();
        if let Some((wal, database)) = &self.syncing {
            wal.stop();
            database.stop();
        }
    }

    /// Checkpoints and truncates the WAL if the disk is so full that its length matters; call
    /// before a batch.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub fn make_room(&self, conn: &Connection, room: &mut DiskReserve) -> Result<()> {
        if !self.wants_room(conn, room)? {
            return Ok(());
        }
        room.forget();
        self.copying.wait();
        self.note_checkpoint(checkpoint_within(conn, ROOM_WAIT, "TRUNCATE"))
    }

    /// Whether [`Wal::make_room`] has work.
    pub fn wants_room(&self, conn: &Connection, room: &mut DiskReserve) -> Result<bool> {
        Ok(room.is_low(conn)? && byte_len(&self.path) >= ROOM_BYTES)
    }

    /// Checkpoints as much as possible without waiting for readers.
    ///
    /// # Errors
    /// As [`checkpoint`].
    pub fn checkpoint_now(&self, conn: &Connection) -> Result<()> {
        self.copying.wait();
        self.note_checkpoint(checkpoint(conn, "PASSIVE"))
    }

    /// Records a checkpoint: unless a commit came in between, the next commit may restart the WAL.
    fn note_checkpoint(&self, copied: Result<u32>) -> Result<()> {
        self.starts_over.set(true);
        copied.map(|pages| self.progress.note_copied(pages))
    }
}

/// The WAL's header, which gets new salts each time that the WAL restarts; `None` if it cannot be
/// read. SQLite holds no POSIX lock on this file, so closing it releases none.
fn header(path: &Path) -> Option<[u8; HEADER_BYTES]> {
    let mut header = [0; HEADER_BYTES];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    Some(header)
}

/// Sets the length that the file keeps when the WAL restarts, in bytes.
fn keep(conn: &Connection, bytes: u64) -> Result<()> {
    Ok(conn.pragma_update(None, "journal_size_limit", bytes.cast_signed())?)
}
