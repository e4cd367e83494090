//! Every bound of the worker, in memory and in time.

use std::time::Duration;

/// Operations that wait for the writer or run there; further callers wait asynchronously.
pub const WRITE_QUEUE_OPS: usize = 1024;

/// Bytes of operations that wait for the writer; further callers wait asynchronously.
pub const WRITE_QUEUE_BYTES: u32 = 64 << 20;

/// Operations in one commit.
pub const BATCH_OPS: usize = 256;

/// Bytes of operations in one commit; a single larger operation is committed alone.
pub const BATCH_BYTES: u32 = 4 << 20;

/// Initial jobs that an unsynced batch needs to admit further jobs while it runs.
pub const MIN_OPS_TO_ADMIT: usize = 3;

/// Operations that wait for a reader or run there; further callers wait asynchronously.
pub const READ_QUEUE_OPS: usize = 1024;

/// Upper bound of the reads of one session that run at once on the pool's threads.
pub const MAX_READERS: usize = 64;

/// Single changes in a row before callers write on their own threads again.
pub const SOLO_WRITES: u8 = 8;

/// Batches that run with savepoints, starting with one that restarted to roll an operation back.
pub const SAVEPOINT_BATCHES: u8 = 8;

/// Memory of a change that may run on its caller's thread, in bytes: 64 KiB of data, and what else
/// a change takes. Larger ones take too long there.
pub const INLINE_WRITE_BYTES: usize = 65 << 10;

/// Duration of the last fsync up to which the next one may run on its caller's thread.
pub const QUICK_SYNC: Duration = Duration::from_millis(1);

/// Unsynced bytes up to which an fsync may run on its caller's thread.
pub const QUICK_SYNC_BYTES: u64 = 256 << 10;

/// Time after which a thread of the runtime counts as held up by inline work, so that another
/// thread is woken to poll.
pub const HELD_UP: Duration = Duration::from_millis(10);

/// Interval of checks while inline work starts and ends.
pub(super) const QUICK_CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Interval of checks while a thread of the pool works and is not held up yet.
pub(super) const STEADY_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Interval of checks while only long operations are in progress.
pub(super) const SLOW_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Time without inline work before checks become slower or stop.
pub(super) const QUIET_TIME: Duration = Duration::from_millis(100);

/// Upper bound of what a gap between two checks adds to an operation's time: a process that was
/// stopped was not stuck.
pub(super) const MAX_LOOK_GAP: Duration = Duration::from_millis(500);

/// Time in one operation after which a thread of the pool is held up: another one is started in its
/// place, if there is work for it.
pub const HELD: Duration = Duration::from_millis(100);

/// Time in one operation after which a slice of a session counts as stuck: the session may run
/// another read in its place.
pub const STUCK: Duration = Duration::from_secs(2);

/// Threads of one server beyond the pool's, in place of those that are held up; and stuck reads
/// that may be replaced at once.
pub const MAX_REPLACED_THREADS: usize = 32;

/// WAL checkpoints and early syncs that run at once in one server, and at most half of the pool's
/// threads.
pub const MAX_BACKGROUND_RUNS: usize = 3;

/// Replaced reads of one session: a quarter, so one hanging base cannot use all replacements.
pub const MAX_REPLACED_OF_SESSION: usize = MAX_REPLACED_THREADS / 4;

/// Time after which a commit is synced unless a caller requested it earlier.
pub const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The bounds of one worker; the default has this module's constants.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// See [`WRITE_QUEUE_OPS`].
    pub write_queue_ops: usize,
    /// See [`WRITE_QUEUE_BYTES`].
    pub write_queue_bytes: u32,
    /// See [`BATCH_OPS`].
    pub batch_ops: usize,
    /// See [`BATCH_BYTES`].
    pub batch_bytes: u32,
    /// See [`READ_QUEUE_OPS`].
    pub read_queue_ops: usize,
    /// See [`SYNC_INTERVAL`].
    pub sync_interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            write_queue_ops: WRITE_QUEUE_OPS,
            write_queue_bytes: WRITE_QUEUE_BYTES,
            batch_ops: BATCH_OPS,
            batch_bytes: BATCH_BYTES,
            read_queue_ops: READ_QUEUE_OPS,
            sync_interval: SYNC_INTERVAL,
        }
    }
}
