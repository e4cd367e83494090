//! The write half of a connection: writes replies as records.

use std::io::{self, IoSlice};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use super::limits::UNSENT_BYTES;
use crate::wire::record;

/// The socket for replies.
pub(super) struct Outgoing {
    stream: OwnedWriteHalf,
    /// Whether the kernel's buffer of unsent bytes is limited now.
    is_unsent_limited: bool,
}

impl Outgoing {
    pub(super) fn new(stream: OwnedWriteHalf) -> Self {
        Self { stream, is_unsent_limited: false }
    }

    /// Sends a record as one fragment, with as few writes as the socket allows; returns its bytes.
    ///
    /// Limits the kernel's buffer for an [unproven](super::reputation) connection: replies that a
    /// client does not read waste work and use memory that no budget counts.
    pub(super) async fn send(
        &mut self,
        segments: &[Bytes],
        is_unproven: bool,
    ) -> io::Result<usize> {
        if self.is_unsent_limited != is_unproven {
            self.is_unsent_limited = is_unproven;
            if let Err(error) = limit_unsent(self.stream.as_ref(), is_unproven) {
                tracing::debug!(%error, "cannot say how much of replies may wait");
            }
        }
        let bytes = segments.iter().map(Bytes::len).sum();
        let mark = record::mark(bytes);
        let mut slices = vec![IoSlice::new(&mark)];
        slices.extend(segments.iter().map(|segment| IoSlice::new(segment)));
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let written = self.stream.write_vectored(rest).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(bytes)
    }
}

/// Limits the unsent bytes that the kernel buffers to [`UNSENT_BYTES`], or removes the limit.
#[cfg(target_os = "linux")]
fn limit_unsent(stream: &TcpStream, is_unproven: bool) -> io::Result<()> {
    // 0 restores the system's default.
    let bytes = if is_unproven { UNSENT_BYTES } else { 0 };
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(bytes)
}

/// macOS buffers some hundreds of KiB; safe code cannot change that.
#[cfg(not(target_os = "linux"))]
fn limit_unsent(_stream: &TcpStream, _is_unproven: bool) -> io::Result<()> {
    let _linux_only = UNSENT_BYTES;
    Ok(())
}
