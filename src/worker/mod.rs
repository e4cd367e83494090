//! The one seam between async and blocking code.
//!
//! One writer thread with a queue bounded in operations and bytes, as many operations per commit
//! as are waiting, and come meanwhile (group commit), each kept or undone by itself; reader
//! threads with their own snapshot connections. Answers leave only after the commit that holds
//! their change.
//!
//! To wake a thread and to be woken by it takes longer than most operations. So what is light
//! runs on its caller's thread, as long as few of a server's threads do so at a time
//! ([`ThreadWatch`]) and, for a change, while changes come one by one. It never waits there for
//! a lock of SQLite or a disk's sync, but a base or a disk may hold it up all the same.
//!
//! Whoever is answered is woken on the thread that answers, and may go on there as long as it
//! does not block (docs/decisions/0037-who-answers-goes-on.md): the session and the base are asked
//! elsewhere.
//!
//! This module knows the store only as `delta`'s traits, and nothing of what operations mean.
//!
//! | File | What |
//! |---|---|
//! | `queue` | holds callers back asynchronously, hands items to blocking threads |
//! | `job` | a caller's closure and the way back to it |
//! | `batch` | what one commit holds |
//! | `writing` | batches, commits, syncs, and what an error ends |
//! | `writer` | the thread that does it |
//! | `callers` | the same on callers' threads |
//! | `readers` | threads that read, and their replacements where they are stuck |
//! | `inline` | reading on callers' threads |
//! | `thread_watch` | how many callers' threads may work, and which threads are held up or stuck |
//! | `threads` | calls that go on on these threads, and what they leave to others |
//! | `background` | when work that nobody waits for is due |
//! | `commits` | the order of commits, for caches |
//! | `limits` | every bound |

mod background;
mod batch;
mod commit_engine;
mod commits;
mod error;
mod inline;
mod inline_writes;
mod job;
mod limits;
mod queue;
mod readers;
mod thread_watch;
mod threads;
mod writer;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;

use tokio::sync::{oneshot, watch};

use crate::delta::{Compacted, ReadTxn, Store, StoreError, UsageDelta, WriteTxn};
use crate::vfs::WriteVerifier;

pub use background::{Background, BackgroundPiece};
pub use commits::{Commits, Version};
pub use error::WorkError;
pub use limits::{
    BATCH_BYTES, BATCH_OPS, GROWING_BATCH_OPS, HELD_UP, INLINE_WRITE_BYTES, Limits, MAX_READERS,
    MAX_REPLACED_OF_SESSION, MAX_REPLACED_THREADS, READ_QUEUE_OPS, SOLO_WRITES, STUCK,
    SYNC_INTERVAL, WRITE_QUEUE_BYTES, WRITE_QUEUE_OPS,
};
pub use thread_watch::ThreadWatch;

use commit_engine::CommitEngine;
use inline::InlineReaders;
use inline_writes::WriteContention;
use job::{Job, QueuedRead, ReadJob, ReadOperation, WriteJob};
use queue::{BatchSize, Closed, JobQueue};
use readers::{Activity, ReaderThreads};
use thread_watch::{Moment, WatchedWorker};

/// How the worker is set up.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Sync every batch before its answers leave (`--durability strict`).
    pub strict: bool,
    /// Reader threads, each with a connection of its own: 1 to [`MAX_READERS`].
    pub readers: usize,
    /// Callers that may read on their own thread at a time, as far as [`ThreadWatch`] lets them; a
    /// further one may write. With 0, everything runs on the worker's threads.
    pub callers: usize,
}

/// How long an operation keeps its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Microseconds, where what it needs is in memory: it may run on its caller's thread.
    Inline,
    /// Longer, or nobody knows.
    Offload,
}

/// What a change gives back to the worker.
pub struct OpResult<T> {
    /// The answer.
    pub value: T,
    /// Whether its changes are kept; if not, they are rolled back.
    pub commit: bool,
    /// Runs where the change ran, after the commit that holds it and before the answer
    /// leaves: this is where caches forget. Does not run if the commit fails, nor without
    /// `keep`; it is dropped then before the next operation runs, but for those of its batch.
    pub after_commit: Option<Box<dyn FnOnce() + Send>>,
}

/// An answer of the writer.
#[derive(Debug, Clone, Copy)]
pub struct Committed<T> {
    /// What the operation returned.
    pub value: T,
    /// Whether the commit that holds it was synced.
    pub durable: bool,
    /// The verifier at that commit.
    pub verifier: WriteVerifier,
}

/// Runs blocking work on the session; shared by all connections.
///
/// Dropping it ends the threads as [`Worker::shut_down`] does, without waiting for them.
pub struct Worker {
    shared: Arc<WorkerShared>,
    /// Kept here and by reader threads that have not ended: the session's lock goes with the last
    /// of these, before the process ends.
    _store: Arc<dyn Store>,
    /// How the writer thread ended, once it has.
    ended: watch::Receiver<Option<Result<(), WorkError>>>,
}

/// What callers and threads share.
struct WorkerShared {
    writes: JobQueue<Job>,
    reads: JobQueue<Box<dyn QueuedRead>>,
    writing: Mutex<CommitEngine>,
    /// The writer thread waits for `writing`: no caller takes it now.
    thread_waits: AtomicBool,
    write_contention: WriteContention,
    /// Whether callers may write.
    callers_write: bool,
    /// Whether every change is synced.
    strict: bool,
    store: Weak<dyn Store>,
    readers: ReaderThreads,
    inline_readers: InlineReaders,
    writer_activity: Activity,
    watch: Arc<ThreadWatch>,
    status: Arc<WorkerStatus>,
}

/// What is known of the session without holding anything.
struct WorkerStatus {
    epoch: AtomicU64,
    read_only: AtomicBool,
    commits: Arc<Commits>,
}

impl Worker {
    /// Opens the connections and starts the threads.
    ///
    /// Where the store has no writer ([`StoreError::ReadOnly`]), reads work and anything else
    /// answers [`WorkError::ReadOnly`].
    pub fn start(store: Arc<dyn Store>, options: WorkerOptions) -> Result<Self, StoreError> {
        Self::start_with(store, options, Limits::default())
    }

    /// As [`Worker::start`], with other bounds than the usual ones.
    pub fn start_with(
        store: Arc<dyn Store>,
        options: WorkerOptions,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        let watch = ThreadWatch::new(options.callers + 1, None);
        Self::start_watched(store, options, limits, watch)
    }

    /// As [`Worker::start_with`], for one of several sessions of a server.
    pub fn start_watched(
        store: Arc<dyn Store>,
        options: WorkerOptions,
        limits: Limits,
        watch: Arc<ThreadWatch>,
    ) -> Result<Self, StoreError> {
        let writer = match store.writer() {
            Ok(writer) => Some(writer),
            Err(StoreError::ReadOnly(_)) => None,
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
        let strict = options.strict;
        let writing = CommitEngine::new(writer, Arc::clone(&status), limits, strict);
        let writes = BatchSize { ops: limits.write_queue_ops, bytes: limits.write_queue_bytes };
        let reads = BatchSize { ops: limits.read_queue_ops, bytes: 0 };
        let shared = Arc::new(WorkerShared {
            writes: JobQueue::new(writes),
            reads: JobQueue::new(reads),
            writing: Mutex::new(writing),
            thread_waits: AtomicBool::new(false),
            write_contention: WriteContention::default(),
            callers_write: options.callers > 0,
            strict,
            store: Arc::downgrade(&store),
            readers: ReaderThreads::default(),
            inline_readers: InlineReaders::new(options.callers),
            writer_activity: Activity::default(),
            watch,
            status,
        });
        let watched: Weak<WorkerShared> = Arc::downgrade(&shared);
        shared.watch.add(watched);
        let (ended_sender, ended) = watch::channel(None);
        // From here on, a failure drops the worker, and that ends the threads there are.
        let worker = Self { shared: Arc::clone(&shared), _store: store, ended };
        ReaderThreads::start(&shared, connections)?;
        thread::Builder::new()
            .name("acetate-write".to_owned())
            .spawn(move || ended_sender.send_replace(Some(writer::run(&shared, limits, strict))))
            .map_err(|e| StoreError::Io(format!("cannot start the writer thread: {e}")))?;
        Ok(worker)
    }

    /// Runs `f` on a snapshot taken when it starts: it sees every write that was answered before
    /// the call.
    ///
    /// What is light runs once more, on a reader thread, where it met a lock on this one.
    /// If the future is dropped, `f` runs to its end or not at all.
    pub async fn read<T: Send + 'static>(
        &self,
        cost: Cost,
        f: impl FnMut(&dyn ReadTxn) -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let mut read = ReadJob::new(f);
        if cost == Cost::Inline {
            threads::leave().await;
            if self.shared.read_here(&mut read) {
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

    /// Runs `f` as a change, and returns once the batch that holds it is committed; with
    /// `durable` (or in strict mode), once it is synced.
    ///
    /// `bytes` is what the operation holds in memory, for the bound of the queue.
    /// `f` runs again where all of its batch has to, because a part of it is to be undone.
    /// If the future is dropped, `f` runs and is committed, or does not run at all.
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
            threads::leave().await;
            if let Some(outcome) = self.shared.write_here(&mut write, durable) {
                return write.outcome(outcome);
            }
        }
        let (reply, answer) = oneshot::channel();
        let operation = Box::new((write, reply));
        self.shared.writes.push(bytes, Job::Write { durable, operation }).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Returns once everything committed before is synced, with the verifier in force then.
    ///
    /// Callers that wait at the same time share a sync.
    pub async fn sync(&self) -> Result<WriteVerifier, WorkError> {
        self.check_writable()?;
        threads::leave().await;
        if let Some(outcome) = self.shared.sync_here() {
            return outcome;
        }
        let (reply, answer) = oneshot::channel();
        self.shared.writes.push(0, Job::Sync(reply)).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Gives the space of what was deleted back to the disk, as one change between others.
    pub async fn compact(&self) -> Result<Compacted, WorkError> {
        self.check_writable()?;
        let (reply, answer) = oneshot::channel();
        self.shared.writes.push(0, Job::Compact(reply)).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Counts what the session takes, and from then on how each change makes that more or less
    /// ([`WriteTxn::growth`]). `counted` hears it before the next change runs.
    pub async fn count_usage(
        &self,
        counted: impl FnOnce(UsageDelta) + Send + 'static,
    ) -> Result<(), WorkError> {
        self.check_writable()?;
        let (reply, answer) = oneshot::channel();
        self.shared.writes.push(0, Job::Count(Box::new(counted), reply)).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// The order of commits, for whoever remembers what a snapshot said.
    pub fn commits(&self) -> Arc<Commits> {
        Arc::clone(&self.shared.status.commits)
    }

    /// The write verifier in force.
    pub fn verifier(&self) -> WriteVerifier {
        self.shared.status.verifier()
    }

    /// Refuses new work, finishes what is queued, syncs, checkpoints and closes the session.
    ///
    /// Returns once all connections are closed, how often ever it is called; with the error
    /// that kept the session from being closed cleanly, if there was one.
    pub async fn shut_down(&self) -> Result<(), WorkError> {
        self.shared.close();
        let mut ended = self.ended.clone();
        let outcome = ended.wait_for(Option::is_some).await;
        // Without a word from it, the writer thread was ended by a panic of the store.
        outcome.ok().and_then(|ended| (*ended).clone()).unwrap_or(Err(WorkError::Panicked))
    }

    /// Whether the writer has been in one operation for as long as [`STUCK`].
    pub fn is_writer_stuck(&self) -> bool {
        self.shared.writer_activity.is_stuck()
    }

    fn check_writable(&self) -> Result<(), WorkError> {
        match self.shared.status.read_only.load(Ordering::Acquire) {
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
    /// The state of writing, for the writer thread.
    ///
    /// # Errors
    /// The store panicked while a caller wrote: nobody knows what state it is in.
    fn writing(&self) -> Result<MutexGuard<'_, CommitEngine>, WorkError> {
        self.thread_waits.store(true, Ordering::Relaxed);
        let writing = self.writing.lock();
        self.thread_waits.store(false, Ordering::Relaxed);
        writing.map_err(|_| WorkError::Panicked)
    }

    /// Reads on the caller's thread; `false`, and nothing was read, if that cannot be.
    fn read_here(&self, read: &mut dyn ReadOperation) -> bool {
        self.watch.begin_inline().is_some_and(|_permit| self.inline_readers.read(read))
    }

    /// Notes that the writer ended its operation.
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
            tracing::warn!("the writer has been in one operation for 2 s");
        }
        self.readers.look(&self, now) | self.writer_activity.is_busy()
    }
}

impl From<Closed> for WorkError {
    fn from(_: Closed) -> Self {
        Self::ShuttingDown
    }
}
