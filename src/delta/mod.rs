//! The writable upper layer: a session's rows.
//!
//! [`ReadTxn`] and [`WriteTxn`] are the tables of docs/SCHEMA.md as typed operations on rows;
//! what they mean together (the merge rules) is the overlay's business.
//! [`Store`] opens connections; `worker` owns them and decides when to commit.
//!
//! SQL lives in [`sqlite`] alone. This module knows nothing of the base, but that a row can
//! name a path in it.

mod error;
mod original;
mod path;
mod poison;
mod row;
pub mod sqlite;
mod usage;

pub use error::StoreError;
pub use original::Original;
pub use path::{MAX_PATH_BYTES, MergedPath};
pub use poison::Poison;
pub use row::{
    AuditProcedure, AuditRow, AuditSet, CopyUp, Dropped, Ino, InodeRow, LateChange, Origin,
    PendingCopies, SHORTENED, Whiteouts,
};
pub use usage::{DEFAULT_FILE_BYTES, Limits, Usage, UsageDelta, content_bytes, whiteout_files};

use std::ops::Range;
use std::time::Instant;

use crate::base::BasePath;
use crate::vfs::{FileId, FsStat, Name, Time};

/// The result of a row operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A session: a source of connections.
pub trait Store: Send + Sync + 'static {
    /// Opens the one writing connection.
    fn writer(&self) -> Result<Box<dyn Writer>>;

    /// Opens a reading connection, which waits for SQLite's locks.
    fn reader(&self) -> Result<Box<dyn Reader>>;

    /// Opens a reading connection that never waits for a lock: [`Reader::read`] fails with
    /// [`StoreError::Busy`] instead.
    fn inline_reader(&self) -> Result<Box<dyn Reader>> {
        self.reader()
    }

    /// The session's boot epoch (invariant M3 of docs/SCHEMA.md): persisted, and moved forward
    /// whenever unsynced data may have been lost.
    fn epoch(&self) -> u64;

    /// The last changes before the session was last found not closed: their answers may not have
    /// reached the clients, who ask again then.
    fn late_changes(&self) -> &[LateChange];

    /// The session's own limits, as they were when it was opened.
    fn limits(&self) -> Limits;

    /// Figures of the disk that holds the session.
    fn disk_usage(&self) -> Result<FsStat>;
}

/// A reading connection; each call sees one snapshot.
pub trait Reader: Send {
    /// Runs `f` on a snapshot: taken when `f` reads its first row, or [`ReadTxn::hold`]s it.
    ///
    /// After an error of [`Store::inline_reader`]'s connection, what `f` came to is void.
    fn read(&mut self, f: &mut dyn FnMut(&dyn ReadTxn)) -> Result<()>;
}

/// The writing connection. Order of calls: `begin`, then (`next`, work)* or (`savepoint`, work,
/// `release` or `roll_back`)*, then `commit` or `abort`.
pub trait Writer: Send {
    /// Begins a batch. With `durable`, its commit syncs it and everything before it.
    fn begin(&mut self, durable: bool) -> Result<()>;

    /// Begins a batch that is not durable, if neither that nor its commit waits for a lock or a
    /// disk's sync. `false`, and no batch has begun, if [`Writer::begin`] has to do it, on a
    /// thread that may wait.
    fn try_begin(&mut self) -> Result<bool> {
        self.begin(false).map(|()| true)
    }

    /// Begins an operation in the batch that can be undone with all of the batch alone.
    fn next(&mut self);

    /// Whether the operation has changed anything.
    fn has_changed(&self) -> bool;

    /// Fails if the batch is lost: some failures, even of a read, make SQLite give it up.
    fn check_batch(&self) -> Result<()>;

    /// Begins an operation in the batch that can be undone by itself, which costs about a tenth
    /// of a small one.
    fn savepoint(&mut self) -> Result<()>;

    /// Keeps the operation's changes.
    fn release(&mut self) -> Result<()>;

    /// Undoes the operation's changes.
    fn roll_back(&mut self) -> Result<()>;

    /// Commits the batch. After an error nothing of it is kept.
    fn commit(&mut self) -> Result<()>;

    /// Gives the batch up.
    fn abort(&mut self) -> Result<()>;

    /// The rows, inside a batch.
    fn txn(&mut self) -> &mut dyn WriteTxn;

    /// When [`Writer::maintenance`] has something to do, if it will without another change.
    fn maintenance_at(&self) -> Option<Instant>;

    /// Whether [`Writer::maintenance`] has something to do.
    fn wants_maintenance(&self) -> bool {
        self.maintenance_at().is_some_and(|at| at <= Instant::now())
    }

    /// Does what the file needs from time to time and what takes longer than a commit should,
    /// outside a batch. A failure that concerns what was committed fails the next call.
    fn maintenance(&mut self);

    /// Gives the space of what was deleted back, outside a batch; what is held stays the same.
    fn compact(&mut self) -> Result<Compacted>;

    /// Counts what the session takes, outside a batch: how it has grown since it was empty. From
    /// then on each change is counted ([`WriteTxn::growth`]).
    fn count_usage(&mut self) -> Result<UsageDelta>;

    /// Whether committed data may be lost; then no call that changes something succeeds any more.
    fn poison(&self) -> Poison;

    /// What a sync has to write, in bytes, at most.
    fn unsynced_bytes(&self) -> u64;

    /// Syncs everything that was committed before, outside a batch. Cheap if nothing was.
    fn sync(&mut self) -> Result<()>;

    /// Notes that unsynced data may have been lost: moves the epoch forward, if the file still
    /// takes it, and returns the epoch that answers carry from now on.
    fn advance_epoch(&mut self) -> u64;

    /// Syncs, checkpoints the log into the session file and marks the session as cleanly closed.
    fn close(&mut self) -> Result<()>;
}

/// What compacting came to, in bytes: the session file and its log together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Before.
    pub before_bytes: u64,
    /// After.
    pub after_bytes: u64,
    /// Whether another program reads the session, so that its space comes back only when this
    /// ends and the session is opened again.
    pub is_delayed: bool,
}

/// Reads rows of one snapshot.
pub trait ReadTxn {
    /// Chunk size of this session, in bytes.
    fn chunk_bytes(&self) -> u64;

    /// Takes the snapshot now, if no row was read yet.
    fn hold(&self) -> Result<()>;

    /// The inode `ino`, with what our own tables say about it.
    fn inode(&self, ino: Ino) -> Result<Option<InodeRow>>;

    /// The inode that `name` in `parent` points to.
    fn dentry(&self, parent: Ino, name: &Name) -> Result<Option<Ino>>;

    /// Calls `each` for every entry of `parent` whose name is valid, with the entry's inode
    /// number, its mode (type and permissions), and the number that a listing shows for it.
    fn dentries(&self, parent: Ino, each: &mut dyn FnMut(Name, Ino, u32, FileId)) -> Result<()>;

    /// Whether `parent` has any entry.
    fn has_dentries(&self, parent: Ino) -> Result<bool>;

    /// One (parent, name) that points to `ino`: of a directory *the* one.
    fn name_of(&self, ino: Ino) -> Result<Option<(Ino, Name)>>;

    /// Returns all entries that point to `ino`: directories and names.
    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>>;

    /// Fills `buffer` with the content of `inode` from byte `offset`; what is not stored reads as
    /// zeros, be it a hole or [still the base's](CopyUp).
    /// The range must lie within `inode.size`.
    fn read_data(&self, inode: &InodeRow, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// The numbers of the chunks of `ino` in `range` that are stored, in order.
    fn stored_chunks(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<u64>>;

    /// The number of the first chunk of `ino` from `from` on that is stored.
    fn next_stored_chunk(&self, ino: Ino, from: u64) -> Result<Option<u64>>;

    /// How many chunks of `ino` in `range` are stored.
    fn count_stored_chunks(&self, ino: Ino, range: &Range<u64>) -> Result<u64>;

    /// The first inode from the number `from` on whose content is partly still the base's.
    fn pending_copy(&self, from: Ino) -> Result<Option<Ino>>;

    /// How much content is still the base's.
    fn pending_copies(&self) -> Result<PendingCopies>;

    /// A symbolic link's target.
    fn symlink(&self, ino: Ino) -> Result<Option<Vec<u8>>>;

    /// Whether exactly this path is whited out.
    fn is_whited_out(&self, path: &MergedPath) -> Result<bool>;

    /// When exactly this path was whited out, in seconds since 1970; `None` if it is not.
    fn whited_out_at(&self, path: &MergedPath) -> Result<Option<i64>>;

    /// The names whited out directly below the directory `parent`.
    fn whiteouts_in(&self, parent: &MergedPath) -> Result<Vec<Name>>;

    /// How many names are whited out directly below `parent`: no more than this, and counted no
    /// further than `most`.
    fn count_whiteouts(&self, parent: &MergedPath, most: usize) -> Result<usize>;

    /// The directories in which a name is whited out; some may come several times.
    fn whiteout_parents(&self) -> Result<Vec<MergedPath>>;

    /// The whiteouts below the directory `dir` (not its own); counts at most `most` of them.
    fn whiteouts_below(&self, dir: &MergedPath, most: u32) -> Result<Whiteouts>;

    /// The copied-up files that had several names in the base.
    fn copied_links(&self) -> Result<Vec<Ino>>;

    /// The delta inodes that base objects with this number were copied up to: more than one where
    /// the host removed the first of them, and gave its number to another.
    fn copied_up(&self, base: FileId) -> Result<Vec<Ino>>;

    /// The base directory that shows through the delta directory `ino` instead of the one at
    /// its own place.
    fn redirect(&self, ino: Ino) -> Result<Option<BasePath>>;

    /// The delta directories that are redirected.
    fn redirects(&self) -> Result<Vec<Ino>>;

    /// Since when nothing of the base shows through the delta directory `dir`, in seconds since
    /// 1970; `None` if it is not opaque.
    fn opaque_since(&self, dir: Ino) -> Result<Option<i64>>;

    /// The delta directories through which nothing of the base shows.
    fn opaque_dirs(&self) -> Result<Vec<Ino>>;

    /// The first regular file from the number `from` on of which not every chunk is stored.
    fn sparse_file(&self, from: Ino) -> Result<Option<Ino>>;

    /// The delta directory that is redirected to exactly this base directory.
    fn redirected_to(&self, base: &BasePath) -> Result<Option<Ino>>;

    /// How many names of a base file with several names are hidden (removed, or replaced by a
    /// delta entry), and when the last one was: (0, None) where none is.
    fn hidden_links(&self, base: FileId) -> Result<(u32, Option<Time>)>;

    /// The base files of which names are hidden.
    fn hidden_files(&self) -> Result<Vec<FileId>>;

    /// What the base had at a path before the session first changed or hid it, where that is kept.
    fn original(&self, path: &BasePath) -> Result<Option<Original>>;

    /// The content or link target of an [`Original`], where it is kept.
    fn original_content(&self, path: &BasePath) -> Result<Option<Vec<u8>>>;

    /// How much content of originals is kept, in bytes.
    fn original_bytes(&self) -> Result<u64>;

    /// The session's own limits.
    fn limits(&self) -> Result<Limits>;
}

/// Changes rows, in the writer's batch; reads see the batch's own changes.
pub trait WriteTxn: ReadTxn {
    /// A fresh inode number, from the high-water mark: never used before, even by an inode that
    /// was rolled back in an earlier run (invariant M2).
    fn allocate_ino(&mut self) -> Result<Ino>;

    /// Inserts or replaces the inode's row and what our own tables say about it
    /// (`subdirs`, `holes`, `create_verifier`, `origin`; fs_origin too), but for `copy_up`.
    fn put_inode(&mut self, inode: &InodeRow) -> Result<()>;

    /// Deletes an inode with its data, symlink target, origin, redirect and side rows.
    fn delete_inode(&mut self, ino: Ino) -> Result<()>;

    /// Adds an entry; the caller keeps `nlink`.
    fn insert_dentry(&mut self, parent: Ino, name: &Name, ino: Ino) -> Result<()>;

    /// Removes an entry; the caller keeps `nlink`.
    fn delete_dentry(&mut self, parent: Ino, name: &Name) -> Result<()>;

    /// Gives the entry `from` of `ino` another directory and name.
    fn move_dentry(&mut self, from: (Ino, &Name), to: (Ino, &Name), ino: Ino) -> Result<()>;

    /// Writes `data` at byte `offset`, and sets `inode.size` and `inode.holes` accordingly
    /// (in the struct; the caller stores it with [`WriteTxn::put_inode`]).
    /// Every stored chunk i keeps the length min(chunk size, size − i × chunk size): an old last
    /// chunk is padded with zeros where the file grows behind it.
    fn write_data(&mut self, inode: &mut InodeRow, offset: u64, data: &[u8]) -> Result<()>;

    /// Changes the size to `size` bytes: cuts or grows (with a hole), as `write_data` does.
    fn truncate(&mut self, inode: &mut InodeRow, size: u64) -> Result<()>;

    /// Stores what is pending of a file's content, or that nothing is (`InodeRow::copy_up`).
    fn put_copy_up(&mut self, ino: Ino, pending: Option<CopyUp>) -> Result<()>;

    /// Stores a symbolic link's target.
    fn put_symlink(&mut self, ino: Ino, target: &[u8]) -> Result<()>;

    /// Whites a path out.
    fn add_whiteout(&mut self, path: &MergedPath, now: Time) -> Result<()>;

    /// Removes the whiteout of exactly this path; returns when it was made, in seconds since 1970,
    /// if there was one.
    fn remove_whiteout(&mut self, path: &MergedPath) -> Result<Option<i64>>;

    /// Removes all whiteouts below this path (not its own).
    fn remove_whiteouts_below(&mut self, path: &MergedPath) -> Result<()>;

    /// Moves all whiteouts below `from` (not its own) to below `to`.
    fn move_whiteouts_below(&mut self, from: &MergedPath, to: &MergedPath) -> Result<()>;

    /// Lets `base` show through the delta directory `ino`.
    fn put_redirect(&mut self, ino: Ino, base: &BasePath) -> Result<()>;

    /// Lets the base directory at its own place show through the delta directory `ino` again.
    fn remove_redirect(&mut self, ino: Ino) -> Result<()>;

    /// Lets nothing of the base show through the delta directory `dir`.
    fn put_opaque(&mut self, dir: Ino, now: Time) -> Result<()>;

    /// Lets the base directory at its place show through the delta directory `dir` again.
    fn remove_opaque(&mut self, dir: Ino) -> Result<()>;

    /// Notes that one more name of a base file with several names is hidden since `now`.
    fn hide_link(&mut self, base: FileId, now: Time) -> Result<()>;

    /// Says how many names of a base file are hidden, after some came back.
    fn count_hidden(&mut self, base: FileId, hidden: u32) -> Result<()>;

    /// Keeps what the base has at a path, with its content or link target, if there is room for
    /// it: whether it is kept. An original of the path that is kept already stays.
    fn put_original(&mut self, original: &Original, content: Option<&[u8]>) -> Result<bool>;

    /// Forgets the originals of a base path and of all paths below it; returns how much content was
    /// kept of them, in bytes.
    fn remove_originals(&mut self, path: &BasePath) -> Result<u64>;

    /// Gives the originals of a base path and of all paths below it another path, as the base
    /// object there has it now.
    fn rename_originals(&mut self, old: &BasePath, new: &BasePath) -> Result<()>;

    /// Shows the origins of copied-up objects to readers of the specification's tables
    /// (`fs_origin`), or hides all that are there; ours are not touched. While they are hidden,
    /// only new ones are added.
    fn show_origins(&mut self, shown: bool) -> Result<()>;

    /// By how much the operation has changed so far what the session takes: nothing before the
    /// first [`Writer::count_usage`].
    fn growth(&self) -> UsageDelta;

    /// Stores the session's own limits.
    fn put_limits(&mut self, limits: Limits) -> Result<()>;

    /// Says whether a limit of bytes or files applies to what follows in this operation: rows of
    /// the audit log that go past its bound are dropped only then.
    fn bound_audit(&mut self, applies: bool);

    /// Deletes the oldest rows of the audit log up to the row `upto`, and `most` of them; how many
    /// they were. What the reply cache needs after a kill at `now` stays, and so does the last row.
    fn prune_audit(&mut self, upto: i64, now: Time, most: u32) -> Result<u64>;

    /// Writes a row of the audit log (acetate_op).
    fn record(&mut self, row: &AuditRow) -> Result<()>;
}
