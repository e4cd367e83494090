//! Reads on the pool's threads, over connections of the session. None uses the writer's.
//!
//! A read that is stuck, for example in a base that hangs, is replaced: another one may run beside
//! it. Once the replacements are used up and all reads are stuck, reads are refused.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::delta::{Reader, Store, StoreError};

use super::WorkError;
use super::job::{ReadOperation, isolate};

/// The connections for reads on the pool's threads. Opened when a read needs one.
pub(super) struct Readers {
    store: Weak<dyn Store>,
    idle: Mutex<IdleReaders>,
    /// How many idle ones are kept.
    max_idle: usize,
}

#[derive(Default)]
struct IdleReaders {
    connections: Vec<Box<dyn Reader>>,
    is_closed: bool,
}

impl Readers {
    /// No connection yet. At most `max_idle` idle ones are kept.
    pub fn new(store: &Arc<dyn Store>, max_idle: usize) -> Self {
        Self { store: Arc::downgrade(store), idle: Mutex::default(), max_idle }
    }

    /// Runs the operation on a snapshot.
    pub fn read(&self, operation: &mut dyn ReadOperation) -> Result<(), WorkError> {
        let mut connection = self.idle.lock().connections.pop();
        let outcome = isolate("reading", || self.retry(&mut connection, operation));
        // After a panic of the store, its connection may be in any state.
        let connection = connection.filter(|_| outcome.is_some());
        if let Some(connection) = connection {
            self.give_back(connection);
        }
        outcome.unwrap_or(Err(WorkError::Panicked))
    }

    /// Closes the idle connections. Those in use are closed when their reads end, and no further
    /// one is opened.
    pub fn close(&self) {
        let closed = {
            let mut idle = self.idle.lock();
            idle.is_closed = true;
            std::mem::take(&mut idle.connections)
        };
        drop(closed);
    }

    /// The store, to open a connection; `None` after [`Readers::close`].
    pub fn store(&self) -> Option<Arc<dyn Store>> {
        if self.idle.lock().is_closed { None } else { self.store.upgrade() }
    }

    fn give_back(&self, connection: Box<dyn Reader>) {
        let mut idle = self.idle.lock();
        if !idle.is_closed && idle.connections.len() < self.max_idle {
            idle.connections.push(connection);
        } else {
            drop(idle);
            drop(connection);
        }
    }

    /// Runs the operation; reconnects and retries once if no snapshot can be taken.
    fn retry(
        &self,
        connection: &mut Option<Box<dyn Reader>>,
        operation: &mut dyn ReadOperation,
    ) -> Result<(), WorkError> {
        let Err(error) = self.attempt(connection, operation) else { return Ok(()) };
        *connection = None;
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
        // The closure's panic must not unwind through the store, which has a snapshot open.
        connection.read(&mut |txn| {
            isolate("a read operation", || operation.run(txn));
        })
    }

    fn open(&self) -> Result<Box<dyn Reader>, StoreError> {
        let store = self.store().ok_or_else(|| StoreError::io("the session is closed"))?;
        store.reader()
    }
}
