//! The port mapper: version 2, and versions 3 and 4 as rpcbind (RFC 1833).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;

use super::xdr::{Decode, Decoder, Encode, Encoder, XdrError};

/// Program number of the port mapper.
pub const PROGRAM: u32 = 100_000;
/// The TCP and UDP port of the port mapper.
pub const PORT: u16 = 111;
/// The version with numeric protocols and ports.
pub const VERSION_2: u32 = 2;
/// The last version.
pub const VERSION_4: u32 = 4;

/// Registers a mapping (all versions).
pub const PROC_SET: u32 = 1;
/// Removes a mapping (all versions).
pub const PROC_UNSET: u32 = 2;
/// Returns a port (version 2: GETPORT) or an address (3 and 4: GETADDR).
pub const PROC_GET: u32 = 3;
/// Returns all mappings (all versions).
pub const PROC_DUMP: u32 = 4;
/// Returns the time in seconds (versions 3 and 4).
pub const PROC_GETTIME: u32 = 6;
/// Returns the address of exactly the given version (version 4).
pub const PROC_GETVERSADDR: u32 = 9;

/// Protocol number of TCP in version 2.
pub const IPPROTO_TCP: u32 = 6;
/// Protocol number of UDP in version 2.
pub const IPPROTO_UDP: u32 = 17;

/// Upper bound of a network identifier or owner, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Upper bound of a universal address in bytes: an IPv6 address as text, a scope, and a port.
const MAX_ADDRESS_BYTES: usize = 128;

/// The location of a program in version 2 (`mapping`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// [`IPPROTO_TCP`] or [`IPPROTO_UDP`].
    pub protocol: u32,
    /// Port; ignored in the arguments of GETPORT.
    pub port: u32,
}

impl Decode for Mapping {
    fn decode(from: &mut Decoder) -> Result<Self, XdrError> {
        Ok(Self {
            program: from.u32()?,
            version: from.u32()?,
            protocol: from.u32()?,
            port: from.u32()?,
        })
    }
}

impl Encode for Mapping {
    fn encode(&self, to: &mut Encoder) {
        for word in [self.program, self.version, self.protocol, self.port] {
            to.put_u32(word);
        }
    }
}

/// The location of a program in versions 3 and 4 (`rpcb`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rpcb {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// `tcp`, `tcp6`, `udp` or `udp6`.
    pub netid: Bytes,
    /// Universal address: see [`universal_address`].
    pub address: Bytes,
    /// The user that registered it.
    pub owner: Bytes,
}

impl Decode for Rpcb {
    fn decode(from: &mut Decoder) -> Result<Self, XdrError> {
        Ok(Self {
            program: from.u32()?,
            version: from.u32()?,
            netid: from.opaque(MAX_NAME_BYTES)?,
            address: from.opaque(MAX_ADDRESS_BYTES)?,
            owner: from.opaque(MAX_NAME_BYTES)?,
        })
    }
}

impl Encode for Rpcb {
    fn encode(&self, to: &mut Encoder) {
        to.put_u32(self.program);
        to.put_u32(self.version);
        to.put_opaque(&self.netid);
        to.put_opaque(&self.address);
        to.put_opaque(&self.owner);
    }
}

/// Encodes a list as DUMP returns it: each entry after a true, and a false at the end.
pub fn encode_list<T: Encode>(entries: &[T]) -> Encoder {
    let mut encoder = Encoder::new();
    for entry in entries {
        encoder.put_bool(true);
        entry.encode(&mut encoder);
    }
    encoder.put_bool(false);
    encoder
}

/// An address in the form `h1.h2.h3.h4.p1.p2`, with IPv6 hosts as text (RFC 5665 §5.2.3).
pub fn universal_address(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// Parses a universal address.
pub fn parse_universal_address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (host, high) = rest.rsplit_once('.')?;
    let port = u16::from_be_bytes([high.parse().ok()?, low.parse().ok()?]);
    Some(SocketAddr::new(host.parse().ok()?, port))
}

/// The wildcard address of the family that a network identifier names.
pub fn wildcard(netid: &[u8]) -> IpAddr {
    if netid.ends_with(b"6") { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}
