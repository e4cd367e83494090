//! The commands that mount an export, ready to be copied.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::mounting::address::{LINUX, MACOS, common_options, host, reachable};

/// Addresses of documentation networks, which no machine has (RFC 5737, RFC 3849).
const FAR_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// Time that a takeover takes beyond the term of the lease.
const TAKEOVER: Duration = Duration::from_secs(1);

/// The option for a session that another machine may take over when the lease of this term ends.
/// A client repeats a call without an answer after `timeo` tenths of a second, by default 600; only
/// then it learns that its connection led to a machine that died.
pub(super) fn takeover_option(term: Option<Duration>) -> String {
    let tenths = |term: Duration| (term + TAKEOVER).as_millis().div_ceil(100);
    term.map_or(String::new(), |term| format!(",timeo={}", tenths(term)))
}

/// The mount commands for the export `path` of the server at `address`, one per line. `term` is
/// that of the session's lease, if it is in a database.
pub(super) fn commands(address: SocketAddr, path: &str, term: Option<Duration>) -> [String; 3] {
    let ip = for_clients(address.ip());
    let host = host(SocketAddr::new(ip, address.port()));
    let common = common_options(address) + &takeover_option(term);
    [
        format!("  Linux   sudo mount -t nfs -o {common},{LINUX} {host}:{path} /mnt/agent"),
        format!("  macOS   sudo mount -t nfs -o {common},{MACOS} {host}:{path} /tmp/agent"),
        format!(
            "  Docker  docker volume create --driver local --opt type=nfs \
             --opt o=addr={ip},{common},{LINUX} --opt device=:{path} agent"
        ),
    ]
}

/// An address at which other machines reach a listening socket. For a wildcard address, this is the
/// source address for distant networks.
fn for_clients(ip: IpAddr) -> IpAddr {
    let (any, far): (SocketAddr, SocketAddr) = match ip {
        _ if !ip.is_unspecified() => return ip,
        IpAddr::V4(_) => ((Ipv4Addr::UNSPECIFIED, 0).into(), (FAR_V4, 9).into()),
        IpAddr::V6(_) => ((Ipv6Addr::UNSPECIFIED, 0).into(), (FAR_V6, 9).into()),
    };
    // Connecting a UDP socket selects a route and sends nothing.
    let socket = UdpSocket::bind(any).and_then(|socket| socket.connect(far).map(|()| socket));
    let chosen = socket.and_then(|socket| socket.local_addr());
    chosen.map_or_else(|_| reachable(ip), |address| address.ip())
}
