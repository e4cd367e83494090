//! The data of a regular file without its holes, for tools. Their cost follows the stored data, not
//! the size, which a single SETATTR can set to 2^62 bytes.

use std::ops::Range;

use crate::vfs::FsError;

use super::tree::{TreeObject, TreeView};
use crate::overlay::limits::DATA_PIECE_BYTES;

/// Reads the data ranges of a regular file in ascending order, in pieces of at most 256 KiB.
///
/// Bytes outside all pieces are zero. Bytes inside a piece may be zero, too.
pub struct DataReader<'a> {
    view: &'a TreeView<'a>,
    file: &'a TreeObject,
    /// The unread part of the current data range; its end is where the next search starts.
    extent: Range<u64>,
    buffer: Vec<u8>,
}

/// A piece of a file's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPiece<'a> {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The data; never empty.
    pub bytes: &'a [u8],
}

impl<'a> TreeView<'a> {
    /// Starts to read the data of `file`.
    pub fn data_reader(&'a self, file: &'a TreeObject) -> DataReader<'a> {
        DataReader { view: self, file, extent: 0..0, buffer: Vec::new() }
    }

    /// Total length of a regular file's data ranges, in bytes: at most its size. Granularity is the
    /// session's chunk size or the host's block size.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn data_bytes(&self, file: &TreeObject) -> Result<u64, FsError> {
        let (mut at, mut bytes) = (0, 0);
        while let Some(extent) = self.next_data(file, at)? {
            bytes += extent.end - extent.start;
            at = extent.end;
        }
        Ok(bytes)
    }
}

impl DataReader<'_> {
    /// The next piece; `None` if only zeros follow.
    ///
    /// # Errors
    /// The session or the base cannot be read; `Stale` if a base file was truncated or replaced.
    pub fn next_piece(&mut self) -> Result<Option<DataPiece<'_>>, FsError> {
        if self.extent.is_empty() {
            match self.view.next_data(self.file, self.extent.end)? {
                Some(extent) => self.extent = extent,
                None => return Ok(None),
            }
        }
        let offset = self.extent.start;
        let length = (self.extent.end - offset).min(DATA_PIECE_BYTES) as usize;
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        let got = self.view.read(self.file, offset, &mut self.buffer[..length])?;
        if got < length {
            return Err(FsError::Stale);
        }
        self.extent.start += length as u64;
        Ok(Some(DataPiece { offset, bytes: &self.buffer[..length] }))
    }
}
