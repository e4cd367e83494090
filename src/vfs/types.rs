//! Identities, attributes, and arguments of [`Vfs`](super::Vfs) methods.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;

/// A file's number: unique in the export, below 2^53, never reused (`fileid3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

impl FileId {
    /// The export's root directory.
    pub const ROOT: Self = Self(1);
    /// Exclusive upper bound: JavaScript tools store inode numbers as doubles.
    pub const LIMIT: u64 = 1 << 53;
}

/// The identity in a file handle, which locates the object if it still exists.
///
/// Never changes for an object: not on copy-up, rename or restart.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Locator {
    /// Created in the delta; the number is sufficient. The root is one of these.
    Delta(FileId),
    /// From the base: the number, and a digest from which its base path can be found.
    Base(FileId, PathDigest),
    /// From the base, with several names there, so that no single path identifies it.
    BaseLinked(FileId),
}

impl Locator {
    /// The export's root directory.
    pub const ROOT: Self = Self::Delta(FileId::ROOT);

    /// The object's number.
    pub fn fileid(&self) -> FileId {
        match self {
            Self::Delta(id) | Self::Base(id, _) | Self::BaseLinked(id) => *id,
        }
    }
}

impl fmt::Debug for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delta(id) => write!(f, "delta:{}", id.0),
            Self::Base(id, trail) => write!(f, "base:{}@{}", id.0, trail.components),
            Self::BaseLinked(id) => write!(f, "linked:{}", id.0),
        }
    }
}

/// The key of a file's locks, unique among all exports of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockKey {
    /// The fsid of the session that holds the file. The [`Attr::fsid`] of an export may differ.
    pub fsid: u64,
    /// The file's number in the session.
    pub fileid: FileId,
}

/// A digest of a base path, with one byte per component. A walk of the base that follows matching
/// components finds the path.
///
/// Components past [`PathDigest::MAX_BYTES`] have no byte; `components` still counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathDigest {
    /// The number of components of the path.
    pub components: u16,
    /// The digest bytes of the first components; the rest is zero.
    pub digest: [u8; Self::MAX_BYTES],
}

impl PathDigest {
    /// The number of digest bytes, which fit into a handle of 64 bytes.
    pub const MAX_BYTES: usize = 40;

    /// The digest bytes in use.
    pub fn bytes(&self) -> &[u8] {
        &self.digest[..usize::from(self.components).min(Self::MAX_BYTES)]
    }
}

/// A point in time.
///
/// NFSv3 encodes seconds as an unsigned 32-bit number (RFC 1813 §2.6 `nfstime3`). The encoder
/// clamps; the filesystem stores the whole range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds since 1970-01-01 00:00:00 UTC.
    pub secs: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

impl Time {
    /// The time one nanosecond later.
    pub fn next(self) -> Self {
        if self.nanos >= 999_999_999 {
            Self { secs: self.secs.saturating_add(1), nanos: 0 }
        } else {
            Self { secs: self.secs, nanos: self.nanos + 1 }
        }
    }

    /// The closest time that the protocol can encode: 1970 to 2106.
    pub fn as_clients_see_it(self) -> Self {
        let last = Self { secs: i64::from(u32::MAX), nanos: 999_999_999 };
        self.clamp(Self::default(), last)
    }
}

/// The type of an object (`ftype3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Block device.
    Block,
    /// Character device.
    Character,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

impl FileKind {
    /// The type bits of `st_mode` (specification 0.4, "Mode Encoding").
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::Character => 0o020_000,
            Self::Directory => 0o040_000,
            Self::Block => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// Decodes the type bits of `st_mode`; `None` for an unassigned combination.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::Character,
            0o040_000 => Self::Directory,
            0o060_000 => Self::Block,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }
}

/// A device number (`specdata3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// An object's attributes (`fattr3`, RFC 1813 §2.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// Type.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky (12 bits).
    pub mode: u32,
    /// Number of names; for a directory 2 + visible subdirectories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated bytes.
    pub used: u64,
    /// Device number of a special file.
    pub rdev: Device,
    /// Identifies the export.
    pub fsid: u64,
    /// Identifies the object in the export.
    pub fileid: FileId,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last change of content.
    pub mtime: Time,
    /// Time of the last change of content or attributes.
    pub ctime: Time,
}

/// How SETATTR and the creating procedures set a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave the time unchanged.
    #[default]
    Keep,
    /// Set to the server's clock.
    ServerNow,
    /// Set to the client's value.
    To(Time),
}

/// Attributes to set (`sattr3`, RFC 1813 §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

/// Identifies one exclusive CREATE (`createverf3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateVerifier(pub [u8; 8]);

/// Changes if and only if unsynced data may have been lost (`writeverf3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteVerifier(pub [u8; 8]);

/// A position in a listing, after which the next page starts: 0 at the beginning, below 2^63
/// (`cookie3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

/// How CREATE treats an existing file (`createhow3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow {
    /// An existing regular file is kept; only a size in the attributes is applied.
    Unchecked(SetAttr),
    /// Fails with [`super::FsError::Exists`] if the name exists.
    Guarded(SetAttr),
    /// Creates the file once per verifier; a retransmission succeeds, also after a restart.
    Exclusive(CreateVerifier),
}

/// The objects that MKDIR, SYMLINK and MKNOD create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewNode {
    /// A directory.
    Directory,
    /// A symbolic link with this target, 1 to 4096 bytes.
    Symlink(Bytes),
    /// A character device.
    Character(Device),
    /// A block device.
    Block(Device),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// How stable written data has to be (`stable_how`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// May be lost in a crash of the machine before COMMIT.
    Unstable,
    /// The data is synced.
    DataSync,
    /// Data and attributes are synced.
    FileSync,
}

/// Bits of ACCESS (RFC 1813 §3.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access(pub u32);

impl Access {
    /// Read a file, list a directory.
    pub const READ: u32 = 0x01;
    /// Look up a name in a directory.
    pub const LOOKUP: u32 = 0x02;
    /// Change existing data.
    pub const MODIFY: u32 = 0x04;
    /// Append data, or add entries.
    pub const EXTEND: u32 = 0x08;
    /// Delete an entry of a directory.
    pub const DELETE: u32 = 0x10;
    /// Execute a file.
    pub const EXECUTE: u32 = 0x20;
    /// All six.
    pub const ALL: Self = Self(0x3f);
}

/// Identifies a non-idempotent call: a digest that is equal for its retransmissions, at whichever
/// server of the session they arrive (RFC 1813 §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId(pub u64);

/// The kind of credentials of a call (RFC 5531 §8.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// `AUTH_NONE`: the caller is anonymous.
    None,
    /// `AUTH_SYS`: uid and gids.
    Sys,
}

/// The credentials of a call, and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The client's address.
    pub client: SocketAddr,
    /// The kind of credentials.
    pub flavor: Flavor,
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups, at most 16 (RFC 5531 appendix A).
    pub gids: Vec<u32>,
    /// Identifies the call, if it is non-idempotent.
    pub call: Option<CallId>,
    /// A command of the session's owner on this machine. Mode bits do not restrict it, because the
    /// owner can write the session file anyway.
    pub is_owner: bool,
}

impl Caller {
    /// The client address of calls from this machine's command line.
    pub const COMMAND_LINE: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    /// The uid and gid of the anonymous user, 65534.
    pub const NOBODY: u32 = 65534;

    /// The session's owner at this machine's command line.
    pub fn owner(uid: u32, gid: u32) -> Self {
        let (client, gids) = (Self::COMMAND_LINE, Vec::new());
        Self { client, flavor: Flavor::Sys, uid, gid, gids, call: None, is_owner: true }
    }

    /// Only the superuser can use ports below this.
    pub const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

    /// Whether the call comes from a port that only the superuser can use.
    pub fn has_privileged_port(&self) -> bool {
        self.client.port() < Self::FIRST_UNPRIVILEGED_PORT
    }

    /// Squashes root (exports(5) `root_squash`): maps uids and gids 0 and -1 to the anonymous user.
    #[must_use]
    pub fn root_squashed(mut self) -> Self {
        let ids = [&mut self.uid, &mut self.gid].into_iter().chain(&mut self.gids);
        ids.filter(|id| matches!(**id, 0 | u32::MAX)).for_each(|id| *id = Self::NOBODY);
        self
    }

    /// Whether the caller has the superuser's rights.
    pub fn is_root(&self) -> bool {
        self.uid == 0 || self.is_owner
    }

    /// Whether `gid` is among the caller's groups.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(&gid)
    }
}
