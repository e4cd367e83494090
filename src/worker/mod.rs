//! Runs blocking work on a session for async callers.
//!
//! All sessions of a server share the threads of a [`WorkerPool`], in slices. A write slice takes
//! operations from a queue that is bounded in operations and bytes. It commits all waiting
//! operations as one batch (group commit), and rolls back single ones if they ask for it. A read
//! slice runs one read, over a snapshot connection. A reply leaves only after the commit that
//! contains its change.
//!
//! Waking a thread and being woken by it takes longer than most operations. So an inline operation
//! ([`Cost::Inline`]) runs on its caller's thread if [`ThreadWatch`] has a permit; a change also
//! needs that no other change waits. It never waits there for a lock of SQLite, and for an fsync
//! only while fsyncs take less than a millisecond; a slow base or disk may still block it.
//!
//! A caller may continue on the thread that answers it, as long as it does not block
//! (docs/decisions/0037-run-queues.md). It must query the session and the base elsewhere.
//!
//! This module knows the store only as `delta`'s traits, and does not interpret operations.
//!
//! | File | Purpose |
//! |---|---|
//! | `queue` | bounded queue from async callers to the pool's threads |
//! | `job` | a caller's closure and its reply channel |
//! | `batch` | the operations of one commit |
//! | `commit_engine` | batches, commits, syncs, and fatal errors |
//! | `pool` | the threads, and the queue of slices |
//! | `slices` | what a session does in a slice, and its end |
//! | `activity` | how long the writer has been in one operation |
//! | `executor` | light operations on callers' threads, or not |
//! | `readers` | connections for reads |
//! | `thread_watch` | permits for inline work; detects held-up and stuck threads |
//! | `background` | schedule of background work |
//! | `commits` | the order of commits, for caches |
//! | `limits` | every bound |

mod activity;
mod background;
mod batch;
mod commit_engine;
mod commits;
mod error;
mod executor;
mod job;
mod limits;
mod pool;
mod queue;
mod readers;
mod slices;
mod thread_watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use tokio::sync::{oneshot, watch};

use crate::delta::{Compacted, ReadTxn, Store, StoreError, StoreErrorKind, UsageDelta, WriteTxn};
use crate::request_id;
use crate::run_queue;
use crate::vfs::WriteVerifier;

pub use background::{Background, BackgroundPiece, QuietGap};
pub use commits::{CommitSequence, Version};
pub use error::WorkError;
pub use limits::{
    BATCH_BYTES, BATCH_OPS, HELD, HELD_UP, INLINE_WRITE_BYTES, Limits, MAX_BACKGROUND_RUNS,
    MAX_READERS, MAX_REPLACED_OF_SESSION, MAX_REPLACED_THREADS, MIN_OPS_TO_ADMIT, QUICK_SYNC,
    QUICK_SYNC_BYTES, READ_QUEUE_OPS, SOLO_WRITES, STUCK, SYNC_INTERVAL, WRITE_QUEUE_BYTES,
    WRITE_QUEUE_OPS,
};
pub use pool::WorkerPool;
pub use thread_watch::ThreadWatch;

use activity::Activity;
use commit_engine::CommitEngine;
use executor::{Executor, Inline, Queue};
use job::{Job, QueuedRead, ReadJob, WriteJob};
use pool::SliceKind;
use queue::{BatchSize, Closed, JobQueue};
use readers::Readers;
use thread_watch::{Moment, WatchedWorker};

/// Options of a [`Worker`].
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Syncs every batch before it is answered (`--durability strict`).
    pub strict: bool,
    /// The number of reads that may run on the pool's threads at once: 1 to [`MAX_READERS`].
    pub readers: usize,
    /// The number of callers that may read on their own threads at once, if [`ThreadWatch`]
    /// permits; one more may write. With 0, all operations run on the worker's threads.
    pub callers: usize,
}

/// How long an operation occupies its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Microseconds if its data is in memory: it may run on its caller's thread.
    Inline,
    /// Longer, or unknown.
    Offload,
}

/// The result of a change.
pub struct OpResult<T> {
    /// The value for the caller.
    pub value: T,
    /// Whether to commit the changes; otherwise they are rolled back.
    pub commit: bool,
    /// Invalidates caches. Runs on the thread that made the change, after the commit and before the
    /// reply. Without a commit it is dropped before the next operation runs, except for operations
    /// of its own batch.
    pub after_commit: Option<Box<dyn FnOnce() + Send>>,
}

/// A committed result.
#[derive(Debug, Clone, Copy)]
pub struct Committed<T> {
    /// The operation's return value.
    pub value: T,
    /// Whether the commit was synced.
    pub durable: bool,
    /// The write verifier at that commit.
    pub verifier: WriteVerifier,
}

/// Runs blocking work on a session; shared by all connections.
///
/// Dropping it ends the session like [`Worker::shut_down`], without waiting: if the process ends
/// first, the session is left as by a killed server.
pub struct Worker {
    shared: Arc<WorkerShared>,
    /// Running reads hold references too. The last reference releases the session's lock.
    _store: Arc<dyn Store>,
}

/// State that callers and the pool's threads share.
struct WorkerShared {
    writes: JobQueue<Job>,
    reads: JobQueue<Box<dyn QueuedRead>>,
    engine: Mutex<CommitEngine>,
    /// Set while a thread of the pool waits for `engine`; callers then do not take it.
    thread_waits: AtomicBool,
    /// Whether every commit is synced.
    strict: bool,
    limits: Limits,
    readers: Readers,
    /// How many stuck reads have another one in their place.
    replaced: parking_lot::Mutex<usize>,
    /// Whether all reads that may run at once, including replacements, are stuck.
    are_reads_stuck: AtomicBool,
    executor: Box<dyn Executor>,
    writer_activity: Activity,
    /// When the pool next calls [`pool::PooledSession::tick`].
    timer: parking_lot::Mutex<Option<Instant>>,
    pool: Arc<WorkerPool>,
    watch: Arc<ThreadWatch>,
    status: Arc<WorkerStatus>,
    /// The outcome of the session, once all its connections are closed.
    ended: watch::Sender<Option<Result<(), WorkError>>>,
}

/// The state of the session that is readable without a lock.
struct WorkerStatus {
    epoch: AtomicU64,
    read_only: AtomicBool,
    commits: Arc<CommitSequence>,
}

impl Worker {
    /// Like [`Worker::start_in`], in a pool of its own.
    #[cfg(feature = "internals")]
    pub fn start(store: Arc<dyn Store>, options: WorkerOptions) -> Result<Self, StoreError> {
        Self::start_with(store, options, Limits::default())
    }

    /// Like [`Worker::start`], with the given bounds.
    #[cfg(feature = "internals")]
    pub fn start_with(
        store: Arc<dyn Store>,
        options: WorkerOptions,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        let watch = ThreadWatch::new(options.callers + 1, None);
        let pool = WorkerPool::new(1 + options.readers.clamp(1, MAX_READERS), watch);
        Self::start_in(&pool, store, options, limits)
    }

    /// Opens the writer. Further connections are opened when they are needed.
    ///
    /// If the store has no writer ([`StoreError::read_only`]), reads work and all other calls fail
    /// with [`WorkError::ReadOnly`].
    ///
    /// # Errors
    /// The store cannot be opened, or there is no thread. No connection is open then.
    pub fn start_in(
        pool: &Arc<WorkerPool>,
        store: Arc<dyn Store>,
        options: WorkerOptions,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        // First: nothing may fail once the writer is open, because its end writes to the file.
        pool.ensure_thread()?;
        let writer = match store.writer() {
            Ok(mut writer) => {
                // No change needs what opening the session has read.
                writer.rest();
                Some(writer)
            }
            Err(error) if error.kind == StoreErrorKind::ReadOnly => None,
            Err(error) => return Err(error),
        };
        let status = Arc::new(WorkerStatus {
            epoch: AtomicU64::new(store.epoch()),
            read_only: AtomicBool::new(writer.is_none()),
            commits: Arc::default(),
        });
        let watch = Arc::clone(pool.watch());
        let executor: Box<dyn Executor> = match options.callers {
            0 => Box::new(Queue),
            _ => Box::new(Inline::new(Arc::clone(&watch))),
        };
        let engine = CommitEngine::new(writer, Arc::clone(&status), limits, options.strict);
        let readers = options.readers.clamp(1, MAX_READERS);
        let writes = BatchSize { ops: limits.write_queue_ops, bytes: limits.write_queue_bytes };
        let reads = BatchSize { ops: limits.read_queue_ops, bytes: 0 };
        let is_due = engine.due_earlier().is_some();
        let shared = Arc::new(WorkerShared {
            writes: JobQueue::new(writes, 1),
            reads: JobQueue::new(reads, readers),
            engine: Mutex::new(engine),
            thread_waits: AtomicBool::new(false),
            strict: options.strict,
            limits,
            readers: Readers::new(&store, readers, options.callers),
            replaced: parking_lot::Mutex::default(),
            are_reads_stuck: AtomicBool::new(false),
            executor,
            writer_activity: Activity::default(),
            timer: parking_lot::Mutex::default(),
            pool: Arc::clone(pool),
            watch,
            status,
            ended: watch::Sender::new(None),
        });
        let watched: Weak<WorkerShared> = Arc::downgrade(&shared);
        shared.watch.add(watched);
        if is_due {
            shared.wake_writer();
        }
        Ok(Self { shared, _store: store })
    }

    /// Runs `f` on a snapshot taken when it starts. The snapshot contains every write that was
    /// answered before the call.
    ///
    /// With [`Cost::Inline`], `f` may run twice: again on a thread of the pool if the first run met
    /// a lock. If the future is dropped, `f` runs to its end or not at all.
    pub async fn read<T: Send + 'static>(
        &self,
        cost: Cost,
        f: impl FnMut(&dyn ReadTxn) -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let mut read = ReadJob::new(f);
        if cost == Cost::Inline {
            run_queue::leave_thread().await;
            if self.shared.executor.read(&self.shared.readers, &mut read) {
                return read.outcome(Ok(()));
            }
        }
        if self.shared.are_reads_stuck() {
            return Err(WorkError::Stuck);
        }
        let (reply, answer) = oneshot::channel();
        let needs = self.shared.reads.push(0, Box::new((read, reply))).await?;
        self.shared.schedule(SliceKind::Read, needs);
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Runs `f` as a change, and returns once its batch is committed; with `durable` or in strict
    /// mode, once the commit is synced.
    ///
    /// `bytes` is the operation's memory, which counts against the queue's bound. `f` may run
    /// twice, if its batch restarts to roll back one of its operations. If the future is dropped,
    /// `f` is run and committed, or does not run at all.
    pub async fn write<T: Send + 'static>(
        &self,
        cost: Cost,
        bytes: usize,
        durable: bool,
        f: impl FnMut(&mut dyn WriteTxn) -> OpResult<T> + Send + 'static,
    ) -> Result<Committed<T>, WorkError> {
        self.check_writable()?;
        let mut write = WriteJob::new(f);
        let is_light = cost == Cost::Inline && bytes <= INLINE_WRITE_BYTES;
        if is_light {
            run_queue::leave_thread().await;
            let is_synced = durable || self.shared.strict;
            let outcome = self.shared.executor.write(&self.shared, &mut write, is_synced);
            if let Some(outcome) = outcome {
                return write.outcome(outcome);
            }
        }
        let (reply, answer) = oneshot::channel();
        let operation = Box::new((write, reply));
        self.push(bytes, Job::Write { durable, operation }).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Returns the write verifier once all earlier commits are synced. Concurrent callers share one
    /// sync.
    pub async fn sync(&self) -> Result<WriteVerifier, WorkError> {
        self.check_writable()?;
        run_queue::leave_thread().await;
        if let Some(outcome) = self.shared.executor.sync(&self.shared) {
            return outcome;
        }
        let (reply, answer) = oneshot::channel();
        self.push(0, Job::Sync(reply)).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Returns the space of deleted rows to the filesystem. Runs as one change among the others.
    pub async fn compact(&self) -> Result<Compacted, WorkError> {
        self.check_writable()?;
        let (reply, answer) = oneshot::channel();
        self.push(0, Job::Compact(reply)).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Counts the session's usage, and from then on tracks how each change affects it
    /// ([`WriteTxn::growth`]). `counted` receives the sum before the next change runs.
    pub async fn count_usage(
        &self,
        counted: impl FnOnce(UsageDelta) + Send + 'static,
    ) -> Result<(), WorkError> {
        self.check_writable()?;
        let (reply, answer) = oneshot::channel();
        self.push(0, Job::Count(Box::new(counted), reply)).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// The order of commits, for caches of data read from snapshots.
    pub fn commits(&self) -> Arc<CommitSequence> {
        Arc::clone(&self.shared.status.commits)
    }

    /// The current write verifier.
    pub fn verifier(&self) -> WriteVerifier {
        self.shared.status.verifier()
    }

    /// Refuses new work, finishes queued work, syncs, checkpoints the WAL and closes the session.
    ///
    /// Returns once all connections are closed; may be called repeatedly. The error says why the
    /// session was not closed cleanly.
    pub async fn shut_down(&self) -> Result<(), WorkError> {
        self.shared.close();
        let mut ended = self.shared.ended.subscribe();
        let outcome = ended.wait_for(Option::is_some).await;
        outcome.ok().and_then(|ended| (*ended).clone()).unwrap_or(Err(WorkError::Panicked))
    }

    /// Whether a connection for reads is open that no call uses.
    pub fn has_idle_connection(&self) -> bool {
        self.shared.readers.has_idle()
    }

    /// Closes the connections for reads and frees the writer's memory, as far as no call uses them:
    /// the next calls are slower. May block.
    pub fn rest(&self) {
        self.shared.readers.close_idle();
        if let Ok(mut engine) = self.shared.engine.try_lock() {
            engine.rest();
        }
    }

    /// Whether the writer has spent at least [`STUCK`] in one operation.
    pub fn is_writer_stuck(&self) -> bool {
        self.shared.writer_activity.is_stuck()
    }

    /// Whether no change is possible: the session has no writer, or a write failed for good.
    pub fn is_read_only(&self) -> bool {
        self.shared.status.read_only.load(Ordering::Acquire)
    }

    /// Whether the session was closed.
    pub fn has_ended(&self) -> bool {
        self.shared.ended.borrow().is_some()
    }

    /// Queues a job for the writer.
    async fn push(&self, bytes: usize, job: Job) -> Result<(), WorkError> {
        let needs = self.shared.writes.push(bytes, job).await?;
        self.shared.schedule(SliceKind::Write, needs);
        Ok(())
    }

    fn check_writable(&self) -> Result<(), WorkError> {
        match self.is_read_only() {
            false => Ok(()),
            true => Err(WorkError::ReadOnly),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl WorkerStatus {
    fn verifier(&self) -> WriteVerifier {
        WriteVerifier(self.epoch.load(Ordering::Acquire).to_be_bytes())
    }
}

impl WorkerShared {
    /// Locks the commit engine, for a thread of the pool.
    ///
    /// # Errors
    /// The store panicked while a caller wrote, so its state is unknown.
    fn engine(&self) -> Result<MutexGuard<'_, CommitEngine>, WorkError> {
        self.thread_waits.store(true, Ordering::Relaxed);
        let engine = self.engine.lock();
        self.thread_waits.store(false, Ordering::Relaxed);
        engine.map_err(|_| WorkError::Panicked)
    }

    /// Whether all reads that may run at once are stuck.
    fn are_reads_stuck(&self) -> bool {
        self.are_reads_stuck.load(Ordering::Relaxed)
    }
}

impl WatchedWorker for WorkerShared {
    fn look(&self, now: Moment) {
        if self.writer_activity.look(now) {
            request_id::within(self.writer_activity.request(), || {
                tracing::warn!("the writer has been in one operation for 2 s");
            });
        }
    }
}

impl From<Closed> for WorkError {
    fn from(_: Closed) -> Self {
        Self::ShuttingDown
    }
}
