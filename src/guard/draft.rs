//! Content that is being written: pieces in any order, over what was there before or over nothing.

use std::ops::Range;

use crate::vfs::FsError;

use super::limits::{MAX_DRAFT_BYTES, MAX_RUNS};
use super::validator::Validator;
use super::violation::Violation;

/// Content that is being written.
///
/// A line is checked as soon as all of it has arrived. What was there before counts as arrived
/// only in that a new line may begin behind its end: what is written over it may have more to
/// come.
#[derive(Debug, Default)]
pub struct Draft {
    content: Vec<u8>,
    /// The bytes that were written: runs that do not touch, in order. `None` once there were too
    /// many of them.
    runs: Option<Vec<Range<usize>>>,
    /// Where the old content ends.
    old_end: usize,
    /// Whether a line ends there.
    ends_line: bool,
}

impl Draft {
    /// A draft over `content`.
    pub fn over(content: Vec<u8>) -> Self {
        let mut draft = Self { content, runs: Some(Vec::new()), ..Self::default() };
        draft.note_end();
        draft
    }

    /// The content as far as it has arrived; zeros where nothing has.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Takes the content out, to be published.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.content)
    }

    /// Puts it back.
    pub(super) fn put_back(&mut self, content: Vec<u8>) {
        self.content = content;
    }

    /// The size that it has after a write of `length` bytes at `offset`, in bytes.
    ///
    /// # Errors
    /// That is more than a guarded file may have.
    pub fn size_after(&self, offset: u64, length: usize) -> Result<u64, FsError> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= MAX_DRAFT_BYTES);
        end.map(|end| end.max(self.content.len() as u64)).ok_or(FsError::TooLarge)
    }

    /// Writes a piece, and returns where it is.
    ///
    /// # Errors
    /// [`Draft::size_after`].
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<Range<usize>, FsError> {
        let size = self.size_after(offset, data.len())? as usize;
        let start = offset as usize;
        let piece = start..start + data.len();
        self.content.resize(size, 0);
        self.content[piece.clone()].copy_from_slice(data);
        self.arrive(piece.clone());
        Ok(piece)
    }

    /// Cuts or grows the content.
    ///
    /// # Errors
    /// That is more than a guarded file may have.
    pub fn set_size(&mut self, size: u64) -> Result<(), FsError> {
        if size > MAX_DRAFT_BYTES {
            return Err(FsError::TooLarge);
        }
        let size = size as usize;
        let is_cut = size < self.content.len();
        self.content.resize(size, 0);
        if size == 0 {
            self.runs = Some(Vec::new());
        } else if let Some(runs) = &mut self.runs {
            runs.retain_mut(|run| {
                run.end = run.end.min(size);
                run.start < run.end
            });
        }
        if is_cut {
            self.note_end();
        }
        Ok(())
    }

    /// Checks the lines that `piece` made complete, or changed.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, piece: &Range<usize>, validator: &Validator) -> Result<(), Violation> {
        let runs = self.runs.iter().flatten();
        let Some(run) = runs.clone().find(|run| run.start <= piece.start && piece.end <= run.end)
        else {
            return Ok(());
        };
        let starts_line = run.start == 0 || (self.ends_line && self.old_end == run.start);
        let checked = validator.check_arrived(&self.content, run, piece, starts_line);
        checked.map_err(|violation| match run.start <= self.old_end {
            true => violation,
            // Nobody knows how many lines there will be in the gap.
            false => Violation { line: None, ..violation },
        })
    }

    fn note_end(&mut self) {
        self.ends_line = self.content.last().is_none_or(|&last| last == b'\n');
        self.old_end = self.content.len();
    }

    /// Adds a piece to the runs.
    fn arrive(&mut self, piece: Range<usize>) {
        let Some(runs) = &mut self.runs else { return };
        let first = runs.partition_point(|run| run.end < piece.start);
        let behind = runs.partition_point(|run| run.start <= piece.end);
        let start = runs[first..behind].first().map_or(piece.start, |run| run.start);
        let end = runs[first..behind].last().map_or(piece.end, |run| run.end);
        let whole = start.min(piece.start)..end.max(piece.end);
        runs.splice(first..behind, std::iter::once(whole));
        if runs.len() > MAX_RUNS {
            self.runs = None;
        }
    }
}
