//! Rows as the overlay sees them.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use crate::base::{BasePath, DELTA_IDS};
use crate::vfs::{CallId, Device, FileId, FileKind, Time};

use super::{MergedPath, Usage};

/// An inode number of the delta (`fs_inode.ino`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory (specification 0.4, "Special Inodes").
    pub const ROOT: Self = Self(1);

    /// The number that the export shows for an inode without an origin.
    ///
    /// Inodes that acetate makes are numbered from [`DELTA_IDS`] on and shown as they are; small
    /// numbers, from another implementation, are moved up, out of the base's range.
    pub fn fileid(self) -> FileId {
        if self == Self::ROOT || self.0 >= DELTA_IDS {
            FileId(self.0)
        } else {
            FileId(DELTA_IDS + self.0)
        }
    }
}

/// A row of `fs_inode`, with its rows in `acetate_inode` and `acetate_origin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeRow {
    /// Number.
    pub ino: Ino,
    /// Type.
    pub kind: FileKind,
    /// Permission bits (12 bits).
    pub mode: u32,
    /// Entries that point here (root: 1), as the specification counts: a directory has 1.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Device number of a special file.
    pub rdev: Device,
    /// Last read.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// Visible subdirectories, base ones included (`acetate_inode.subdirs`); `None` where
    /// another implementation made the directory and nobody counted yet.
    pub subdirs: Option<u32>,
    /// Chunks below the size that are neither stored nor still the base's
    /// (`acetate_inode.holes`).
    pub holes: u64,
    /// The verifier of the exclusive CREATE that made this file (`acetate_inode`).
    pub create_verifier: Option<[u8; 8]>,
    /// What of its content is still the base's (`acetate_copy_up`).
    pub copy_up: Option<CopyUp>,
    /// Where it was copied up from (`acetate_origin`).
    pub origin: Option<Origin>,
}

impl InodeRow {
    /// The number that the export shows.
    pub fn fileid(&self) -> FileId {
        self.origin.as_ref().map_or_else(|| self.ino.fileid(), |origin| origin.fileid)
    }

    /// What it takes of a quota, with chunks of `chunk` bytes.
    pub fn usage(&self, chunk: u64) -> Usage {
        Usage::of(self.ino, self.kind, (self.size, self.holes), self.nlink, chunk)
    }

    /// `st_mode`: type and permission bits.
    pub fn st_mode(&self) -> u32 {
        self.kind.mode_bits() | self.mode
    }
}

/// A row of `acetate_copy_up`: what of a copied-up file's content is still the base's.
///
/// A chunk that begins in `next..end` and is not stored holds what the base file (the origin) has
/// there, up to `end`, and zeros behind that. Every other chunk is the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyUp {
    /// The first byte that may still be the base's; a multiple of the chunk size.
    pub next: u64,
    /// The first byte behind those.
    pub end: u64,
}

impl CopyUp {
    /// The numbers of the chunks that may still be the base's, of `chunk` bytes each.
    pub fn chunks(&self, chunk: u64) -> Range<u64> {
        self.next / chunk..self.end.div_ceil(chunk)
    }
}

/// How much of all files' content is still the base's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PendingCopies {
    /// Files.
    pub files: u64,
    /// Bytes at most: what was written meanwhile, and holes, are counted too.
    pub bytes: u64,
}

/// A row of `acetate_origin`: what an object was in the base when it was copied up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The number that the export showed before, and shows since (`fs_origin.base_ino`).
    pub fileid: FileId,
    /// Base path.
    pub path: BasePath,
    /// Host device number.
    pub dev: u64,
    /// Host inode number.
    pub ino: u64,
    /// Names in the base.
    pub nlink: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
}

/// What a change was, in `acetate_op.procedure`: the names of RFC 1813, and two of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditProcedure {
    /// SETATTR.
    Setattr,
    /// WRITE.
    Write,
    /// CREATE.
    Create,
    /// MKDIR.
    Mkdir,
    /// SYMLINK.
    Symlink,
    /// MKNOD.
    Mknod,
    /// REMOVE.
    Remove,
    /// RMDIR.
    Rmdir,
    /// RENAME.
    Rename,
    /// LINK.
    Link,
    /// Changes were given up, so that the base shows again.
    Discard,
    /// Changes were written to the base, so that the session needs them no more.
    Apply,
    /// The content of a guarded file was replaced as a whole.
    Publish,
    /// Content for a guarded file was refused: nothing changed.
    Refuse,
}

/// The note of a row whose path, or `path2`, was longer than
/// [`MAX_PATH_BYTES`](super::MAX_PATH_BYTES): the row has the path of a directory above instead.
pub const SHORTENED: &str = "something below this path: the whole path is too long for the log";

impl AuditRow {
    /// Whether a path is that of a directory above what was changed.
    pub fn is_shortened(&self) -> bool {
        self.note.as_deref() == Some(SHORTENED)
    }
}

impl AuditProcedure {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Setattr,
        Self::Write,
        Self::Create,
        Self::Mkdir,
        Self::Symlink,
        Self::Mknod,
        Self::Remove,
        Self::Rmdir,
        Self::Rename,
        Self::Link,
        Self::Discard,
        Self::Apply,
        Self::Publish,
        Self::Refuse,
    ];

    /// The procedure that is stored under this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|procedure| procedure.as_str() == name)
    }

    /// The name as it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setattr => "SETATTR",
            Self::Write => "WRITE",
            Self::Create => "CREATE",
            Self::Mkdir => "MKDIR",
            Self::Symlink => "SYMLINK",
            Self::Mknod => "MKNOD",
            Self::Remove => "REMOVE",
            Self::Rmdir => "RMDIR",
            Self::Rename => "RENAME",
            Self::Link => "LINK",
            Self::Discard => "DISCARD",
            Self::Apply => "APPLY",
            Self::Publish => "PUBLISH",
            Self::Refuse => "REFUSE",
        }
    }
}

/// A row of `acetate_op`: one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When.
    pub time: Time,
    /// From where.
    pub client: SocketAddr,
    /// By whom.
    pub uid: u32,
    /// With which primary group.
    pub gid: u32,
    /// What.
    pub procedure: AuditProcedure,
    /// To which path, as it was then.
    pub path: MergedPath,
    /// The other path of RENAME (target) and LINK (new name).
    pub path2: Option<MergedPath>,
    /// To which object.
    pub fileid: FileId,
    /// First byte of a WRITE; new size of a SETATTR that sets one.
    pub offset: Option<u64>,
    /// Bytes of a WRITE, or of what was published.
    pub length: Option<u64>,
    /// Which call asked for it, if it must not be made twice.
    pub call: Option<CallId>,
    /// Through which export of several.
    pub export: Option<Arc<str>>,
    /// Why content was refused.
    pub note: Option<String>,
    /// The attributes that it set.
    pub set: AuditSet,
}

/// The attributes that a change set: those of a SETATTR as they were stored, the mode alone of
/// CREATE, MKDIR, SYMLINK and MKNOD. A size that was set is [`AuditRow::offset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuditSet {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<Time>,
    /// Last change of content.
    pub mtime: Option<Time>,
}

/// The whiteouts below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Whiteouts {
    /// How many there are.
    pub rows: u64,
    /// Length of their paths together, in bytes.
    pub bytes: u64,
    /// Length of the longest path, in bytes.
    pub longest: u64,
    /// How many objects they count as ([`whiteout_files`](super::whiteout_files)).
    pub files: u64,
}

/// Rows that left the audit log: it was pruned, or is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Rows, the oldest ones.
    pub rows: u64,
    /// When the first of them was written, to the second.
    pub since: Time,
    /// What `apply` needs of all of them was kept.
    pub is_kept: bool,
}

/// A change near the end of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateChange {
    /// Which call asked for it.
    pub call: CallId,
    /// The object that it changed, or made.
    pub fileid: FileId,
}
