//! Writes the changed lines of a text, in hunks.

use std::io::Write;

use super::PatchResult;
use super::lines::LineDiff;
use super::style::{ColoredPart, Style};
use super::words::write_words;

/// Bytes of a function's name in the header of a hunk, as in git.
const MAX_FUNCTION_BYTES: usize = 80;

/// Writes the changes with context.
pub(super) fn write_hunks(
    changed: &LineDiff<'_>,
    style: &Style,
    out: &mut dyn Write,
) -> PatchResult {
    let (mut function, mut searched) = (&[][..], 0);
    for group in changed.groups(style.context) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let above = style.context.min(first.before.start);
        let below = style.context.min(changed.old_count() - last.before.end);
        let old = first.before.start - above..last.before.end + below;
        let new = first.after.start - above..last.after.end + below;
        let place = format!("@@ -{} +{} @@", span(&old), span(&new));
        style.put(ColoredPart::Place, place.as_bytes(), out)?;
        let above = changed.old_lines(searched..old.start);
        function = above.into_iter().rev().find_map(function_name).unwrap_or(function);
        searched = old.start;
        if !function.is_empty() {
            style.put(ColoredPart::Plain, &[b" ", function].concat(), out)?;
        }
        out.write_all(b"\n")?;
        let mut at = new.start;
        for hunk in group {
            around(&changed.new_lines(at..hunk.after.start), style, out)?;
            let (old, new) =
                (changed.old_lines(hunk.before.clone()), changed.new_lines(hunk.after.clone()));
            if style.is_of_words {
                write_words(&old.concat(), &new.concat(), style, out)?;
            } else {
                write_lines(ColoredPart::Old, b"-", &old, style, out)?;
                write_lines(ColoredPart::New, b"+", &new, style, out)?;
            }
            at = hunk.after.end;
        }
        around(&changed.new_lines(at..new.end), style, out)?;
    }
    Ok(())
}

/// What git shows of a line in the header of a hunk below it, if it takes the line for the start of
/// a function.
fn function_name(line: &[u8]) -> Option<&[u8]> {
    let is_start = |first: &u8| first.is_ascii_alphabetic() || b"_$".contains(first);
    line.first().filter(|first| is_start(first))?;
    Some(line[..line.len().min(MAX_FUNCTION_BYTES)].trim_ascii_end())
}

fn around(lines: &[&[u8]], style: &Style, out: &mut dyn Write) -> PatchResult {
    let sign: &[u8] = if style.is_of_words { b"" } else { b" " };
    write_lines(ColoredPart::Plain, sign, lines, style, out)
}

/// A line range in a hunk header: the first line, counted from 1, and the number of lines. An empty
/// range has the number of the line before it.
fn span(range: &std::ops::Range<u32>) -> String {
    match range.end - range.start {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    }
}

fn write_lines(
    part: ColoredPart,
    sign: &[u8],
    lines: &[&[u8]],
    style: &Style,
    out: &mut dyn Write,
) -> PatchResult {
    for line in lines {
        let text = line.strip_suffix(b"\n");
        style.line(part, &[sign, text.unwrap_or(line)].concat(), out)?;
        if text.is_none() && !style.is_of_words {
            out.write_all(b"\\ No newline at end of file\n")?;
        }
    }
    Ok(())
}
