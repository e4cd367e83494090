//! Bound TCP sockets, before the server accepts from them.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// An address could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The error of the system.
    pub source: io::Error,
}

/// Listening TCP sockets.
#[derive(Debug)]
pub struct Listeners {
    sockets: Vec<(SocketAddr, TcpListener)>,
}

impl Listeners {
    /// Binds all `addresses`, or fails and binds none. For port 0 the system chooses a port.
    pub async fn bind(addresses: &[SocketAddr]) -> Result<Self, BindError> {
        let mut sockets = Vec::with_capacity(addresses.len());
        for &address in addresses {
            let bound = async {
                let listener = TcpListener::bind(address).await?;
                Ok((listener.local_addr()?, listener))
            };
            sockets.push(bound.await.map_err(|source| BindError { address, source })?);
        }
        Ok(Self { sockets })
    }

    /// Takes over `sockets`, which another program bound and listens on. They must be non-blocking.
    /// Must be called in a runtime.
    ///
    /// # Errors
    /// The runtime cannot watch a socket.
    pub fn inherit(sockets: Vec<std::net::TcpListener>) -> io::Result<Self> {
        let inherit = |socket| {
            let listener = TcpListener::from_std(socket)?;
            Ok((listener.local_addr()?, listener))
        };
        let sockets = sockets.into_iter().map(inherit).collect::<io::Result<_>>()?;
        Ok(Self { sockets })
    }

    /// The bound addresses, with their real ports.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|(address, _)| *address).collect()
    }

    pub(super) fn into_sockets(self) -> impl Iterator<Item = TcpListener> {
        self.sockets.into_iter().map(|(_, listener)| listener)
    }
}
