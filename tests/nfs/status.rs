//! The status map, with the numbers of RFC 1813 §2.6 and appendix I.

use acetate::nfs::{to_mount_status, to_status};
use acetate::vfs::FsError;

const NUMBERS: [(FsError, u32, u32); 23] = [
    (FsError::NotPermitted, 1, 1),
    (FsError::NotFound, 2, 2),
    (FsError::Io, 5, 5),
    (FsError::Access, 13, 13),
    (FsError::Exists, 17, 10006),
    (FsError::CrossDevice, 18, 10006),
    (FsError::NotDirectory, 20, 20),
    (FsError::IsDirectory, 21, 10006),
    (FsError::Invalid, 22, 22),
    (FsError::TooLarge, 27, 10006),
    (FsError::NoSpace, 28, 5),
    (FsError::ReadOnly, 30, 13),
    (FsError::TooManyLinks, 31, 10006),
    (FsError::NameTooLong, 63, 63),
    (FsError::NotEmpty, 66, 10006),
    (FsError::Quota, 69, 5),
    (FsError::Stale, 70, 2),
    (FsError::BadHandle, 10001, 10006),
    (FsError::NotSync, 10002, 10006),
    (FsError::NotSupported, 10004, 10004),
    (FsError::BadType, 10007, 10006),
    (FsError::TryLater, 10008, 10006),
    (FsError::Fault, 10006, 10006),
];

#[test]
fn every_error_has_its_number() {
    for (error, nfs, mount) in NUMBERS {
        assert_eq!(to_status(error) as u32, nfs, "{error:?}");
        assert_eq!(to_mount_status(error) as u32, mount, "{error:?} of MNT");
    }
}
