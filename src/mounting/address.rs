//! How this machine reaches a server: its address, and the options of a mount.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Mount options for one system. Locks are local to the client (`nolock`, on macOS `locallocks`):
/// that is faster, survives a restart of the server, and suffices for one client. `hard` is the
/// default on all systems: the client waits for a restarting server instead of returning I/O
/// errors.
pub(crate) const LINUX: &str = "nolock";
pub(crate) const MACOS: &str = "locallocks,nobrowse,noresvport";

/// The options for the server at `address` on this system.
pub(crate) fn options(address: SocketAddr) -> String {
    let own = if cfg!(target_os = "macos") { MACOS } else { LINUX };
    format!("{},{own}", common_options(address))
}

/// The options for all systems.
pub(crate) fn common_options(address: SocketAddr) -> String {
    let port = address.port();
    let proto = if reachable(address.ip()).is_ipv4() { "tcp" } else { "proto=tcp6" };
    format!("vers=3,{proto},port={port},mountport={port}")
}

/// The host of `address` as mount commands write it.
pub(crate) fn host(address: SocketAddr) -> String {
    match reachable(address.ip()) {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The address at which this machine reaches a server that listens at `address`.
pub(crate) fn reached(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(reachable(address.ip()), address.port())
}

/// An address at which this machine reaches a listening socket.
pub(crate) fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::{common_options, host, reached};

    #[test]
    fn a_server_at_all_addresses_is_reached_by_the_loopback() {
        for (address, near, host_of_it, proto) in [
            ("0.0.0.0:7", "127.0.0.1:7", "127.0.0.1", "vers=3,tcp,"),
            ("[::]:7", "[::1]:7", "[::1]", "vers=3,proto=tcp6,"),
            ("192.0.2.1:7", "192.0.2.1:7", "192.0.2.1", "vers=3,tcp,"),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(reached(address), near.parse().unwrap());
            assert_eq!(host(address), host_of_it);
            assert_eq!(common_options(address), format!("{proto}port=7,mountport=7"));
        }
    }
}
