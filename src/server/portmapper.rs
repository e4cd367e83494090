//! Our own port mapper, for machines where none runs: it knows our programs and nobody else's.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::program::{CallFuture, Program};
use crate::nfs::CallError;
use crate::vfs::Caller;
use crate::wire::portmap::{
    self, IPPROTO_TCP, IPPROTO_UDP, Mapping, PROC_DUMP, PROC_GET, PROC_GETTIME, PROC_GETVERSADDR,
    PROC_SET, PROC_UNSET, Rpcb, VERSION_2, VERSION_4,
};
use crate::wire::rpc::PROC_NULL;
use crate::wire::xdr::{Decode, Encoder};

/// Owner of every mapping that rpcbind made for the superuser.
const OWNER: &[u8] = b"superuser";

/// A program of ours at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Where it listens, over TCP.
    pub address: SocketAddr,
}

/// One version of the port mapper, as a program.
pub struct Portmapper {
    version: u32,
    services: Arc<[Service]>,
}

impl Portmapper {
    /// Makes `version` (2, 3 or 4) of a port mapper that knows `services`.
    pub fn new(version: u32, services: Arc<[Service]>) -> Self {
        Self { version, services }
    }

    fn answer(&self, procedure: u32, args: Bytes) -> Result<Encoder, CallError> {
        match (procedure, self.version) {
            (PROC_NULL, _) => Ok(Encoder::new()),
            // Nobody else registers here: false.
            (PROC_SET | PROC_UNSET, _) => Ok(number(0)),
            (PROC_GET, VERSION_2) => self.port(decode(args)?),
            (PROC_GET, _) => self.address(&decode(args)?, false),
            (PROC_GETVERSADDR, VERSION_4) => self.address(&decode(args)?, true),
            (PROC_DUMP, VERSION_2) => Ok(portmap::encode_list(&self.mappings())),
            (PROC_DUMP, _) => Ok(portmap::encode_list(&self.rpcbs())),
            (PROC_GETTIME, 3..) => Ok(number(seconds())),
            _ => Err(CallError::ProcedureUnavailable),
        }
    }

    /// GETPORT: the port, or 0.
    fn port(&self, asked: Mapping) -> Result<Encoder, CallError> {
        let netid: &[u8] = match asked.protocol {
            IPPROTO_TCP => b"tcp",
            IPPROTO_UDP => b"udp",
            _ => return Ok(number(0)),
        };
        let found = self.find(asked.program, asked.version, netid, false);
        Ok(number(found.map_or(0, |at| at.port().into())))
    }

    /// GETADDR and GETVERSADDR: the universal address, or an empty string.
    fn address(&self, asked: &Rpcb, exact: bool) -> Result<Encoder, CallError> {
        let found = self.find(asked.program, asked.version, &asked.netid, exact);
        let text = found.map(|at| {
            // A wildcard is of no use to the client; it says where it reached us.
            let reached = portmap::parse_universal_address(&asked.address);
            let ip = match reached {
                Some(reached) if at.ip().is_unspecified() => reached.ip(),
                _ => at.ip(),
            };
            portmap::universal_address(SocketAddr::new(ip, at.port()))
        });
        let mut encoder = Encoder::new();
        encoder.put_opaque(text.unwrap_or_default().as_bytes());
        Ok(encoder)
    }

    /// Where `program` is for the transport asked for: in this version, or else (unless `exact`)
    /// in any, since port mappers leave it to the program to refuse a version.
    fn find(&self, program: u32, version: u32, netid: &[u8], exact: bool) -> Option<SocketAddr> {
        let tcp = match netid {
            b"tcp" | b"tcp6" | b"" => true,
            b"udp" | b"udp6" => false,
            _ => return None,
        };
        if program == portmap::PROGRAM {
            let known = !exact || (VERSION_2..=VERSION_4).contains(&version);
            return known.then(|| (portmap::wildcard(netid), portmap::PORT).into());
        }
        let ipv6 = netid.ends_with(b"6");
        let mut matching = self.services.iter().filter(|service| {
            tcp && service.program == program && serves_family(service.address.ip(), ipv6)
        });
        let any = matching.clone().next().filter(|_| !exact);
        matching.find(|service| service.version == version).or(any).map(|found| found.address)
    }

    fn mappings(&self) -> Vec<Mapping> {
        let own = (VERSION_2..=VERSION_4).rev().flat_map(|version| {
            [IPPROTO_TCP, IPPROTO_UDP].map(|protocol| Mapping {
                program: portmap::PROGRAM,
                version,
                protocol,
                port: portmap::PORT.into(),
            })
        });
        let served =
            self.services.iter().filter(|service| serves_family(service.address.ip(), false));
        own.chain(served.map(|service| Mapping {
            program: service.program,
            version: service.version,
            protocol: IPPROTO_TCP,
            port: service.address.port().into(),
        }))
        .collect()
    }

    fn rpcbs(&self) -> Vec<Rpcb> {
        let own = (VERSION_2..=VERSION_4).rev().flat_map(|version| {
            ["tcp", "udp"].map(|netid| {
                let ip = portmap::wildcard(netid.as_bytes());
                rpcb(portmap::PROGRAM, version, netid, (ip, portmap::PORT).into())
            })
        });
        let served = self.services.iter().map(|service| {
            let (netid, _) = portmap::netids(service.address.ip());
            rpcb(service.program, service.version, netid, service.address)
        });
        own.chain(served).collect()
    }
}

fn rpcb(program: u32, version: u32, netid: &'static str, address: SocketAddr) -> Rpcb {
    Rpcb {
        program,
        version,
        netid: Bytes::from_static(netid.as_bytes()),
        address: portmap::universal_address(address).into(),
        owner: Bytes::from_static(OWNER),
    }
}

impl Program for Portmapper {
    fn number(&self) -> u32 {
        portmap::PROGRAM
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn call<'a>(&'a self, _caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        Box::pin(async move { self.answer(procedure, args) })
    }
}

/// Whether a socket at `ip` takes connections of the family: the IPv6 wildcard takes both.
fn serves_family(ip: IpAddr, ipv6: bool) -> bool {
    ip.is_ipv6() == ipv6 || (ip.is_ipv6() && ip.is_unspecified())
}

fn decode<T: Decode>(args: Bytes) -> Result<T, CallError> {
    T::decode_all(args).map_err(CallError::GarbageArgs)
}

fn number(value: u32) -> Encoder {
    let mut encoder = Encoder::new();
    encoder.put_u32(value);
    encoder
}

/// Seconds since 1970, as far as 32 bits go.
fn seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
