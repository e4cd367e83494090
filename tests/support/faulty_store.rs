//! A [`Store`] that passes every call on to another, but for those that it was told to fail.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use acetate::base::BasePath;
use acetate::delta::{
    AuditRow, CheckpointId, CheckpointSpace, Compacted, CopyUp, Ino, InodeRow, Limits,
    MadeCheckpoint, MergedPath, NewCheckpoint, Original, PendingCopies, Poison, ReadTxn, Reader,
    RestoreOutcome, RestorePaths, RestoreRequest, Result, Store, StoreError, UnacknowledgedOp,
    UnsavedContent, UsageDelta, Whiteouts, WriteTxn, Writer,
};
use acetate::vfs::{FileId, FsStat, Name, Time};

/// The calls of one method that fail: how many calls away, and how.
type Planned = Vec<(u32, StoreError)>;

/// A commit that stands, and fails all the same.
pub const AFTER_COMMIT: &str = "after_commit";

/// What fails when; shared by a store's connections and the test.
#[derive(Clone, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

#[derive(Default)]
struct Plan {
    faults: BTreeMap<&'static str, Planned>,
    held: BTreeMap<&'static str, Receiver<()>>,
    calls: BTreeMap<&'static str, u32>,
}

impl Faults {
    /// Lets the `n`th call of the trait method `method` from now on fail, counted from 1.
    /// Several may be told for one method.
    pub fn fail(&self, method: &'static str, n: u32, error: StoreError) {
        self.0.lock().unwrap().faults.entry(method).or_default().push((n, error));
    }

    /// Holds up the next call of the trait method `method` until what is returned is dropped.
    pub fn hold(&self, method: &'static str) -> Sender<()> {
        let (hold, held) = mpsc::channel();
        self.0.lock().unwrap().held.insert(method, held);
        hold
    }

    /// Takes back what was planned and has not happened; whether there was any.
    pub fn clear(&self) -> bool {
        let faults = std::mem::take(&mut self.0.lock().unwrap().faults);
        faults.values().any(|planned| !planned.is_empty())
    }

    /// How often the method was called so far.
    pub fn calls(&self, method: &str) -> u32 {
        self.0.lock().unwrap().calls.get(method).copied().unwrap_or(0)
    }

    /// Counts one call.
    fn call(&self, method: &'static str) -> Result<()> {
        let mut plan = self.0.lock().unwrap();
        *plan.calls.entry(method).or_default() += 1;
        if let Some(held) = plan.held.remove(method) {
            drop(plan);
            let _let_go = held.recv();
            plan = self.0.lock().unwrap();
        }
        let Some(planned) = plan.faults.get_mut(method) else { return Ok(()) };
        planned.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
        match planned.iter().position(|(left, _)| *left == 0) {
            Some(at) => Err(planned.swap_remove(at).1),
            None => Ok(()),
        }
    }
}

/// A store with faults.
pub struct FaultyStore<S> {
    pub inner: S,
    pub faults: Faults,
    /// Whether commits fail when they are prepared: another store keeps them then.
    pub prepares: bool,
}

impl<S: Store> FaultyStore<S> {
    pub fn new(inner: S) -> Self {
        Self { inner, faults: Faults::default(), prepares: false }
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn writer(&self) -> Result<Box<dyn Writer>> {
        self.faults.call("writer")?;
        Ok(Box::new(FaultyWriter {
            inner: RefCell::new(self.inner.writer()?),
            faults: self.faults.clone(),
            prepares: self.prepares,
        }))
    }

    fn reader(&self) -> Result<Box<dyn Reader>> {
        self.faults.call("reader")?;
        Ok(Box::new(FaultyReader { inner: self.inner.reader()?, faults: self.faults.clone() }))
    }

    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }

    fn unacknowledged_ops(&self) -> &[UnacknowledgedOp] {
        self.inner.unacknowledged_ops()
    }

    fn limits(&self) -> Limits {
        // Files of any size, where a test does not limit them.
        let limits = self.inner.limits();
        Limits { file_bytes: limits.file_bytes.or(Some(i64::MAX as u64)), ..limits }
    }

    fn disk_usage(&self) -> Result<FsStat> {
        self.faults.call("disk_usage")?;
        self.inner.disk_usage()
    }
}

struct FaultyReader {
    inner: Box<dyn Reader>,
    faults: Faults,
}

impl Reader for FaultyReader {
    fn read(&mut self, f: &mut dyn FnMut(&dyn ReadTxn)) -> Result<()> {
        self.faults.call("read")?;
        let faults = &self.faults;
        self.inner.read(&mut |txn| f(&FaultyRead { inner: txn, faults }))
    }
}

/// The writer is its own transaction, and asks the inner one for its at each call.
struct FaultyWriter {
    inner: RefCell<Box<dyn Writer>>,
    faults: Faults,
    prepares: bool,
}

/// Passes lifecycle calls on.
macro_rules! lifecycle {
    ($($method:ident($($arg:ident: $type:ty)?);)*) => {
        $(fn $method(&mut self $(, $arg: $type)?) -> Result<()> {
            self.faults.call(stringify!($method))?;
            self.inner.get_mut().$method($($arg)?)
        })*
    };
}

impl Writer for FaultyWriter {
    lifecycle! {
        begin(durable: bool);
        savepoint();
        release();
        roll_back();
        abort();
        sync();
        close();
    }

    fn poison(&self) -> Poison {
        self.inner.borrow().poison()
    }

    fn try_begin(&mut self, durable: bool) -> Result<bool> {
        // Never what may wait for another store.
        match self.prepares {
            true => self.inner.get_mut().try_begin(durable),
            false => self.begin(durable).map(|()| true),
        }
    }

    fn next(&mut self) {
        self.inner.get_mut().next();
    }

    fn has_changed(&self) -> bool {
        self.inner.borrow().has_changed()
    }

    fn check_batch(&self) -> Result<()> {
        self.faults.call("check_batch")?;
        self.inner.borrow().check_batch()
    }

    fn prepare(&mut self) -> Result<()> {
        if self.prepares {
            self.faults.call("commit")?;
        }
        self.inner.get_mut().prepare()
    }

    fn commit(&mut self) -> Result<()> {
        if !self.prepares
            && let Err(error) = self.faults.call("commit")
        {
            // Nothing of the batch is kept.
            self.inner.get_mut().abort()?;
            return Err(error);
        }
        self.inner.get_mut().commit()?;
        self.faults.call(AFTER_COMMIT)
    }

    fn lacks_room(&self) -> bool {
        self.inner.borrow().lacks_room()
    }

    fn make_room(&mut self) -> Result<bool> {
        self.inner.get_mut().make_room()
    }

    fn txn(&mut self) -> &mut dyn WriteTxn {
        self
    }

    fn maintenance_at(&self) -> Option<Instant> {
        self.inner.borrow().maintenance_at()
    }

    fn unsynced_bytes(&self) -> u64 {
        self.inner.borrow().unsynced_bytes()
    }

    fn maintenance(&mut self) {
        self.inner.get_mut().maintenance();
    }

    fn count_usage(&mut self) -> Result<UsageDelta> {
        self.faults.call("count_usage")?;
        self.inner.get_mut().count_usage()
    }

    fn compact(&mut self) -> Result<Compacted> {
        self.inner.get_mut().compact()
    }

    fn advance_epoch(&mut self) -> u64 {
        self.inner.get_mut().advance_epoch()
    }
}

struct FaultyRead<'a> {
    inner: &'a dyn ReadTxn,
    faults: &'a Faults,
}

impl FaultyRead<'_> {
    fn with<T>(&self, f: impl FnOnce(&dyn ReadTxn) -> T) -> T {
        f(self.inner)
    }
}

impl FaultyWriter {
    fn with<T>(&self, f: impl FnOnce(&dyn ReadTxn) -> T) -> T {
        f(self.inner.borrow_mut().txn())
    }
}

/// Passes reads on.
macro_rules! reads {
    ($type:ty; $($method:ident($($arg:ident: $arg_type:ty),*) -> $returned:ty;)*) => {
        impl ReadTxn for $type {
            fn chunk_bytes(&self) -> u64 {
                self.with(|txn| txn.chunk_bytes())
            }

            fn dentries(
                &self,
                parent: Ino,
                each: &mut dyn FnMut(Name, Ino, u32, FileId),
            ) -> Result<()> {
                self.faults.call("dentries")?;
                // Collected first: `each` may read on.
                let mut all = Vec::new();
                self.with(|txn| {
                    txn.dentries(parent, &mut |name, ino, mode, id| all.push((name, ino, mode, id)))
                })?;
                all.into_iter().for_each(|(name, ino, mode, id)| each(name, ino, mode, id));
                Ok(())
            }

            $(fn $method(&self, $($arg: $arg_type),*) -> Result<$returned> {
                self.faults.call(stringify!($method))?;
                self.with(|txn| txn.$method($($arg),*))
            })*
        }
    };
    ($type:ty) => {
        reads! { $type;
            hold() -> ();
            inode(ino: Ino) -> Option<InodeRow>;
            dentry(parent: Ino, name: &Name) -> Option<Ino>;
            has_dentries(parent: Ino) -> bool;
            name_of(ino: Ino) -> Option<(Ino, Name)>;
            names_of(ino: Ino) -> Vec<(Ino, Name)>;
            read_data(inode: &InodeRow, offset: u64, buffer: &mut [u8]) -> ();
            stored_chunks(ino: Ino, range: &Range<u64>) -> Vec<u64>;
            next_stored_chunk(ino: Ino, from: u64) -> Option<u64>;
            count_stored_chunks(ino: Ino, range: &Range<u64>) -> u64;
            pending_copy(from: Ino) -> Option<Ino>;
            pending_copies() -> PendingCopies;
    checkpoint_space() -> Option<CheckpointSpace>;
            symlink(ino: Ino) -> Option<Vec<u8>>;
            is_whited_out(path: &MergedPath) -> bool;
            whited_out_at(path: &MergedPath) -> Option<i64>;
            whiteouts_in(parent: &MergedPath) -> Vec<Name>;
            count_whiteouts(parent: &MergedPath, most: usize) -> usize;
            whiteout_parents() -> Vec<MergedPath>;
            whiteouts_below(dir: &MergedPath, most: u32) -> Whiteouts;
            copied_links() -> Vec<Ino>;
            copied_single_names() -> Vec<Ino>;
            copied_up(base: FileId) -> Vec<Ino>;
            redirect(ino: Ino) -> Option<BasePath>;
            redirects() -> Vec<Ino>;
            opaque_since(dir: Ino) -> Option<i64>;
            opaque_dirs() -> Vec<Ino>;
            sparse_file(from: Ino) -> Option<Ino>;
            redirected_to(base: &BasePath) -> Option<Ino>;
            has_redirect_within(base: &BasePath) -> bool;
            copied_up_dirs() -> Vec<BasePath>;
            hidden_links(base: FileId) -> (u32, Option<Time>);
            hidden_files() -> Vec<FileId>;
            original(path: &BasePath) -> Option<Original>;
            has_copied_file_within(path: &BasePath) -> bool;
            original_content(path: &BasePath) -> Option<Vec<u8>>;
            original_bytes() -> u64;
            limits() -> Limits;
        }
    };
}

reads!(FaultyRead<'_>);
reads!(FaultyWriter);

/// Passes changes on.
macro_rules! changes {
    ($($method:ident($($arg:ident: $arg_type:ty),*) -> $returned:ty;)*) => {
        impl WriteTxn for FaultyWriter {
            fn growth(&self) -> UsageDelta {
                self.inner.borrow_mut().txn().growth()
            }

            fn bound_audit(&mut self, applies: bool) {
                self.inner.get_mut().txn().bound_audit(applies);
            }

            $(fn $method(&mut self, $($arg: $arg_type),*) -> Result<$returned> {
                self.faults.call(stringify!($method))?;
                self.inner.get_mut().txn().$method($($arg),*)
            })*
        }
    };
}

changes! {
    allocate_ino() -> Ino;
    put_inode(inode: &InodeRow) -> ();
    delete_inode(ino: Ino) -> ();
    insert_dentry(parent: Ino, name: &Name, ino: Ino) -> ();
    delete_dentry(parent: Ino, name: &Name) -> ();
    move_dentry(from: (Ino, &Name), to: (Ino, &Name), ino: Ino) -> ();
    write_data(inode: &mut InodeRow, offset: u64, data: &[u8]) -> ();
    truncate(inode: &mut InodeRow, size: u64) -> ();
    put_copy_up(ino: Ino, pending: Option<CopyUp>) -> ();
    put_symlink(ino: Ino, target: &[u8]) -> ();
    add_whiteout(path: &MergedPath, now: Time) -> ();
    remove_whiteout(path: &MergedPath) -> Option<i64>;
    put_original(original: &Original, content: Option<&[u8]>) -> bool;
    remove_originals(path: &BasePath) -> u64;
    rename_originals(old: &BasePath, new: &BasePath) -> ();
    remove_whiteouts_below(path: &MergedPath) -> ();
    move_whiteouts_below(from: &MergedPath, to: &MergedPath) -> ();
    remove_redirect(ino: Ino) -> ();
    put_redirect(ino: Ino, base: &BasePath) -> ();
    put_opaque(dir: Ino, now: Time) -> ();
    remove_opaque(dir: Ino) -> ();
    hide_link(base: FileId, now: Time) -> ();
    count_hidden(base: FileId, hidden: u32) -> ();
    show_origins(shown: bool) -> ();
    create_checkpoint(new: &NewCheckpoint) -> MadeCheckpoint;
    remove_checkpoint(id: CheckpointId) -> bool;
    keep_checkpoint(id: CheckpointId) -> bool;
    is_changed_since(seen: i64) -> bool;
    has_unsaved(content: UnsavedContent, most: u64) -> bool;
    save_content(content: UnsavedContent, most: usize) -> Option<UnsavedContent>;
    free_removed(most: u32) -> bool;
    put_copied(file: Option<Ino>) -> ();
    prepare_restore(restore: &RestoreRequest) -> Option<RestoreOutcome>;
    restore(restore: &RestoreRequest, paths: Option<&RestorePaths>) -> RestoreOutcome;
    put_limits(limits: Limits) -> ();
    prune_audit(upto: i64, now: Time, most: u32) -> u64;
    record(row: &AuditRow) -> ();
}
