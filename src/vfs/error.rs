//! What can go wrong in a filesystem operation, in POSIX terms.

/// A filesystem operation's failure; `nfs/status.rs` maps each to exactly one `nfsstat3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FsError {
    /// The caller is not the owner, or not privileged (EPERM).
    #[error("operation not permitted")]
    NotPermitted,
    /// No such file or directory (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// An I/O error below us; details are in the log (EIO).
    #[error("input/output error")]
    Io,
    /// The mode bits deny it (EACCES).
    #[error("permission denied")]
    Access,
    /// The name exists (EEXIST).
    #[error("file exists")]
    Exists,
    /// Crosses filesystems (EXDEV).
    #[error("cross-device link")]
    CrossDevice,
    /// A directory was needed (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// A directory was given where none may be (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// An argument makes no sense here (EINVAL).
    #[error("invalid argument")]
    Invalid,
    /// The file would become larger than the filesystem allows (EFBIG).
    #[error("file too large")]
    TooLarge,
    /// The disk that holds the session is full (ENOSPC).
    #[error("no space left on device")]
    NoSpace,
    /// The export or the session is read-only (EROFS).
    #[error("read-only file system")]
    ReadOnly,
    /// Too many hard links (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// A name is over 255 bytes (ENAMETOOLONG).
    #[error("file name too long")]
    NameTooLong,
    /// The directory has entries (ENOTEMPTY).
    #[error("directory not empty")]
    NotEmpty,
    /// A directory is among its own parents (ELOOP), by rows that another program wrote.
    #[error("a directory is among its own parents")]
    Loop,
    /// A quota is used up (EDQUOT).
    #[error("quota exceeded")]
    Quota,
    /// The object is gone (ESTALE).
    #[error("stale file handle")]
    Stale,
    /// Not a handle of ours.
    #[error("bad file handle")]
    BadHandle,
    /// The guard's ctime differs (NFS3ERR_NOT_SYNC).
    #[error("object changed since the guard's ctime")]
    NotSync,
    /// The object kind does not support it (NFS3ERR_NOTSUPP).
    #[error("operation not supported")]
    NotSupported,
    /// The requested type cannot be made by this procedure (NFS3ERR_BADTYPE).
    #[error("bad type")]
    BadType,
    /// Too busy: the client should ask again later (NFS3ERR_JUKEBOX).
    #[error("temporarily unavailable")]
    TryLater,
    /// Content that only passes as a whole, after a check: the caller has to take it there.
    /// No client gets to see this.
    #[error("guarded content")]
    Guarded,
    /// A defect of ours, contained (NFS3ERR_SERVERFAULT).
    #[error("server fault")]
    Fault,
}
