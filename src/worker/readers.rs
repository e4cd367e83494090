//! The reader threads: each takes operations from one shared queue and runs them on snapshots
//! of its own connection. They never see the writer's connection.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::delta::{Reader, Store, StoreError};

use super::job::{ReadOperation, isolate};
use super::queue::{Cost, Taken};
use super::{Shared, WorkError};

/// A reader thread takes one operation at a time, so that the others can take the next.
const ONE: Cost = Cost { ops: 1, bytes: 0 };

/// Starts a thread for each connection.
pub(super) fn spawn(
    store: &Arc<dyn Store>,
    connections: Vec<Box<dyn Reader>>,
    shared: &Arc<Shared>,
) -> Result<Vec<JoinHandle<()>>, StoreError> {
    let start = |(number, connection): (usize, Box<dyn Reader>)| {
        let shared = Arc::clone(shared);
        let mut thread = ReaderThread { store: Arc::clone(store), connection: Some(connection) };
        thread::Builder::new()
            .name(format!("acetate-read-{number}"))
            .spawn(move || thread.run(&shared))
            .map_err(|e| StoreError::Io(format!("cannot start a reader thread: {e}")))
    };
    connections.into_iter().enumerate().map(start).collect()
}

struct ReaderThread {
    store: Arc<dyn Store>,
    /// `None` after a failure, until the next operation opens another.
    connection: Option<Box<dyn Reader>>,
}

impl ReaderThread {
    fn run(&mut self, shared: &Shared) {
        let mut taken = Vec::with_capacity(ONE.ops);
        while let Taken::Items(cost) = shared.reads.take(&mut taken, ONE, None, |_, _| false) {
            for mut operation in taken.drain(..) {
                let outcome = isolate("reading", || self.read(operation.as_mut()));
                let outcome = outcome.unwrap_or_else(|| {
                    // The store itself panicked: nobody knows what state it is in.
                    self.connection = None;
                    Err(WorkError::Panicked)
                });
                isolate("answering a read", || operation.answer(outcome));
            }
            shared.reads.release(cost);
        }
    }

    /// Runs the operation on a snapshot; on a second connection if the first cannot take one.
    fn read(&mut self, operation: &mut dyn ReadOperation) -> Result<(), WorkError> {
        let Err(error) = self.try_read(operation) else { return Ok(()) };
        self.connection = None;
        if operation.has_run() {
            // Its snapshot was good; only giving it back failed.
            tracing::warn!(%error, "a snapshot did not end as it should");
            return Ok(());
        }
        tracing::warn!(%error, "cannot take a snapshot; opening the session again");
        Ok(self.try_read(operation).inspect_err(|_| self.connection = None)?)
    }

    fn try_read(&mut self, operation: &mut dyn ReadOperation) -> Result<(), StoreError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.store.reader()?),
        };
        // The closure's panic must not pass through the store, which holds a snapshot open.
        connection.read(&mut |txn| {
            isolate("a read operation", || operation.run(txn));
        })
    }
}
