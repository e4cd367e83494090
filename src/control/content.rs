//! Content on its way to a file.

use std::future::{Future, ready};
use std::io::{self, Read};
use std::pin::Pin;

use bytes::Bytes;

use super::limits::PIECE_BYTES;

/// The next piece, empty at the end.
pub type Piece<'a> = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send + 'a>>;

/// Where content comes from, piece by piece.
pub trait Content: Send {
    /// The next piece, of [`PIECE_BYTES`] at most; empty at the end.
    fn next(&mut self) -> Piece<'_>;
}

/// No content.
#[derive(Debug)]
pub struct Nothing;

impl Content for Nothing {
    fn next(&mut self) -> Piece<'_> {
        Box::pin(ready(Ok(Bytes::new())))
    }
}

/// What a reader of this process gives. It blocks: for a runtime that has nothing else to do.
#[derive(Debug)]
pub struct Reading<R>(pub R);

impl<R: Read> Reading<R> {
    /// The next piece, full but for the last; empty at the end.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn piece(&mut self) -> io::Result<Bytes> {
        let mut piece = Vec::new();
        self.0.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
        Ok(piece.into())
    }
}

impl<R: Read + Send> Content for Reading<R> {
    fn next(&mut self) -> Piece<'_> {
        Box::pin(ready(self.piece()))
    }
}
