//! Implements [`Store`] over a replica: reads and changes go through the session file, and a batch
//! is kept in the database before the file commits it.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::lease::{HeldLease, LeaseTime};
use super::ship::Shipper;
use crate::delta::sqlite::{Session, SqliteWriter};
use crate::delta::{
    Compacted, Limits, Poison, ReadTxn, Reader, Result, Store, StoreError, StoreErrorKind,
    UnacknowledgedOp, UsageDelta, WalSize, WriteTxn, Writer,
};
use crate::vfs::FsStat;

/// A session in a database that this server holds.
pub struct PostgresStore {
    replica: Session,
    lease: Arc<HeldLease>,
    /// Only the one writer uses it.
    shipper: Arc<Mutex<Shipper>>,
}

impl PostgresStore {
    /// A session whose rows `replica` has as of the last batch that `shipper` knows.
    pub fn new(replica: Session, lease: Arc<HeldLease>, shipper: Shipper) -> Self {
        Self { replica, lease, shipper: Arc::new(Mutex::new(shipper)) }
    }

    /// The replica.
    #[cfg(feature = "internals")]
    pub fn replica(&self) -> &Session {
        &self.replica
    }

    fn reading(&self, inner: Box<dyn Reader>) -> Box<dyn Reader> {
        Box::new(LeasedReader { inner, lease: Arc::clone(&self.lease) })
    }
}

impl Store for PostgresStore {
    fn writer(&self) -> Result<Box<dyn Writer>> {
        let inner = self.replica.open_writer()?;
        let (lease, shipper) = (Arc::clone(&self.lease), Arc::clone(&self.shipper));
        let mut writer = PostgresWriter { inner, lease, shipper, has_failed: false };
        writer.keep_noted()?;
        Ok(Box::new(writer))
    }

    fn reader(&self) -> Result<Box<dyn Reader>> {
        Ok(self.reading(self.replica.reader()?))
    }

    /// The lease's epoch: nothing that was answered is ever lost, so that nothing depends on it.
    fn epoch(&self) -> u64 {
        self.lease.epoch().cast_unsigned()
    }

    fn unacknowledged_ops(&self) -> &[UnacknowledgedOp] {
        self.replica.unacknowledged_ops()
    }

    fn limits(&self) -> Limits {
        self.replica.limits()
    }

    fn disk_usage(&self) -> Result<FsStat> {
        self.replica.disk_usage()
    }

    fn wal_size(&self) -> WalSize {
        self.replica.wal_size()
    }

    fn lease(&self) -> Option<Arc<HeldLease>> {
        Some(Arc::clone(&self.lease))
    }
}

/// A reading connection whose results count only while the lease is valid.
struct LeasedReader {
    inner: Box<dyn Reader>,
    lease: Arc<HeldLease>,
}

impl Reader for LeasedReader {
    fn read(&mut self, f: &mut dyn FnMut(&dyn ReadTxn)) -> Result<()> {
        self.inner.read(f)?;
        // After the read: what it saw was the session's newest state while it ran.
        check(&self.lease)
    }

    fn set_waits(&mut self, waits: bool) -> Result<()> {
        self.inner.set_waits(waits)
    }
}

/// Fails if another server may have the session.
fn check(lease: &HeldLease) -> Result<()> {
    match lease.is_valid(LeaseTime::now()) {
        true => Ok(()),
        false if lease.is_lost() => {
            Err(StoreError::new(StoreErrorKind::Lost, "the session's lease has ended"))
        }
        false => Err(StoreError::busy("the database has not renewed the session's lease")),
    }
}

/// The writing connection.
struct PostgresWriter {
    inner: SqliteWriter,
    lease: Arc<HeldLease>,
    shipper: Arc<Mutex<Shipper>>,
    /// Whether the batch has an error, which stays its error.
    has_failed: bool,
}

impl PostgresWriter {
    /// Keeps what was recorded before the writer was opened.
    fn keep_noted(&mut self) -> Result<()> {
        if !self.inner.has_noted() {
            return Ok(());
        }
        self.begin(true)?;
        let kept = self.prepare();
        match kept {
            Ok(()) => self.commit(),
            Err(error) => self.abort().and(Err(error)),
        }
    }

    /// Has the database keep the batch.
    fn ship(&mut self) -> Result<()> {
        self.inner.check_batch()?;
        let noted = self.inner.noted()?;
        if noted.tables.is_empty() {
            noted.forget();
            return check(&self.lease);
        }
        let mut shipper = self.shipper.lock();
        let mark = shipper.next_mark();
        self.inner.put_mark(mark)?;
        shipper.keep(mark, &noted.tables)?;
        noted.forget();
        Ok(())
    }
}

impl Writer for PostgresWriter {
    fn begin(&mut self, _: bool) -> Result<()> {
        self.has_failed = false;
        check(&self.lease)?;
        // The database keeps what is answered; the replica can be made again.
        self.inner.begin(false)
    }

    /// Never on a caller's thread: the commit waits for the database.
    fn try_begin(&mut self, _: bool) -> Result<bool> {
        Ok(false)
    }

    fn next(&mut self) {
        self.inner.next();
    }

    fn has_changed(&self) -> bool {
        self.inner.has_changed()
    }

    fn check_batch(&self) -> Result<()> {
        self.inner.check_batch()
    }

    fn savepoint(&mut self) -> Result<()> {
        self.inner.savepoint()
    }

    fn release(&mut self) -> Result<()> {
        self.inner.release()
    }

    fn roll_back(&mut self) -> Result<()> {
        self.inner.roll_back()
    }

    fn prepare(&mut self) -> Result<()> {
        let shipped = self.ship();
        self.has_failed = shipped.is_err();
        shipped
    }

    fn commit(&mut self) -> Result<()> {
        self.inner.commit().inspect_err(|error| {
            // The database has what the replica lacks: only a new replica is right.
            tracing::error!(%error, "the replica did not take what the database has");
            self.lease.lose("the replica cannot be written");
        })
    }

    /// The operations that ended so are answered by what they read.
    fn abort(&mut self) -> Result<()> {
        self.inner.abort()?;
        match std::mem::take(&mut self.has_failed) {
            true => Ok(()),
            false => check(&self.lease),
        }
    }

    fn lacks_room(&self) -> bool {
        self.inner.lacks_room()
    }

    fn make_room(&mut self) -> Result<bool> {
        let made = self.inner.make_room()?;
        self.keep_noted()?;
        Ok(made)
    }

    fn txn(&mut self) -> &mut dyn WriteTxn {
        self.inner.txn()
    }

    fn maintenance_at(&self) -> Option<Instant> {
        self.inner.maintenance_at()
    }

    fn wants_maintenance(&self) -> bool {
        self.inner.wants_maintenance()
    }

    fn maintenance(&mut self) {
        self.inner.maintenance();
    }

    fn compact(&mut self) -> Result<Compacted> {
        Err(StoreError::read_only("the database returns the space of deleted rows by itself"))
    }

    fn count_usage(&mut self) -> Result<UsageDelta> {
        self.inner.count_usage()
    }

    fn poison(&self) -> Poison {
        self.inner.poison()
    }

    /// Nothing: the database has all that was answered.
    fn unsynced_bytes(&self) -> u64 {
        0
    }

    fn sync(&mut self) -> Result<()> {
        check(&self.lease)
    }

    fn advance_epoch(&mut self) -> u64 {
        self.lease.epoch().cast_unsigned()
    }

    fn rest(&mut self) {
        self.inner.rest();
        self.shipper.lock().rest();
    }

    fn close(&mut self) -> Result<()> {
        self.inner.close()
    }
}
