//! Typed rows that the overlay reads and writes.

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

    /// The file number that the export shows for an inode without an origin.
    ///
    /// acetate numbers its inodes from [`DELTA_IDS`] on and shows those numbers unchanged. Smaller
    /// numbers, from another implementation, are shifted up, out of the base's range.
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
    /// Inode number.
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
    /// Visible subdirectories, base ones included (`acetate_inode.subdirs`); `None` if another
    /// implementation created the directory and the count is not known yet.
    pub subdirs: Option<u32>,
    /// Chunks below the size that are neither stored nor pending (`acetate_inode.holes`).
    pub holes: u64,
    /// The verifier of the exclusive CREATE that made this file (`acetate_inode`).
    pub create_verifier: Option<[u8; 8]>,
    /// The part of the content that is still the base's (`acetate_copy_up`).
    pub copy_up: Option<CopyUp>,
    /// The base object that this one was copied up from (`acetate_origin`).
    pub origin: Option<Origin>,
}

impl InodeRow {
    /// The file number that the export shows.
    pub fn fileid(&self) -> FileId {
        self.origin.as_ref().map_or_else(|| self.ino.fileid(), |origin| origin.fileid)
    }

    /// Its quota usage, with chunks of `chunk` bytes.
    pub fn usage(&self, chunk: u64) -> Usage {
        Usage::of(self.ino, self.kind, (self.size, self.holes), self.nlink, chunk)
    }

    /// Takes over the base's present mode, owner and group (`now`) of a copied-up directory, each
    /// if the session has not set another one since the copy-up.
    pub fn follow_base_attributes(&mut self, now: [u32; 3]) {
        let Some(known) = self.origin.as_mut().and_then(|origin| origin.attributes.as_mut()) else {
            return;
        };
        let own = [&mut self.mode, &mut self.uid, &mut self.gid];
        for ((own, known), now) in own.into_iter().zip(known).zip(now) {
            if *own == *known {
                (*own, *known) = (now, now);
            }
        }
    }

    /// `st_mode`: type and permission bits.
    pub fn st_mode(&self) -> u32 {
        self.kind.mode_bits() | self.mode
    }
}

/// A row of `acetate_copy_up`: the part of a copied-up file's content that is still the base's.
///
/// A chunk that begins in `next..end` and is not stored reads from the base file (the origin) up to
/// `end`, and as zeros beyond. Every other chunk is the session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyUp {
    /// The first byte that may still be the base's, in bytes from the file's start; a multiple of
    /// the chunk size.
    pub next: u64,
    /// The end of that range, exclusive.
    pub end: u64,
}

impl CopyUp {
    /// The range of chunk numbers that may still be the base's, with chunks of `chunk` bytes.
    pub fn chunks(&self, chunk: u64) -> Range<u64> {
        self.next / chunk..self.end.div_ceil(chunk)
    }
}

/// How much content, over all files, is still to be copied from the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PendingCopies {
    /// Number of files.
    pub files: u64,
    /// Upper bound in bytes: holes, and chunks written since copy-up began, are included.
    pub bytes: u64,
}

/// A row of `acetate_origin`: the state of a base object when it was copied up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The file number that the export showed before copy-up and still shows
    /// (`fs_origin.base_ino`).
    pub fileid: FileId,
    /// Base path.
    pub path: BasePath,
    /// Host device number.
    pub dev: u64,
    /// Host inode number.
    pub ino: u64,
    /// Hard links in the base.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes.
    pub ctime: Time,
    /// Permission bits, owner and group of a directory. `None` for other types, which have an
    /// original, and in a row of an older version.
    pub attributes: Option<[u32; 3]>,
}

/// The kind of a change, in `acetate_op.procedure`: procedures of RFC 1813, and five of our own.
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
    /// The session's changes were discarded, so that the base shows again.
    Discard,
    /// Changes were applied to the base, so that the session no longer stores them.
    Apply,
    /// The content of a guarded file was replaced by its draft.
    Publish,
    /// Content for a guarded file was refused; the file is unchanged.
    Refuse,
    /// The path and all below it became what they were at a checkpoint. [`AuditRow::offset`] has
    /// the last row before the checkpoint: later ones there, up to this one, are of changes that
    /// the restore took back. Without a number, the directory of the path is there again, and
    /// nothing of what was in it.
    Restore,
}

/// The note of a row whose path, or `path2`, exceeds [`MAX_PATH_BYTES`](super::MAX_PATH_BYTES). The
/// row has the path of a parent directory instead.
pub const SHORTENED: &str = "something below this path: the whole path is too long for the log";

impl AuditRow {
    /// Whether a path in this row is that of a parent directory of the changed object.
    pub fn is_shortened(&self) -> bool {
        self.note.as_deref() == Some(SHORTENED)
    }
}

impl AuditProcedure {
    /// All of them.
    pub const ALL: [Self; 15] = [
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
        Self::Restore,
    ];

    /// Parses a stored name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|procedure| procedure.as_str() == name)
    }

    /// The stored name.
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
            Self::Restore => "RESTORE",
        }
    }
}

/// A row of `acetate_op`: one change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When the change happened.
    pub time: Time,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The caller's uid.
    pub uid: u32,
    /// The caller's primary gid.
    pub gid: u32,
    /// What the caller did.
    pub procedure: AuditProcedure,
    /// The path of the changed object, at the time of the change.
    pub path: MergedPath,
    /// The other path of RENAME (target) and LINK (new name).
    pub path2: Option<MergedPath>,
    /// The changed object.
    pub fileid: FileId,
    /// First byte of a WRITE; new size of a SETATTR that sets one; number of the last row before
    /// the checkpoint of a RESTORE.
    pub offset: Option<u64>,
    /// Bytes of a WRITE, or of published content.
    pub length: Option<u64>,
    /// The call that made the change, if a retransmission must not repeat it.
    pub call: Option<CallId>,
    /// The export's name, if the server has several.
    pub export: Option<Arc<str>>,
    /// Why content was refused, which checkpoint was restored, or [`SHORTENED`].
    pub note: Option<String>,
    /// The attributes that the change set.
    pub set: AuditSet,
}

/// The attributes that a change set: all those of a SETATTR, as stored; only the mode for CREATE,
/// MKDIR, SYMLINK and MKNOD. A size is in [`AuditRow::offset`].
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

/// Totals of the whiteouts below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Whiteouts {
    /// Number of whiteouts.
    pub rows: u64,
    /// Sum of the lengths of their paths, in bytes.
    pub bytes: u64,
    /// Length of the longest path, in bytes.
    pub longest: u64,
    /// Number of files that they count as in a quota ([`whiteout_files`](super::whiteout_files)).
    pub files: u64,
}

/// The oldest rows, deleted from the audit log by pruning or by its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Number of rows.
    pub rows: u64,
    /// When the first of them was written, in whole seconds.
    pub since: Time,
    /// Whether what `apply` needs of all of them was kept.
    pub is_kept: bool,
}

/// A change near the end of the audit log, whose reply may not have reached the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnacknowledgedOp {
    /// The call that made the change.
    pub call: CallId,
    /// The object that the call changed or created.
    pub fileid: FileId,
}
