//! Every bound of the worker, in memory and in time.

use std::time::Duration;

/// Operations that may wait for the writer or run on it; further callers wait asynchronously.
pub const WRITE_QUEUE_OPS: usize = 1024;

/// Bytes that operations waiting for the writer may hold; further callers wait asynchronously.
pub const WRITE_QUEUE_BYTES: u32 = 64 << 20;

/// Operations in one commit.
pub const BATCH_OPS: usize = 256;

/// Bytes of operations in one commit (one operation may exceed it alone).
pub const BATCH_BYTES: u32 = 4 << 20;

/// Operations with which a batch begins that takes in what comes while it runs, though it needs no
/// sync.
pub const GROWING_BATCH_OPS: usize = 3;

/// Operations that may wait for a reader or run on one; further callers wait asynchronously.
pub const READ_QUEUE_OPS: usize = 1024;

/// Reader threads at most, whatever the options ask for.
pub const MAX_READERS: usize = 64;

/// Changes in a row that have to come alone before a caller makes its own at once again.
pub const SOLO_WRITES: u8 = 8;

/// Batches in which each operation can be undone by itself, after (and with) one that had to begin
/// anew to undo one.
pub const WARY_BATCHES: u8 = 8;

/// Bytes that a change on its caller's thread may hold: what is larger leaves the caller's thread
/// to others.
pub const INLINE_WRITE_BYTES: usize = 64 << 10;

/// Time after which a thread of the runtime that runs light work counts as held up, so that another
/// one is woken to poll in its place.
pub const HELD_UP: Duration = Duration::from_millis(10);

/// Time between two looks at the threads while light work comes and goes.
pub(super) const QUICK_LOOK: Duration = Duration::from_millis(5);

/// Time between two looks at the threads while only long work is under way.
pub(super) const SLOW_LOOK: Duration = Duration::from_millis(250);

/// Time without light work after which the threads are looked at less often, or not at all.
pub(super) const QUIET_TIME: Duration = Duration::from_millis(100);

/// The most that a gap between two looks counts for how long an operation takes: a process that
/// was stopped was not stuck.
pub(super) const MAX_LOOK_GAP: Duration = Duration::from_millis(500);

/// Time after which a thread of the worker that is at one operation counts as stuck.
pub const STUCK: Duration = Duration::from_secs(2);

/// Reader threads of one server that are stuck and were replaced.
pub const MAX_REPLACED_THREADS: usize = 32;

/// Those of one session: a quarter, so one hanging base cannot use all replacements.
pub const MAX_REPLACED_OF_SESSION: usize = MAX_REPLACED_THREADS / 4;

/// Time after which a commit is synced, if nobody asked for it before.
pub const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The bounds of one worker; the default is this module's constants.
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
