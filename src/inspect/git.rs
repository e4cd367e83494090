//! A file's part of a patch, as git writes it (gitformat: "GIT binary patch", git-diff(1)).

use std::io::{self, Write};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest, Sha1};
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use crate::delta::MergedPath;

/// Bytes at the beginning of a file in which git looks for a NUL, to tell binary from text.
const PROBE_BYTES: usize = 8000;

/// Text beyond this, in bytes, is treated as binary.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// Lines around a change.
const CONTEXT_LINES: usize = 3;

/// After so long, a longer patch than the shortest one will do.
const DIFF_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes in a line of a binary patch.
const LINE_BYTES: usize = 52;

/// git's digits of base 85 (RFC 1924).
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// The digest of what is not there.
const NONE: &str = "0000000000000000000000000000000000000000";

/// A file or symbolic link as git knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    content: Vec<u8>,
    mode: &'static str,
}

impl Blob {
    /// A file with these permission bits.
    pub fn file(content: Vec<u8>, bits: u32) -> Self {
        Self { content, mode: if bits & 0o100 != 0 { "100755" } else { "100644" } }
    }

    /// A symbolic link.
    pub fn link(target: Vec<u8>) -> Self {
        Self { content: target, mode: "120000" }
    }

    /// Whether it is one.
    pub fn is_link(&self) -> bool {
        self.mode == "120000"
    }

    fn is_binary(&self) -> bool {
        let probe = &self.content[..self.content.len().min(PROBE_BYTES)];
        probe.contains(&0) || self.content.len() > MAX_TEXT_BYTES
    }

    /// The name of the content in a repository.
    fn digest(&self) -> String {
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", self.content.len()));
        hash.update(&self.content);
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Writes what makes the one of the other: nothing, where they are alike at the same path.
pub(super) fn write_file(
    (from, old): (&MergedPath, Option<&Blob>),
    (to, new): (&MergedPath, Option<&Blob>),
    out: &mut dyn Write,
) -> io::Result<()> {
    if old == new && from == to {
        return Ok(());
    }
    let (a, b) = (quoted(b"a", from), quoted(b"b", to));
    out.write_all(&[b"diff --git ", &a[..], b" ", &b, b"\n"].concat())?;
    match (old, new) {
        (None, Some(new)) => writeln!(out, "new file mode {}", new.mode)?,
        (Some(old), None) => writeln!(out, "deleted file mode {}", old.mode)?,
        (Some(old), Some(new)) if old.mode != new.mode => {
            writeln!(out, "old mode {}\nnew mode {}", old.mode, new.mode)?;
        }
        _ => {}
    }
    let same = old.map(|old| &old.content) == new.map(|new| &new.content);
    if from != to {
        if same {
            writeln!(out, "similarity index 100%")?;
        }
        out.write_all(&[b"rename from ", &quoted(b"", from)[..], b"\n"].concat())?;
        out.write_all(&[b"rename to ", &quoted(b"", to)[..], b"\n"].concat())?;
    }
    if same {
        return Ok(());
    }
    let digest = |blob: Option<&Blob>| blob.map_or_else(|| NONE.to_owned(), Blob::digest);
    write!(out, "index {}..{}", digest(old), digest(new))?;
    match (old, new) {
        (Some(old), Some(new)) if old.mode == new.mode => writeln!(out, " {}", new.mode)?,
        _ => writeln!(out)?,
    }
    let empty: &[u8] = b"";
    let content = |blob: Option<&Blob>| blob.map_or(empty.to_vec(), |blob| blob.content.clone());
    let (before, after) = (content(old), content(new));
    if old.is_some_and(Blob::is_binary) || new.is_some_and(Blob::is_binary) {
        out.write_all(b"GIT binary patch\n")?;
        literal(&after, out)?;
        return literal(&before, out);
    }
    if before == after {
        return Ok(());
    }
    let none = b"/dev/null".to_vec();
    let a = if old.is_some() { marked(a) } else { none.clone() };
    let b = if new.is_some() { marked(b) } else { none };
    out.write_all(&[b"--- ", &a[..], b"\n+++ ", &b, b"\n"].concat())?;
    hunks(&before, &after, out)
}

/// The changed lines, with three around them.
fn hunks(before: &[u8], after: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let (old, new) = (lines(before), lines(after));
    let deadline = Instant::now() + DIFF_TIMEOUT;
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(deadline));
    for group in group_diff_ops(ops, CONTEXT_LINES) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let old_range = span(first.old_range().start, last.old_range().end);
        let new_range = span(first.new_range().start, last.new_range().end);
        writeln!(out, "@@ -{old_range} +{new_range} @@")?;
        for op in &group {
            if op.tag() == DiffTag::Equal {
                write_lines(b" ", &old[op.old_range()], out)?;
            } else {
                write_lines(b"-", &old[op.old_range()], out)?;
                write_lines(b"+", &new[op.new_range()], out)?;
            }
        }
    }
    Ok(())
}

/// The lines of a text with their ends, which the last one may lack. Nothing but a newline ends
/// a line to git.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').collect()
}

/// Lines counted from 1, as a hunk's header has them: where they begin and how many there are;
/// none begin behind the line before them.
fn span(start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

fn write_lines(sign: &[u8], lines: &[&[u8]], out: &mut dyn Write) -> io::Result<()> {
    for line in lines {
        out.write_all(sign)?;
        out.write_all(line)?;
        if !line.ends_with(b"\n") {
            out.write_all(b"\n\\ No newline at end of file\n")?;
        }
    }
    Ok(())
}

/// Content as a whole, deflated, in lines of base 85; an empty line ends it.
fn literal(content: &[u8], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "literal {}", content.len())?;
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content)?;
    for line in encoder.finish()?.chunks(LINE_BYTES) {
        // How many bytes: A to Z are 1 to 26, a to z 27 to 52.
        let length = line.len() as u8;
        let mut text = vec![if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }];
        for group in line.chunks(4) {
            let mut word = [0; 4];
            word[..group.len()].copy_from_slice(group);
            let mut value = u32::from_be_bytes(word);
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = DIGITS[(value % 85) as usize];
                value /= 85;
            }
            text.extend_from_slice(&digits);
        }
        text.push(b'\n');
        out.write_all(&text)?;
    }
    out.write_all(b"\n")
}

/// A path behind `side/`, in double quotes and escaped where git wants it so.
fn quoted(side: &[u8], path: &MergedPath) -> Vec<u8> {
    let path = if side.is_empty() { &path.as_bytes()[1..] } else { path.as_bytes() };
    let name = [side, path].concat();
    let plain = |byte: &u8| (b' '..0x7f).contains(byte) && !b"\"\\".contains(byte);
    if name.iter().all(plain) {
        return name;
    }
    let mut text = vec![b'"'];
    for byte in name {
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

/// A name in a line that begins with `---` or `+++`, where a tab ends one with spaces.
fn marked(mut name: Vec<u8>) -> Vec<u8> {
    if name.contains(&b' ') && !name.starts_with(b"\"") {
        name.push(b'\t');
    }
    name
}
