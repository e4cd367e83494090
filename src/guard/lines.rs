//! JSON Lines: one JSON value a line.
//!
//! Lines end with LF or CRLF; the last one may lack its end; blank lines are passed over.

use std::ops::Range;

use super::limits::MAX_LINE_BYTES;
use super::violation::Violation;

/// Checks one line, without its LF.
pub(super) type LineCheck<'a> = &'a dyn Fn(&[u8]) -> Result<(), Violation>;

/// Checks every line.
pub(super) fn check_all(content: &[u8], check: LineCheck<'_>) -> Result<(), Violation> {
    let mut start = 0;
    let mut number = 1;
    while start < content.len() {
        let end = line_end(content, start).unwrap_or(content.len());
        check_line(&content[start..end], check).map_err(|what| placed(what, number))?;
        start = end + 1;
        number += 1;
    }
    Ok(())
}

/// Checks the lines that `written` made complete, or changed, in the run of bytes `run` that has
/// arrived; `starts_line` says that the run begins where a line does.
pub(super) fn check_arrived(
    content: &[u8],
    run: &Range<usize>,
    written: &Range<usize>,
    starts_line: bool,
    check: LineCheck<'_>,
) -> Result<(), Violation> {
    let before = content[run.start..written.start.min(run.end)].iter().rposition(|&b| b == b'\n');
    let first = match before {
        Some(at) => run.start + at + 1,
        None if starts_line => run.start,
        // The line that the run begins in has a part that may yet change.
        None => match line_end(&content[..run.end], run.start) {
            Some(end) => end + 1,
            None => return Ok(()),
        },
    };
    let mut start = first;
    // A line that begins right behind what was written may not have begun there before.
    while start <= written.end && start < run.end {
        let line = match line_end(&content[..run.end], start) {
            Some(end) => &content[start..end],
            None if run.end - start > MAX_LINE_BYTES => &content[start..run.end],
            None => break,
        };
        check_line(line, check).map_err(|what| placed(what, number_of(content, start)))?;
        start += line.len() + 1;
    }
    Ok(())
}

fn check_line(line: &[u8], check: LineCheck<'_>) -> Result<(), Violation> {
    if line.len() > MAX_LINE_BYTES {
        return Err(Violation::new(format_args!("the line is over {MAX_LINE_BYTES} bytes")));
    }
    let is_blank = line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    if is_blank { Ok(()) } else { check(line) }
}

/// What is wrong in a line by itself, as a fault of the line `number` of the content.
fn placed(what: Violation, number: u64) -> Violation {
    Violation { line: Some(number), ..what }
}

/// Where the line that begins at `start` has its LF.
fn line_end(content: &[u8], start: usize) -> Option<usize> {
    content[start..].iter().position(|&b| b == b'\n').map(|at| start + at)
}

/// The number of the line that begins at `start`.
fn number_of(content: &[u8], start: usize) -> u64 {
    content[..start].iter().filter(|&&b| b == b'\n').count() as u64 + 1
}
