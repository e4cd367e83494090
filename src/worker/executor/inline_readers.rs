//! Reading on a caller's thread, over pooled connections that never wait for a lock.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::delta::{Reader, StoreErrorKind};

use crate::worker::job::{ReadOperation, isolate};
use crate::worker::limits::STUCK;
use crate::worker::readers::Readers;

/// Connections for reads on callers' threads. The pool's threads open those that were missed.
pub(super) struct InlineReaders {
    pool: Mutex<ReaderPool>,
    /// The number of connections yet to open, as reads found none free.
    missing: AtomicUsize,
    /// How many there may be.
    max: usize,
    returned: Condvar,
}

struct ReaderPool {
    connections: Vec<Box<dyn Reader>>,
    /// The number of connections in use.
    lent: usize,
    closed: bool,
}

impl InlineReaders {
    /// A pool of at most `max` connections, none opened yet.
    pub fn new(max: usize) -> Self {
        Self {
            pool: Mutex::new(ReaderPool { connections: Vec::new(), lent: 0, closed: false }),
            missing: AtomicUsize::new(0),
            max,
            returned: Condvar::new(),
        }
    }

    /// Opens the missing connections, on a thread that may block.
    pub fn fill(&self, readers: &Readers) {
        let less = |missing: usize| missing.checked_sub(1);
        while self.missing.load(Ordering::Relaxed) > 0
            && self.missing.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
        {
            let Some(store) = readers.store() else { return };
            // The next read that misses it asks for it again if this fails.
            match isolate("opening a connection", || store.inline_reader()) {
                Some(Ok(connection)) => self.put(connection),
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot open a connection for light reads");
                }
                None => {}
            }
        }
    }

    fn put(&self, connection: Box<dyn Reader>) {
        let mut pool = self.lock();
        if !pool.closed && pool.lent + pool.connections.len() < self.max {
            pool.connections.push(connection);
        } else {
            drop(pool);
            drop(connection);
        }
    }

    /// Runs the operation now; `false` if no connection is free or the operation would wait.
    pub fn read(&self, operation: &mut dyn ReadOperation) -> bool {
        let mut connection = {
            let mut pool = self.lock();
            let Some(connection) = pool.connections.pop() else {
                self.note_missing(&pool);
                return false;
            };
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

    /// Counts a connection as missing, unless there are enough.
    fn note_missing(&self, pool: &ReaderPool) {
        if !pool.closed && pool.lent + self.missing.load(Ordering::Relaxed) < self.max {
            self.missing.fetch_add(1, Ordering::AcqRel);
        }
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
