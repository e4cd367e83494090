//! Writes the changed words of a text between markers, like `git diff --word-diff`.

use std::io::Write;
use std::ops::Range;

use gix_imara_diff::{Algorithm, Diff, InternedInput};

use super::PatchResult;
use super::style::{ColoredPart, Style};

/// Writes changed lines once, with their removed and added words.
pub(super) fn write_words(
    old: &[u8],
    new: &[u8],
    style: &Style,
    out: &mut dyn Write,
) -> PatchResult {
    let (old_words, new_words) = (words(old), words(new));
    let mut input = InternedInput::default();
    input.update_before(old_words.iter().map(|word| &old[word.clone()]));
    input.update_after(new_words.iter().map(|word| &new[word.clone()]));
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_no_heuristic(&input);
    let mut at = 0;
    for hunk in diff.hunks() {
        let gone = extent(&old_words, hunk.before);
        let next = new_words.get(hunk.after.start as usize).map_or(new.len(), |word| word.start);
        let come = extent(&new_words, hunk.after);
        // Removed words follow the word before them.
        let upto = match &come {
            Some(come) => come.start,
            None => new[at..next]
                .iter()
                .rposition(|b| !b.is_ascii_whitespace())
                .map_or(at, |n| at + n + 1),
        };
        plain(&new[at..upto], style, out)?;
        if let Some(gone) = gone {
            if come.is_none() && upto > 0 && !new[..upto].ends_with(b"\n") {
                out.write_all(b" ")?;
            }
            marked(ColoredPart::Old, &old[gone], (b"[-", b"-]"), style, out)?;
        }
        at = upto;
        if let Some(come) = come {
            marked(ColoredPart::New, &new[come.clone()], (b"{+", b"+}"), style, out)?;
            at = come.end;
        }
    }
    plain(&new[at..], style, out)?;
    if new.is_empty() || !new.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// The ranges of the words of a text, which white space separates.
fn words(text: &[u8]) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, byte) in text.iter().enumerate() {
        match (byte.is_ascii_whitespace(), start) {
            (true, Some(from)) => {
                words.push(from..at);
                start = None;
            }
            (false, None) => start = Some(at),
            _ => {}
        }
    }
    words.extend(start.map(|from| from..text.len()));
    words
}

/// The range from the first to the last of some words.
fn extent(words: &[Range<usize>], some: Range<u32>) -> Option<Range<usize>> {
    let some = words.get(some.start as usize..some.end as usize)?;
    Some(some.first()?.start..some.last()?.end)
}

fn plain(text: &[u8], style: &Style, out: &mut dyn Write) -> PatchResult {
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let content = line.strip_suffix(b"\n");
        style.put(ColoredPart::Plain, content.unwrap_or(line), out)?;
        if content.is_some() {
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}

/// Writes words between markers, on each of their lines.
fn marked(
    part: ColoredPart,
    text: &[u8],
    (begin, end): (&[u8], &[u8]),
    style: &Style,
    out: &mut dyn Write,
) -> PatchResult {
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let content = line.strip_suffix(b"\n").unwrap_or(line);
        if !content.is_empty() {
            style.put(part, &[begin, content, end].concat(), out)?;
        }
        if content.len() < line.len() {
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}
