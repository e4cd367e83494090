//! Reads a directory's entries.
//!
//! Their file numbers must equal those of `stat`. Most filesystems return the same number in both
//! places. On others, and on unknown ones, `stat` is called for each entry.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{Dir, Stat};
use rustix::io::Errno;

use super::HostDir;
use super::attr::{base_attr, device_of, entry_kind, path_error};
use super::hidden::same_name;
use super::listings::DirStamp;
use super::walk::Reached;
use crate::base::{BaseError, BasePath, ListedEntry, Listing, hash_fileid};
use crate::vfs::{FileId, FileKind, Name};

/// For which entries `d_ino` equals the inode number of `stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InoAgreement {
    /// All of them.
    Agree,
    /// All but directories (a btrfs subvolume has another number inside).
    #[cfg(target_os = "linux")]
    AgreeButOfDirectories,
    /// Possibly none (overlayfs, FUSE, unknown filesystems).
    MayDiffer,
}

impl InoAgreement {
    #[cfg(target_os = "linux")]
    fn of(dir: BorrowedFd<'_>) -> Self {
        // Magic numbers of statfs(2): ext2 to ext4, XFS, tmpfs, F2FS.
        const AGREE: [u64; 4] = [0xef53, 0x5846_5342, 0x0102_1994, 0xf2f5_2010];
        const BTRFS: u64 = 0x9123_683e;
        // The field's type differs between architectures; the numbers have 32 bits.
        #[allow(clippy::unnecessary_cast)]
        match rustix::fs::fstatfs(dir).map(|fs| fs.f_type as u64 & 0xffff_ffff) {
            Ok(magic) if AGREE.contains(&magic) => Self::Agree,
            Ok(BTRFS) => Self::AgreeButOfDirectories,
            _ => Self::MayDiffer,
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn of(dir: BorrowedFd<'_>) -> Self {
        const AGREE: [&[u8]; 2] = [b"apfs\0", b"hfs\0"];
        let Ok(fs) = rustix::fs::fstatfs(dir) else { return Self::MayDiffer };
        // `c_char` is signed on this platform; the names are ASCII.
        let name = fs.f_fstypename.map(|c| c as u8);
        if AGREE.iter().any(|known| name.starts_with(known)) {
            Self::Agree
        } else {
            Self::MayDiffer
        }
    }

    // Only Linux has filesystems where the type matters.
    #[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
    fn agree_for(self, kind: Option<FileKind>) -> bool {
        match self {
            Self::Agree => true,
            #[cfg(target_os = "linux")]
            Self::AgreeButOfDirectories => kind.is_some_and(|k| k != FileKind::Directory),
            Self::MayDiffer => false,
        }
    }
}

/// Entries of the largest directory that is listed without a [`ListingLock`](super::ListingLock):
/// about a megabyte.
const SMALL_ENTRIES: usize = 8192;

/// How long a larger listing waits for its turn.
const LISTING_TURN_WAIT: Duration = Duration::from_millis(250);

/// The result of reading a directory.
pub(super) enum ListingRead {
    /// The directory's entries.
    Whole(Box<ReadEntries>),
    /// The cached listing, if another thread has read it while this one waited.
    Known(Arc<Listing>),
}

/// A directory's entries, and `stat` of the directory before and after the read.
pub(super) struct ReadEntries {
    pub listing: Listing,
    pub before: Stat,
    pub after: Stat,
}

impl HostDir {
    /// Reads the entries of the directory `path`, which is open as `dir`.
    ///
    /// Fails with [`BaseError::Busy`] if the directory is large and does not get its turn.
    pub(super) fn read_entries(
        &self,
        path: &BasePath,
        dir: OwnedFd,
    ) -> Result<ListingRead, BaseError> {
        let before = rustix::fs::fstat(&dir).map_err(path_error)?;
        let numbers = InoAgreement::of(dir.as_fd());
        let hidden = self.hidden.names_in(path);
        let mut dir = Dir::new(dir).map_err(path_error)?;
        // The names are stored in one buffer.
        let (mut names, mut found) = (Vec::new(), Vec::new());
        let mut turn = None;
        while let Some(entry) = dir.read() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(path_error(error)),
            };
            let name = entry.file_name().to_bytes();
            // Skips `.` and `..`, and names that a valid filesystem does not have.
            if Name::check(name).is_err() || hidden.iter().any(|h| same_name(h, name)) {
                continue;
            }
            let kind = entry_kind(entry.file_type());
            let dirent = DirentInfo { kind, ino: entry.ino(), agrees: numbers.agree_for(kind) };
            let fd = dir.fd().map_err(path_error)?;
            if let Some((fileid, kind)) = self.entry(fd, &before, entry.file_name(), dirent) {
                found.push((names.len()..names.len() + name.len(), fileid, kind));
                names.extend_from_slice(name);
            }
            if found.len() > SMALL_ENTRIES && turn.is_none() {
                turn = Some(Arc::new(self.turn.take(LISTING_TURN_WAIT).ok_or(BaseError::Busy)?));
                let stamp = base_attr(self.root_dev, &before)?;
                if let Some(known) = self.listings.get(path, DirStamp::from(&stamp)) {
                    return Ok(ListingRead::Known(known));
                }
            }
        }
        names.shrink_to_fit();
        let names = Bytes::from(names);
        let listed = found.into_iter().filter_map(|(at, fileid, kind)| {
            Some(ListedEntry { name: Name::shared(names.slice(at)).ok()?, fileid, kind })
        });
        let mut listing = Listing { entries: listed.collect(), turn };
        listing.entries.shrink_to_fit();
        let after = dir.fd().and_then(rustix::fs::fstat).map_err(path_error)?;
        Ok(ListingRead::Whole(Box::new(ReadEntries { listing, before, after })))
    }

    /// The file number and type of an entry; `None` if it no longer exists.
    fn entry(
        &self,
        dir: BorrowedFd<'_>,
        dir_stat: &Stat,
        name: &CStr,
        dirent: DirentInfo,
    ) -> Option<(FileId, Option<FileKind>)> {
        if !dirent.agrees {
            match self.walker.stat_entry(dir, name) {
                Ok(Reached::Object(stat)) => {
                    let attr = base_attr(self.root_dev, &stat).ok()?;
                    return Some((attr.fileid, Some(attr.kind)));
                }
                Err(Errno::NOENT) => return None,
                // A mount point is shown with the number of the covered object. Without search
                // permission on the directory, no process of this user can `stat` the entry, so
                // `d_ino` contradicts nothing.
                Ok(Reached::MountPoint) | Err(_) => {}
            }
        }
        Some((hash_fileid(self.root_dev, device_of(dir_stat), dirent.ino), dirent.kind))
    }
}

/// The data in a directory entry.
struct DirentInfo {
    kind: Option<FileKind>,
    ino: u64,
    agrees: bool,
}
