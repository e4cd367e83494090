//! What hostile connections send.

use std::net::SocketAddr;

use super::nfs::Handle;

const LAST_FRAGMENT: u32 = 1 << 31;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const AUTH_SYS: u32 = 1;
const NULL: u32 = 0;
const GETATTR: u32 = 1;
const READ: u32 = 6;
const WRITE: u32 = 7;
const MNT: u32 = 1;
const READDIRPLUS: u32 = 17;
const MEGABYTE: u32 = 1 << 20;

/// What an attacker knows of the server.
#[derive(Clone)]
pub struct Target {
    pub address: SocketAddr,
    /// A large directory.
    pub many: Handle,
    /// A file of a megabyte.
    pub file: Handle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    Garbage,
    Slow,
    Lengths,
    Args,
    Headers,
    Unread,
    UnreadData,
    UnreadKnown,
    SlowKnown,
    Storm,
}

/// How a connection goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Writes as fast as it goes, and throws away what comes.
    Fast,
    /// The same, and reads nothing.
    Deaf,
    /// A byte each second.
    Slow,
    /// Connects, sends once, and leaves.
    Brief,
}

impl Attack {
    pub const ALL: &[Self] = &[
        Self::Garbage,
        Self::Slow,
        Self::Lengths,
        Self::Args,
        Self::Headers,
        Self::Unread,
        Self::UnreadData,
        Self::UnreadKnown,
        Self::SlowKnown,
        Self::Storm,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Slow => "slow",
            Self::Lengths => "lengths",
            Self::Args => "args",
            Self::Headers => "headers",
            Self::Unread => "unread",
            Self::UnreadData => "unread-data",
            Self::UnreadKnown => "unread-known",
            Self::SlowKnown => "slow-known",
            Self::Storm => "storm",
        }
    }

    /// The same in words, after "connections that".
    pub fn what(self) -> &'static str {
        match self {
            Self::Garbage => "send random bytes",
            Self::Slow => "begin a record of a megabyte, and send a byte a second",
            Self::Lengths => "claim records of all lengths, and send no more",
            Self::Args => "send sound headers and random arguments",
            Self::Headers => "ask for other programs, versions, flavours",
            Self::Unread => "send small sound calls, and read no reply",
            Self::UnreadData => "ask for megabytes, and read none",
            Self::UnreadKnown => "mount and read a little, then the same",
            Self::SlowKnown => "mount and read a little, then WRITE a megabyte, a byte a second",
            Self::Storm => "connect, call once, and leave",
        }
    }

    pub fn manner(self) -> Manner {
        match self {
            Self::Garbage | Self::Args | Self::Headers => Manner::Fast,
            Self::Slow | Self::Lengths | Self::SlowKnown => Manner::Slow,
            Self::Unread | Self::UnreadData | Self::UnreadKnown => Manner::Deaf,
            Self::Storm => Manner::Brief,
        }
    }

    /// The calls that a connection begins with, and waits for: those of a client like others.
    pub fn begins_with(self, target: &Target, random: &mut Random) -> Vec<Vec<u8>> {
        match self {
            Self::UnreadKnown | Self::SlowKnown => vec![
                call(random.next(), [MOUNT, 3, MNT], AUTH_SYS, &opaque(b"/")),
                read(target, 4096, random),
            ],
            _ => Vec::new(),
        }
    }

    /// The next bytes of a connection.
    pub fn bytes(self, target: &Target, random: &mut Random) -> Vec<u8> {
        match self {
            Self::Garbage => random.bytes(4096),
            Self::Slow => (LAST_FRAGMENT | MEGABYTE).to_be_bytes().into(),
            Self::Lengths => match random.next() % 3 {
                0 => u32::MAX.to_be_bytes().into(),
                1 => MEGABYTE.to_be_bytes().into(),
                _ => (LAST_FRAGMENT | MEGABYTE).to_be_bytes().into(),
            },
            Self::Args => {
                let procedure = random.next() % 22;
                let length = (random.next() % 64) as usize * 4;
                let args = random.bytes(length);
                call(random.next(), [NFS, 3, procedure], AUTH_SYS, &args)
            }
            Self::Headers => {
                let program = [NFS, NFS + random.next() % 30, [100_227, 7][random.odd()]];
                let target = [program[(random.next() % 3) as usize], random.next() % 6, GETATTR];
                call(random.next(), target, random.next() % 8, &[])
            }
            Self::Unread => {
                let handle = opaque(&target.many);
                (0..32).flat_map(|_| call(random.next(), [NFS, 3, GETATTR], 1, &handle)).collect()
            }
            Self::UnreadData | Self::UnreadKnown => match random.odd() {
                0 => read(target, MEGABYTE, random),
                _ => {
                    let rest = words(&[0, 0, 0, 0, MEGABYTE, MEGABYTE]);
                    let args = [opaque(&target.many), rest].concat();
                    call(random.next(), [NFS, 3, READDIRPLUS], AUTH_SYS, &args)
                }
            },
            Self::SlowKnown => {
                // Offset, count, UNSTABLE, and as many bytes, of which none is here.
                let rest = words(&[0, 0, MEGABYTE, 0, MEGABYTE]);
                let args = [opaque(&target.file), rest].concat();
                let mut begun = call(random.next(), [NFS, 3, WRITE], AUTH_SYS, &args);
                let length = begun.len() as u32 - 4 + MEGABYTE;
                begun[..4].copy_from_slice(&(LAST_FRAGMENT | length).to_be_bytes());
                begun
            }
            Self::Storm => call(random.next(), [NFS, 3, NULL], AUTH_SYS, &[]),
        }
    }
}

/// A READ of the file from its beginning.
fn read(target: &Target, count: u32, random: &mut Random) -> Vec<u8> {
    let args = [opaque(&target.file), words(&[0, 0, count])].concat();
    call(random.next(), [NFS, 3, READ], AUTH_SYS, &args)
}

/// GETATTR, as a sound client sends it.
pub fn getattr(object: &Handle) -> Vec<u8> {
    call(7, [NFS, 3, GETATTR], AUTH_SYS, &opaque(object))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut encoded = words(&[bytes.len() as u32]);
    encoded.extend_from_slice(bytes);
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

/// A call of (program, version, procedure) with a credential of 20 bytes.
fn call(xid: u32, target: [u32; 3], flavour: u32, args: &[u8]) -> Vec<u8> {
    let [program, version, procedure] = target;
    let head = [xid, 0, 2, program, version, procedure, flavour, 20, 0, 0, 0, 0, 0, 0, 0];
    let length = (head.len() * 4 + args.len()) as u32;
    [&(LAST_FRAGMENT | length).to_be_bytes()[..], &words(&head), args].concat()
}

/// Numbers that look random (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    fn odd(&mut self) -> usize {
        (self.next() & 1) as usize
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count.div_ceil(4)).flat_map(|_| self.next().to_be_bytes()).take(count).collect()
    }
}
