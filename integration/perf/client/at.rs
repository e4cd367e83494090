//! Where a server is.

use std::net::SocketAddr;

use super::rpc::Result;

/// A server, and what results call it.
pub struct At {
    /// What the results call it.
    pub server: String,
    /// Where NFS listens.
    pub nfs: SocketAddr,
    /// Where MOUNT listens.
    pub mount: SocketAddr,
    /// The export's path.
    pub export: String,
}

impl At {
    /// Reads what stands on the command line.
    pub fn new(server: &str, nfs: &str, mount: &str, export: &str) -> Result<Self> {
        let (nfs, mount) = (nfs.parse()?, mount.parse()?);
        Ok(Self { server: server.to_owned(), nfs, mount, export: export.to_owned() })
    }
}
