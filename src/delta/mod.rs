//! The writable upper layer: a session's rows.
//!
//! [`ReadTxn`] and [`WriteTxn`] are the tables of docs/SCHEMA.md as typed operations on rows. The
//! merge rules, which combine rows into a tree, are in the overlay. [`Store`] opens connections;
//! `worker` owns them and decides when to commit.
//!
//! Only [`sqlite`] contains SQL. This module does not access the base; a row can name a path in it.

mod background;
mod checkpoint;
mod error;
mod original;
mod path;
mod poison;
pub mod postgres;
mod row;
pub mod sqlite;
mod usage;

pub use background::{BackgroundThreads, BackgroundWork, NewThreads};
pub(crate) use checkpoint::surplus;
pub use checkpoint::{
    BEFORE_APPLY, ChangedRows, Checkpoint, CheckpointId, CheckpointKeep, CheckpointKind,
    CheckpointSpace, ForkOrigin, Incomplete, KEPT_CHECKPOINTS, MadeCheckpoint, NewCheckpoint,
    RestoreOutcome, RestorePaths, RestoreRequest, RestoredRows, RestoredTree, UnsavedContent,
};
pub use error::{StoreError, StoreErrorKind};
pub use original::Original;
pub use path::{MAX_PATH_BYTES, MergedPath};
pub use poison::Poison;
pub use row::{
    AuditProcedure, AuditRow, AuditSet, CopyUp, Dropped, Ino, InodeRow, Origin, PendingCopies,
    SHORTENED, UnacknowledgedOp, Whiteouts,
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

    /// The session's boot epoch (invariant M3 of docs/SCHEMA.md): persisted, and moved forward
    /// whenever unsynced data may have been lost.
    fn epoch(&self) -> u64;

    /// The last changes before the most recent unclean shutdown. Their replies may not have reached
    /// the clients, which then retransmit.
    fn unacknowledged_ops(&self) -> &[UnacknowledgedOp];

    /// The session's own limits, read when the session was opened.
    fn limits(&self) -> Limits;

    /// Size and free space of the disk that holds the session.
    fn disk_usage(&self) -> Result<FsStat>;

    /// Size of the WAL.
    fn wal_size(&self) -> WalSize {
        WalSize::default()
    }

    /// The lease without which nothing may be answered.
    fn lease(&self) -> Option<std::sync::Arc<postgres::HeldLease>> {
        None
    }
}

/// Size of a WAL, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WalSize {
    /// Length of its file.
    pub file_bytes: u64,
    /// Its part that a checkpoint has yet to copy into the database.
    pub left_bytes: u64,
}

/// A reading connection; each call sees one snapshot.
pub trait Reader: Send {
    /// Runs `f` on a snapshot, which is taken when `f` reads its first row or calls
    /// [`ReadTxn::hold`].
    ///
    /// If a connection that does not wait returns an error, or any connection
    /// [`StoreErrorKind::Busy`] or [`StoreErrorKind::Lost`], the caller discards the results of
    /// `f`.
    fn read(&mut self, f: &mut dyn FnMut(&dyn ReadTxn)) -> Result<()>;

    /// Sets whether it waits for SQLite's locks from now on. If it does not, [`Reader::read`] fails
    /// with [`StoreError::busy`] instead.
    fn set_waits(&mut self, _waits: bool) -> Result<()> {
        Ok(())
    }
}

/// The writing connection. Order of calls: `begin`, then (`next`, work)* or (`savepoint`, work,
/// `release` or `roll_back`)*, then `commit` or `abort`.
pub trait Writer: Send {
    /// Begins a batch. With `durable`, its commit fsyncs this batch and all earlier ones.
    fn begin(&mut self, durable: bool) -> Result<()>;

    /// Begins a batch, if neither the begin nor the commit has to wait for a lock, nor for an fsync
    /// other than that of a durable commit. Returns `false` without a batch otherwise: the caller
    /// then calls [`Writer::begin`] on a thread that may block.
    fn try_begin(&mut self, durable: bool) -> Result<bool> {
        self.begin(durable).map(|()| true)
    }

    /// Begins an operation without a savepoint: undoing it means undoing the whole batch.
    fn next(&mut self);

    /// Whether the current operation has changed anything.
    fn has_changed(&self) -> bool;

    /// Fails if SQLite has rolled the batch back. Some errors cause that, even of a read.
    fn check_batch(&self) -> Result<()>;

    /// Begins an operation in a savepoint, so that it can be undone alone. The savepoint costs
    /// about a tenth of a small operation.
    fn savepoint(&mut self) -> Result<()>;

    /// Keeps the operation's changes.
    fn release(&mut self) -> Result<()>;

    /// Undoes the operation's changes.
    fn roll_back(&mut self) -> Result<()>;

    /// Has another store keep the batch, before the caches of readers become invalid: it may take
    /// long. After an error, no change of the batch is kept.
    fn prepare(&mut self) -> Result<()> {
        Ok(())
    }

    /// Commits the batch. After an error no change of the batch is kept.
    fn commit(&mut self) -> Result<()>;

    /// Rolls the batch back.
    fn abort(&mut self) -> Result<()>;

    /// Whether a change that takes something away found no room in the batch, or in its commit, and
    /// [`Writer::make_room`] may make some.
    fn lacks_room(&self) -> bool {
        false
    }

    /// Gives up some of what is saved for checkpoints, after such a batch was aborted; returns
    /// whether there was any. The batch is then to be run again.
    fn make_room(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// The rows, inside a batch.
    fn txn(&mut self) -> &mut dyn WriteTxn;

    /// When [`Writer::maintenance`] next has work, assuming no further change; `None` for never.
    fn maintenance_at(&self) -> Option<Instant>;

    /// Whether [`Writer::maintenance`] has work now.
    fn wants_maintenance(&self) -> bool {
        self.maintenance_at().is_some_and(|at| at <= Instant::now())
    }

    /// Does periodic work on the file that takes longer than a commit should, such as a WAL
    /// checkpoint; outside a batch. If a failure affects committed data, the next call fails.
    fn maintenance(&mut self);

    /// Returns the space of deleted rows to the filesystem, outside a batch. The content is
    /// unchanged.
    fn compact(&mut self) -> Result<Compacted>;

    /// Counts the session's usage, outside a batch, and returns it as growth from empty. From then
    /// on each change is counted ([`WriteTxn::growth`]).
    fn count_usage(&mut self) -> Result<UsageDelta>;

    /// Whether committed data may be lost. Once set, every call that changes something fails.
    fn poison(&self) -> Poison;

    /// Upper bound of what the next sync has to write, in bytes.
    fn unsynced_bytes(&self) -> u64;

    /// Fsyncs everything that was committed before, outside a batch. Cheap if nothing is unsynced.
    fn sync(&mut self) -> Result<()>;

    /// Records that unsynced data may have been lost: advances the epoch, in the file too if it can
    /// still be written. Returns the epoch for the replies from now on.
    fn advance_epoch(&mut self) -> u64;

    /// Frees memory that only makes later batches faster, outside a batch.
    fn rest(&mut self) {}

    /// Syncs, checkpoints the WAL into the session file and marks the session as cleanly closed.
    fn close(&mut self) -> Result<()>;
}

/// The result of compaction, in bytes: lengths of the session file and its WAL together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Length before.
    pub before_bytes: u64,
    /// Length after.
    pub after_bytes: u64,
    /// Whether another program reads the session. The space then returns only after that program
    /// has closed the session and the session is opened again.
    pub is_delayed: bool,
}

/// Reads rows of one snapshot.
pub trait ReadTxn {
    /// Chunk size of this session, in bytes.
    fn chunk_bytes(&self) -> u64;

    /// Takes the snapshot now, if no row has been read yet.
    fn hold(&self) -> Result<()>;

    /// The inode `ino`, with its rows in the `acetate_*` tables.
    fn inode(&self, ino: Ino) -> Result<Option<InodeRow>>;

    /// The inode that `name` in `parent` points to.
    fn dentry(&self, parent: Ino, name: &Name) -> Result<Option<Ino>>;

    /// Calls `each` for every entry of `parent` with a valid name: the entry's inode number, its
    /// mode (type and permissions), and the file number that a listing shows.
    fn dentries(&self, parent: Ino, each: &mut dyn FnMut(Name, Ino, u32, FileId)) -> Result<()>;

    /// Whether `parent` has any entry.
    fn has_dentries(&self, parent: Ino) -> Result<bool>;

    /// One (parent, name) that points to `ino`; a directory has exactly one.
    fn name_of(&self, ino: Ino) -> Result<Option<(Ino, Name)>>;

    /// All (parent, name) entries that point to `ino`.
    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>>;

    /// Fills `buffer` with the content of `inode` from byte `offset`. Chunks that are not stored
    /// read as zeros: both holes and chunks that are [still the base's](CopyUp). The range must lie
    /// within `inode.size`.
    fn read_data(&self, inode: &InodeRow, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// The numbers of the stored chunks of `ino` in `range`, ascending.
    fn stored_chunks(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<u64>>;

    /// The number of the first stored chunk of `ino` at or after `from`.
    fn next_stored_chunk(&self, ino: Ino, from: u64) -> Result<Option<u64>>;

    /// How many chunks of `ino` in `range` are stored.
    fn count_stored_chunks(&self, ino: Ino, range: &Range<u64>) -> Result<u64>;

    /// The first inode at or after `from` that has content still to be copied from the base.
    fn pending_copy(&self, from: Ino) -> Result<Option<Ino>>;

    /// How much content is still to be copied from the base.
    fn pending_copies(&self) -> Result<PendingCopies>;

    /// What the session's checkpoints take; `None` without any.
    fn checkpoint_space(&self) -> Result<Option<CheckpointSpace>>;

    /// A symbolic link's target.
    fn symlink(&self, ino: Ino) -> Result<Option<Vec<u8>>>;

    /// Whether exactly this path is whited out.
    fn is_whited_out(&self, path: &MergedPath) -> Result<bool>;

    /// When exactly this path was whited out, in seconds since 1970; `None` if it is not.
    fn whited_out_at(&self, path: &MergedPath) -> Result<Option<i64>>;

    /// The names whited out directly below the directory `parent`.
    fn whiteouts_in(&self, parent: &MergedPath) -> Result<Vec<Name>>;

    /// How many names are whited out directly below `parent`, counting up to `most`. An upper
    /// bound.
    fn count_whiteouts(&self, parent: &MergedPath, most: usize) -> Result<usize>;

    /// The directories in which a name is whited out; a directory may occur several times.
    fn whiteout_parents(&self) -> Result<Vec<MergedPath>>;

    /// The whiteouts below the directory `dir` (not its own); counts at most `most` of them.
    fn whiteouts_below(&self, dir: &MergedPath, most: u32) -> Result<Whiteouts>;

    /// The copied-up files that had several hard links in the base.
    fn copied_links(&self) -> Result<Vec<Ino>>;

    /// The copied-up files that had a single name in the base.
    fn copied_single_names(&self) -> Result<Vec<Ino>>;

    /// The delta inodes that were copied up from base objects with this file number. More than one
    /// if the host deleted the first base object and reused its inode number.
    fn copied_up(&self, base: FileId) -> Result<Vec<Ino>>;

    /// The base directory to which the delta directory `ino` is redirected.
    fn redirect(&self, ino: Ino) -> Result<Option<BasePath>>;

    /// All redirected delta directories.
    fn redirects(&self) -> Result<Vec<Ino>>;

    /// When the delta directory `dir` became opaque, in seconds since 1970; `None` if it is not
    /// opaque.
    fn opaque_since(&self, dir: Ino) -> Result<Option<i64>>;

    /// All opaque delta directories.
    fn opaque_dirs(&self) -> Result<Vec<Ino>>;

    /// The first regular file at or after `from` that does not store every chunk.
    fn sparse_file(&self, from: Ino) -> Result<Option<Ino>>;

    /// The delta directory whose redirect is exactly this base directory.
    fn redirected_to(&self, base: &BasePath) -> Result<Option<Ino>>;

    /// Whether a delta directory has a redirect to this base directory, or to one below it.
    fn has_redirect_within(&self, base: &BasePath) -> Result<bool>;

    /// The base paths from which delta directories were copied up.
    fn copied_up_dirs(&self) -> Result<Vec<BasePath>>;

    /// How many names of a hard-linked base file are hidden (removed, or replaced by a delta
    /// entry), and when the last one was hidden. (0, None) if none is.
    fn hidden_links(&self, base: FileId) -> Result<(u32, Option<Time>)>;

    /// The base files that have hidden names.
    fn hidden_files(&self) -> Result<Vec<FileId>>;

    /// The original recorded for a base path: its state before the session first changed or hid it.
    fn original(&self, path: &BasePath) -> Result<Option<Original>>;

    /// Whether a delta file with a name was copied up from this base path, or from one below it,
    /// and has its original there.
    fn has_copied_file_within(&self, path: &BasePath) -> Result<bool>;

    /// The content or link target of an [`Original`], if it is stored.
    fn original_content(&self, path: &BasePath) -> Result<Option<Vec<u8>>>;

    /// Total size of the stored content of originals, in bytes.
    fn original_bytes(&self) -> Result<u64>;

    /// The session's own limits, as stored now.
    fn limits(&self) -> Result<Limits>;
}

/// Changes rows in the writer's batch; reads see the batch's own changes.
pub trait WriteTxn: ReadTxn {
    /// Allocates an inode number from the high-water mark. It was never used before, not even by an
    /// inode that was rolled back in an earlier run (invariant M2).
    fn allocate_ino(&mut self) -> Result<Ino>;

    /// Inserts or replaces the inode's row and its rows in our own tables (`subdirs`, `holes`,
    /// `create_verifier`, `origin`; also fs_origin). Does not store `copy_up`.
    fn put_inode(&mut self, inode: &InodeRow) -> Result<()>;

    /// Deletes an inode with its data, symlink target, origin, redirect and rows in other tables.
    fn delete_inode(&mut self, ino: Ino) -> Result<()>;

    /// Adds an entry; the caller updates `nlink`.
    fn insert_dentry(&mut self, parent: Ino, name: &Name, ino: Ino) -> Result<()>;

    /// Removes an entry; the caller updates `nlink`.
    fn delete_dentry(&mut self, parent: Ino, name: &Name) -> Result<()>;

    /// Moves the entry `from` of `ino` to another directory and name.
    fn move_dentry(&mut self, from: (Ino, &Name), to: (Ino, &Name), ino: Ino) -> Result<()>;

    /// Writes `data` at byte `offset`, and updates `inode.size` and `inode.holes` in the struct;
    /// the caller stores it with [`WriteTxn::put_inode`]. Every stored chunk i keeps the length
    /// min(chunk size, size − i × chunk size): an old last chunk is padded with zeros when the file
    /// grows beyond it.
    fn write_data(&mut self, inode: &mut InodeRow, offset: u64, data: &[u8]) -> Result<()>;

    /// Truncates or extends (with a hole) to `size` bytes, as `write_data` does.
    fn truncate(&mut self, inode: &mut InodeRow, size: u64) -> Result<()>;

    /// Stores the pending part of a file's content (`InodeRow::copy_up`); `None` if none is
    /// pending.
    fn put_copy_up(&mut self, ino: Ino, pending: Option<CopyUp>) -> Result<()>;

    /// Stores a symbolic link's target.
    fn put_symlink(&mut self, ino: Ino, target: &[u8]) -> Result<()>;

    /// Adds a whiteout for exactly this path.
    fn add_whiteout(&mut self, path: &MergedPath, now: Time) -> Result<()>;

    /// Removes the whiteout of exactly this path; returns its time, in seconds since 1970, if there
    /// was one.
    fn remove_whiteout(&mut self, path: &MergedPath) -> Result<Option<i64>>;

    /// Removes all whiteouts below this path (not its own).
    fn remove_whiteouts_below(&mut self, path: &MergedPath) -> Result<()>;

    /// Moves all whiteouts below `from` (not its own) to below `to`.
    fn move_whiteouts_below(&mut self, from: &MergedPath, to: &MergedPath) -> Result<()>;

    /// Redirects the delta directory `ino` to `base`.
    fn put_redirect(&mut self, ino: Ino, base: &BasePath) -> Result<()>;

    /// Removes the redirect of the delta directory `ino`.
    fn remove_redirect(&mut self, ino: Ino) -> Result<()>;

    /// Makes the delta directory `dir` opaque.
    fn put_opaque(&mut self, dir: Ino, now: Time) -> Result<()>;

    /// Makes the delta directory `dir` transparent again: the base directory at its place shows
    /// through.
    fn remove_opaque(&mut self, dir: Ino) -> Result<()>;

    /// Records that one more name of a hard-linked base file is hidden since `now`.
    fn hide_link(&mut self, base: FileId, now: Time) -> Result<()>;

    /// Sets the number of hidden names of a base file, after some became visible again.
    fn count_hidden(&mut self, base: FileId, hidden: u32) -> Result<()>;

    /// Stores the original of a path, with its content or link target, if there is room for it.
    /// Returns whether it is stored. An original that exists already stays.
    fn put_original(&mut self, original: &Original, content: Option<&[u8]>) -> Result<bool>;

    /// Deletes the originals of a base path and of all paths below it; returns how many bytes of
    /// content that frees.
    fn remove_originals(&mut self, path: &BasePath) -> Result<u64>;

    /// Renames the originals of a base path and of all paths below it, after the base object moved.
    fn rename_originals(&mut self, old: &BasePath, new: &BasePath) -> Result<()>;

    /// Fills `fs_origin` from `acetate_origin` for other implementations (`shown`), or empties it.
    /// While it is hidden, only new origins are added.
    fn show_origins(&mut self, shown: bool) -> Result<()>;

    /// How much the current operation has changed the session's usage so far; zero before the first
    /// [`Writer::count_usage`].
    fn growth(&self) -> UsageDelta;

    /// Stores the session's own limits.
    fn put_limits(&mut self, limits: Limits) -> Result<()>;

    /// Makes a checkpoint of the tree as it is in this transaction. From then on each row that
    /// changes is saved first. After an automatic one, removes those that are not kept.
    fn create_checkpoint(&mut self, new: &NewCheckpoint) -> Result<MadeCheckpoint>;

    /// Says that the chunks which this operation stores next continue the copy-up of a file, or
    /// with `None`, that they no longer do. A checkpoint at which they were pending may show them.
    fn put_copied(&mut self, file: Option<Ino>) -> Result<()>;

    /// Whether more than `most` bytes of the content are still to be saved for the newest
    /// checkpoint before it goes.
    fn has_unsaved(&mut self, content: UnsavedContent, most: u64) -> Result<bool>;

    /// Saves some of the content that is still to be saved for the newest checkpoint: about `most`
    /// bytes, at least a chunk. Returns what is left of it. A checkpoint does not lose what is
    /// saved early: as long as the content does not change, it is what a later save would save.
    fn save_content(
        &mut self,
        content: UnsavedContent,
        most: usize,
    ) -> Result<Option<UnsavedContent>>;

    /// Whether a row of the audit log after `seen` changed anything.
    fn is_changed_since(&mut self, seen: i64) -> Result<bool>;

    /// Makes the checkpoint of the tree as it is that a restore needs, unless nothing changed since
    /// the newest; or returns why there will be no restore.
    fn prepare_restore(&mut self, restore: &RestoreRequest) -> Result<Option<RestoreOutcome>>;

    /// Makes the tree, or some paths of it, that of a checkpoint, after [`Self::prepare_restore`].
    /// No cached fact about the tree is valid afterwards. The caller writes the audit rows; with
    /// paths, it hides what the base has in the directories that come back alone, and updates the
    /// directories above and the counts of hidden names.
    fn restore(
        &mut self,
        restore: &RestoreRequest,
        paths: Option<&RestorePaths>,
    ) -> Result<RestoreOutcome>;

    /// Removes a checkpoint; returns whether it was there. What is saved for it alone is freed by
    /// [`Self::free_removed`].
    fn remove_checkpoint(&mut self, id: CheckpointId) -> Result<bool>;

    /// Makes a checkpoint one of the kind `fork`, which is not removed unasked, because a fork
    /// begins there; returns whether it was there.
    fn keep_checkpoint(&mut self, id: CheckpointId) -> Result<bool>;

    /// Frees what is saved for removed checkpoints alone: at most `most` rows, and few with much
    /// content. Returns whether there may be more.
    fn free_removed(&mut self, most: u32) -> Result<bool>;

    /// Declares whether a quota of bytes or files applies to the rest of this operation. Only then
    /// are audit rows beyond the log's bound dropped.
    fn bound_audit(&mut self, applies: bool);

    /// Deletes the oldest rows of the audit log, up to the row `upto` and at most `most` of them;
    /// returns how many. Keeps the last row, and the rows that the reply cache needs after a crash
    /// at `now`.
    fn prune_audit(&mut self, upto: i64, now: Time, most: u32) -> Result<u64>;

    /// Writes a row of the audit log (`acetate_op`).
    fn record(&mut self, row: &AuditRow) -> Result<()>;
}
