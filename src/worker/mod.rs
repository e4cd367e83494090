//! The one seam between async and blocking code.
//!
//! One writer thread with a queue bounded in operations and bytes, a savepoint per operation,
//! as many operations per commit as are waiting (group commit); reader threads with their own
//! snapshot connections. Answers leave only after the commit that holds their change.
//!
//! This module knows the store only as `delta`'s traits, and nothing of what operations mean.
//!
//! | File | What |
//! |---|---|
//! | `queue` | holds callers back asynchronously, hands items to blocking threads |
//! | `job` | a caller's closure and the way back to it |
//! | `writer` | batches, commits, syncs, and what an error ends |
//! | `readers` | snapshots |
//! | `background` | work that nobody waits for |
//! | `limits` | every bound |

mod background;
mod commits;
mod error;
mod job;
mod limits;
mod queue;
mod readers;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tokio::sync::{oneshot, watch};

use crate::delta::{ReadTxn, Store, StoreError, WriteTxn};
use crate::vfs::WriteVerifier;

pub use background::{Background, Piece};
pub use commits::{Commits, Version};
pub use error::WorkError;
pub use limits::{
    BATCH_BYTES, BATCH_OPS, Limits, MAX_READERS, READ_QUEUE_OPS, SYNC_INTERVAL, WRITE_QUEUE_BYTES,
    WRITE_QUEUE_OPS,
};

use job::{Job, Read, ReadOperation, Write};
use queue::{Closed, Cost, Queue};
use writer::WriterThread;

/// How the worker is set up.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Sync every batch before its answers leave (`--durability strict`).
    pub strict: bool,
    /// Reader threads, each with a connection of its own: 1 to [`MAX_READERS`].
    pub readers: usize,
}

/// What an operation on the writer thread gives back to the worker.
pub struct Done<T> {
    /// The answer.
    pub value: T,
    /// Whether its changes are kept; if not, they are rolled back to its savepoint.
    pub keep: bool,
    /// Runs on the writer thread after the commit that holds the changes, before the answer
    /// leaves: this is where caches forget. Does not run if the commit fails, nor without
    /// `keep`.
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
    shared: Arc<Shared>,
    /// How the writer thread ended, once it has.
    ended: watch::Receiver<Option<Result<(), WorkError>>>,
}

/// What callers and threads share.
struct Shared {
    writes: Queue<Job>,
    reads: Queue<Box<dyn ReadOperation>>,
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
        let writer = match store.writer() {
            Ok(writer) => Some(writer),
            Err(StoreError::ReadOnly(_)) => None,
            Err(error) => return Err(error),
        };
        let connections = (0..options.readers.clamp(1, MAX_READERS))
            .map(|_| store.reader())
            .collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared {
            writes: Queue::new(Cost {
                ops: limits.write_queue_ops,
                bytes: limits.write_queue_bytes,
            }),
            reads: Queue::new(Cost { ops: limits.read_queue_ops, bytes: 0 }),
            epoch: AtomicU64::new(store.epoch()),
            read_only: AtomicBool::new(writer.is_none()),
            commits: Arc::default(),
        });
        let (ended_sender, ended) = watch::channel(None);
        // From here on, a failure drops the worker, and that ends the threads there are.
        let worker = Self { shared: Arc::clone(&shared), ended };
        let readers = readers::spawn(&store, connections, &shared)?;
        let writer_thread = WriterThread::new(writer, shared, limits, options.strict);
        thread::Builder::new()
            .name("acetate-write".to_owned())
            .spawn(move || ended_sender.send_replace(Some(writer_thread.run(readers))))
            .map_err(|e| StoreError::Io(format!("cannot start the writer thread: {e}")))?;
        Ok(worker)
    }

    /// Runs `f` on a reader thread, on a snapshot taken when it starts: it sees every write
    /// that was answered before the call.
    ///
    /// If the future is dropped, `f` runs to its end or not at all.
    pub async fn read<T: Send + 'static>(
        &self,
        f: impl FnOnce(&dyn ReadTxn) -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let (reply, answer) = oneshot::channel();
        self.shared.reads.push(0, Box::new(Read::new(f, reply))).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Runs `f` on the writer thread, and returns once the batch that holds it is committed;
    /// with `durable` (or in strict mode), once it is synced.
    ///
    /// `bytes` is what the operation holds in memory, for the bound of the queue.
    /// If the future is dropped, `f` runs and is committed, or does not run at all.
    pub async fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        durable: bool,
        f: impl FnOnce(&mut dyn WriteTxn) -> Done<T> + Send + 'static,
    ) -> Result<Committed<T>, WorkError> {
        self.check_writable()?;
        let (reply, answer) = oneshot::channel();
        let operation = Box::new(Write::new(f, reply));
        self.shared.writes.push(bytes, Job::Write { durable, operation }).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// Returns once everything committed before is synced, with the verifier in force then.
    ///
    /// Callers that wait at the same time share a sync.
    pub async fn sync(&self) -> Result<WriteVerifier, WorkError> {
        self.check_writable()?;
        let (reply, answer) = oneshot::channel();
        self.shared.writes.push(0, Job::Sync(reply)).await?;
        answer.await.unwrap_or(Err(WorkError::Panicked))
    }

    /// The order of commits, for whoever remembers what a snapshot said.
    pub fn commits(&self) -> Arc<Commits> {
        Arc::clone(&self.shared.commits)
    }

    /// The write verifier in force.
    pub fn verifier(&self) -> WriteVerifier {
        self.shared.verifier()
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

    fn check_writable(&self) -> Result<(), WorkError> {
        match self.shared.read_only.load(Ordering::Acquire) {
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

impl Shared {
    fn verifier(&self) -> WriteVerifier {
        WriteVerifier(self.epoch.load(Ordering::Acquire).to_be_bytes())
    }

    fn close(&self) {
        self.writes.close();
        self.reads.close();
    }
}

impl From<Closed> for WorkError {
    fn from(_: Closed) -> Self {
        Self::ShuttingDown
    }
}
