//! What a view remembers of session rows, so that it need not ask again.
//!
//! All memos obey one rule: an entry is what the transaction of the view would answer. They hold
//! session rows, and for a place the base directory that it names, which each use looks up again.
//! Only the writer changes rows, so these can end an entry:
//!
//! - A change makes it stale. The change lists what it makes stale ([`Invalidation`]), and that is
//!   removed before anything that may see the change can ask: from the writer's memo at once, from
//!   the readers' caches after the commit and before its replies.
//! - A rollback: what was added since the transaction began may never have been true. The writer's
//!   memo is cleared ([`MemoTransaction`](super::writer_memo::MemoTransaction)); the readers'
//!   caches get committed rows only.
//! - A commit that begins after a reader's snapshot: the caches may be ahead of it then. The reader
//!   neither uses nor fills them any more ([`ReaderMemo`]).
//! - For a place: the host has another directory at the base path. A use that finds this removes
//!   the entry ([`View::place`](super::resolve::View::place)).

use std::sync::Arc;

use crate::base::BasePath;
use crate::delta::Ino;
use crate::vfs::{FileId, Name};
use crate::worker::Version;

use super::cache::{Caches, DeltaChild, Invalidation};
use super::node::{DirId, DirPlace};

/// The memory of a view. By default it remembers nothing.
pub(super) trait Memo {
    /// Whether the memo matches the state after the last commit, which the view shows too.
    fn is_current(&self) -> bool {
        false
    }

    /// What the session records for a name.
    fn child(&self, _dir: DirId, _name: &Name) -> Option<DeltaChild> {
        None
    }

    /// Remembers it.
    fn add_child(&self, _dir: DirId, _name: &Name, _child: DeltaChild) {}

    /// The place of a directory by its inode.
    fn place(&self, _dir: Ino) -> Option<Arc<DirPlace>> {
        None
    }

    /// Remembers it.
    fn add_place(&self, _dir: Ino, _place: &Arc<DirPlace>) {}

    /// The place of a directory by the base directory that shows through.
    fn base_place(&self, _base: &BasePath) -> Option<Arc<DirPlace>> {
        None
    }

    /// Remembers it.
    fn add_base_place(&self, _base: &BasePath, _place: &Arc<DirPlace>) {}

    /// The file number that the export shows for an inode.
    fn shown(&self, _ino: Ino) -> Option<FileId> {
        None
    }

    /// Remembers it.
    fn add_shown(&self, _ino: Ino, _id: FileId) {}

    /// The path of a base object that is visible and that no session row affects.
    fn showing(&self, _id: FileId) -> Option<BasePath> {
        None
    }

    /// Remembers it, for the path that is the object's cached location.
    fn add_showing(&self, _id: FileId, _path: &BasePath) {}

    /// Removes an entry that turned out to be stale. The caller also removes it from the readers'
    /// caches ([`Caches::forget`]): the writer finds such entries too, and has its own memo.
    fn forget(&self, _stale: &Invalidation) {}
}

/// Remembers nothing: for a snapshot that a commit may have followed.
pub(super) struct NoMemo;

impl Memo for NoMemo {}

/// The readers' caches at the version of a snapshot.
pub(super) struct ReaderMemo<'a> {
    pub caches: &'a Caches,
    pub at: Version,
}

impl Memo for ReaderMemo<'_> {
    fn is_current(&self) -> bool {
        self.caches.is_at(self.at)
    }

    fn child(&self, dir: DirId, name: &Name) -> Option<DeltaChild> {
        self.caches.child(self.at, dir, name)
    }

    fn add_child(&self, dir: DirId, name: &Name, child: DeltaChild) {
        self.caches.add_child(self.at, dir, name, child);
    }

    fn place(&self, dir: Ino) -> Option<Arc<DirPlace>> {
        self.caches.place(self.at, dir)
    }

    fn add_place(&self, dir: Ino, place: &Arc<DirPlace>) {
        self.caches.add_place(self.at, dir, place);
    }

    fn base_place(&self, base: &BasePath) -> Option<Arc<DirPlace>> {
        self.caches.base_place(self.at, base)
    }

    fn add_base_place(&self, base: &BasePath, place: &Arc<DirPlace>) {
        self.caches.add_base_place(self.at, base, place);
    }

    fn showing(&self, id: FileId) -> Option<BasePath> {
        self.caches.showing(self.at, id)
    }

    fn add_showing(&self, id: FileId, path: &BasePath) {
        self.caches.add_showing(self.at, id, path);
    }
}
