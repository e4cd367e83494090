//! Splits content into JSON texts: the whole document, or one text per line (JSON Lines).
//!
//! Lines end with LF or CRLF; the last line end is optional; blank lines are skipped.

use std::ops::Range;

use super::limits::MAX_LINE_BYTES;
use super::violation::Violation;

/// How content contains JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The content is one JSON text.
    Document,
    /// Each non-blank line is one JSON text.
    Lines,
}

/// One JSON text of the content.
pub(super) struct Text<'a> {
    /// Line number, from 1; `None` for a document.
    pub(super) line: Option<u64>,
    /// The text, or the violation if it cannot be JSON.
    pub(super) bytes: Result<&'a [u8], Violation>,
}

impl Form {
    /// The JSON texts of the content, in order.
    pub(super) fn texts(self, content: &[u8]) -> impl Iterator<Item = Text<'_>> {
        let document = (self == Self::Document).then(|| Text::document(content));
        let lines = (self == Self::Lines).then(|| content.split(|&byte| byte == b'\n'));
        let lines = lines.into_iter().flatten().zip(1..);
        let lines = lines.filter(|(line, _)| line.len() > MAX_LINE_BYTES || !is_blank(line));
        document.into_iter().chain(lines.map(|(line, number)| Text::line(line, number)))
    }

    /// Checks all texts of the content.
    ///
    /// # Errors
    /// The first violation, with its line.
    pub(super) fn check_all(
        self,
        content: &[u8],
        check: impl Fn(&[u8]) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        self.texts(content).try_for_each(|Text { line, bytes }| {
            bytes.and_then(&check).map_err(|fault| fault.in_line(line))
        })
    }
}

impl<'a> Text<'a> {
    fn document(content: &'a [u8]) -> Self {
        let bytes = match content {
            [] => Err(Violation::new("not JSON: the file is empty")),
            content => Ok(content),
        };
        Self { line: None, bytes }
    }

    fn line(line: &'a [u8], number: u64) -> Self {
        let bytes = match line.len() > MAX_LINE_BYTES {
            true => Err(Violation::new(format_args!("the line is over {MAX_LINE_BYTES} bytes"))),
            false => Ok(line),
        };
        Self { line: Some(number), bytes }
    }
}

/// The lines that the write `written` completed or changed, within the run `run` of bytes that have
/// arrived: a range of whole lines, possibly empty. `starts_line`: whether the run begins at the
/// start of a line.
pub(super) fn arrived(
    content: &[u8],
    run: &Range<usize>,
    written: &Range<usize>,
    starts_line: bool,
) -> Range<usize> {
    let before = content[run.start..written.start.min(run.end)].iter().rposition(|&b| b == b'\n');
    let first = match before {
        Some(at) => run.start + at + 1,
        None if starts_line => run.start,
        // The first line of the run also has bytes that have not arrived.
        None => match line_end(&content[..run.end], run.start) {
            Some(end) => end + 1,
            None => return run.start..run.start,
        },
    };
    let mut end = first;
    // `<=`: the write may have turned the byte after it into the start of a line.
    while end <= written.end && end < run.end {
        end = match line_end(&content[..run.end], end) {
            Some(lf) => lf + 1,
            None if run.end - end > MAX_LINE_BYTES => run.end,
            None => break,
        };
    }
    first..end
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

/// Position of the LF of the line that begins at `start`.
fn line_end(content: &[u8], start: usize) -> Option<usize> {
    content[start..].iter().position(|&b| b == b'\n').map(|at| start + at)
}

/// Number of the line that begins at `start`, from 1.
pub(super) fn number_of(content: &[u8], start: usize) -> u64 {
    content[..start].iter().filter(|&&b| b == b'\n').count() as u64 + 1
}
