//! Runs blocking work on a session for async callers.
//!
//! One writer thread takes operations from a queue that is bounded in operations and bytes. It
//! commits all waiting operations as one batch (group commit), and rolls back single ones if they
//! ask for it. Reader threads have snapshot connections of their own. A reply leaves only after the
//! commit that contains its change.
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
//! | `queue` | bounded queue from async callers to blocking threads |
//! | `job` | a caller's closure and its reply channel |
//! | `batch` | the operations of one commit |
//! | `commit_engine` | batches, commits, syncs, and fatal errors |
//! | `writer` | the writer thread |
//! | `executor` | light operations on callers' threads, or not |
//! | `readers` | reader threads, and replacements for stuck ones |
//! | `thread_watch` | permits for inline work; detects held-up and stuck threads |
//! | `background` | schedule of background work |
//! | `commits` | the order of commits, for caches |
//! | `limits` | every bound |

mod background;
mod batch;
mod commit_engine;
mod commits;
mod error;
mod executor;
mod job;
mod limits;
mod queue;
mod readers;
mod thread_watch;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;

use tokio::sync::{oneshot, watch};

use crate::delta::{Compacted, ReadTxn, Store, StoreError, StoreErrorKind, UsageDelta, WriteTxn};
use crate::request_id;
use crate::run_queue;
use crate::system_error::words;
use crate::vfs::WriteVerifier;

pub use background::{Background, BackgroundPiece, QuietGap};
pub use commits::{CommitSequence, Version};
pub use error::WorkError;
pub use limits::{
    BATCH_BYTES, BATCH_OPS, HELD_UP, INLINE_WRITE_BYTES, Limits, MAX_READERS,
    MAX_REPLACED_OF_SESSION, MAX_REPLACED_THREADS, MIN_OPS_TO_ADMIT, QUICK_SYNC, QUICK_SYNC_BYTES,
    READ_QUEUE_OPS, SOLO_WRITES, STUCK, SYNC_INTERVAL, WRITE_QUEUE_BYTES, WRITE_QUEUE_OPS,
};
pub use thread_watch::ThreadWatch;

use commit_engine::CommitEngine;
use executor::{Executor, Inline, Queue};
use job::{Job, QueuedRead, ReadJob, WriteJob};
use queue::{BatchSize, Closed, JobQueue};
use readers::{Activity, ReaderThreads};
use thread_watch::{Moment, WatchedWorker};

/// Options of a [`Worker`].
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Syncs every batch before it is answered (`--durability strict`).
    pub strict: bool,
    /// The number of reader threads, each with its own connection: 1 to [`MAX_READERS`].
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
/// Dropping it stops the threads like [`Worker::shut_down`], without waiting for them.
pub struct Worker {
    shared: Arc<WorkerShared>,
    /// Running reader threads hold references too. The last reference releases the session's lock.
    _store: Arc<dyn Store>,
    /// The result of the writer thread, once it has ended.
    ended: watch::Receiver<Option<Result<(), WorkError>>>,
}

/// State that callers and the worker's threads share.
struct WorkerShared {
    writes: JobQueue<Job>,
    reads: JobQueue<Box<dyn QueuedRead>>,
    engine: Mutex<CommitEngine>,
    /// Set while the writer thread waits for `engine`; callers then do not take it.
    thread_waits: AtomicBool,
    /// Whether every commit is synced.
    strict: bool,
    store: Weak<dyn Store>,
    readers: ReaderThreads,
    executor: Box<dyn Executor>,
    writer_activity: Activity,
    watch: Arc<ThreadWatch>,
    status: Arc<WorkerStatus>,
}

/// The state of the session that is readable without a lock.
struct WorkerStatus {
    epoch: AtomicU64,
    read_only: AtomicBool,
    commits: Arc<CommitSequence>,
}

impl Worker {
    /// Opens the connections and starts the threads.
    ///
    /// If the store has no writer ([`StoreError::read_only`]), reads work and all other calls fail
    /// with [`WorkError::ReadOnly`].
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
        Self::start_watched(store, options, limits, watch)
    }

    /// Like [`Worker::start_with`], with a watch that several sessions of a server share.
    pub fn start_watched(
        store: Arc<dyn Store>,
        options: WorkerOptions,
        limits: Limits,
        watch: Arc<ThreadWatch>,
    ) -> Result<Self, StoreError> {
        let writer = match store.writer() {
            Ok(writer) => Some(writer),
            Err(error) if error.kind == StoreErrorKind::ReadOnly => None,
            Err(error) => return Err(error),
        };
        let connections = (0..options.readers.clamp(1, MAX_READERS))
            .map(|_| store.reader())
            .collect::<Result<_, _>>()?;
        let status = Arc::new(WorkerStatus {
            epoch: AtomicU64::new(store.epoch()),
            read_only: AtomicBool::new(writer.is_none()),
            commits: Arc::default(),
        });
        let executor: Box<dyn Executor> = match options.callers {
            0 => Box::new(Queue),
            callers => Box::new(Inline::new(callers, Arc::clone(&watch))),
        };
        let strict = options.strict;
        let engine = CommitEngine::new(writer, Arc::clone(&status), limits, strict);
        let writes = BatchSize { ops: limits.write_queue_ops, bytes: limits.write_queue_bytes };
        let reads = BatchSize { ops: limits.read_queue_ops, bytes: 0 };
        let shared = Arc::new(WorkerShared {
            writes: JobQueue::new(writes),
            reads: JobQueue::new(reads),
            engine: Mutex::new(engine),
            thread_waits: AtomicBool::new(false),
            strict,
            store: Arc::downgrade(&store),
            readers: ReaderThreads::default(),
            executor,
            writer_activity: Activity::default(),
            watch,
            status,
        });
        let watched: Weak<WorkerShared> = Arc::downgrade(&shared);
        shared.watch.add(watched);
        let (ended_sender, ended) = watch::channel(None);
        // From here on an error drops the worker, which stops the threads started so far.
        let worker = Self { shared: Arc::clone(&shared), _store: store, ended };
        ReaderThreads::start(&shared, connections)?;
        thread::Builder::new()
            .name("acetate-write".to_owned())
            .spawn(move || ended_sender.send_replace(Some(writer::run(&shared, limits, strict))))
            .map_err(|error| {
                let text = format!("cannot start the writer thread: {}", words(&error));
                StoreError::io(text).with_source(error)
            })?;
        Ok(worker)
    }

    /// Runs `f` on a snapshot taken when it starts. The snapshot contains every write that was
    /// answered before the call.
    ///
    /// With [`Cost::Inline`], `f` may run twice: again on a reader thread if the first run met a
    /// lock. If the future is dropped, `f` runs to its end or not at all.
    pub async fn read<T: Send + 'static>(
        &self,
        cost: Cost,
        f: impl FnMut(&dyn ReadTxn) -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let mut read = ReadJob::new(f);
        if cost == Cost::Inline {
            run_queue::leave_thread().await;
            if self.shared.executor.read(&mut read) {
                return read.outcome(Ok(()));
            }
        }
        if self.shared.readers.are_stuck() {
            return Err(WorkError::Stuck);
        }
        let (reply, answer) = oneshot::channel();
        self.shared.reads.push(0, Box::new((read, reply))).await?;
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
        self.shared.writes.push(bytes, Job::Write { durable, operation }).await?;
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
        self.shared.writes.push(0, Job::Sync(reply)).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Returns the space of deleted rows to the filesystem. Runs as one change among the others.
    pub async fn compact(&self) -> Result<Compacted, WorkError> {
        self.check_writable()?;
        let (reply, answer) = oneshot::channel();
        self.shared.writes.push(0, Job::Compact(reply)).await?;
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
        self.shared.writes.push(0, Job::Count(Box::new(counted), reply)).await?;
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
        let mut ended = self.ended.clone();
        let outcome = ended.wait_for(Option::is_some).await;
        // A writer thread that ended without a result panicked in the store.
        outcome.ok().and_then(|ended| (*ended).clone()).unwrap_or(Err(WorkError::Panicked))
    }

    /// Whether the writer has spent at least [`STUCK`] in one operation.
    pub fn is_writer_stuck(&self) -> bool {
        self.shared.writer_activity.is_stuck()
    }

    /// Whether no change is possible: the session has no writer, or a write failed for good.
    pub fn is_read_only(&self) -> bool {
        self.shared.status.read_only.load(Ordering::Acquire)
    }

    /// Whether the writer thread has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some() || self.ended.has_changed().is_err()
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
    /// Locks the commit engine, for the writer thread.
    ///
    /// # Errors
    /// The store panicked while a caller wrote, so its state is unknown.
    fn engine(&self) -> Result<MutexGuard<'_, CommitEngine>, WorkError> {
        self.thread_waits.store(true, Ordering::Relaxed);
        let engine = self.engine.lock();
        self.thread_waits.store(false, Ordering::Relaxed);
        engine.map_err(|_| WorkError::Panicked)
    }

    /// Records that the writer finished its operation.
    fn end_writing(&self) {
        if self.writer_activity.end() {
            self.writer_activity.recover();
        }
    }

    fn close(&self) {
        self.writes.close();
        self.reads.close();
    }
}

impl WatchedWorker for WorkerShared {
    fn look(self: Arc<Self>, now: Moment) -> bool {
        if self.writer_activity.look(now) {
            request_id::within(self.writer_activity.request(), || {
                tracing::warn!("the writer has been in one operation for 2 s");
            });
        }
        self.readers.look(&self, now) | self.writer_activity.is_busy()
    }
}

impl From<Closed> for WorkError {
    fn from(_: Closed) -> Self {
        Self::ShuttingDown
    }
}
