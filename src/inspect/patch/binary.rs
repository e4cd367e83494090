//! Writes binary contents in a patch ("GIT binary patch"): each side whole or as a delta from the
//! other, deflated, in lines of base 85.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::blob::Blob;
use super::delta::delta;
use super::limits::MAX_DELTA_BYTES;
use super::{Failure, PatchResult};

/// Bytes in a line of a binary patch.
const LINE_BYTES: usize = 52;

/// The base-85 digits of git (RFC 1924).
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Writes the delta from `old` to `new`, and the reverse.
pub(super) fn write_binary(
    old: Option<&Blob<'_>>,
    new: Option<&Blob<'_>>,
    out: &mut dyn Write,
) -> PatchResult {
    out.write_all(b"GIT binary patch\n")?;
    hunk(old, new, out)?;
    hunk(new, old, out)
}

/// Writes how to get `to` from `from`, in the shorter of both forms.
fn hunk(from: Option<&Blob<'_>>, to: Option<&Blob<'_>>, out: &mut dyn Write) -> PatchResult {
    let bytes = |blob: &Option<&Blob<'_>>| {
        let bytes = blob.as_ref()?.bytes()?;
        (!bytes.is_empty() && bytes.len() as u64 <= MAX_DELTA_BYTES).then(|| bytes.to_vec())
    };
    if let (Some(from), Some(to)) = (bytes(&from), bytes(&to)) {
        let delta = delta(&from, &to);
        // A delta longer than the content hardly gets shorter by deflating it.
        if delta.len() < to.len() {
            let (short, whole) = (deflated(&delta)?, deflated(&to)?);
            if short.len() < whole.len() {
                writeln!(out, "delta {}", delta.len())?;
                return encoded(&short, out);
            }
            writeln!(out, "literal {}", to.len())?;
            return encoded(&whole, out);
        }
    }
    writeln!(out, "literal {}", to.map_or(0, Blob::size))?;
    let mut encoder = ZlibEncoder::new(Lines::new(&mut *out), Compression::default());
    if let Some(to) = to {
        to.pieces::<Failure>(&mut |piece| Ok(encoder.write_all(piece)?))?;
    }
    encoder.finish()?.end()?;
    Ok(out.write_all(b"\n")?)
}

fn deflated(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Writes bytes in lines of base 85, ended by an empty line.
fn encoded(bytes: &[u8], out: &mut dyn Write) -> PatchResult {
    let mut lines = Lines::new(&mut *out);
    lines.write_all(bytes)?;
    lines.end()?;
    Ok(out.write_all(b"\n")?)
}

/// A writer that encodes its input in lines of base 85.
struct Lines<'a> {
    out: &'a mut dyn Write,
    waiting: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn new(out: &'a mut dyn Write) -> Self {
        Self { out, waiting: Vec::with_capacity(LINE_BYTES) }
    }

    fn end(mut self) -> std::io::Result<()> {
        self.line()
    }

    fn line(&mut self) -> std::io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // The length of the line: A to Z are 1 to 26, a to z are 27 to 52.
        let length = self.waiting.len() as u8;
        let mut text = vec![if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }];
        for group in self.waiting.chunks(4) {
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
        self.waiting.clear();
        self.out.write_all(&text)
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(LINE_BYTES - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            rest = later;
            if self.waiting.len() == LINE_BYTES {
                self.line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
