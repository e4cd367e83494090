//! The registrations of the built-in port mapper: itself, our programs, and those of this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::limits::MAX_REGISTRATIONS;
use crate::wire::nlm4;
use crate::wire::portmap::{self, Rpcb, VERSION_2, VERSION_4};

/// Owner of every registration: only root may register.
const OWNER: &[u8] = b"superuser";

/// One of our programs at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// TCP address that it listens on.
    pub address: SocketAddr,
}

impl Service {
    /// The rpcbind entries of the service, one for each address family of its socket. A socket at
    /// the IPv6 wildcard accepts both families.
    pub(super) fn entries(&self) -> impl Iterator<Item = Rpcb> {
        let (ip, port) = (self.address.ip(), self.address.port());
        let both = ip.is_ipv6() && ip.is_unspecified();
        let second = both.then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let (program, version) = (self.program, self.version);
        [Some(ip), second].into_iter().flatten().map(move |ip| {
            let netid = if ip.is_ipv4() { "tcp" } else { "tcp6" };
            rpcb(program, version, netid, (ip, port).into())
        })
    }
}

/// Registrations: our own, which are fixed, and those of other programs, which come and go.
pub struct Registry {
    ours: Vec<Rpcb>,
    others: Mutex<Vec<Rpcb>>,
}

impl Registry {
    /// A registry with the port mapper itself and `services`.
    pub fn new(services: &[Service]) -> Self {
        let itself = (VERSION_2..=VERSION_4).rev().flat_map(|version| {
            ["tcp", "udp", "tcp6", "udp6"].map(|netid| {
                let ip = portmap::wildcard(netid.as_bytes());
                rpcb(portmap::PROGRAM, version, netid, (ip, portmap::PORT).into())
            })
        });
        let ours = itself.chain(services.iter().flat_map(Service::entries)).collect();
        Self { ours, others: Mutex::default() }
    }

    /// All registrations.
    pub(super) fn entries(&self) -> Vec<Rpcb> {
        self.ours.iter().chain(self.others().iter()).cloned().collect()
    }

    /// Adds a registration; returns whether it is present afterwards. Fails if another address is
    /// registered for the same program, version and transport.
    ///
    /// Only a lock manager may be registered in addition to ours. The kernel of an NFS client on
    /// this machine must register its own lock manager before it can mount. [`Registry::find`]
    /// still returns ours, because clients that look one up want to lock our files.
    pub(super) fn set(&self, entry: Rpcb) -> bool {
        let known = ["tcp", "udp", "tcp6", "udp6"].iter().any(|id| entry.netid == id.as_bytes());
        if !known || portmap::parse_universal_address(&entry.address).is_none() {
            return false;
        }
        let mut others = self.others();
        let same = |other: &&Rpcb| is_at(other, entry.program, entry.version, &entry.netid);
        let ours = self.ours.iter().filter(|ours| ours.program != nlm4::PROGRAM);
        if let Some(present) = ours.chain(others.iter()).find(same) {
            return present.address == entry.address;
        }
        let room = others.len() < MAX_REGISTRATIONS;
        if room {
            // Copied: the stored entry must not keep the call's record in memory.
            let netid = Bytes::copy_from_slice(&entry.netid);
            let address = Bytes::copy_from_slice(&entry.address);
            others.push(Rpcb { netid, address, owner: Bytes::from_static(OWNER), ..entry });
        }
        room
    }

    /// Removes registrations of other programs; returns whether any matched.
    pub(super) fn unset(&self, program: u32, version: u32, netids: &[&[u8]]) -> bool {
        let mut others = self.others();
        let before = others.len();
        others.retain(|entry| !netids.iter().any(|netid| is_at(entry, program, version, netid)));
        others.len() < before
    }

    /// The address of `program` for a transport. Without an entry for `version`, any version
    /// matches unless `exact`: port mappers leave it to the program to refuse a version.
    pub(super) fn find(
        &self,
        program: u32,
        version: u32,
        netid: &[u8],
        exact: bool,
    ) -> Option<SocketAddr> {
        let others = self.others();
        let entries = self.ours.iter().chain(others.iter());
        let mut matching = entries.filter(|entry| entry.program == program && entry.netid == netid);
        let any = matching.clone().next().filter(|_| !exact);
        let found = matching.find(|entry| entry.version == version).or(any)?;
        portmap::parse_universal_address(&found.address)
    }

    fn others(&self) -> MutexGuard<'_, Vec<Rpcb>> {
        // A panic cannot leave the list inconsistent.
        self.others.lock()
    }
}

fn is_at(entry: &Rpcb, program: u32, version: u32, netid: &[u8]) -> bool {
    entry.program == program && entry.version == version && entry.netid == netid
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
