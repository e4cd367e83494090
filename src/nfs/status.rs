//! Maps filesystem errors to the status codes of the protocols. No other module does.

use crate::vfs::FsError;
use crate::wire::{mount3, nfs3, nlm4};

/// The `nfsstat3` of an error (RFC 1813 §2.6).
pub fn to_status(error: FsError) -> nfs3::Status {
    use nfs3::Status;
    match error {
        FsError::NotPermitted => Status::Perm,
        FsError::NotFound => Status::NoEnt,
        // The protocol has no status for a directory loop.
        FsError::Io | FsError::Loop => Status::Io,
        FsError::Access => Status::Acces,
        FsError::Exists => Status::Exist,
        FsError::CrossDevice => Status::Xdev,
        FsError::NotDirectory => Status::NotDir,
        FsError::IsDirectory => Status::IsDir,
        FsError::Invalid => Status::Inval,
        FsError::TooLarge => Status::Fbig,
        FsError::NoSpace => Status::NoSpc,
        FsError::ReadOnly => Status::Rofs,
        FsError::TooManyLinks => Status::Mlink,
        FsError::NameTooLong => Status::NameTooLong,
        FsError::NotEmpty => Status::NotEmpty,
        FsError::Quota => Status::Dquot,
        FsError::Stale => Status::Stale,
        FsError::BadHandle => Status::BadHandle,
        FsError::NotSync => Status::NotSync,
        FsError::NotSupported => Status::NotSupp,
        FsError::BadType => Status::BadType,
        FsError::TryLater => Status::Jukebox,
        FsError::Guarded | FsError::Fault => Status::ServerFault,
    }
}

/// The `mountstat3` of an error (RFC 1813 appendix I), which has fewer values.
pub fn to_mount_status(error: FsError) -> mount3::MountStatus {
    use mount3::MountStatus;
    match error {
        FsError::NotPermitted => MountStatus::Perm,
        FsError::NotFound | FsError::Stale => MountStatus::NoEnt,
        FsError::Io | FsError::Loop | FsError::NoSpace | FsError::Quota => MountStatus::Io,
        FsError::Access | FsError::ReadOnly => MountStatus::Acces,
        FsError::NotDirectory => MountStatus::NotDir,
        FsError::Invalid => MountStatus::Inval,
        FsError::NameTooLong => MountStatus::NameTooLong,
        FsError::NotSupported => MountStatus::NotSupp,
        FsError::Exists
        | FsError::CrossDevice
        | FsError::IsDirectory
        | FsError::TooLarge
        | FsError::TooManyLinks
        | FsError::NotEmpty
        | FsError::BadHandle
        | FsError::NotSync
        | FsError::BadType
        | FsError::TryLater
        | FsError::Guarded
        | FsError::Fault => MountStatus::ServerFault,
    }
}

/// The `nlm4_stats` of an error on the file to lock (RFC 1813 appendix II).
pub fn to_lock_status(error: FsError) -> nlm4::NlmStatus {
    use nlm4::NlmStatus;
    match error {
        FsError::Stale | FsError::BadHandle | FsError::NotFound => NlmStatus::StaleHandle,
        FsError::TooLarge => NlmStatus::TooLarge,
        FsError::ReadOnly => NlmStatus::ReadOnly,
        FsError::TryLater => NlmStatus::DeniedGracePeriod,
        FsError::NotPermitted
        | FsError::Io
        | FsError::Loop
        | FsError::Access
        | FsError::Exists
        | FsError::CrossDevice
        | FsError::NotDirectory
        | FsError::IsDirectory
        | FsError::Invalid
        | FsError::NoSpace
        | FsError::TooManyLinks
        | FsError::NameTooLong
        | FsError::NotEmpty
        | FsError::Quota
        | FsError::NotSync
        | FsError::NotSupported
        | FsError::BadType
        | FsError::Guarded
        | FsError::Fault => NlmStatus::Failed,
    }
}
