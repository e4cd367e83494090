//! Looks at the entries of an open directory, with one system call each.
//!
//! `statx` also returns the mount that an entry is on, so a mounted filesystem is never mistaken
//! for the base's object. But a synchronous query may go to the mounted filesystem, which could be
//! our own export. So `statx` is called with AT_STATX_DONT_SYNC. Cached attributes are right only
//! on local filesystems; on others, objects are looked up by a walk.

#[cfg(not(target_os = "linux"))]
use std::os::fd::BorrowedFd;

#[cfg(target_os = "linux")]
pub(super) use linux::Local;

use super::walk::Reached;
use crate::base::{BaseAttr, BaseError};

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::BorrowedFd;

    use rustix::fs::{AtFlags, Statx, StatxFlags};
    use rustix::io::Errno;

    use super::super::attr::{base_attr_of_statx, path_error};
    use super::{BaseAttr, BaseError, Reached};

    /// A mount of a local filesystem, by its mount id (Linux 5.8).
    #[derive(Debug, Clone, Copy)]
    pub struct Local(u64);

    impl Local {
        /// The mount of the open directory `root`, if its filesystem is local.
        pub fn of(root: BorrowedFd<'_>) -> Option<Self> {
            // Magic numbers of statfs(2): ext2 to ext4, XFS, tmpfs, F2FS, btrfs.
            const LOCAL: [u64; 5] = [0xef53, 0x5846_5342, 0x0102_1994, 0xf2f5_2010, 0x9123_683e];
            // The field's type differs between architectures; the numbers have 32 bits.
            #[allow(clippy::unnecessary_cast)]
            let magic = rustix::fs::fstatfs(root).ok()?.f_type as u64 & 0xffff_ffff;
            let number = mount_number(&statx(root, b"", AtFlags::EMPTY_PATH).ok()?)?;
            LOCAL.contains(&magic).then_some(Self(number))
        }

        /// The attributes of the entry `name` of `dir`, with file numbers for a base whose root is
        /// on device `root_dev`.
        pub fn stat(
            self,
            root_dev: u64,
            dir: BorrowedFd<'_>,
            name: &[u8],
        ) -> Result<Reached<BaseAttr>, BaseError> {
            let stat = statx(dir, name, AtFlags::empty()).map_err(path_error)?;
            if mount_number(&stat) != Some(self.0) {
                return Ok(Reached::MountPoint);
            }
            base_attr_of_statx(root_dev, &stat).map(Reached::Object)
        }
    }

    fn statx(dir: BorrowedFd<'_>, name: &[u8], more: AtFlags) -> Result<Statx, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW
            .union(AtFlags::NO_AUTOMOUNT)
            .union(AtFlags::STATX_DONT_SYNC)
            .union(more);
        let mask = StatxFlags::BASIC_STATS.union(StatxFlags::MNT_ID);
        rustix::fs::statx(dir, name, flags, mask)
    }

    fn mount_number(stat: &Statx) -> Option<u64> {
        let told = StatxFlags::from_bits_retain(stat.stx_mask);
        told.contains(StatxFlags::MNT_ID).then_some(stat.stx_mnt_id)
    }
}

/// Other systems do not have `statx`, so there is no `Local`.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
pub(super) enum Local {}

#[cfg(not(target_os = "linux"))]
impl Local {
    pub(super) fn stat(
        self,
        _root_dev: u64,
        _dir: BorrowedFd<'_>,
        _name: &[u8],
    ) -> Result<Reached<BaseAttr>, BaseError> {
        match self {}
    }
}
