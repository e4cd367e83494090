//! Content being written: pieces in any order, over the old content or over nothing.

use std::ops::Range;

use crate::vfs::FsError;

use super::limits::{MAX_DRAFT_BYTES, MAX_RUNS};
use super::lines;
use super::violation::Violation;

/// Content being written.
///
/// A line is checked as soon as all its bytes have arrived. Old content does not count as arrived,
/// because more of it may be overwritten. But its end counts as the start of a line, if it ends a
/// line.
#[derive(Debug, Default)]
pub struct Draft {
    content: Vec<u8>,
    /// The written bytes, as sorted disjoint runs. `None` once there were more than [`MAX_RUNS`].
    runs: Option<Vec<Range<usize>>>,
    /// Length of the old content.
    old_end: usize,
    /// Whether the old content ends with a complete line.
    ends_line: bool,
}

/// Whole lines of a draft.
pub struct ArrivedLines<'a> {
    content: &'a [u8],
    range: Range<usize>,
    has_number: bool,
}

impl<'a> ArrivedLines<'a> {
    /// The lines.
    pub fn bytes(&self) -> &'a [u8] {
        &self.content[self.range.clone()]
    }

    /// Translates the line of a violation in these lines into a line of the draft.
    pub fn placed(&self, fault: Violation) -> Violation {
        let before = || lines::number_of(self.content, self.range.start) - 1;
        let line = fault.line.filter(|_| self.has_number).map(|line| before() + line);
        Violation { line, ..fault }
    }
}

impl Draft {
    /// A draft over `content`.
    pub fn over(content: Vec<u8>) -> Self {
        let mut draft = Self { content, runs: Some(Vec::new()), ..Self::default() };
        draft.note_end();
        draft
    }

    /// The content so far; bytes that have not arrived are zero.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Takes the content out for publishing.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.content)
    }

    /// Returns the content after a failed publish.
    pub(super) fn restore_content(&mut self, content: Vec<u8>) {
        self.content = content;
    }

    /// Size after a write of `length` bytes at `offset`, in bytes.
    ///
    /// # Errors
    /// [`FsError::TooLarge`]: the size exceeds [`MAX_DRAFT_BYTES`].
    pub fn size_after(&self, offset: u64, length: usize) -> Result<u64, FsError> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= MAX_DRAFT_BYTES);
        end.map(|end| end.max(self.content.len() as u64)).ok_or(FsError::TooLarge)
    }

    /// Writes a piece and returns its range.
    ///
    /// # Errors
    /// As [`Draft::size_after`].
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<Range<usize>, FsError> {
        let size = self.size_after(offset, data.len())? as usize;
        let start = offset as usize;
        let piece = start..start + data.len();
        self.content.resize(size, 0);
        self.content[piece.clone()].copy_from_slice(data);
        self.arrive(piece.clone());
        Ok(piece)
    }

    /// Truncates or extends the content.
    ///
    /// # Errors
    /// [`FsError::TooLarge`]: the size exceeds [`MAX_DRAFT_BYTES`].
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

    /// The whole lines that `piece` completed or changed; `None` if there are none.
    pub fn arrived_lines(&self, piece: &Range<usize>) -> Option<ArrivedLines<'_>> {
        let runs = self.runs.iter().flatten();
        let run = runs.clone().find(|run| run.start <= piece.start && piece.end <= run.end)?;
        let starts_line = run.start == 0 || (self.ends_line && self.old_end == run.start);
        let range = lines::arrived(&self.content, run, piece, starts_line);
        // The number of lines in a gap is unknown.
        let has_number = run.start <= self.old_end;
        (!range.is_empty()).then_some(ArrivedLines { content: &self.content, range, has_number })
    }

    fn note_end(&mut self) {
        self.ends_line = self.content.last().is_none_or(|&last| last == b'\n');
        self.old_end = self.content.len();
    }

    /// Adds a piece to the runs and merges neighbors.
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
