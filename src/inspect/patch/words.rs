//! Writes the changed words of a text between markers, like `git diff --word-diff`.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;

use gix_imara_diff::{Algorithm, Diff, InternedInput};

use super::PatchResult;
use super::style::{ColoredPart, Style};

/// Writes changed lines once, with their removed and added words. As in git, lines without a
/// counterpart are marked whole, with their indentation.
pub(super) fn write_words(
    old: &[u8],
    new: &[u8],
    style: &Style,
    out: &mut dyn Write,
) -> PatchResult {
    let (old, new) = (ended(old), ended(new));
    if new.is_empty() {
        return marked(ColoredPart::Old, &old, (b"[-", b"-]"), style, out);
    }
    let (old_words, new_words) = (words(&old), words(&new));
    let mut input = InternedInput::default();
    input.update_before(old_words.iter().map(|word| &old[word.clone()]));
    input.update_after(new_words.iter().map(|word| &new[word.clone()]));
    let mut diff = Diff::compute(Algorithm::Myers, &input);
    diff.postprocess_no_heuristic(&input);
    let mut at = 0;
    for hunk in diff.hunks() {
        // Removed words directly follow the word before them.
        let come = extent(&new_words, hunk.after.clone()).unwrap_or_else(|| {
            let before = (hunk.after.start as usize).checked_sub(1);
            let end = before.map_or(0, |before| new_words[before].end);
            end..end
        });
        plain(&new[at..come.start], style, out)?;
        if let Some(gone) = extent(&old_words, hunk.before) {
            marked(ColoredPart::Old, &old[gone], (b"[-", b"-]"), style, out)?;
        }
        marked(ColoredPart::New, &new[come.clone()], (b"{+", b"+}"), style, out)?;
        at = come.end;
    }
    plain(&new[at..], style, out)
}

/// The text with a newline at its end, if it is not empty.
fn ended(text: &[u8]) -> Cow<'_, [u8]> {
    match text.last() {
        None | Some(b'\n') => Cow::Borrowed(text),
        Some(_) => Cow::Owned([text, b"\n"].concat()),
    }
}

/// The ranges of the words of a text, which git's white space separates.
fn words(text: &[u8]) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, byte) in text.iter().enumerate() {
        match (b" \t\n\r".contains(byte), start) {
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
