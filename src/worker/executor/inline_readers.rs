//! Reading on a caller's thread, over pooled connections that never wait for a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::delta::{Reader, Store, StoreErrorKind};

use crate::worker::job::{ReadOperation, isolate};
use crate::worker::limits::STUCK;

/// Connections for reads on callers' threads. The worker's threads open them in advance.
pub(super) struct InlineReaders {
    pool: Mutex<ReaderPool>,
    /// The number of connections yet to open.
    missing: AtomicUsize,
    returned: Condvar,
}

struct ReaderPool {
    connections: Vec<Box<dyn Reader>>,
    /// The number of connections in use.
    lent: usize,
    closed: bool,
}

impl InlineReaders {
    /// A pool of `count` connections, none opened yet.
    pub fn new(count: usize) -> Self {
        Self {
            pool: Mutex::new(ReaderPool { connections: Vec::new(), lent: 0, closed: false }),
            missing: AtomicUsize::new(count),
            returned: Condvar::new(),
        }
    }

    /// Opens the missing connections, on a thread that may block.
    pub fn fill(&self, store: &Arc<dyn Store>) {
        let less = |missing: usize| missing.checked_sub(1);
        while self.missing.load(Ordering::Relaxed) > 0
            && self.missing.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
        {
            match isolate("opening a connection", || store.inline_reader()) {
                Some(Ok(connection)) => self.put(connection),
                failed => {
                    self.missing.fetch_add(1, Ordering::AcqRel);
                    if let Some(Err(error)) = failed {
                        tracing::warn!(%error, "cannot open a connection for light reads");
                    }
                    return;
                }
            }
        }
    }

    fn put(&self, connection: Box<dyn Reader>) {
        let mut pool = self.lock();
        if !pool.closed {
            pool.connections.push(connection);
        }
    }

    /// Runs the operation now; `false` if no connection is free or the operation would wait.
    pub fn read(&self, operation: &mut dyn ReadOperation) -> bool {
        let mut connection = {
            let mut pool = self.lock();
            let Some(connection) = pool.connections.pop() else { return false };
            pool.lent += 1;
            connection
        };
        // The closure's panic must not unwind through the store, which has a snapshot open.
        let mut run = |operation: &mut dyn ReadOperation| {
            connection.read(&mut |txn| {
                isolate("a read operation", || operation.run(txn));
            })
        };
        let outcome = isolate("reading", || run(&mut *operation));
        if matches!(outcome, Some(Ok(()))) {
            self.give_back(Some(connection));
            return true;
        }
        let is_sound = matches!(&outcome, Some(Err(error)) if error.kind == StoreErrorKind::Busy);
        self.give_back(is_sound.then_some(connection));
        operation.drop_value();
        false
    }

    /// Returns a connection to the pool, or counts it as missing.
    fn give_back(&self, connection: Option<Box<dyn Reader>>) {
        let mut pool = self.lock();
        pool.lent -= 1;
        if pool.closed {
            drop(connection);
            self.returned.notify_all();
            return;
        }
        match connection {
            Some(connection) => pool.connections.push(connection),
            None => drop(self.missing.fetch_add(1, Ordering::AcqRel)),
        }
    }

    /// Closes the connections. Waits up to [`STUCK`] for those in use.
    pub fn close(&self) {
        let mut pool = self.lock();
        pool.closed = true;
        pool.connections.clear();
        let is_lent = |pool: &mut ReaderPool| pool.lent > 0;
        self.returned.wait_while_for(&mut pool, is_lent, STUCK);
    }

    fn lock(&self) -> MutexGuard<'_, ReaderPool> {
        self.pool.lock()
    }
}
