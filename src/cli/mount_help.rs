//! The commands that mount the export, ready to be copied.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Options of one system alone: see [`commands`].
const LINUX: &str = "nolock";
const MACOS: &str = "locallocks,nobrowse,noresvport";

/// Addresses in far networks that no machine has (RFC 5737, RFC 3849).
const FAR_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The mount commands for the export `path` of the server at `address`, one a line.
///
/// Locks are the client's own (`nolock`, on macOS `locallocks`): that is faster than asking the
/// server, outlives its restart, and is all that one client needs. `hard` is the default
/// everywhere, and right: a restart of the server is waited for instead of being an I/O error.
pub(super) fn commands(address: SocketAddr, path: &str) -> [String; 3] {
    let ip = for_clients(address.ip());
    let host = host(SocketAddr::new(ip, address.port()));
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

/// An address that clients elsewhere reach a listening socket at: where it listens at all
/// addresses, the one that this machine sends from to far networks.
fn for_clients(ip: IpAddr) -> IpAddr {
    let (any, far): (SocketAddr, SocketAddr) = match ip {
        _ if !ip.is_unspecified() => return ip,
        IpAddr::V4(_) => ((Ipv4Addr::UNSPECIFIED, 0).into(), (FAR_V4, 9).into()),
        IpAddr::V6(_) => ((Ipv6Addr::UNSPECIFIED, 0).into(), (FAR_V6, 9).into()),
    };
    // Connecting a UDP socket chooses a route and sends nothing.
    let socket = UdpSocket::bind(any).and_then(|socket| socket.connect(far).map(|()| socket));
    let chosen = socket.and_then(|socket| socket.local_addr());
    chosen.map_or_else(|_| reachable(ip), |address| address.ip())
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
