//! Files with an unfinished copy-up: reads, writes and truncation of content that is still in the
//! base.
//!
//! A chunk belongs to the session or to the base, and never mixes two states. Before a part of a
//! pending chunk is written, the rest of the chunk is copied from the base file as it was at
//! copy-up. If the base file changed since, the content that was not copied is lost:
//! [`OpError::Lost`].

use std::ops::Range;

use crate::base::{BaseAttr, BaseError};
use crate::delta::{CopyUp, Ino, InodeRow, Origin};
use crate::vfs::{FileId, FileKind};

use super::edit::Edit;
use super::error::{OpError, Result};
use super::resolve::View;

impl View<'_> {
    /// Reads a delta file from byte `offset` into `buffer`, from both layers. The range must lie
    /// within the file's size.
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

    /// Number of chunks in `range` that are not stored.
    pub fn count_missing(&self, ino: Ino, range: &Range<u64>) -> Result<u64> {
        let all = range.end.saturating_sub(range.start);
        Ok(all.saturating_sub(self.txn.count_stored_chunks(ino, range)?))
    }

    /// Reads the base file that `row` was copied from, at byte `offset`.
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

    /// The next data range of that base file at or after byte `offset`; `None` if it has none
    /// before `end`.
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

    /// [`OpError::Lost`] unless that base file is unchanged since copy-up.
    pub fn check_origin(&self, row: &InodeRow) -> Result<()> {
        let origin = self.origin_of(row)?;
        match self.core.base.stat(&origin.path) {
            Ok(attr) if is_as_it_was(origin, &attr) => Ok(()),
            Ok(_) => Err(self.lost(row, "it changed before its copy was finished")),
            Err(error) => Err(self.lost(row, &error.to_string())),
        }
    }

    /// The current file number of that base file. It differs from the origin's after the base was
    /// moved.
    fn origin_id(&self, origin: &Origin) -> std::result::Result<FileId, BaseError> {
        Ok(self.core.base.stat(&origin.path)?.fileid)
    }

    fn origin_of<'r>(&self, row: &'r InodeRow) -> Result<&'r Origin> {
        row.origin.as_ref().ok_or_else(|| self.lost(row, "the session does not say which it is"))
    }

    /// Logs the loss, once per file.
    fn lost(&self, row: &InodeRow, why: &str) -> OpError {
        if self.core.copies.is_first_loss(row.ino) {
            let path = row.origin.as_ref().map(|origin| &origin.path);
            tracing::warn!(
                ?path,
                why,
                hint = "what was not copied yet cannot be had while that lasts; if it stays so, \
                    write the file again, or cut or remove it",
                "cannot read the base file of an unfinished copy-up"
            );
        }
        OpError::Lost
    }
}

/// Whether a base file is unchanged since its origin row was written.
pub fn is_as_it_was(origin: &Origin, now: &BaseAttr) -> bool {
    now.kind == FileKind::Regular
        && (now.ino, now.size, now.mtime, now.ctime)
            == (origin.ino, origin.size, origin.mtime, origin.ctime)
}

impl Edit<'_> {
    /// Writes `data` at byte `offset` of a delta file and updates size, holes and pending range of
    /// the row. The caller stores the row.
    pub fn write_content(&mut self, row: &mut InodeRow, offset: u64, data: &[u8]) -> Result<()> {
        if let Some(pending) = row.copy_up {
            self.prepare_write(row, pending, offset, data.len() as u64)?;
        }
        Ok(self.txn.write_data(row, offset, data)?)
    }

    /// Changes the size of a delta file. The caller stores the row.
    pub fn resize_content(&mut self, row: &mut InodeRow, size: u64) -> Result<()> {
        if let Some(pending) = row.copy_up
            && size < pending.end
        {
            let chunk = self.txn.chunk_bytes();
            let pending_chunks = pending.chunks(chunk);
            let cut = size.div_ceil(chunk).max(pending_chunks.start)..pending_chunks.end;
            // `truncate` counts every missing chunk that it cuts off as a former hole.
            row.holes += self.view().count_missing(row.ino, &cut)?;
            let left = CopyUp { end: size, ..pending };
            self.set_pending(row, left)?;
        }
        Ok(self.txn.truncate(row, size)?)
    }

    /// Prepares a write of `length` bytes at `offset`: copies the chunks that it covers in part,
    /// and shrinks the pending range.
    fn prepare_write(
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
            // `write_data` counts every missing chunk that it fills as a former hole.
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

    /// Copies these bytes, one missing chunk, from the base.
    fn fetch(&mut self, row: &mut InodeRow, bytes: Range<u64>) -> Result<()> {
        let mut buffer = vec![0; (bytes.end - bytes.start) as usize];
        self.view().read_origin(row, bytes.start, &mut buffer)?;
        Ok(self.txn.write_data(row, bytes.start, &buffer)?)
    }

    /// Stores the pending range, or removes it if it is empty.
    pub fn set_pending(&mut self, row: &mut InodeRow, pending: CopyUp) -> Result<()> {
        row.copy_up = (pending.next < pending.end).then_some(pending);
        self.txn.put_copy_up(row.ino, row.copy_up)?;
        self.wakes_copies = true;
        Ok(())
    }
}
