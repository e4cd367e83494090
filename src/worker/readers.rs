//! Reading on snapshots: reader threads, which take operations from one shared queue, and
//! connections that are lent to callers who read on their own thread. None of them ever sees
//! the writer's connection.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::delta::{Reader, Store, StoreError};

use super::job::{ReadOperation, isolate};
use super::queue::{Cost, Taken};
use super::{Shared, WorkError, threads};

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
        let mut place = Place { store: Arc::clone(store), connection: Some(connection) };
        thread::Builder::new()
            .name(format!("acetate-read-{number}"))
            .spawn(move || serve(&mut place, &shared))
            .map_err(|e| StoreError::Io(format!("cannot start a reader thread: {e}")))
    };
    connections.into_iter().enumerate().map(start).collect()
}

/// Serves the queue until it is closed and empty.
fn serve(place: &mut Place, shared: &Shared) {
    threads::join();
    let mut taken = Vec::with_capacity(ONE.ops);
    while let Taken::Items(cost) = shared.reads.take(&mut taken, ONE, None, |_, _| false) {
        for mut read in taken.drain(..) {
            let outcome = place.read(read.operation());
            isolate("answering a read", || read.answer(outcome));
        }
        shared.reads.release(cost);
    }
}

/// A place for a reading connection.
struct Place {
    store: Arc<dyn Store>,
    /// `None` before the first operation, and after a failure, until the next one opens another.
    connection: Option<Box<dyn Reader>>,
}

impl Place {
    /// Runs the operation on a snapshot.
    fn read(&mut self, operation: &mut dyn ReadOperation) -> Result<(), WorkError> {
        isolate("reading", || self.retry(operation)).unwrap_or_else(|| {
            // The store itself panicked: nobody knows what state it is in.
            self.connection = None;
            Err(WorkError::Panicked)
        })
    }

    /// Runs it on a second connection if the first cannot take a snapshot.
    fn retry(&mut self, operation: &mut dyn ReadOperation) -> Result<(), WorkError> {
        let Err(error) = self.attempt(operation) else { return Ok(()) };
        self.connection = None;
        if operation.has_run() {
            // Its snapshot was good; only giving it back failed.
            tracing::warn!(%error, "a snapshot did not end as it should");
            return Ok(());
        }
        tracing::warn!(%error, "cannot take a snapshot; opening the session again");
        Ok(self.attempt(operation).inspect_err(|_| self.connection = None)?)
    }

    fn attempt(&mut self, operation: &mut dyn ReadOperation) -> Result<(), StoreError> {
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

/// Connections for callers that read on their own thread; each is opened when it is first used.
pub(super) struct Lent {
    shelf: Mutex<Shelf>,
    returned: Condvar,
}

struct Shelf {
    places: Vec<Place>,
    out: usize,
    closed: bool,
}

impl Lent {
    /// `count` connections.
    pub fn new(store: &Arc<dyn Store>, count: usize) -> Self {
        let place = || Place { store: Arc::clone(store), connection: None };
        let places = std::iter::repeat_with(place).take(count).collect();
        Self {
            shelf: Mutex::new(Shelf { places, out: 0, closed: false }),
            returned: Condvar::new(),
        }
    }

    /// Runs the operation here and now, if a connection is free.
    pub fn read(&self, operation: &mut dyn ReadOperation) -> Option<Result<(), WorkError>> {
        let mut place = {
            let mut shelf = self.lock();
            let place = shelf.places.pop()?;
            shelf.out += 1;
            place
        };
        // Does not panic: Place::read holds that back.
        let outcome = place.read(operation);
        let mut shelf = self.lock();
        shelf.out -= 1;
        if shelf.closed {
            drop(place);
            self.returned.notify_all();
        } else {
            shelf.places.push(place);
        }
        Some(outcome)
    }

    /// Closes the connections; returns once all of them are.
    pub fn close(&self) {
        let mut shelf = self.lock();
        shelf.closed = true;
        shelf.places.clear();
        while shelf.out > 0 {
            shelf = self.returned.wait(shelf).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
