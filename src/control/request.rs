//! Requests and answers of the control socket.

use serde::{Deserialize, Serialize};

use super::checkpoint_text::{CheckpointText, RestoreAnswer, RestorePathsText};
use super::copy_to_drop::CopyToDrop;
use super::refusal::Refusal;
use super::server_status::ServerStatus;
use super::usage::{ExportsUsage, UsageReport};
use crate::delta::{Limits, MergedPath};
use crate::overlay::{MergedParts, RebaseItem};
use crate::vfs::{FileId, SetAttr, SetTime, Time};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Returns the state of the server.
    Status,
    /// Returns the quota usage of the server's exports.
    Exports,
    /// Creates a directory. With `parents`, also its ancestors, and an existing directory is no
    /// error.
    MakeDir {
        /// The new directory.
        path: PathText,
        /// Attributes to set.
        meta: AttrChanges,
        /// Whether to create missing ancestors.
        parents: bool,
    },
    /// Writes a regular file. Its content follows.
    Write {
        /// The file.
        path: PathText,
        /// How to treat an existing file.
        how: WriteHow,
        /// Attributes to set.
        meta: AttrChanges,
    },
    /// Creates a symbolic link.
    MakeLink {
        /// The new link.
        path: PathText,
        /// The target.
        target: PathText,
        /// Attributes to set.
        meta: AttrChanges,
    },
    /// Sets attributes of an object.
    SetMeta {
        /// The object.
        path: PathText,
        /// Attributes to set.
        meta: AttrChanges,
    },
    /// Creates a hard link to an object that is not a directory.
    Link {
        /// The existing object.
        from: PathText,
        /// The new name.
        to: PathText,
    },
    /// Removes an object; with `recursive`, a directory with everything in it.
    Remove {
        /// The object.
        path: PathText,
        /// Whether a directory may have entries.
        recursive: bool,
        /// Whether to answer after about [`TURN_MS`], even if entries are left.
        ///
        /// [`TURN_MS`]: super::limits::TURN_MS
        by_turns: bool,
    },
    /// Creates many small objects, in order, up to the first failure. The contents of the files
    /// follow, concatenated.
    Make {
        /// At most [`BULK_ITEMS`], with at most [`PIECE_BYTES`] of content in total.
        ///
        /// [`BULK_ITEMS`]: super::limits::BULK_ITEMS
        /// [`PIECE_BYTES`]: super::limits::PIECE_BYTES
        items: Vec<MakeItem>,
    },
    /// Removes an empty directory.
    RemoveDir {
        /// The directory.
        path: PathText,
    },
    /// Renames an object. Replaces an existing file; a directory replaces an empty directory.
    Rename {
        /// The object.
        from: PathText,
        /// Its new path; the parent must exist.
        to: PathText,
    },
    /// Excludes other connections that send this request, until the connection ends: for several
    /// changes that belong together.
    Alone,
    /// Syncs all earlier changes.
    Sync,
    /// Discards the session's changes at paths.
    Discard {
        /// The paths.
        paths: Vec<PathText>,
    },
    /// Discards the mode, owner and group of directories that the base has too, and nothing in
    /// them.
    DiscardAttributes {
        /// The directories.
        paths: Vec<PathText>,
    },
    /// Discards the removal of objects in directories that the session removed, and not that of
    /// the other objects there.
    DiscardInRemoved {
        /// The objects.
        paths: Vec<PathText>,
    },
    /// Copies pending content for about [`TURN_MS`], from this inode on.
    ///
    /// [`TURN_MS`]: super::limits::TURN_MS
    Copy {
        /// The inode; 0 to start a round.
        from: u64,
    },
    /// Removes changes from the session that were applied to the base.
    Rebase {
        /// The applied objects.
        applied: Vec<AppliedObject>,
        /// They are directories whose modes the base got after an earlier request for the same
        /// changes, which wrote their audit rows. Nothing in them can be read any more.
        #[serde(default, rename = "is_logged")]
        is_closing: bool,
    },
    /// Makes the applied parts of a file's changes its original. The original content with only
    /// these parts applied follows.
    RebasePart {
        /// The file.
        applied: AppliedObject,
        /// Mode, uid and gid that belong to the content.
        attributes: [u32; 3],
    },
    /// Removes the moves of directories that the base made too.
    SettleMoves,
    /// Removes copied-up objects that the session did not change, and the moves of directories that
    /// the base made too.
    DropUnchanged {
        /// The objects.
        copies: Vec<CopyToDrop>,
    },
    /// Replaces the content of a file if the file is unchanged. The new content follows.
    Rewrite {
        /// The file.
        path: PathText,
        /// Expected file number, and seconds and nanoseconds of the ctime.
        object: (u64, i64, u32),
        /// Attributes to set.
        meta: AttrChanges,
    },
    /// Returns free space of the session file to the disk.
    Compact,
    /// Deletes audit rows up to a row, oldest first, a limited number at a time. The answer is the
    /// number of deleted rows.
    PruneLog {
        /// The last row to delete.
        upto: i64,
    },
    /// Makes a checkpoint.
    CreateCheckpoint(CheckpointText),
    /// Removes the checkpoint with this id. The answer is [`Answer::Objects`]: 0 if there is none.
    RemoveCheckpoint(i64),
    /// Keeps the checkpoint with this id, because a fork begins there. The answer is
    /// [`Answer::Objects`]: 0 if there is none.
    KeepCheckpoint(i64),
    /// Makes the tree that of a checkpoint. The answer is [`Answer::Restored`].
    Restore {
        /// The checkpoint's id.
        to: i64,
        /// Refuse it if a row of the log after this one changed anything.
        seen: Option<i64>,
    },
    /// Makes paths what they were at a checkpoint. The answer is [`Answer::Restored`].
    RestorePaths(RestorePathsText),
    /// Takes the steps that follow in one change: all or none. The answer is [`Answer::Restored`].
    Merge {
        /// What is merged, for the label of the checkpoint before.
        from: String,
        /// Refuse it if a row of the log after this one changed anything.
        seen: i64,
    },
    /// Changes the session's own limits.
    SetQuota {
        /// Bytes of content.
        bytes: Bound,
        /// Number of objects.
        files: Bound,
        /// Size of each file, in bytes.
        #[serde(default)]
        file_bytes: Bound,
    },
}

/// An object that [`Request::Make`] creates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeItem {
    /// Its path.
    pub path: PathText,
    /// Its type.
    pub kind: ItemKind,
    /// Attributes to set.
    pub meta: AttrChanges,
}

/// Type of a [`MakeItem`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemKind {
    /// A directory; an existing one stays unchanged.
    Directory,
    /// A regular file; an existing one gets the new content.
    File {
        /// Length of its content, in bytes.
        bytes: u64,
    },
    /// A symbolic link; an existing one is replaced.
    Link {
        /// The target.
        target: PathText,
    },
    /// An existing object: only its attributes are set.
    Any,
}

impl MakeItem {
    /// Length of its content, in bytes.
    pub fn bytes(&self) -> u64 {
        if let ItemKind::File { bytes } = self.kind { bytes } else { 0 }
    }
}

/// Change of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Bound {
    /// Keep the limit.
    #[default]
    Keep,
    /// Remove the limit.
    None,
    /// Set the limit.
    AtMost(u64),
}

impl Bound {
    /// Applies changes of the limits of bytes, files and file size, in this order.
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

/// An object that `apply` wrote to the base: see [`RebaseItem`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedObject {
    /// Its merged path.
    pub path: PathText,
    /// Its previous path in the base.
    pub from: Option<PathText>,
    /// The session's object there: file number, and seconds and nanoseconds of its ctime.
    pub object: Option<(u64, i64, u32)>,
    /// Whether the session had a dentry there.
    #[serde(default)]
    pub was_entry: bool,
    /// The ctime that apply left in the base, in seconds and nanoseconds.
    #[serde(default)]
    pub base_ctime: Option<(i64, u32)>,
    /// Whether the base file had further hard links before.
    #[serde(default)]
    pub was_linked: bool,
    /// Mode, owner and group that a directory was to get and has not.
    #[serde(default)]
    pub not_given: Option<[u32; 3]>,
    /// Whether its content was merged with the base's.
    #[serde(default)]
    pub merged_content: bool,
    /// Whether its mode, owner and group were.
    #[serde(default)]
    pub merged_attributes: [bool; 3],
    /// Whether its mtime was.
    #[serde(default)]
    pub merged_mtime: bool,
}

impl AppliedObject {
    /// Converts it for the overlay.
    pub(super) fn to_rebase_item(&self) -> Result<RebaseItem, Refusal> {
        let object = |(id, secs, nanos)| (FileId(id), Time { secs, nanos });
        Ok(RebaseItem {
            path: self.path.merged()?,
            from: self.from.as_ref().map(PathText::merged).transpose()?,
            object: self.object.map(object),
            was_entry: self.was_entry,
            base_ctime: self.base_ctime.map(|(secs, nanos)| Time { secs, nanos }),
            was_linked: self.was_linked,
            not_given: self.not_given,
            merged: MergedParts {
                content: self.merged_content,
                attributes: self.merged_attributes,
                mtime: self.merged_mtime,
            },
        })
    }
}

impl Request {
    /// Whether content follows the request.
    pub(super) fn has_content(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::Make { .. }
                | Self::RebasePart { .. }
                | Self::Rewrite { .. }
                | Self::Merge { .. }
        )
    }
}

/// How to treat an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteHow {
    /// Replace its content.
    Replace,
    /// Append to it.
    Append,
    /// Fail if it exists.
    New,
}

/// Attributes to set. `None` keeps a value, or uses the default for a new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttrChanges {
    /// Mode bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// mtime, in seconds and nanoseconds.
    pub mtime: Option<(i64, u32)>,
    /// atime, in seconds and nanoseconds.
    #[serde(default)]
    pub atime: Option<(i64, u32)>,
}

impl AttrChanges {
    /// What a SETATTR sets, but for the size.
    pub(super) fn of(set: &SetAttr) -> Self {
        let time = |set| match set {
            SetTime::To(time) => Some((time.secs, time.nanos)),
            SetTime::Keep | SetTime::ServerNow => None,
        };
        let SetAttr { mode, uid, gid, size: _, atime, mtime } = *set;
        Self { mode, uid, gid, mtime: time(mtime), atime: time(atime) }
    }

    /// Converts them for SETATTR.
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

/// A path, or other bytes that are usually UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PathText {
    /// Valid UTF-8.
    Text(String),
    /// Not valid UTF-8.
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

    /// The path as a merged path.
    ///
    /// # Errors
    /// It is not an absolute, normalized path.
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

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::Status`].
    Status(ServerStatus),
    /// Success.
    Done,
    /// Number of processed objects.
    Objects(u64),
    /// Number of processed objects, with more left: to [`Request::Remove`] with `by_turns`.
    SomeObjects(u64),
    /// To [`Request::Make`].
    Made {
        /// Number of created items, from the first on.
        items: u64,
        /// Why the next item was not created.
        refusal: Option<Refusal>,
    },
    /// Number of bytes written.
    Bytes(u64),
    /// To [`Request::Restore`], [`Request::RestorePaths`] and [`Request::Merge`].
    Restored(RestoreAnswer),
    /// To [`Request::Compact`].
    Compacted {
        /// Size of the session file and its WAL before, in bytes.
        before_bytes: u64,
        /// Size afterwards, in bytes.
        after_bytes: u64,
        /// Whether readers still hold the freed space.
        is_delayed: bool,
    },
    /// To [`Request::Copy`].
    Copied {
        /// The inode to continue with; `None` at the end of a round.
        next: Option<u64>,
        /// Whether any content was copied.
        has_copied: bool,
        /// Files with pending content.
        files: u64,
        /// Upper bound of pending content, in bytes.
        bytes: u64,
    },
    /// To [`Request::Rebase`].
    Rebased {
        /// Paths that changed since and were not removed from the session.
        kept: Vec<PathText>,
    },
    /// To [`Request::SetQuota`].
    Quota(UsageReport),
    /// To [`Request::CreateCheckpoint`]: the id; `None` if another checkpoint has the name.
    Checkpoint(Option<i64>),
    /// To [`Request::CreateCheckpoint`]: the id of the newest, because nothing changed since.
    CheckpointReused(i64),
    /// To [`Request::CreateCheckpoint`]: the server makes none without being asked.
    CheckpointsOff,
    /// To [`Request::Exports`].
    Exports(ExportsUsage),
    /// To [`Request::Discard`].
    Undone {
        /// Paths that show the base again.
        paths: Vec<PathText>,
        /// Number of discarded changes.
        changes: u64,
        /// Paths without anything to discard, each with the ancestor that must be discarded
        /// instead, if any.
        idle: Vec<(PathText, Option<PathText>)>,
    },
}
