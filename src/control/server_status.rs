//! The state of a server, as it reports it.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// State of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Process id.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Addresses on which the server listens for clients.
    pub addresses: Vec<SocketAddr>,
    /// The base directory.
    pub base: Option<PathBuf>,
    /// Paths of the exports that show the session; `None` without an exports file. They may be
    /// secrets.
    pub exports: Option<Vec<String>>,
    /// Seconds since the start of the server.
    pub uptime: u64,
    /// Connections of clients, oldest first.
    pub peers: Vec<ControlPeer>,
}

/// A connection of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPeer {
    /// Address of the client.
    pub address: SocketAddr,
    /// Seconds since the connection was opened.
    pub connected: u64,
    /// Number of calls received.
    pub calls: u64,
}
