//! The procedures and their numbers.

/// The procedures of NFSv3 (RFC 1813 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Procedure {
    /// Does nothing (§3.3.0).
    Null = 0,
    /// Returns attributes (§3.3.1).
    Getattr = 1,
    /// Changes attributes (§3.3.2).
    Setattr = 2,
    /// Finds a name (§3.3.3).
    Lookup = 3,
    /// Checks permission (§3.3.4).
    Access = 4,
    /// Reads a symbolic link (§3.3.5).
    Readlink = 5,
    /// Reads a file (§3.3.6).
    Read = 6,
    /// Writes a file (§3.3.7).
    Write = 7,
    /// Creates a file (§3.3.8).
    Create = 8,
    /// Creates a directory (§3.3.9).
    Mkdir = 9,
    /// Creates a symbolic link (§3.3.10).
    Symlink = 10,
    /// Creates a special file (§3.3.11).
    Mknod = 11,
    /// Removes an object other than a directory (§3.3.12).
    Remove = 12,
    /// Removes an empty directory (§3.3.13).
    Rmdir = 13,
    /// Renames an object (§3.3.14).
    Rename = 14,
    /// Creates a hard link (§3.3.15).
    Link = 15,
    /// Lists a directory (§3.3.16).
    Readdir = 16,
    /// Lists a directory with attributes and handles (§3.3.17).
    Readdirplus = 17,
    /// Returns space and object counts (§3.3.18).
    Fsstat = 18,
    /// Returns limits of the filesystem (§3.3.19).
    Fsinfo = 19,
    /// Returns limits of names and links (§3.3.20).
    Pathconf = 20,
    /// Writes cached data to stable storage (§3.3.21).
    Commit = 21,
}

impl Procedure {
    /// All procedures, indexed by their number.
    pub const ALL: [Self; 22] = [
        Self::Null,
        Self::Getattr,
        Self::Setattr,
        Self::Lookup,
        Self::Access,
        Self::Readlink,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Mkdir,
        Self::Symlink,
        Self::Mknod,
        Self::Remove,
        Self::Rmdir,
        Self::Rename,
        Self::Link,
        Self::Readdir,
        Self::Readdirplus,
        Self::Fsstat,
        Self::Fsinfo,
        Self::Pathconf,
        Self::Commit,
    ];

    /// Decodes a procedure number; `None` if it does not exist.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Whether the procedure is not idempotent: a retransmission must get the cached reply (RFC
    /// 1813 §4.5).
    pub fn needs_replay(self) -> bool {
        match self {
            Self::Setattr
            | Self::Write
            | Self::Create
            | Self::Mkdir
            | Self::Symlink
            | Self::Mknod
            | Self::Remove
            | Self::Rmdir
            | Self::Rename
            | Self::Link => true,
            Self::Null
            | Self::Getattr
            | Self::Lookup
            | Self::Access
            | Self::Readlink
            | Self::Read
            | Self::Readdir
            | Self::Readdirplus
            | Self::Fsstat
            | Self::Fsinfo
            | Self::Pathconf
            | Self::Commit => false,
        }
    }
}
