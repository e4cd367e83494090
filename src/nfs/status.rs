//! The only place that turns a filesystem error into a status of the protocol.

use crate::vfs::FsError;
use crate::wire::{mount3, nfs3};

/// The `nfsstat3` of an error (RFC 1813 §2.6).
pub fn to_status(error: FsError) -> nfs3::Status {
    use nfs3::Status;
    match error {
        FsError::NotPermitted => Status::Perm,
        FsError::NotFound => Status::NoEnt,
        FsError::Io => Status::Io,
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
        FsError::Fault => Status::ServerFault,
    }
}

/// The `mountstat3` of an error (RFC 1813 appendix I), which has fewer words.
pub fn to_mount_status(error: FsError) -> mount3::Status {
    use mount3::Status;
    match error {
        FsError::NotPermitted => Status::Perm,
        FsError::NotFound | FsError::Stale => Status::NoEnt,
        FsError::Io | FsError::NoSpace | FsError::Quota => Status::Io,
        FsError::Access | FsError::ReadOnly => Status::Acces,
        FsError::NotDirectory => Status::NotDir,
        FsError::Invalid => Status::Inval,
        FsError::NameTooLong => Status::NameTooLong,
        FsError::NotSupported => Status::NotSupp,
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
        | FsError::Fault => Status::ServerFault,
    }
}
