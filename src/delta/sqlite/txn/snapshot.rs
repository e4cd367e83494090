//! Implements [`ReadTxn`] for a reader's connection and for the writer's batch.

use std::ops::Range;

use rusqlite::Connection;

use crate::base::BasePath;
use crate::delta::{
    CheckpointSpace, Ino, InodeRow, Limits, MergedPath, Original, PendingCopies, ReadTxn, Result,
    Whiteouts,
};
use crate::vfs::{FileId, Name, Time};

use super::negative_cache::NegativeCache;
use crate::delta::sqlite::table::chunk::{self, Chunks};
use crate::delta::sqlite::table::{
    checkpoint_space, copy_up, dentry, inode, link, opaque, origin, original, quota, redirect,
    symlink, whiteout,
};

/// A connection inside a transaction.
pub(super) trait Snapshot {
    /// The connection; fails if the transaction cannot begin.
    fn conn(&self) -> Result<&Connection>;

    /// The session's chunk size, in bytes.
    fn chunk_size(&self) -> u64;

    /// The writer's negative cache; `None` for a reader.
    fn absent(&self) -> Option<&NegativeCache> {
        None
    }
}

impl<T: Snapshot> ReadTxn for T {
    fn chunk_bytes(&self) -> u64 {
        self.chunk_size()
    }

    fn hold(&self) -> Result<()> {
        self.conn()?.prepare_cached("SELECT 1 FROM fs_inode WHERE ino = 1")?.exists([])?;
        Ok(())
    }

    fn inode(&self, ino: Ino) -> Result<Option<InodeRow>> {
        inode::get(self.conn()?, ino)
    }

    fn dentry(&self, parent: Ino, name: &Name) -> Result<Option<Ino>> {
        let conn = self.conn()?;
        match self.absent() {
            Some(absent) if !absent.may_have_blobs(conn, parent)? => {
                dentry::get_text(conn, parent, name)
            }
            _ => dentry::get(conn, parent, name),
        }
    }

    fn dentries(&self, parent: Ino, each: &mut dyn FnMut(Name, Ino, u32, FileId)) -> Result<()> {
        dentry::list(self.conn()?, parent, each)
    }

    fn has_dentries(&self, parent: Ino) -> Result<bool> {
        dentry::any(self.conn()?, parent)
    }

    fn names_of(&self, ino: Ino) -> Result<Vec<(Ino, Name)>> {
        dentry::names_of(self.conn()?, ino)
    }

    fn name_of(&self, ino: Ino) -> Result<Option<(Ino, Name)>> {
        dentry::name_of(self.conn()?, ino)
    }

    fn read_data(&self, inode: &InodeRow, offset: u64, buffer: &mut [u8]) -> Result<()> {
        Chunks::of(self.conn()?, inode.ino, self.chunk_size()).read(inode.size, offset, buffer)
    }

    fn stored_chunks(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<u64>> {
        copy_up::stored(self.conn()?, ino, range)
    }

    fn next_stored_chunk(&self, ino: Ino, from: u64) -> Result<Option<u64>> {
        copy_up::next_stored(self.conn()?, ino, from)
    }

    fn count_stored_chunks(&self, ino: Ino, range: &Range<u64>) -> Result<u64> {
        copy_up::count_stored(self.conn()?, ino, range)
    }

    fn pending_copy(&self, from: Ino) -> Result<Option<Ino>> {
        copy_up::first_from(self.conn()?, from)
    }

    fn checkpoint_space(&self) -> Result<Option<CheckpointSpace>> {
        checkpoint_space::get(self.conn()?)
    }

    fn pending_copies(&self) -> Result<PendingCopies> {
        copy_up::total(self.conn()?)
    }

    fn symlink(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        symlink::get(self.conn()?, ino)
    }

    fn is_whited_out(&self, path: &MergedPath) -> Result<bool> {
        let conn = self.conn()?;
        if let Some(absent) = self.absent()
            && !absent.may_hide(conn, path.parent())?
        {
            return Ok(false);
        }
        whiteout::exists(conn, path)
    }

    fn whited_out_at(&self, path: &MergedPath) -> Result<Option<i64>> {
        whiteout::created_at(self.conn()?, path)
    }

    fn whiteouts_in(&self, parent: &MergedPath) -> Result<Vec<Name>> {
        whiteout::list(self.conn()?, parent)
    }

    fn count_whiteouts(&self, parent: &MergedPath, most: usize) -> Result<usize> {
        whiteout::count(self.conn()?, parent, most)
    }

    fn whiteout_parents(&self) -> Result<Vec<MergedPath>> {
        whiteout::parents(self.conn()?)
    }

    fn whiteouts_below(&self, dir: &MergedPath, most: u32) -> Result<Whiteouts> {
        whiteout::below(self.conn()?, dir, Some(most))
    }

    fn copied_links(&self) -> Result<Vec<Ino>> {
        origin::links(self.conn()?)
    }

    fn copied_single_names(&self) -> Result<Vec<Ino>> {
        origin::single_names(self.conn()?)
    }

    fn copied_up(&self, base: FileId) -> Result<Vec<Ino>> {
        origin::copied_up(self.conn()?, base)
    }

    fn redirect(&self, ino: Ino) -> Result<Option<BasePath>> {
        redirect::get(self.conn()?, ino)
    }

    fn redirects(&self) -> Result<Vec<Ino>> {
        redirect::all(self.conn()?)
    }

    fn opaque_since(&self, dir: Ino) -> Result<Option<i64>> {
        opaque::since(self.conn()?, dir)
    }

    fn opaque_dirs(&self) -> Result<Vec<Ino>> {
        opaque::all(self.conn()?)
    }

    fn sparse_file(&self, from: Ino) -> Result<Option<Ino>> {
        chunk::first_sparse_file(self.conn()?, from, self.chunk_size())
    }

    fn redirected_to(&self, base: &BasePath) -> Result<Option<Ino>> {
        redirect::of_base(self.conn()?, base)
    }

    fn has_redirect_within(&self, base: &BasePath) -> Result<bool> {
        redirect::any_within(self.conn()?, base)
    }

    fn copied_up_dirs(&self) -> Result<Vec<BasePath>> {
        origin::dirs(self.conn()?)
    }

    fn hidden_links(&self, base: FileId) -> Result<(u32, Option<Time>)> {
        link::hidden(self.conn()?, base)
    }

    fn hidden_files(&self) -> Result<Vec<FileId>> {
        link::files(self.conn()?)
    }

    fn original(&self, path: &BasePath) -> Result<Option<Original>> {
        original::get(self.conn()?, path)
    }

    fn has_copied_file_within(&self, path: &BasePath) -> Result<bool> {
        original::any_copied_within(self.conn()?, path)
    }

    fn original_content(&self, path: &BasePath) -> Result<Option<Vec<u8>>> {
        original::content(self.conn()?, path)
    }

    fn original_bytes(&self) -> Result<u64> {
        original::total_bytes(self.conn()?)
    }

    fn limits(&self) -> Result<Limits> {
        quota::limits(self.conn()?)
    }
}
