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
use super::saving::require_saved;

/// Reads a delta file from byte `offset` into `buffer`, from both layers. The range must lie
/// within the file's size.
pub(super) fn read_content(
    view: &View<'_>,
    row: &InodeRow,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    view.txn.read_data(row, offset, buffer)?;
    let Some(pending) = row.copy_up else { return Ok(()) };
    let from = offset.max(pending.next);
    let to = offset.saturating_add(buffer.len() as u64).min(pending.end);
    if from >= to {
        return Ok(());
    }
    let chunk = view.txn.chunk_bytes();
    for run in missing_chunks(view, row.ino, from / chunk..to.div_ceil(chunk))? {
        let start = from.max(run.start * chunk);
        let end = to.min(run.end.saturating_mul(chunk));
        let part = (start - offset) as usize..(end - offset) as usize;
        read_origin(view, row, start, &mut buffer[part])?;
    }
    Ok(())
}

/// The runs of chunks in `range` that are not stored.
pub(super) fn missing_chunks(
    view: &View<'_>,
    ino: Ino,
    range: Range<u64>,
) -> Result<Vec<Range<u64>>> {
    let stored = view.txn.stored_chunks(ino, &range)?;
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
pub(super) fn count_missing_chunks(view: &View<'_>, ino: Ino, range: &Range<u64>) -> Result<u64> {
    let all = range.end.saturating_sub(range.start);
    Ok(all.saturating_sub(view.txn.count_stored_chunks(ino, range)?))
}

/// Reads the base file that `row` was copied from, at byte `offset`.
pub(super) fn read_origin(
    view: &View<'_>,
    row: &InodeRow,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    let origin = origin_of(view, row)?;
    let read = origin_id(view, origin)
        .and_then(|id| view.core.base.read(&origin.path, id, offset, buffer));
    match read {
        Ok((got, attr)) if got == buffer.len() && is_as_it_was(origin, &attr) => Ok(()),
        Ok(_) => Err(lost_origin(view, row, "it changed before its copy was finished")),
        Err(error) => Err(lost_origin(view, row, &error.to_string())),
    }
}

/// The next data range of that base file at or after byte `offset`; `None` if it has none
/// before `end`.
pub(super) fn next_origin_data(
    view: &View<'_>,
    row: &InodeRow,
    offset: u64,
    end: u64,
) -> Result<Option<(u64, u64)>> {
    let origin = origin_of(view, row)?;
    let next =
        origin_id(view, origin).and_then(|id| view.core.base.next_data(&origin.path, id, offset));
    match next {
        Ok(range) => Ok(range.filter(|(start, _)| *start < end)),
        Err(error) => Err(lost_origin(view, row, &error.to_string())),
    }
}

/// [`OpError::Lost`] unless that base file is unchanged since copy-up.
pub(super) fn check_origin(view: &View<'_>, row: &InodeRow) -> Result<()> {
    let origin = origin_of(view, row)?;
    match view.core.base.stat(&origin.path) {
        Ok(attr) if is_as_it_was(origin, &attr) => Ok(()),
        Ok(_) => Err(lost_origin(view, row, "it changed before its copy was finished")),
        Err(error) => Err(lost_origin(view, row, &error.to_string())),
    }
}

/// The current file number of that base file. It differs from the origin's after the base was
/// moved.
fn origin_id(view: &View<'_>, origin: &Origin) -> std::result::Result<FileId, BaseError> {
    Ok(view.core.base.stat(&origin.path)?.fileid)
}

fn origin_of<'r>(view: &View<'_>, row: &'r InodeRow) -> Result<&'r Origin> {
    row.origin
        .as_ref()
        .ok_or_else(|| lost_origin(view, row, "the session does not say which it is"))
}

/// Logs the loss, once per file.
fn lost_origin(view: &View<'_>, row: &InodeRow, why: &str) -> OpError {
    if view.core.copies.is_first_loss(row.ino) {
        let path = row.origin.as_ref().map(|origin| &origin.path);
        tracing::warn!(
            ?path,
            why,
            hint = "content that is not copied yet cannot be read until the base file is back; if \
                it does not come back, write the file again, truncate it or remove it",
            "cannot read the base file of an unfinished copy-up"
        );
    }
    OpError::Lost
}

/// Whether a base file is unchanged since its origin row was written.
pub fn is_as_it_was(origin: &Origin, now: &BaseAttr) -> bool {
    now.kind == FileKind::Regular
        && (now.ino, now.size, now.mtime, now.ctime)
            == (origin.ino, origin.size, origin.mtime, origin.ctime)
}

/// Writes `data` at byte `offset` of a delta file and updates size, holes and pending range of
/// the row. The caller stores the row.
pub(super) fn write_content(
    edit: &mut Edit<'_>,
    row: &mut InodeRow,
    offset: u64,
    data: &[u8],
) -> Result<()> {
    if let Some(pending) = row.copy_up {
        prepare_write(edit, row, pending, offset, data.len() as u64)?;
    }
    Ok(edit.txn.write_data(row, offset, data)?)
}

/// Changes the size of a delta file. The caller stores the row.
pub(super) fn resize_content(edit: &mut Edit<'_>, row: &mut InodeRow, size: u64) -> Result<()> {
    require_saved(edit, row, size)?;
    if let Some(pending) = row.copy_up
        && size < pending.end
    {
        let chunk = edit.txn.chunk_bytes();
        let pending_chunks = pending.chunks(chunk);
        let cut = size.div_ceil(chunk).max(pending_chunks.start)..pending_chunks.end;
        // `truncate` counts every missing chunk that it cuts off as a former hole.
        row.holes += count_missing_chunks(&edit.view(), row.ino, &cut)?;
        let left = CopyUp { end: size, ..pending };
        set_pending(edit, row, left)?;
    }
    Ok(edit.txn.truncate(row, size)?)
}

/// Prepares a write of `length` bytes at `offset`: copies the chunks that it covers in part,
/// and shrinks the pending range.
fn prepare_write(
    edit: &mut Edit<'_>,
    row: &mut InodeRow,
    pending: CopyUp,
    offset: u64,
    length: u64,
) -> Result<()> {
    let chunk = edit.txn.chunk_bytes();
    let all = pending.chunks(chunk);
    let end = offset.saturating_add(length);
    let written = (offset / chunk).max(all.start)..end.div_ceil(chunk).min(all.end);
    if written.is_empty() {
        return Ok(());
    }
    for run in missing_chunks(&edit.view(), row.ino, written.clone())? {
        // `write_data` counts every missing chunk that it fills as a former hole.
        row.holes += run.end - run.start;
        let last = run.end - 1;
        let edges = [run.start, last];
        for index in &edges[..if last == run.start { 1 } else { 2 }] {
            let start = index * chunk;
            let stop = start.saturating_add(chunk).min(pending.end);
            if offset > start || end < stop {
                fetch_chunk(edit, row, start..stop)?;
            }
        }
    }
    if written.start == all.start {
        let next = written.end.saturating_mul(chunk);
        set_pending(edit, row, CopyUp { next, ..pending })?;
    }
    edit.wakes_copies = true;
    Ok(())
}

/// Copies these bytes, one missing chunk, from the base.
fn fetch_chunk(edit: &mut Edit<'_>, row: &mut InodeRow, bytes: Range<u64>) -> Result<()> {
    let mut buffer = vec![0; (bytes.end - bytes.start) as usize];
    read_origin(&edit.view(), row, bytes.start, &mut buffer)?;
    Ok(edit.txn.write_data(row, bytes.start, &buffer)?)
}

/// Stores the pending range, or removes it if it is empty.
pub(super) fn set_pending(edit: &mut Edit<'_>, row: &mut InodeRow, pending: CopyUp) -> Result<()> {
    row.copy_up = (pending.next < pending.end).then_some(pending);
    edit.txn.put_copy_up(row.ino, row.copy_up)?;
    edit.wakes_copies = true;
    Ok(())
}
