//! Files whose copy-up is not finished: what of their content is still the base's, and how it is
//! read, overwritten and cut meanwhile.
//!
//! A chunk is either the session's or the base's, never a mixture of two states: a part of it is
//! changed only after the rest was fetched from the base file as it was at the first change.
//! Once that file is another one, what was not fetched is lost, and says so
//! ([`OpError::Lost`]).

use std::ops::Range;

use crate::base::{BaseAttr, BaseError};
use crate::delta::{CopyUp, Ino, InodeRow, Origin};
use crate::vfs::{FileId, FileKind};

use super::edit::Edit;
use super::error::{OpError, Result};
use super::resolve::View;

impl View<'_> {
    /// Fills `buffer` with the content of a delta file from byte `offset`, whichever layer it is
    /// in. The range must lie within the file's size.
    pub fn read_content(&self, row: &InodeRow, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.txn.read_data(row, offset, buffer)?;
        let Some(pending) = row.copy_up else { return Ok(()) };
        let from = offset.max(pending.next);
        let to = offset.saturating_add(buffer.len() as u64).min(pending.end);
        if from >= to {
            return Ok(());
        }
        let chunk = self.txn.chunk_bytes();
        for run in self.missing(row.ino, from / chunk..to.div_ceil(chunk))? {
            let start = from.max(run.start * chunk);
            let end = to.min(run.end.saturating_mul(chunk));
            let part = (start - offset) as usize..(end - offset) as usize;
            self.read_origin(row, start, &mut buffer[part])?;
        }
        Ok(())
    }

    /// The runs of chunks in `range` that are not stored.
    pub fn missing(&self, ino: Ino, range: Range<u64>) -> Result<Vec<Range<u64>>> {
        let stored = self.txn.stored_chunks(ino, &range)?;
        let mut runs = Vec::new();
        let mut at = range.start;
        for index in stored.into_iter().chain([range.end]) {
            if at < index {
                runs.push(at..index);
            }
            at = index + 1;
        }
        Ok(runs)
    }

    /// How many chunks in `range` are not stored.
    pub fn count_missing(&self, ino: Ino, range: &Range<u64>) -> Result<u64> {
        let all = range.end.saturating_sub(range.start);
        Ok(all.saturating_sub(self.txn.count_stored_chunks(ino, range)?))
    }

    /// Fills `buffer` from byte `offset` of the base file that `row` is the copy of.
    pub fn read_origin(&self, row: &InodeRow, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let origin = self.origin_of(row)?;
        let read = self
            .origin_id(origin)
            .and_then(|id| self.core.base.read(&origin.path, id, offset, buffer));
        match read {
            Ok((got, attr)) if got == buffer.len() && is_as_it_was(origin, &attr) => Ok(()),
            Ok(_) => Err(self.lost(row, "it changed before its copy was finished")),
            Err(error) => Err(self.lost(row, &error.to_string())),
        }
    }

    /// The next range with data at or after byte `offset` of that base file; `None` if there is
    /// none before `end`.
    pub fn next_origin_data(
        &self,
        row: &InodeRow,
        offset: u64,
        end: u64,
    ) -> Result<Option<(u64, u64)>> {
        let origin = self.origin_of(row)?;
        let next = self
            .origin_id(origin)
            .and_then(|id| self.core.base.next_data(&origin.path, id, offset));
        match next {
            Ok(range) => Ok(range.filter(|(start, _)| *start < end)),
            Err(error) => Err(self.lost(row, &error.to_string())),
        }
    }

    /// Fails unless the base file is still the one that `row` was copied from.
    pub fn check_origin(&self, row: &InodeRow) -> Result<()> {
        let origin = self.origin_of(row)?;
        match self.core.base.stat(&origin.path) {
            Ok(attr) if is_as_it_was(origin, &attr) => Ok(()),
            Ok(_) => Err(self.lost(row, "it changed before its copy was finished")),
            Err(error) => Err(self.lost(row, &error.to_string())),
        }
    }

    /// The number that the base has for that file: another one than the session shows where the
    /// base was moved.
    fn origin_id(&self, origin: &Origin) -> std::result::Result<FileId, BaseError> {
        Ok(self.core.base.stat(&origin.path)?.fileid)
    }

    fn origin_of<'r>(&self, row: &'r InodeRow) -> Result<&'r Origin> {
        row.origin.as_ref().ok_or_else(|| self.lost(row, "the session does not say which it is"))
    }

    /// Notes, once in the log, that the rest of a file cannot be had.
    fn lost(&self, row: &InodeRow, why: &str) -> OpError {
        if self.core.copies.is_news(row.ino) {
            let path = row.origin.as_ref().map(|origin| &origin.path);
            tracing::warn!(
                ?path,
                why,
                hint = "what was not copied yet cannot be had while that lasts; if it stays so, \
                    write the file anew, or cut or remove it",
                "cannot read the base file of an unfinished copy-up"
            );
        }
        OpError::Lost
    }
}

/// Whether a base object is still what an origin says that it was.
pub fn is_as_it_was(origin: &Origin, now: &BaseAttr) -> bool {
    now.kind == FileKind::Regular
        && (now.ino, now.size, now.mtime, now.ctime)
            == (origin.ino, origin.size, origin.mtime, origin.ctime)
}

impl Edit<'_> {
    /// Writes `data` at byte `offset` of a delta file, and sets the row's size, holes and pending
    /// content accordingly; the caller stores it.
    pub fn write_content(&mut self, row: &mut InodeRow, offset: u64, data: &[u8]) -> Result<()> {
        if let Some(pending) = row.copy_up {
            self.make_way(row, pending, offset, data.len() as u64)?;
        }
        Ok(self.txn.write_data(row, offset, data)?)
    }

    /// Changes the size of a delta file; the caller stores the row.
    pub fn resize_content(&mut self, row: &mut InodeRow, size: u64) -> Result<()> {
        if let Some(pending) = row.copy_up
            && size < pending.end
        {
            let chunk = self.txn.chunk_bytes();
            let pending_chunks = pending.chunks(chunk);
            let cut = size.div_ceil(chunk).max(pending_chunks.start)..pending_chunks.end;
            // The store takes every missing chunk that it cuts off for a hole.
            row.holes += self.view().count_missing(row.ino, &cut)?;
            let left = CopyUp { end: size, ..pending };
            self.set_pending(row, left)?;
        }
        Ok(self.txn.truncate(row, size)?)
    }

    /// Lets `length` bytes at `offset` be written: fetches what else is in the chunks that are
    /// covered in part, and notes those that will be the session's from now on.
    fn make_way(
        &mut self,
        row: &mut InodeRow,
        pending: CopyUp,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let chunk = self.txn.chunk_bytes();
        let all = pending.chunks(chunk);
        let end = offset.saturating_add(length);
        let written = (offset / chunk).max(all.start)..end.div_ceil(chunk).min(all.end);
        if written.is_empty() {
            return Ok(());
        }
        for run in self.view().missing(row.ino, written.clone())? {
            // The store takes every missing chunk that it fills for a hole.
            row.holes += run.end - run.start;
            let last = run.end - 1;
            let edges = [run.start, last];
            for index in &edges[..if last == run.start { 1 } else { 2 }] {
                let start = index * chunk;
                let stop = start.saturating_add(chunk).min(pending.end);
                if offset > start || end < stop {
                    self.fetch(row, start..stop)?;
                }
            }
        }
        if written.start == all.start {
            let next = written.end.saturating_mul(chunk);
            self.set_pending(row, CopyUp { next, ..pending })?;
        }
        self.wakes_copies = true;
        Ok(())
    }

    /// Makes a missing chunk, of which the base has these bytes, the session's.
    fn fetch(&mut self, row: &mut InodeRow, bytes: Range<u64>) -> Result<()> {
        let mut buffer = vec![0; (bytes.end - bytes.start) as usize];
        self.view().read_origin(row, bytes.start, &mut buffer)?;
        Ok(self.txn.write_data(row, bytes.start, &buffer)?)
    }

    /// Notes what is still the base's, if there is anything left.
    pub fn set_pending(&mut self, row: &mut InodeRow, pending: CopyUp) -> Result<()> {
        row.copy_up = (pending.next < pending.end).then_some(pending);
        self.txn.put_copy_up(row.ino, row.copy_up)?;
        self.wakes_copies = true;
        Ok(())
    }
}
