//! Which filesystems report each failed write separately.

use std::path::Path;

/// Whether an error of a write on this filesystem concerns that write alone.
///
/// On a network filesystem, a write may return the error of an earlier write, and the next fsync
/// then no longer returns it. A caller that ignores that error loses the earlier data. So this is
/// true only for filesystems that are known to report each write's own errors.
pub fn tells_each_write(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|figures| is_known(&figures))
}

#[cfg(target_os = "linux")]
fn is_known(figures: &rustix::fs::StatFs) -> bool {
    /// statfs(2): ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, bcachefs, ZFS, overlayfs.
    const LOCAL: [u32; 8] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0x0102_1994,
        0xF2F5_2010,
        0xCA45_1A4E,
        0x2FC1_2FC1,
        0x794C_7630,
    ];
    // The field's type differs between architectures; the numbers have 32 bits.
    LOCAL.contains(&(figures.f_type as u32))
}

#[cfg(target_vendor = "apple")]
fn is_known(figures: &rustix::fs::StatFs) -> bool {
    let name = figures.f_fstypename.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
    let name: Vec<u8> = name.collect();
    name == b"apfs" || name == b"hfs"
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn is_known(_figures: &rustix::fs::StatFs) -> bool {
    false
}
