//! The data of a regular file without its holes, for tools: their work follows what a file
//! stores, and not its size, which one SETATTR sets to 2^62 bytes.

use std::ops::Range;

use crate::vfs::FsError;

use super::limits::DATA_PIECE_BYTES;
use super::tree::{TreeObject, TreeView};

/// Reads the data of a regular file, in order and in pieces of at most 256 KiB.
///
/// All bytes of the file that no piece covers are zeros; what a piece covers may be zero too.
pub struct DataReader<'a> {
    view: &'a TreeView<'a>,
    file: &'a TreeObject,
    /// What is left of the extent at hand. The next extent is searched from its end.
    extent: Range<u64>,
    buffer: Vec<u8>,
}

/// A piece of a file's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPiece<'a> {
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its content; never empty.
    pub bytes: &'a [u8],
}

impl<'a> TreeView<'a> {
    /// Begins to read the data of `file`.
    pub fn data_reader(&'a self, file: &'a TreeObject) -> DataReader<'a> {
        DataReader { view: self, file, extent: 0..0, buffer: Vec::new() }
    }

    /// How many bytes of a regular file are data, in the units of chunks and of the host's
    /// blocks: at most its size.
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
    /// The next piece; `None` where only zeros follow.
    ///
    /// # Errors
    /// The session or the base cannot be read; Stale, where a base file was cut or replaced.
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
