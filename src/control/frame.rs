//! Frames of the control socket: length (4 bytes, big-endian), kind (1 byte), payload.

use std::io::{self, Read, Write};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::limits::MAX_MESSAGE_BYTES;

const HEADER_BYTES: usize = 5;

/// Kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A request or an answer in JSON.
    Json,
    /// A piece of content; empty at the end.
    Data,
    /// A hole in the content: its length in bytes, 8 bytes big-endian.
    Hole,
    /// The content ends early; the payload is the reason.
    Broken,
}

impl FrameKind {
    fn byte(self) -> u8 {
        match self {
            Self::Json => b'J',
            Self::Data => b'D',
            Self::Hole => b'H',
            Self::Broken => b'B',
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Json, Self::Data, Self::Hole, Self::Broken]
            .into_iter()
            .find(|kind| kind.byte() == byte)
    }
}

pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(FrameKind, Bytes)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    let (kind, length) = parse(header)?;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    Ok((kind, payload.into()))
}

pub(super) async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    kind: FrameKind,
    payload: &[u8],
) -> io::Result<()> {
    stream.write_all(&header(kind, payload.len())?).await?;
    stream.write_all(payload).await
}

pub(super) fn read_blocking(stream: &mut impl Read) -> io::Result<(FrameKind, Bytes)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let (kind, length) = parse(header)?;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    Ok((kind, payload.into()))
}

pub(super) fn write_blocking(
    stream: &mut impl Write,
    kind: FrameKind,
    payload: &[u8],
) -> io::Result<()> {
    stream.write_all(&header(kind, payload.len())?)?;
    stream.write_all(payload)
}

fn parse(header: [u8; HEADER_BYTES]) -> io::Result<(FrameKind, usize)> {
    let [a, b, c, d, kind] = header;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    match FrameKind::from_byte(kind) {
        Some(kind) if length <= MAX_MESSAGE_BYTES => Ok((kind, length)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a message")),
    }
}

fn header(kind: FrameKind, length: usize) -> io::Result<[u8; HEADER_BYTES]> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidInput, "a message is too long");
    let fits = u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE_BYTES);
    let [a, b, c, d] = fits.ok_or_else(too_long)?.to_be_bytes();
    Ok([a, b, c, d, kind.byte()])
}

/// Serializes a value to JSON.
pub(super) fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(io::Error::from)
}

/// Parses the JSON of a frame.
pub(super) fn parse_json<T: DeserializeOwned>(kind: FrameKind, payload: &[u8]) -> io::Result<T> {
    match kind {
        FrameKind::Json => serde_json::from_slice(payload).map_err(io::Error::from),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "content where none was expected")),
    }
}
