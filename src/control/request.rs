//! Requests and answers.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::usage::{ExportsUsage, UsageReport};
use crate::delta::{Limits, MergedPath};
use crate::overlay::RebaseItem;
use crate::vfs::{FileId, FsError, SetAttr, SetTime, Time};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// How the server stands.
    Status,
    /// What the server's exports take of their quotas.
    Exports,
    /// A directory; with `parents` also those above it, and one that is there already will do.
    MakeDir {
        /// Where.
        path: PathText,
        /// Its attributes.
        meta: AttrChanges,
        /// Whether directories above it are made.
        parents: bool,
    },
    /// A regular file; its content follows.
    Write {
        /// Where.
        path: PathText,
        /// What becomes of a file that is there.
        how: WriteHow,
        /// Its attributes.
        meta: AttrChanges,
    },
    /// A symbolic link.
    MakeLink {
        /// Where.
        path: PathText,
        /// Where it leads.
        target: PathText,
        /// Its attributes.
        meta: AttrChanges,
    },
    /// Attributes of what is there.
    SetMeta {
        /// Where.
        path: PathText,
        /// The attributes.
        meta: AttrChanges,
    },
    /// Another name for what is there and is no directory.
    Link {
        /// What.
        from: PathText,
        /// Its new name.
        to: PathText,
    },
    /// That something goes; with `recursive` a directory with all that is in it.
    Remove {
        /// What.
        path: PathText,
        /// Whether a directory may have entries.
        recursive: bool,
        /// Whether the answer comes after about [`TURN_MS`], with a part done.
        ///
        /// [`TURN_MS`]: super::limits::TURN_MS
        by_turns: bool,
    },
    /// Many small objects, in their order; the contents of the files follow, one behind the other.
    /// What is behind one that cannot be made is not made.
    Make {
        /// At most [`BULK_ITEMS`], of at most [`PIECE_BYTES`] together.
        ///
        /// [`BULK_ITEMS`]: super::limits::BULK_ITEMS
        /// [`PIECE_BYTES`]: super::limits::PIECE_BYTES
        items: Vec<MakeItem>,
    },
    /// That an empty directory goes.
    RemoveDir {
        /// Which.
        path: PathText,
    },
    /// That something gets another path; a file there is replaced, and so is an empty directory
    /// by a directory.
    Rename {
        /// What.
        from: PathText,
        /// Its new path, in a directory that is there.
        to: PathText,
    },
    /// To be the only one who asked for this, until the connection ends: for several changes
    /// that belong together.
    Alone,
    /// That everything before is synced.
    Sync,
    /// That paths show the base again.
    Discard {
        /// Which.
        paths: Vec<PathText>,
    },
    /// That what copy-up left in the base is copied, for about [`TURN_MS`], from this inode
    /// on.
    ///
    /// [`TURN_MS`]: super::limits::TURN_MS
    Copy {
        /// Its number; 0 to begin with.
        from: u64,
    },
    /// That the session lets go of what the base has by now.
    Rebase {
        /// What.
        applied: Vec<AppliedObject>,
    },
    /// That the session lets go of a part of a file, which the base has by now; the content with
    /// which the file began, and that part of what it became, follows.
    RebasePart {
        /// The file.
        applied: AppliedObject,
        /// The mode, owner and group that go with the content.
        attributes: [u32; 3],
    },
    /// That the session removes copies in which it changed nothing.
    DropUnchanged {
        /// Their paths; number, and seconds and nanoseconds of the last change.
        copies: Vec<(PathText, (u64, i64, u32))>,
    },
    /// That a file gets other content, which follows, if nothing changed it.
    Rewrite {
        /// Where.
        path: PathText,
        /// The file: its number, and seconds and nanoseconds of its last change.
        object: (u64, i64, u32),
        /// Its attributes.
        meta: AttrChanges,
    },
    /// That the space of what was deleted goes back to the disk.
    Compact,
    /// That rows of the audit log up to this one go, the oldest first and a bounded number of them;
    /// the answer is how many went.
    PruneLog {
        /// The last row that may go.
        upto: i64,
    },
    /// That the session gets limits of its own.
    SetQuota {
        /// Of the bytes that contents take.
        bytes: Bound,
        /// Of the objects.
        files: Bound,
        /// Of the size of each file.
        #[serde(default)]
        file_bytes: Bound,
    },
}

/// An object that [`Request::Make`] makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeItem {
    /// Where.
    pub path: PathText,
    /// What.
    pub kind: ItemKind,
    /// Its attributes.
    pub meta: AttrChanges,
}

/// What an [`MakeItem`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemKind {
    /// A directory; one that is there stays as it is.
    Directory,
    /// A regular file; one that is there gets the content.
    File {
        /// Bytes of its content.
        bytes: u64,
    },
    /// A symbolic link; one that is there is replaced.
    Link {
        /// Where it leads.
        target: PathText,
    },
    /// Only the attributes of what is there.
    Any,
}

impl MakeItem {
    /// Bytes of its content.
    pub fn bytes(&self) -> u64 {
        if let ItemKind::File { bytes } = self.kind { bytes } else { 0 }
    }
}

/// What becomes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Bound {
    /// It stays.
    #[default]
    Keep,
    /// There is none any more.
    None,
    /// It is this.
    AtMost(u64),
}

impl Bound {
    /// The limits that come of others, by what becomes of bytes, files and the size of each file.
    pub fn apply(limits: Limits, [bytes, files, file_bytes]: [Self; 3]) -> Limits {
        let become_of = |limit: Option<u64>, bound| match bound {
            Self::Keep => limit,
            Self::None => None,
            Self::AtMost(most) => Some(most),
        };
        Limits {
            bytes: become_of(limits.bytes, bytes),
            files: become_of(limits.files, files),
            file_bytes: become_of(limits.file_bytes, file_bytes),
        }
    }
}

/// An object that `apply` has written to the base: see [`RebaseItem`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedObject {
    /// Where it is in the merged tree.
    pub path: PathText,
    /// Where the base had it before.
    pub from: Option<PathText>,
    /// What the session has there: its number, and seconds and nanoseconds of its last change.
    pub object: Option<(u64, i64, u32)>,
    /// The session had an entry there.
    #[serde(default)]
    pub was_entry: bool,
    /// The ctime with which the base was left there, in seconds and nanoseconds.
    #[serde(default)]
    pub base_ctime: Option<(i64, u32)>,
}

impl AppliedObject {
    /// As the overlay takes it.
    pub(super) fn let_go(&self) -> Result<RebaseItem, Refusal> {
        let object = |(id, secs, nanos)| (FileId(id), Time { secs, nanos });
        Ok(RebaseItem {
            path: self.path.merged()?,
            from: self.from.as_ref().map(PathText::merged).transpose()?,
            object: self.object.map(object),
            was_entry: self.was_entry,
            base_ctime: self.base_ctime.map(|(secs, nanos)| Time { secs, nanos }),
        })
    }
}

impl Request {
    /// Whether content follows.
    pub(super) fn has_content(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Make { .. } | Self::RebasePart { .. } | Self::Rewrite { .. }
        )
    }
}

/// What becomes of a file that is there when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteHow {
    /// It gets the new content.
    Replace,
    /// The content is added at its end.
    Append,
    /// It is in the way.
    New,
}

/// Attributes to set; what is not named stays, or is as usual for something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttrChanges {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last change of content: seconds and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    /// Last read: seconds and nanoseconds.
    #[serde(default)]
    pub atime: Option<(i64, u32)>,
}

impl AttrChanges {
    /// As SETATTR takes it.
    pub fn set_attr(&self) -> SetAttr {
        let time = |(secs, nanos)| SetTime::To(Time { secs, nanos });
        SetAttr {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            mtime: self.mtime.map_or(SetTime::Keep, time),
            atime: self.atime.map_or(SetTime::Keep, time),
            ..SetAttr::default()
        }
    }
}

/// A path, or anything of bytes that are mostly text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathText {
    /// It is text.
    Text(String),
    /// It is none.
    Bytes(Vec<u8>),
}

impl PathText {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// The path in the merged tree.
    ///
    /// # Errors
    /// It is none.
    pub fn merged(&self) -> Result<MergedPath, Refusal> {
        let none = || Refusal::new(format!("{}: not a path", self.as_bytes().escape_ascii()));
        MergedPath::from_bytes(self.as_bytes()).ok_or_else(none)
    }
}

impl From<&[u8]> for PathText {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_vec()),
        }
    }
}

impl From<&MergedPath> for PathText {
    fn from(path: &MergedPath) -> Self {
        path.as_bytes().into()
    }
}

/// What comes back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::Status`].
    Status(ServerStatus),
    /// It is done.
    Done,
    /// It is done to so many objects.
    Objects(u64),
    /// It is done to so many objects, and there are more: to [`Request::Remove`] by turns.
    SomeObjects(u64),
    /// To [`Request::Make`].
    Made {
        /// How many are made, the first ones.
        items: u64,
        /// Why the next one is not.
        refusal: Option<Refusal>,
    },
    /// So many bytes were written.
    Bytes(u64),
    /// To [`Request::Compact`].
    Compacted {
        /// Bytes of the session file and its log before.
        before_bytes: u64,
        /// And after.
        after_bytes: u64,
        /// Whether readers keep the space for now.
        is_delayed: bool,
    },
    /// To [`Request::Copy`].
    Copied {
        /// The inode to go on with, if there are more.
        next: Option<u64>,
        /// Whether there was anything that could be copied.
        has_copied: bool,
        /// Files of which something is left in the base.
        files: u64,
        /// How much that is at most.
        bytes: u64,
    },
    /// To [`Request::Rebase`].
    Rebased {
        /// The paths where something changed since, which stays.
        kept: Vec<PathText>,
    },
    /// To [`Request::SetQuota`].
    Quota(UsageReport),
    /// To [`Request::Exports`].
    Exports(ExportsUsage),
    /// To [`Request::Discard`].
    Undone {
        /// The paths that show the base again.
        paths: Vec<PathText>,
        /// Objects that were in the session, or gone from the base.
        changes: u64,
        /// Where nothing was given up: the path, and one above it that would have to be.
        idle: Vec<(PathText, Option<PathText>)>,
    },
}

/// How a server stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// Where it listens for clients.
    pub addresses: Vec<SocketAddr>,
    /// The base directory.
    pub base: Option<PathBuf>,
    /// The paths of the exports that show the session; `None` where it is served alone. They may
    /// be secrets.
    pub exports: Option<Vec<String>>,
    /// Seconds since it began to serve.
    pub uptime: u64,
    /// Who is connected, the longest first.
    pub peers: Vec<ControlPeer>,
}

/// A connection to a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlPeer {
    /// Where it comes from.
    pub address: SocketAddr,
    /// Seconds since it was opened.
    pub connected: u64,
    /// Calls that it sent.
    pub calls: u64,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The disk has too little room.
    #[serde(default)]
    pub is_full: bool,
}

impl Refusal {
    /// With nothing to do about it.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, is_full: false }
    }

    /// The same with nothing to do about it.
    pub(super) fn without_hint(self) -> Self {
        Self { hint: None, ..self }
    }

    /// What the filesystem says of a path.
    pub fn at(path: &MergedPath, error: FsError) -> Self {
        let hint = match error {
            FsError::IsDirectory => Some("a directory goes with -r"),
            FsError::ReadOnly => Some("the server has the session read-only"),
            FsError::NoSpace => Some("the disk that holds the session is full"),
            FsError::Quota => Some(
                "`acetate quota SESSION.db` shows what it takes, and sets other limits; \
                 removing something makes room",
            ),
            _ => None,
        };
        let what = format!("{}: {error}", path.display());
        let is_full = matches!(error, FsError::NoSpace);
        Self { what, hint: hint.map(str::to_owned), is_full }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Refusal {}
