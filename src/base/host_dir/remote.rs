//! Detects filesystems that another machine or process serves.

use std::os::fd::BorrowedFd;

/// Magic numbers of statfs(2): NFS, FUSE, CIFS and SMB, autofs, 9P, Ceph, AFS, Coda, GFS2, OCFS2.
#[cfg(target_os = "linux")]
const REMOTE: [u64; 13] = [
    0x6969,
    0x6573_5546,
    0xff53_4d42,
    0xfe53_4d42,
    0x517b,
    0x0187,
    0x0102_1997,
    0x00c3_6400,
    0x5346_414f,
    0x6b41_4653,
    0x7375_7245,
    0x0116_1970,
    0x7461_636f,
];

/// Whether the filesystem of the open directory `root` is remote.
#[cfg(target_os = "linux")]
pub(super) fn is_remote(root: BorrowedFd<'_>) -> bool {
    // The field's type differs between architectures; the numbers have 32 bits.
    #[allow(clippy::unnecessary_cast)]
    let magic = |found: rustix::fs::StatFs| found.f_type as u64 & 0xffff_ffff;
    rustix::fs::fstatfs(root).is_ok_and(|found| REMOTE.contains(&magic(found)))
}

/// Other systems have no magic numbers; there, slow calls are detected instead.
#[cfg(not(target_os = "linux"))]
pub(super) fn is_remote(_root: BorrowedFd<'_>) -> bool {
    false
}
