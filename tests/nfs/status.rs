//! The status map, with the numbers of RFC 1813 §2.6 and appendices I and II.

use acetate::nfs::{to_lock_status, to_mount_status, to_status};
use acetate::vfs::FsError;

const NUMBERS: [(FsError, u32, u32, u32); 23] = [
    (FsError::NotPermitted, 1, 1, 9),
    (FsError::NotFound, 2, 2, 7),
    (FsError::Io, 5, 5, 9),
    (FsError::Access, 13, 13, 9),
    (FsError::Exists, 17, 10006, 9),
    (FsError::CrossDevice, 18, 10006, 9),
    (FsError::NotDirectory, 20, 20, 9),
    (FsError::IsDirectory, 21, 10006, 9),
    (FsError::Invalid, 22, 22, 9),
    (FsError::TooLarge, 27, 10006, 8),
    (FsError::NoSpace, 28, 5, 9),
    (FsError::ReadOnly, 30, 13, 6),
    (FsError::TooManyLinks, 31, 10006, 9),
    (FsError::NameTooLong, 63, 63, 9),
    (FsError::NotEmpty, 66, 10006, 9),
    (FsError::Quota, 69, 5, 9),
    (FsError::Stale, 70, 2, 7),
    (FsError::BadHandle, 10001, 10006, 7),
    (FsError::NotSync, 10002, 10006, 9),
    (FsError::NotSupported, 10004, 10004, 9),
    (FsError::BadType, 10007, 10006, 9),
    (FsError::TryLater, 10008, 10006, 4),
    (FsError::Fault, 10006, 10006, 9),
];

#[test]
fn every_error_has_its_number() {
    for (error, nfs, mount, lock) in NUMBERS {
        assert_eq!(to_status(error) as u32, nfs, "{error:?}");
        assert_eq!(to_mount_status(error) as u32, mount, "{error:?} of MNT");
        assert_eq!(to_lock_status(error) as u32, lock, "{error:?} of LOCK");
    }
}
