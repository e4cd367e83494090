//! Sockets that are bound, but not served from yet.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;

/// An address that cannot be listened at.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Why.
    pub source: io::Error,
}

/// Listening TCP sockets.
#[derive(Debug)]
pub struct Listeners {
    sockets: Vec<(SocketAddr, TcpListener)>,
}

impl Listeners {
    /// Listens at all `addresses`, or at none. Port 0 is one that the system chooses.
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

    /// The addresses, with their real ports.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().map(|(address, _)| *address).collect()
    }

    pub(super) fn into_sockets(self) -> impl Iterator<Item = TcpListener> {
        self.sockets.into_iter().map(|(_, listener)| listener)
    }
}
