//! Errors of filesystem operations, in POSIX terms.

/// The failure of a filesystem operation; `nfs/status.rs` maps each to exactly one `nfsstat3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FsError {
    /// The caller is not the owner, or not privileged (EPERM).
    #[error("operation not permitted")]
    NotPermitted,
    /// No such file or directory (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// The session, the base or the disk failed; the log has the details (EIO).
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
    /// An argument is invalid (EINVAL).
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
    /// A directory is its own ancestor (ELOOP), by rows that another program wrote.
    #[error("a directory is among its own parents")]
    Loop,
    /// A quota is used up (EDQUOT).
    #[error("quota exceeded")]
    Quota,
    /// The object is gone (ESTALE).
    #[error("stale file handle")]
    Stale,
    /// The handle was not issued by this server.
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
    /// Temporarily unavailable: the client should retry later (NFS3ERR_JUKEBOX).
    #[error("temporarily unavailable")]
    TryLater,
    /// The file is guarded, so its content must be validated as a whole. The validation layer
    /// handles this error; clients never see it.
    #[error("guarded content")]
    Guarded,
    /// A contained defect of the server, such as a panic (NFS3ERR_SERVERFAULT).
    #[error("server fault")]
    Fault,
}
