//! Parses addresses to listen at.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use crate::system_error::words;

/// The port of NFS.
const NFS_PORT: u16 = 2049;

/// Parses `127.0.0.1:2049`, `[::1]:2049`, `localhost:2049`, a port alone (of 127.0.0.1), or an
/// address or name alone (port 2049). A name is resolved to its first address, preferably of IPv4.
///
/// # Errors
/// The text is none of these, or the name has no address.
pub(super) fn parse(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, NFS_PORT));
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse::<u16>().ok()),
        None => (text, Some(NFS_PORT)),
    };
    let expected = || {
        "expected ADDR:PORT, a port alone (2049, of 127.0.0.1), or an address alone (port 2049); \
         0.0.0.0 stands for all addresses of this machine"
            .to_owned()
    };
    let is_name =
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-._".contains(c));
    let port = port.filter(|_| is_name).ok_or_else(expected)?;
    let found = (name, port).to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| format!("{name}: {}", words(&error)))?.collect();
    let best = found.iter().find(|address| address.is_ipv4()).or(found.first());
    best.copied().ok_or_else(|| format!("{name}: has no address"))
}

/// As [`parse`], but the port is needed: figures have no port of their own.
///
/// # Errors
/// As [`parse`], or there is no port.
pub(super) fn parse_admin(text: &str) -> Result<SocketAddr, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    // The last group of an IPv6 address without brackets is no port.
    let has_port = match text.rsplit_once(':') {
        None => is_port(text),
        Some((host, port)) => is_port(port) && (!host.contains(':') || host.ends_with(']')),
    };
    match has_port {
        true => parse(text),
        false => Err("expected ADDR:PORT, or a port alone (of 127.0.0.1)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_admin};

    #[test]
    fn figures_need_a_port() {
        for (text, address) in
            [("9469", "127.0.0.1:9469"), ("[::1]:7", "[::1]:7"), ("0.0.0.0:0", "0.0.0.0:0")]
        {
            let parsed = parse_admin(text).map(|address| address.to_string());
            assert_eq!(parsed, Ok(address.into()), "{text}");
        }
        for text in ["127.0.0.1", "::1", "[::1]", "localhost", "", "localhost:"] {
            assert!(parse_admin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_need_not_be_whole() {
        for (text, address) in [
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("[::1]:7", "[::1]:7"),
            ("2049", "127.0.0.1:2049"),
            ("0", "127.0.0.1:0"),
            ("0.0.0.0", "0.0.0.0:2049"),
            ("::1", "[::1]:2049"),
            ("[::]", "[::]:2049"),
            ("localhost:7", "127.0.0.1:7"),
            ("localhost", "127.0.0.1:2049"),
        ] {
            assert_eq!(
                parse(text).map(|address| address.to_string()),
                Ok(address.into()),
                "{text}"
            );
        }
        for text in ["", ":2049", "127.0.0.1:70000", "70000:", "a b:1", "localhost:nfs"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
