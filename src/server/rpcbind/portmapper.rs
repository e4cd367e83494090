//! The port mapper protocol, for machines without an rpcbind.
//!
//! The port mapper has our programs, and accepts registrations from this machine: the status daemon
//! and lock manager of an NFS client do not start without a port mapper.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::nfs::CallError;
use crate::server::limits::SMALL_REPLY_BYTES;
use crate::server::program::{CallFuture, RpcProgram};
use crate::server::registry::Registry;
use crate::vfs::Caller;
use crate::wire::portmap::{
    self, IPPROTO_TCP, IPPROTO_UDP, Mapping, PROC_DUMP, PROC_GET, PROC_GETTIME, PROC_GETVERSADDR,
    PROC_SET, PROC_UNSET, Rpcb, VERSION_2, VERSION_4,
};
use crate::wire::rpc::PROC_NULL;
use crate::wire::xdr::{Decode, Encoder};

/// Only root can bind source ports below this, and only such callers may change registrations.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Upper bound of an encoded DUMP entry in bytes: numbers and lengths, transport, address, owner.
const ENTRY_BYTES: usize = 6 * 4 + 4 + 128 + 12;

/// One version of the port mapper, as an RPC program.
pub struct Portmapper {
    version: u32,
    registry: Arc<Registry>,
}

impl Portmapper {
    /// Creates `version` (2, 3 or 4) of the port mapper; all versions share `registry`.
    pub fn new(version: u32, registry: Arc<Registry>) -> Self {
        Self { version, registry }
    }

    fn answer(&self, caller: &Caller, procedure: u32, args: Bytes) -> Result<Encoder, CallError> {
        match (procedure, self.version) {
            (PROC_NULL, _) => Ok(Encoder::new()),
            (PROC_SET, VERSION_2) => {
                let entry = to_rpcb(decode(args)?);
                Ok(number(entry.is_some_and(|entry| self.set(caller, entry)).into()))
            }
            (PROC_SET, _) => Ok(number(self.set(caller, decode(args)?).into())),
            (PROC_UNSET, VERSION_2) => {
                let Mapping { program, version, .. } = decode(args)?;
                Ok(number(self.unset(caller, program, version, &[b"tcp", b"udp"]).into()))
            }
            (PROC_UNSET, _) => {
                let entry: Rpcb = decode(args)?;
                let all: &[&[u8]] = &[b"tcp", b"udp", b"tcp6", b"udp6"];
                let one: &[&[u8]] = &[&entry.netid];
                let netids = if entry.netid.is_empty() { all } else { one };
                Ok(number(self.unset(caller, entry.program, entry.version, netids).into()))
            }
            (PROC_GET, VERSION_2) => Ok(number(self.port(decode(args)?))),
            (PROC_GET, _) => Ok(self.address(&decode(args)?, false)),
            (PROC_GETVERSADDR, VERSION_4) => Ok(self.address(&decode(args)?, true)),
            (PROC_DUMP, VERSION_2) => Ok(portmap::encode_list(&self.mappings())),
            (PROC_DUMP, _) => Ok(portmap::encode_list(&self.registry.entries())),
            (PROC_GETTIME, 3..) => Ok(number(seconds())),
            _ => Err(CallError::ProcedureUnavailable),
        }
    }

    fn set(&self, caller: &Caller, entry: Rpcb) -> bool {
        may_register(caller) && self.registry.set(entry)
    }

    fn unset(&self, caller: &Caller, program: u32, version: u32, netids: &[&[u8]]) -> bool {
        may_register(caller) && self.registry.unset(program, version, netids)
    }

    /// GETPORT: returns the port, or 0.
    fn port(&self, asked: Mapping) -> u32 {
        let netid: &[u8] = match asked.protocol {
            IPPROTO_TCP => b"tcp",
            IPPROTO_UDP => b"udp",
            _ => return 0,
        };
        let found = self.registry.find(asked.program, asked.version, netid, false);
        found.map_or(0, |at| at.port().into())
    }

    /// GETADDR and GETVERSADDR: returns the universal address, or an empty string.
    fn address(&self, asked: &Rpcb, exact: bool) -> Encoder {
        let netid: &[u8] = if asked.netid.is_empty() { b"tcp" } else { &asked.netid };
        let found = self.registry.find(asked.program, asked.version, netid, exact);
        let text = found.map(|at| {
            // A wildcard is useless to the client; its query names the address that it reached.
            let reached = portmap::parse_universal_address(&asked.address);
            let ip = match reached {
                Some(reached) if at.ip().is_unspecified() => reached.ip(),
                _ => at.ip(),
            };
            portmap::universal_address(SocketAddr::new(ip, at.port()))
        });
        let mut encoder = Encoder::new();
        encoder.put_opaque(text.unwrap_or_default().as_bytes());
        encoder
    }

    /// The registrations that version 2 can express: IPv4 only.
    fn mappings(&self) -> Vec<Mapping> {
        self.registry.entries().iter().filter_map(to_mapping).collect()
    }
}

/// Whether `caller` is root on this machine, judged by address and source port.
fn may_register(caller: &Caller) -> bool {
    let client = caller.client;
    client.ip().to_canonical().is_loopback() && client.port() < FIRST_UNPRIVILEGED_PORT
}

fn to_rpcb(mapping: Mapping) -> Option<Rpcb> {
    let netid: &'static [u8] = match mapping.protocol {
        IPPROTO_TCP => b"tcp",
        IPPROTO_UDP => b"udp",
        _ => return None,
    };
    let at = SocketAddr::new(portmap::wildcard(netid), u16::try_from(mapping.port).ok()?);
    Some(Rpcb {
        program: mapping.program,
        version: mapping.version,
        netid: Bytes::from_static(netid),
        address: portmap::universal_address(at).into(),
        owner: Bytes::new(),
    })
}

fn to_mapping(entry: &Rpcb) -> Option<Mapping> {
    let protocol = match &entry.netid[..] {
        b"tcp" => IPPROTO_TCP,
        b"udp" => IPPROTO_UDP,
        _ => return None,
    };
    let at = portmap::parse_universal_address(&entry.address)?;
    let (program, version, port) = (entry.program, entry.version, at.port().into());
    Some(Mapping { program, version, protocol, port })
}

impl RpcProgram for Portmapper {
    fn number(&self) -> u32 {
        portmap::PROGRAM
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn call<'a>(&'a self, caller: &'a Caller, procedure: u32, args: Bytes) -> CallFuture<'a> {
        Box::pin(async move { self.answer(caller, procedure, args) })
    }

    fn reply_bytes(&self, procedure: u32, _args: &Bytes) -> usize {
        let is_dump = procedure == PROC_DUMP;
        SMALL_REPLY_BYTES + if is_dump { self.registry.entries().len() * ENTRY_BYTES } else { 0 }
    }
}

fn decode<T: Decode>(args: Bytes) -> Result<T, CallError> {
    T::decode_all(args).map_err(CallError::GarbageArgs)
}

fn number(value: u32) -> Encoder {
    let mut encoder = Encoder::new();
    encoder.put_u32(value);
    encoder
}

/// Seconds since 1970, saturating at 32 bits.
fn seconds() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
