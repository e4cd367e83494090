//! Sources of a file's content.

use std::fs::File;
use std::future::{Future, ready};
use std::io::{self, Read, Seek};
use std::pin::Pin;

use bytes::Bytes;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::limits::PIECE_BYTES;

/// A part of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentPart {
    /// Data, at most [`PIECE_BYTES`]; empty at the end.
    Data(Bytes),
    /// A hole of this many bytes.
    Hole(u64),
}

impl ContentPart {
    /// Marks the end of the content.
    pub const END: Self = Self::Data(Bytes::new());
}

/// The future of the next part.
pub type NextPart<'a> = Pin<Box<dyn Future<Output = io::Result<ContentPart>> + Send + 'a>>;

/// A source of content, part by part.
pub trait ContentSource: Send {
    /// The next part; [`ContentPart::END`] at the end.
    fn next(&mut self) -> NextPart<'_>;
}

/// Empty content.
#[derive(Debug)]
pub struct Nothing;

impl ContentSource for Nothing {
    fn next(&mut self) -> NextPart<'_> {
        Box::pin(ready(Ok(ContentPart::END)))
    }
}

/// Content that is read with blocking calls: only for a runtime without other work.
pub struct Reading<'a>(ReadingSource<'a>);

enum ReadingSource<'a> {
    Stream(Box<dyn Read + Send + 'a>),
    File(HostFile),
}

impl<'a> Reading<'a> {
    /// Content of a reader, without holes.
    pub fn stream(reader: impl Read + Send + 'a) -> Self {
        Self(ReadingSource::Stream(Box::new(reader)))
    }

    /// Content of a host file, from its current offset. Holes of a regular file are kept.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn file(mut file: File) -> io::Result<Self> {
        let is_regular = file.metadata()?.is_file();
        Ok(match file.stream_position() {
            Ok(at) if is_regular => Self(ReadingSource::File(HostFile { file, at, data_end: at })),
            _ => Self::stream(file),
        })
    }

    /// The next part: a full piece, if that much data is left; [`ContentPart::END`] at the end.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn part(&mut self) -> io::Result<ContentPart> {
        match &mut self.0 {
            ReadingSource::Stream(reader) => piece(reader, PIECE_BYTES as u64),
            ReadingSource::File(file) => file.part(),
        }
    }
}

impl ContentSource for Reading<'_> {
    fn next(&mut self) -> NextPart<'_> {
        Box::pin(ready(self.part()))
    }
}

/// A regular file of the host.
struct HostFile {
    file: File,
    /// Offset of the next part, equal to the descriptor's offset.
    at: u64,
    /// End of the current data range; there is no hole before it.
    data_end: u64,
}

impl HostFile {
    fn part(&mut self) -> io::Result<ContentPart> {
        if self.at >= self.data_end {
            let hole = self.find_data()?;
            if hole > 0 {
                self.at += hole;
                return Ok(ContentPart::Hole(hole));
            }
        }
        let part = piece(&mut self.file, (self.data_end - self.at).min(PIECE_BYTES as u64))?;
        if let ContentPart::Data(data) = &part {
            self.at += data.len() as u64;
        }
        Ok(part)
    }

    /// Finds the next data range; returns the length of the hole before it.
    fn find_data(&mut self) -> io::Result<u64> {
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(start) => start,
            // No more data. Continues at the end of the file: files of proc(5) have size 0 but
            // content.
            Err(Errno::NXIO) => self.file.metadata()?.len().max(self.at),
            // The filesystem does not support SEEK_DATA.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY) => self.at,
            Err(error) => return Err(error.into()),
        };
        self.data_end = match rustix::fs::seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) if end > start => end,
            _ => u64::MAX,
        };
        rustix::fs::seek(&self.file, SeekFrom::Start(start))?;
        Ok(start - self.at)
    }
}

/// Reads `bytes` bytes, or up to the end.
fn piece(reader: &mut impl Read, bytes: u64) -> io::Result<ContentPart> {
    let mut piece = Vec::new();
    reader.take(bytes).read_to_end(&mut piece)?;
    Ok(ContentPart::Data(piece.into()))
}
