//! The writing half of a connection: replies as records.

use std::io::{self, IoSlice};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use super::limits::UNSENT_BYTES;
use crate::wire::record;

/// Where replies are written.
pub(super) struct Outgoing {
    stream: OwnedWriteHalf,
    /// Whether the system was told to take few bytes that it cannot send on at once.
    is_held_back: bool,
}

impl Outgoing {
    pub(super) fn new(stream: OwnedWriteHalf) -> Self {
        Self { stream, is_held_back: false }
    }

    /// Sends a record as one fragment, with as few writes as the socket takes; returns its bytes.
    ///
    /// What the system takes for a client that reads nothing is work for nothing, and memory that
    /// nobody counts: so it takes little for one that [`is_unproven`](super::reputation).
    pub(super) async fn send(
        &mut self,
        segments: &[Bytes],
        is_unproven: bool,
    ) -> io::Result<usize> {
        if self.is_held_back != is_unproven {
            self.is_held_back = is_unproven;
            if let Err(error) = hold_back(self.stream.as_ref(), is_unproven) {
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

/// Says how much the system takes that it cannot send on yet: little, or as much as it likes.
#[cfg(target_os = "linux")]
fn hold_back(stream: &TcpStream, is_unproven: bool) -> io::Result<()> {
    // 0 is what the system does by itself.
    let bytes = if is_unproven { UNSENT_BYTES } else { 0 };
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(bytes)
}

/// On macOS the system takes some hundreds of KiB, and cannot be told by safe code.
#[cfg(not(target_os = "linux"))]
fn hold_back(_stream: &TcpStream, _is_newcomer: bool) -> io::Result<()> {
    let _linux_only = UNSENT_BYTES;
    Ok(())
}
