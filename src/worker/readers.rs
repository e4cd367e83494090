//! The connections for reads of a session: on the pool's threads, where they wait for locks, and on
//! callers' threads, where they never do. None uses the writer's.
//!
//! The first read opens a connection, which later ones use; further ones are opened only while
//! reads run at the same time.
//!
//! A read that is stuck, for example in a base that hangs, is replaced: another one may run beside
//! it. Once the replacements are used up and all reads are stuck, reads are refused.

use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};

use crate::delta::{Reader, Store, StoreError, StoreErrorKind};

use super::WorkError;
use super::job::{ReadOperation, isolate};
use super::limits::STUCK;

/// The connections for reads. Opened on the pool's threads, when a read needs one.
pub(super) struct Readers {
    store: Weak<dyn Store>,
    connections: Mutex<Connections>,
    /// How many callers may read at once.
    callers: usize,
    /// How many idle ones are kept.
    max_idle: usize,
    /// A caller has given its connection back after the end.
    returned: Condvar,
}

#[derive(Default)]
struct Connections {
    idle: Vec<Box<dyn Reader>>,
    /// The number of reads that run.
    running: usize,
    /// Those of them that run on callers' threads.
    of_callers: usize,
    /// The number of connections yet to open, as callers found none beside other reads.
    missing: usize,
    is_closed: bool,
}

impl Readers {
    /// No connection yet, for as many reads at once on the pool's threads and on callers'.
    pub fn new(store: &Arc<dyn Store>, pooled: usize, callers: usize) -> Self {
        Self {
            store: Arc::downgrade(store),
            connections: Mutex::default(),
            callers,
            max_idle: pooled + callers,
            returned: Condvar::new(),
        }
    }

    /// Runs the operation on a snapshot, on a thread of the pool.
    pub fn read(&self, operation: &mut dyn ReadOperation) -> Result<(), WorkError> {
        let mut connection = {
            let mut connections = self.connections.lock();
            connections.running += 1;
            let idle = connections.idle.pop();
            if idle.is_none() {
                // It opens one itself.
                connections.missing = connections.missing.saturating_sub(1);
            }
            idle
        };
        let outcome = isolate("reading", || self.retry(&mut connection, operation));
        // After a panic of the store, its connection may be in any state.
        self.give_back(connection.filter(|_| outcome.is_some()), false);
        outcome.unwrap_or(Err(WorkError::Panicked))
    }

    /// Runs the operation now, on a caller's thread; `false` if no connection is free or the
    /// operation would wait.
    pub fn read_here(&self, operation: &mut dyn ReadOperation) -> bool {
        let Some(mut connection) = self.take_for_caller() else { return false };
        // The closure's panic must not unwind through the store, which has a snapshot open.
        let mut run = |operation: &mut dyn ReadOperation| {
            connection.set_waits(false)?;
            connection.read(&mut |txn| {
                isolate("a read operation", || operation.run(txn));
            })
        };
        let outcome = isolate("reading", || run(&mut *operation));
        let is_done = matches!(outcome, Some(Ok(())));
        let is_busy = matches!(&outcome, Some(Err(error)) if error.kind == StoreErrorKind::Busy);
        self.give_back(Some(connection).filter(|_| is_done || is_busy), true);
        if !is_done {
            operation.drop_value();
        }
        is_done
    }

    /// Opens the connections that callers lacked, on a thread that may block.
    pub fn open_missing(&self) {
        while self.take_missing() {
            // The next read that misses it asks for it again if this fails.
            match isolate("opening a connection", || self.open()) {
                Some(Ok(connection)) => self.keep(connection),
                Some(Err(error)) => {
                    tracing::warn!(%error, "cannot open a connection for light reads");
                }
                None => {}
            }
        }
    }

    /// Whether there are idle connections.
    pub fn has_idle(&self) -> bool {
        !self.connections.lock().idle.is_empty()
    }

    /// Closes the idle connections; the next read opens another one.
    pub fn close_idle(&self) {
        // Closed with the lock held: the writer's connection must be the last one to close.
        self.connections.lock().idle.clear();
    }

    /// Closes the connections. Waits up to [`STUCK`] for those that callers use; others in use are
    /// closed when their reads end. No further one is opened.
    pub fn close(&self) {
        let mut connections = self.connections.lock();
        connections.is_closed = true;
        connections.idle.clear();
        let is_used = |connections: &mut Connections| connections.of_callers > 0;
        self.returned.wait_while_for(&mut connections, is_used, STUCK);
    }

    fn take_for_caller(&self) -> Option<Box<dyn Reader>> {
        let mut connections = self.connections.lock();
        if connections.of_callers >= self.callers {
            return None;
        }
        let Some(connection) = connections.idle.pop() else {
            // If no read runs, the one that this one becomes on the pool's threads opens the first.
            let is_beside = connections.running > 0 && !connections.is_closed;
            if is_beside && connections.running + connections.missing < self.max_idle {
                connections.missing += 1;
            }
            return None;
        };
        connections.running += 1;
        connections.of_callers += 1;
        Some(connection)
    }

    fn take_missing(&self) -> bool {
        let mut connections = self.connections.lock();
        let is_wanted = connections.missing > 0 && !connections.is_closed;
        if is_wanted {
            connections.missing -= 1;
        }
        is_wanted
    }

    /// Ends a read, and keeps its connection.
    fn give_back(&self, connection: Option<Box<dyn Reader>>, is_of_caller: bool) {
        let mut connections = self.connections.lock();
        connections.running -= 1;
        let excess = connection.and_then(|connection| connections.keep(connection, self.max_idle));
        if !is_of_caller {
            drop(connections);
            drop(excess);
            return;
        }
        // Before `close` returns, which waits for this.
        drop(excess);
        connections.of_callers -= 1;
        if connections.is_closed {
            self.returned.notify_all();
        }
    }

    fn keep(&self, connection: Box<dyn Reader>) {
        let excess = self.connections.lock().keep(connection, self.max_idle);
        drop(excess);
    }

    /// Runs the operation; reconnects and retries once if no snapshot can be taken.
    fn retry(
        &self,
        connection: &mut Option<Box<dyn Reader>>,
        operation: &mut dyn ReadOperation,
    ) -> Result<(), WorkError> {
        let Err(error) = self.attempt(connection, operation) else { return Ok(()) };
        *connection = None;
        if operation.has_run() && is_passing(&error) {
            // What it read does not count.
            operation.drop_value();
            return Err(error.into());
        }
        if operation.has_run() {
            // The operation had a snapshot; only releasing it failed.
            tracing::warn!(%error, "a snapshot did not end as it should");
            return Ok(());
        }
        tracing::warn!(%error, "cannot take a snapshot; opening the session again");
        Ok(self.attempt(connection, operation).inspect_err(|_| *connection = None)?)
    }

    fn attempt(
        &self,
        connection: &mut Option<Box<dyn Reader>>,
        operation: &mut dyn ReadOperation,
    ) -> Result<(), StoreError> {
        let connection = match connection {
            Some(connection) => connection,
            none => none.insert(self.open()?),
        };
        connection.set_waits(true)?;
        // The closure's panic must not unwind through the store, which has a snapshot open.
        connection.read(&mut |txn| {
            isolate("a read operation", || operation.run(txn));
        })
    }

    fn open(&self) -> Result<Box<dyn Reader>, StoreError> {
        let is_closed = self.connections.lock().is_closed;
        let store = if is_closed { None } else { self.store.upgrade() };
        store.ok_or_else(|| StoreError::io("the session is closed"))?.reader()
    }
}

/// Whether a store says of a read that has run that its results do not count.
fn is_passing(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::Busy | StoreErrorKind::Lost)
}

impl Connections {
    /// Keeps an idle connection; returns it if there are enough.
    fn keep(&mut self, connection: Box<dyn Reader>, max: usize) -> Option<Box<dyn Reader>> {
        if self.is_closed || self.idle.len() >= max {
            return Some(connection);
        }
        self.idle.push(connection);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::ReadJob;
    use super::*;
    use crate::delta::sqlite::Session;
    use crate::delta::{ReadTxn, Result};

    /// A connection whose lease ends during the read.
    struct LateReader(StoreErrorKind);

    impl Reader for LateReader {
        fn read(&mut self, _: &mut dyn FnMut(&dyn ReadTxn)) -> Result<()> {
            Err(StoreError::new(self.0, "the lease has ended"))
        }
    }

    /// The outcome of a read that has run on a connection which then failed.
    fn outcome(kind: StoreErrorKind) -> std::result::Result<u8, WorkError> {
        let store: Weak<dyn Store> = Weak::<Session>::new();
        let readers = Readers {
            store,
            connections: Mutex::default(),
            callers: 1,
            max_idle: 1,
            returned: Condvar::new(),
        };
        let mut read = ReadJob::ran(7, |_: &dyn ReadTxn| 8);
        let mut connection: Option<Box<dyn Reader>> = Some(Box::new(LateReader(kind)));
        let done = readers.retry(&mut connection, &mut read);
        read.outcome(done)
    }

    #[test]
    fn a_read_has_no_result_if_the_store_was_lost_before_its_end() {
        for kind in [StoreErrorKind::Busy, StoreErrorKind::Lost] {
            assert!(matches!(outcome(kind), Err(WorkError::Store(error)) if error.kind == kind));
        }
        assert_eq!(outcome(StoreErrorKind::Io).unwrap(), 7, "only its snapshot did not end");
    }
}
