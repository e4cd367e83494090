//! Content on its way to a file.

use std::fs::File;
use std::future::{Future, ready};
use std::io::{self, Read, Seek};
use std::pin::Pin;

use bytes::Bytes;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::limits::PIECE_BYTES;

/// A part of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentPart {
    /// Bytes, of [`PIECE_BYTES`] at most; none at the end.
    Data(Bytes),
    /// A hole of so many bytes.
    Hole(u64),
}

impl ContentPart {
    /// What is behind the last part.
    pub const END: Self = Self::Data(Bytes::new());
}

/// The next part.
pub type NextPart<'a> = Pin<Box<dyn Future<Output = io::Result<ContentPart>> + Send + 'a>>;

/// Where content comes from, part by part.
pub trait ContentSource: Send {
    /// The next part; [`ContentPart::END`] at the end.
    fn next(&mut self) -> NextPart<'_>;
}

/// No content.
#[derive(Debug)]
pub struct Nothing;

impl ContentSource for Nothing {
    fn next(&mut self) -> NextPart<'_> {
        Box::pin(ready(Ok(ContentPart::END)))
    }
}

/// Content that this process reads. It blocks: for a runtime that has nothing else to do.
pub struct Reading<'a>(ReadingSource<'a>);

enum ReadingSource<'a> {
    Stream(Box<dyn Read + Send + 'a>),
    File(HostFile),
}

impl<'a> Reading<'a> {
    /// What a reader gives. It has no holes.
    pub fn stream(reader: impl Read + Send + 'a) -> Self {
        Self(ReadingSource::Stream(Box::new(reader)))
    }

    /// A file of the host, from where its descriptor is. A regular file's holes are parts.
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

    /// The next part, a full piece where so much data is left; [`ContentPart::END`] at the end.
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
    /// Where the next part begins; the descriptor's offset is there too.
    at: u64,
    /// Data reaches to here at least. No hole is looked for before.
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

    /// Finds the next data; returns the bytes of the hole before it.
    fn find_data(&mut self) -> io::Result<u64> {
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(start) => start,
            // No data is left. Behind the end, reading tells more: a file of proc(5) has no size.
            Err(Errno::NXIO) => self.file.metadata()?.len().max(self.at),
            // The filesystem does not tell of holes.
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

/// So many bytes, or all that is left.
fn piece(reader: &mut impl Read, bytes: u64) -> io::Result<ContentPart> {
    let mut piece = Vec::new();
    reader.take(bytes).read_to_end(&mut piece)?;
    Ok(ContentPart::Data(piece.into()))
}
