//! The commands that mount the export, ready to be copied.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Options of one system alone: see [`commands`].
const LINUX: &str = "nolock";
const MACOS: &str = "locallocks,nobrowse,noresvport";

/// The mount commands for the export `path` of the server at `address`, one a line.
///
/// Locks are the client's own (`nolock`, on macOS `locallocks`): that is faster than asking the
/// server, outlives its restart, and is all that one client needs. `hard` is the default
/// everywhere, and right: a restart of the server is waited for instead of being an I/O error.
pub(super) fn commands(address: SocketAddr, path: &str) -> [String; 3] {
    let ip = reachable(address.ip());
    let host = host(address);
    let common = common(address);
    [
        format!("  Linux   sudo mount -t nfs -o {common},{LINUX} {host}:{path} /mnt/agent"),
        format!("  macOS   sudo mount -t nfs -o {common},{MACOS} {host}:{path} /tmp/agent"),
        format!(
            "  Docker  docker volume create --driver local --opt type=nfs \
             --opt o=addr={ip},{common},{LINUX} --opt device=:{path} agent"
        ),
    ]
}

/// The options for the server at `address` on this system.
pub(super) fn options(address: SocketAddr) -> String {
    let own = if cfg!(target_os = "macos") { MACOS } else { LINUX };
    format!("{},{own}", common(address))
}

/// What all systems are told.
fn common(address: SocketAddr) -> String {
    let port = address.port();
    let proto = if reachable(address.ip()).is_ipv4() { "tcp" } else { "proto=tcp6" };
    format!("vers=3,{proto},port={port},mountport={port}")
}

/// How mount commands name the host of `address`.
pub(super) fn host(address: SocketAddr) -> String {
    match reachable(address.ip()) {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// Where this machine reaches a server that listens at `address`.
pub(super) fn reached(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(reachable(address.ip()), address.port())
}

/// An address that this machine reaches a listening socket at.
pub(super) fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}
