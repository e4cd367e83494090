//! Writes the patch of one file as git does (git-diff(1), "Generating patch text with -p").

use std::io::Write;

use super::PatchResult;
use super::binary::write_binary;
use super::blob::Blob;
use super::lines::LineDiff;
use super::similar::similarity;
use super::style::{ColoredPart, Style};
use super::text::write_hunks;
use crate::delta::MergedPath;

/// The digest of a missing file.
const NONE: &str = "0000000000000000000000000000000000000000";

/// One side of a change: the path and the content.
pub(in crate::inspect) type PatchSide<'p, 'a> = (&'p MergedPath, Option<Blob<'a>>);

/// Writes the patch from one side to the other; nothing if they are equal at one path. A file that
/// became a link, or the reverse, is written as a deletion and an addition.
pub(in crate::inspect) fn write_file(
    (from, mut old): PatchSide<'_, '_>,
    (to, mut new): PatchSide<'_, '_>,
    style: &Style,
    out: &mut dyn Write,
) -> PatchResult {
    if let (Some(a), Some(b)) = (&old, &new)
        && a.is_link() != b.is_link()
    {
        write_file((from, old), (to, None), style, out)?;
        return write_file((from, None), (to, new), style, out);
    }
    for blob in [&mut old, &mut new].into_iter().flatten() {
        blob.load()?;
    }
    let digest = |blob: &Option<Blob<'_>>| blob.as_ref().map(Blob::digest).transpose();
    let (old_digest, new_digest) = (digest(&old)?, digest(&new)?);
    let is_same = old_digest == new_digest;
    let same_mode = old.as_ref().map(Blob::mode) == new.as_ref().map(Blob::mode);
    if is_same && same_mode && from == to {
        return Ok(());
    }
    let text = changed_text(old.as_ref(), new.as_ref(), style);
    let shows_nothing = is_same || text.as_ref().is_some_and(|text| text.count() == (0, 0));
    if style.ignores_space && shows_nothing && same_mode && from == to {
        return Ok(());
    }
    let (a, b) = (quoted(b"a", from), quoted(b"b", to));
    let mut meta = |line: &[u8]| style.line(ColoredPart::Meta, line, out);
    meta(&[b"diff --git ", &a[..], b" ", &b].concat())?;
    match (&old, &new) {
        (None, Some(new)) => meta(format!("new file mode {}", new.mode()).as_bytes())?,
        (Some(old), None) => meta(format!("deleted file mode {}", old.mode()).as_bytes())?,
        (Some(old), Some(new)) if !same_mode => {
            meta(format!("old mode {}", old.mode()).as_bytes())?;
            meta(format!("new mode {}", new.mode()).as_bytes())?;
        }
        _ => {}
    }
    if from != to {
        let percent = match (&old, &new) {
            _ if is_same => Some(100),
            (Some(old), Some(new)) => similarity(old, new)?,
            _ => None,
        };
        if let Some(percent) = percent {
            meta(format!("similarity index {percent}%").as_bytes())?;
        }
        meta(&[b"rename from ", &quoted(b"", from)[..]].concat())?;
        meta(&[b"rename to ", &quoted(b"", to)[..]].concat())?;
    }
    if is_same {
        return Ok(());
    }
    let names = [old_digest, new_digest].map(|digest| digest.unwrap_or_else(|| NONE.to_owned()));
    let mode = new.as_ref().filter(|_| same_mode).map(|new| format!(" {}", new.mode()));
    let mode = mode.unwrap_or_default();
    meta(format!("index {}..{}{mode}", names[0], names[1]).as_bytes())?;
    let none = b"/dev/null".to_vec();
    let Some(text) = text else {
        if !(style.is_for_git_apply() && style.has_binary) {
            let a = if old.is_some() { a } else { none.clone() };
            let b = if new.is_some() { b } else { none };
            let line = [b"Binary files ", &a[..], b" and ", &b, b" differ"].concat();
            return Ok(style.line(ColoredPart::Plain, &line, out)?);
        }
        return write_binary(old.as_ref(), new.as_ref(), out);
    };
    if text.count() == (0, 0) {
        return Ok(());
    }
    let a = if old.is_some() { marked(a) } else { none.clone() };
    let b = if new.is_some() { marked(b) } else { none };
    meta(&[b"--- ", &a[..]].concat())?;
    meta(&[b"+++ ", &b[..]].concat())?;
    write_hunks(&text, style, out)
}

/// The lines of both sides; `None` if one is binary.
pub(super) fn changed_text<'b>(
    old: Option<&'b Blob<'_>>,
    new: Option<&'b Blob<'_>>,
    style: &Style,
) -> Option<LineDiff<'b>> {
    if old.is_some_and(Blob::is_binary) || new.is_some_and(Blob::is_binary) {
        return None;
    }
    let bytes = |blob: Option<&'b Blob<'_>>| blob.map_or(Some(&[][..]), Blob::bytes);
    LineDiff::of(bytes(old)?, bytes(new)?, style.ignores_space)
}

/// A path after `side/`, quoted where git quotes it.
fn quoted(side: &[u8], path: &MergedPath) -> Vec<u8> {
    let path = if side.is_empty() { &path.as_bytes()[1..] } else { path.as_bytes() };
    quoted_text(&[side, path].concat())
}

/// A text in double quotes with escapes, if git would quote a path like it.
pub fn quoted_text(name: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| (b' '..0x7f).contains(byte) && !b"\"\\".contains(byte);
    if name.iter().all(plain) {
        return name.to_vec();
    }
    let mut text = vec![b'"'];
    for &byte in name {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', byte]),
            b'\n' => text.extend(b"\\n"),
            b'\t' => text.extend(b"\\t"),
            byte if plain(&byte) => text.push(byte),
            byte => text.extend(format!("\\{byte:03o}").bytes()),
        }
    }
    text.push(b'"');
    text
}

/// A name in a `---` or `+++` line: git ends a name with spaces by a tab.
fn marked(mut name: Vec<u8>) -> Vec<u8> {
    if name.contains(&b' ') && !name.starts_with(b"\"") {
        name.push(b'\t');
    }
    name
}
