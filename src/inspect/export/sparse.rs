//! Sparse files in an archive: the format 1.0 of GNU tar (GNU tar manual, "PAX Format, Version
//! 1.0"), which GNU tar, bsdtar, Python and Go read.
//!
//! The content of an entry is a map of the data, then the data without the holes. The output is
//! thus bounded by the stored data, not by the size, which one SETATTR can set to 2^62 bytes.

use std::io::{self, Cursor, Read};
use std::ops::Range;

use super::super::error::Result;
use super::{ExportItem, last_name};

/// The most bytes of holes in a file that are written as zeros. Every implementation reads an entry
/// without holes.
const PLAIN_HOLE_BYTES: u64 = 1 << 20;

/// The same bound for a layer, which has no sparse entries (image-spec, layer.md: "Sparse files
/// SHOULD NOT be used").
const LAYER_HOLE_BYTES: u64 = 1 << 30;

/// The most data ranges of one file; each takes 16 bytes of memory.
const MAX_PARTS: usize = 1 << 20;

/// The unit of an archive, in bytes.
const BLOCK_BYTES: usize = 512;

/// How a file is stored in an archive.
pub(super) enum TarLayout {
    /// All bytes, with zeros for the holes.
    Plain,
    /// The map and the data.
    Sparse(Map),
    /// The file cannot be stored, for this reason.
    Refused(String),
}

/// The data ranges of a sparse file.
pub(super) struct Map {
    parts: Vec<Range<u64>>,
    /// The map in the format of the archive, padded to a block.
    text: Vec<u8>,
}

/// Decides how a file is stored in an archive.
///
/// # Errors
/// The session or the base cannot be read.
pub(super) fn layout(item: &ExportItem<'_>) -> Result<TarLayout> {
    let size = item.object.attr().size;
    let (mut parts, mut data_bytes) = (Vec::<Range<u64>>::new(), 0);
    let mut at = 0;
    while let Some(data) = item.next_data(at)? {
        data_bytes += data.end - data.start;
        at = data.end;
        let is_full = parts.len() == MAX_PARTS;
        match parts.last_mut() {
            Some(last) if last.end == data.start => last.end = data.end,
            _ if is_full => {
                let why = format!("its data is in more than {MAX_PARTS} parts between holes");
                return Ok(TarLayout::Refused(why));
            }
            _ => parts.push(data),
        }
    }
    let holes = size.saturating_sub(data_bytes);
    Ok(match holes {
        ..=PLAIN_HOLE_BYTES => TarLayout::Plain,
        ..=LAYER_HOLE_BYTES if item.flow.is_layer => TarLayout::Plain,
        _ if item.flow.is_layer => TarLayout::Refused(format!(
            "{holes} of its {size} bytes are holes, which a layer cannot hold"
        )),
        _ => TarLayout::Sparse(Map::new(parts, size)),
    })
}

impl Map {
    fn new(parts: Vec<Range<u64>>, size: u64) -> Self {
        // An empty range marks the end of a trailing hole.
        let end = parts.last().map_or(0, |last| last.end);
        let last = (end < size).then_some(size..size);
        let all = || parts.iter().chain(&last);
        let mut text = format!("{}\n", all().count()).into_bytes();
        for part in all() {
            text.extend(format!("{}\n{}\n", part.start, part.end - part.start).bytes());
        }
        text.resize(text.len().next_multiple_of(BLOCK_BYTES), 0);
        Self { parts, text }
    }

    /// The length of the entry's content, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let data: u64 = self.parts.iter().map(|part| part.end - part.start).sum();
        data + self.text.len() as u64
    }

    /// The entry's content: the map, then the data.
    pub(super) fn content<'a>(self, item: &'a ExportItem<'a>) -> impl Read + 'a {
        let parts = self.parts.into_iter();
        Cursor::new(self.text).chain(SparseParts { item, parts, part: 0..0 })
    }
}

/// The ustar name of a sparse entry: a reader without sparse support extracts the entry under it.
pub(super) fn plain_name(path: &[u8]) -> Vec<u8> {
    let name = last_name(path);
    [&path[..path.len() - name.len()], b"GNUSparseFile.0/", name].concat()
}

/// Reads the data ranges of a file one after the other.
struct SparseParts<'a> {
    item: &'a ExportItem<'a>,
    parts: std::vec::IntoIter<Range<u64>>,
    /// The unread rest of the current range.
    part: Range<u64>,
}

impl Read for SparseParts<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            match self.parts.next() {
                Some(part) => self.part = part,
                None => return Ok(0),
            }
        }
        let left = usize::try_from(self.part.end - self.part.start).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        self.item.read(self.part.start, &mut buffer[..length]).map_err(io::Error::other)?;
        self.part.start += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_says_where_data_is_and_where_the_file_ends() {
        for (parts, size, text) in [
            (vec![0..5, 100..110], 110, "2\n0\n5\n100\n10\n"),
            (vec![0..5, 8..9], 1 << 62, "3\n0\n5\n8\n1\n4611686018427387904\n0\n"),
            (vec![], 9, "1\n9\n0\n"),
        ] {
            let map = Map::new(parts, size);
            assert!(map.text.starts_with(text.as_bytes()));
            assert!(map.text[text.len()..].iter().all(|byte| *byte == 0));
            assert_eq!(map.text.len(), BLOCK_BYTES);
        }
        assert_eq!(Map::new(vec![0..5, 100..110], 200).bytes(), 15 + 512);
    }

    #[test]
    fn a_reader_without_sparse_files_gives_another_name() {
        assert_eq!(plain_name(b"a/b/c"), b"a/b/GNUSparseFile.0/c");
        assert_eq!(plain_name(b"c"), b"GNUSparseFile.0/c");
    }
}
