//! A scripted store: it keeps its rows in memory, notes each call, and fails or waits where a
//! test says so.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use acetate::delta::{
    Compacted, Ino, Limits, Poison, Reader, Store, StoreError, UnacknowledgedOp, UsageDelta,
    WriteTxn, Writer,
};

use acetate::vfs::FsStat;

use super::fake_txn::Rows;
use super::scripted_panic;

/// What the store was asked to do, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Begin {
        durable: bool,
    },
    /// Not noted: it is asked all the time.
    CheckBatch,
    Savepoint,
    Release,
    RollBack,
    Commit,
    Abort,
    Sync,
    Count,
    Maintenance,
    AdvanceEpoch,
    Close,
    OpenReader,
    CloseReader,
    Read,
    /// Not noted.
    OpenWriter,
}

/// What the script does to the next call of this kind.
enum Fault {
    Fail(StoreError),
    Panic,
}

#[derive(Default)]
struct State {
    /// What the writer shares with its background threads.
    poison: Poison,
    rows: BTreeMap<Ino, Vec<u8>>,
    calls: Vec<Call>,
    faults: VecDeque<(Call, Fault)>,
    held: Option<Call>,
    /// Threads that wait in the held call.
    waiting: usize,
    epoch: u64,
    read_only: bool,
    maintenance_at: Option<Instant>,
    unsynced_bytes: u64,
    is_locked: bool,
    /// The connections that are open now.
    readers_open: usize,
    writers_open: usize,
    /// Whether a writer was closed while a reader was open.
    closed_early: bool,
}

impl State {
    /// What the script does to this call.
    fn take_fault(&mut self, call: Call) -> Option<Fault> {
        let at = self.faults.iter().position(|(kind, _)| same(*kind, call))?;
        self.faults.remove(at).map(|(_, fault)| fault)
    }
}

/// The store; cheap to clone.
#[derive(Clone, Default)]
pub struct FakeStore(Arc<(Mutex<State>, Condvar)>);

/// Keeps calls of one kind waiting until it is dropped.
pub struct Hold(FakeStore);

/// A begin is the same call, durable or not, to the script.
fn same(a: Call, b: Call) -> bool {
    std::mem::discriminant(&a) == std::mem::discriminant(&b)
}

impl FakeStore {
    pub fn read_only() -> Self {
        let store = Self::default();
        store.state().read_only = true;
        store
    }

    /// Asks for maintenance after this time, until it is done.
    pub fn want_maintenance_in(&self, time: Duration) {
        self.state().maintenance_at = Some(Instant::now() + time);
    }

    /// This is what a sync would have to write from now on, in bytes.
    pub fn leave_unsynced(&self, bytes: u64) {
        self.state().unsynced_bytes = bytes;
    }

    /// A thread beside the writer finds that committed data may be lost: the next call of this kind
    /// fails with that.
    pub fn poison_at(&self, call: Call, error: StoreError) {
        self.state().poison.set(&error);
        self.fail(call, error);
    }

    /// A change that must not wait for a lock cannot begin from now on.
    pub fn lock(&self) {
        self.state().is_locked = true;
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        let state = self.state();
        state.readers_open + state.writers_open
    }

    /// Whether a writer was closed while a reader was open.
    pub fn closed_writer_early(&self) -> bool {
        self.state().closed_early
    }

    pub fn as_store(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    /// The next call of this kind fails; several wait in line.
    pub fn fail(&self, call: Call, error: StoreError) {
        self.state().faults.push_back((call, Fault::Fail(error)));
    }

    /// The next call of this kind panics.
    pub fn panic_at(&self, call: Call) {
        self.state().faults.push_back((call, Fault::Panic));
    }

    /// Calls of this kind wait from now on.
    pub fn hold(&self, call: Call) -> Hold {
        self.state().held = Some(call);
        Hold(self.clone())
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    pub fn count(&self, call: Call) -> usize {
        self.state().calls.iter().filter(|&&c| same(c, call)).count()
    }

    /// What is committed.
    pub fn row(&self, ino: u64) -> Option<Vec<u8>> {
        self.state().rows.get(&Ino(ino)).cloned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    /// As [`Self::enter`], for calls that need nothing of the state.
    fn step(&self, call: Call) -> Result<(), StoreError> {
        self.enter(call).map(drop)
    }

    /// Notes the call, waits where it is held, fails where the script says so.
    fn enter(&self, call: Call) -> Result<MutexGuard<'_, State>, StoreError> {
        let mut state = self.state();
        if call != Call::OpenWriter {
            state.calls.push(call);
        }
        state.waiting += 1;
        while state.held.is_some_and(|held| same(held, call)) {
            state = self.0.1.wait(state).unwrap();
        }
        state.waiting -= 1;
        let Some(fault) = state.take_fault(call) else { return Ok(state) };
        drop(state);
        match fault {
            Fault::Fail(error) => Err(error),
            Fault::Panic => scripted_panic(),
        }
    }
}

impl Hold {
    /// Returns once this many threads wait in the held call.
    pub async fn reached(&self, threads: usize) {
        while self.0.state().waiting < threads {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.state().held = None;
        self.0.0.1.notify_all();
    }
}

impl Store for FakeStore {
    fn writer(&self) -> Result<Box<dyn Writer>, StoreError> {
        if self.state().read_only {
            return Err(StoreError::read_only("scripted"));
        }
        self.step(Call::OpenWriter)?;
        self.state().writers_open += 1;
        Ok(Box::new(FakeWriter { store: self.clone(), rows: None, before: None, savepoint: None }))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.step(Call::OpenReader)?;
        self.state().readers_open += 1;
        Ok(Box::new(FakeReader(self.clone())))
    }

    fn epoch(&self) -> u64 {
        self.state().epoch
    }

    fn unacknowledged_ops(&self) -> &[UnacknowledgedOp] {
        &[]
    }

    fn limits(&self) -> Limits {
        Limits::default()
    }

    fn disk_usage(&self) -> Result<FsStat, StoreError> {
        unimplemented!()
    }
}

struct FakeReader(FakeStore);

impl Reader for FakeReader {
    fn read(&mut self, f: &mut dyn FnMut(&dyn acetate::delta::ReadTxn)) -> Result<(), StoreError> {
        let rows = Rows(self.0.enter(Call::Read)?.rows.clone());
        f(&rows);
        Ok(())
    }
}

impl Drop for FakeReader {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.calls.push(Call::CloseReader);
        state.readers_open -= 1;
    }
}

/// The writing connection; it insists on the order of calls that the trait asks for.
struct FakeWriter {
    store: FakeStore,
    rows: Option<Rows>,
    /// As they were before the operation.
    before: Option<Rows>,
    savepoint: Option<Rows>,
}

impl Drop for FakeWriter {
    fn drop(&mut self) {
        let mut state = self.store.state();
        state.writers_open -= 1;
        state.closed_early |= state.readers_open > 0;
    }
}

impl FakeWriter {
    fn rows(&mut self) -> &mut Rows {
        self.rows.as_mut().expect("inside a batch")
    }
}

impl Writer for FakeWriter {
    fn begin(&mut self, durable: bool) -> Result<(), StoreError> {
        assert!(self.rows.is_none(), "begin inside a batch");
        let rows = self.store.enter(Call::Begin { durable })?.rows.clone();
        self.rows = Some(Rows(rows));
        Ok(())
    }

    fn try_begin(&mut self, durable: bool) -> Result<bool, StoreError> {
        if self.store.state().is_locked {
            return Ok(false);
        }
        self.begin(durable).map(|()| true)
    }

    fn poison(&self) -> Poison {
        self.store.state().poison.clone()
    }

    fn next(&mut self) {
        self.before = Some(self.rows().clone());
    }

    fn has_changed(&self) -> bool {
        self.before.as_ref().map(|rows| &rows.0) != self.rows.as_ref().map(|rows| &rows.0)
    }

    fn check_batch(&self) -> Result<(), StoreError> {
        match self.store.state().take_fault(Call::CheckBatch) {
            None => Ok(()),
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::Panic) => scripted_panic(),
        }
    }

    fn savepoint(&mut self) -> Result<(), StoreError> {
        self.store.step(Call::Savepoint)?;
        let rows = self.rows().clone();
        assert!(self.savepoint.replace(rows).is_none(), "savepoint in a savepoint");
        Ok(())
    }

    fn release(&mut self) -> Result<(), StoreError> {
        self.store.step(Call::Release)?;
        self.savepoint.take().expect("release of a savepoint");
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), StoreError> {
        self.store.step(Call::RollBack)?;
        *self.rows() = self.savepoint.take().expect("roll back to a savepoint");
        Ok(())
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        assert!(self.savepoint.is_none(), "commit in a savepoint");
        let rows = self.rows.take().expect("commit of a batch");
        self.store.enter(Call::Commit)?.rows = rows.0;
        Ok(())
    }

    fn abort(&mut self) -> Result<(), StoreError> {
        self.savepoint = None;
        self.rows.take().expect("abort of a batch");
        self.store.step(Call::Abort)?;
        Ok(())
    }

    fn txn(&mut self) -> &mut dyn WriteTxn {
        self.rows()
    }

    fn maintenance_at(&self) -> Option<Instant> {
        self.store.state().maintenance_at
    }

    fn maintenance(&mut self) {
        assert!(self.rows.is_none(), "maintenance inside a batch");
        self.store.step(Call::Maintenance).expect("nobody hears of its failure");
        self.store.state().maintenance_at = None;
    }

    fn compact(&mut self) -> Result<Compacted, StoreError> {
        unimplemented!()
    }

    fn count_usage(&mut self) -> Result<UsageDelta, StoreError> {
        assert!(self.rows.is_none(), "counting inside a batch");
        let rows = self.store.enter(Call::Count)?.rows.len();
        Ok(UsageDelta { bytes: 0, files: rows as i128 })
    }

    fn unsynced_bytes(&self) -> u64 {
        self.store.state().unsynced_bytes
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        assert!(self.rows.is_none(), "sync inside a batch");
        self.store.step(Call::Sync)
    }

    fn advance_epoch(&mut self) -> u64 {
        let mut state = self.store.state();
        state.calls.push(Call::AdvanceEpoch);
        state.epoch += 1;
        state.epoch
    }

    fn close(&mut self) -> Result<(), StoreError> {
        assert!(self.rows.is_none(), "close inside a batch");
        self.store.step(Call::Close)
    }
}
