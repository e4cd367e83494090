//! Enforces the exact spelling of names on filesystems that fold names: that ignore case or
//! normalize Unicode.
//!
//! On such a filesystem, another spelling would bypass whatever compares names: hidden paths and
//! whiteouts. So in a directory that may fold names, a name must be in the listing, byte for byte.
//! Whether a directory folds names is detected once and cached for [`REMEMBERED_FOR`]; if it does
//! not, the check costs no call.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::Dir;
use rustix::io::Errno;

use super::HostDir;
use super::attr::path_error;
use super::walk::Reached;
use crate::base::{Base, BaseError, BasePath};
use crate::growing_lru::growing_lru;

/// How long it is cached whether a directory folds names. If the host replaces the directory by a
/// folding one, this is detected after that time.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);

/// Capacity of that cache, in directories.
const MAX_FOLDING_DIRECTORIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Names of a directory that are tried until one has an ASCII letter.
const MAX_PROBED_NAMES: usize = 256;

/// How a filesystem's directories fold names, and how to detect it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folds {
    /// No directory does.
    Never,
    /// All directories may.
    Always,
    /// Those with the casefold flag (`chattr +F`).
    #[cfg(target_os = "linux")]
    Flagged,
    /// All or none; a probe of one directory decides.
    #[cfg(target_os = "linux")]
    Alike,
    /// Unknown; a probe of each directory decides for ASCII names. Other names are always checked.
    #[cfg(target_os = "linux")]
    Unknown,
}

impl Folds {
    /// The behaviour of the filesystem of the open directory `root`.
    #[cfg(target_os = "linux")]
    pub(super) fn of(root: BorrowedFd<'_>) -> Self {
        // Magic numbers of statfs(2): FAT, exFAT, NTFS (two drivers), CIFS, SMB 2, SMB, HFS+, HFS.
        const ALWAYS: [u64; 9] = [
            0x4d44,
            0x2011_bab0,
            0x5346_544e,
            0x7366_746e,
            0xff53_4d42,
            0xfe53_4d42,
            0x517b,
            0x482b,
            0x4244,
        ];
        // ext2 to ext4, F2FS, tmpfs, overlayfs, bcachefs.
        const FLAGGED: [u64; 5] = [0xef53, 0xf2f5_2010, 0x0102_1994, 0x794c_7630, 0xca45_1a4e];
        const BTRFS: u64 = 0x9123_683e;
        const XFS: u64 = 0x5846_5342;
        // The field's type differs between architectures; the numbers have 32 bits.
        #[allow(clippy::unnecessary_cast)]
        match rustix::fs::fstatfs(root).map(|fs| fs.f_type as u64 & 0xffff_ffff) {
            Ok(BTRFS) => Self::Never,
            Ok(XFS) => Self::Alike,
            Ok(magic) if FLAGGED.contains(&magic) => Self::Flagged,
            Ok(magic) if ALWAYS.contains(&magic) => Self::Always,
            _ => Self::Unknown,
        }
    }

    /// APFS and HFS+ normalize Unicode, and mostly ignore case.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn of(_root: BorrowedFd<'_>) -> Self {
        Self::Always
    }
}

/// Cached knowledge about directories.
pub(super) struct NameFolding {
    folds: Folds,
    /// Where all directories behave alike: whether they fold names.
    all: OnceLock<bool>,
    /// By directory: whether its names, and those of its path, are matched byte for byte, and when
    /// that was probed.
    known: Mutex<LruCache<BasePath, (bool, Instant)>>,
}

impl NameFolding {
    pub(super) fn new(folds: Folds) -> Self {
        let known = Mutex::new(growing_lru(MAX_FOLDING_DIRECTORIES));
        Self { folds, all: OnceLock::new(), known }
    }

    fn known(&self, dir: &[u8]) -> Option<bool> {
        let (is_exact, since) = *self.lock().get(dir)?;
        (since.elapsed() < REMEMBERED_FOR).then_some(is_exact)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<BasePath, (bool, Instant)>> {
        self.known.lock()
    }
}

impl HostDir {
    /// Whether in the directory `dir`, and in its ancestors, only the spelling of the listing finds
    /// an object.
    pub(super) fn is_exact(&self, dir: &[u8]) -> Result<bool, BaseError> {
        match (self.folding.folds, self.folding.all.get()) {
            (Folds::Never, _) | (_, Some(false)) => return Ok(true),
            (Folds::Always, _) | (_, Some(true)) => return Ok(false),
            _ => {}
        }
        if let Some(known) = self.folding.known(dir) {
            return Ok(known);
        }
        let path = BasePath::from_bytes(dir).ok_or(BaseError::NotFound)?;
        let (parent, name) = path.split_bytes();
        let is_exact = (path.is_root() || (self.is_exact(parent)? && self.is_probed(name)))
            && !self.folds(&path)?;
        self.folding.lock().put(path, (is_exact, Instant::now()));
        Ok(is_exact)
    }

    /// Fails unless each directory on the path that may fold names has the component in exactly
    /// this spelling.
    pub(super) fn check_spelling(&self, path: &BasePath) -> Result<(), BaseError> {
        let (parent, name) = path.split_bytes();
        if path.is_root() || (self.is_exact(parent)? && self.is_probed(name)) {
            return Ok(());
        }
        let parent = BasePath::from_bytes(parent).ok_or(BaseError::NotFound)?;
        // `list` looks at the directory, and so checks the spelling of its path.
        let listing = match self.list(&parent) {
            Err(BaseError::WrongKind) => return Err(BaseError::NotFound),
            listing => listing?,
        };
        let is_listed = listing.entries.iter().any(|entry| entry.name.as_bytes() == name);
        if is_listed { Ok(()) } else { Err(BaseError::NotFound) }
    }

    /// Whether a probe of the directory decides for this name. A probe does not detect Unicode
    /// normalization.
    fn is_probed(&self, name: &[u8]) -> bool {
        #[cfg(target_os = "linux")]
        if self.folding.folds == Folds::Unknown {
            return name.is_ascii();
        }
        let _ = name;
        true
    }

    /// Whether the directory `path` may fold names. A directory without read permission counts as
    /// exact, because its names cannot be listed.
    fn folds(&self, path: &BasePath) -> Result<bool, BaseError> {
        let opened = match self.walker.open_listing(path) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.dir_fds.clear();
                self.descriptors.clear();
                self.walker.open_listing(path)
            }
            opened => opened,
        };
        let dir = match opened {
            Ok(Reached::Object(dir)) => dir,
            // A mount point is shown as empty.
            Ok(Reached::MountPoint) | Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
            Err(error) => return Err(path_error(error)),
        };
        Ok(self.detect_folding(dir))
    }

    #[cfg(target_os = "linux")]
    fn detect_folding(&self, dir: OwnedFd) -> bool {
        /// FS_CASEFOLD_FL of linux/fs.h.
        const CASEFOLD: u32 = 0x4000_0000;
        match self.folding.folds {
            // Filesystems without these flags do not fold names.
            Folds::Flagged => rustix::fs::ioctl_getflags(dir.as_fd())
                .is_ok_and(|flags| flags.bits() & CASEFOLD != 0),
            _ => {
                let found = self.probe(dir);
                if let (Folds::Alike, Some(found)) = (self.folding.folds, found) {
                    let _ = self.folding.all.set(found);
                }
                found.unwrap_or(true)
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn detect_folding(&self, dir: OwnedFd) -> bool {
        self.probe(dir).unwrap_or(true)
    }

    /// Looks up names of a directory in the other case; `None` if no name gives a result.
    fn probe(&self, dir: OwnedFd) -> Option<bool> {
        let mut dir = Dir::new(dir).ok()?;
        for _ in 0..MAX_PROBED_NAMES {
            let entry = dir.read()?.ok()?;
            let name = entry.file_name();
            let swapped: Vec<u8> = name.to_bytes().iter().map(|byte| swap_case(*byte)).collect();
            if swapped == name.to_bytes() {
                continue;
            }
            let swapped = std::ffi::CString::new(swapped).ok()?;
            let fd = dir.fd().ok()?;
            let other = match self.walker.stat_entry(fd, &swapped) {
                Err(Errno::NOENT) => return Some(false),
                Ok(Reached::Object(other)) => other,
                _ => continue,
            };
            let Ok(Reached::Object(own)) = self.walker.stat_entry(fd, name) else { continue };
            if (own.st_dev, own.st_ino) != (other.st_dev, other.st_ino) {
                return Some(false);
            }
            // Two hard links of one file may differ only in case.
            let is_dir = rustix::fs::FileType::from_raw_mode(own.st_mode).is_dir();
            if is_dir || own.st_nlink == 1 {
                return Some(true);
            }
        }
        None
    }
}

/// The other case of an ASCII letter.
fn swap_case(byte: u8) -> u8 {
    if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { byte }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::{Hiding, HostDirOptions};
    use crate::pattern::{Pattern, PatternSet};

    fn path(text: &str) -> BasePath {
        BasePath::from_bytes(text.as_bytes()).unwrap()
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        for name in [".env", "plain.txt", "s.db", "dir/inner.txt"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("plain.txt", dir.path().join("link")).unwrap();
        dir
    }

    /// A base on a case-insensitive filesystem.
    fn folding(dir: &tempfile::TempDir, folds: Folds) -> HostDir {
        let options = HostDirOptions { hidden: vec![path("s.db")] };
        let mut base = HostDir::open(dir.path(), options).unwrap();
        base.walker.fold_case();
        base.folding = NameFolding::new(folds);
        base
    }

    fn is_there(base: &dyn Base, text: &str) -> bool {
        match base.stat(&path(text)) {
            Ok(_) => true,
            Err(BaseError::NotFound) => false,
            Err(error) => panic!("{text}: {error}"),
        }
    }

    #[test]
    fn a_name_is_found_only_as_its_directory_spells_it() {
        let dir = tree();
        let naive = folding(&dir, Folds::Never);
        assert!(is_there(&naive, ".ENV") && is_there(&naive, "S.DB"), "what has to be prevented");
        for folds in [Folds::Always, Folds::Unknown, Folds::Alike] {
            let base = folding(&dir, folds);
            for there in [".env", "plain.txt", "dir", "dir/inner.txt", "link"] {
                assert!(is_there(&base, there), "{folds:?} {there}");
            }
            for other in [".ENV", "PLAIN.TXT", "S.DB", "s.db", "DIR", "DIR/inner.txt"] {
                assert!(!is_there(&base, other), "{folds:?} {other}");
            }
            assert!(!is_there(&base, "dir/INNER.txt") && !is_there(&base, "dir/missing"));
            let id = base.stat(&path("plain.txt")).unwrap().fileid;
            let mut buffer = [0; 9];
            assert_eq!(base.read(&path("plain.txt"), id, 0, &mut buffer).unwrap().0, 9);
            let read = base.read(&path("PLAIN.TXT"), id, 0, &mut buffer);
            assert!(matches!(read, Err(BaseError::NotFound)), "{read:?}");
            assert_eq!(base.read_link(&path("link")).unwrap(), b"plain.txt");
            assert!(matches!(base.read_link(&path("LINK")), Err(BaseError::NotFound)));
            let listed = base.list(&path("DIR"));
            assert!(matches!(listed, Err(BaseError::NotFound)), "{listed:?}");
            assert!(base.entries(&path("DIR")).is_err());
        }
    }

    #[test]
    fn what_is_hidden_stays_hidden_in_any_case() {
        let dir = tree();
        let patterns = [".env", "dir/**"].map(|text| Pattern::new(text).unwrap());
        let patterns = Arc::new(PatternSet::new(patterns.to_vec()).unwrap());
        let base = Hiding::new(Arc::new(folding(&dir, Folds::Always)), patterns);
        for hidden in [".env", ".ENV", ".Env", "DIR/inner.txt", "dir/INNER.TXT"] {
            assert!(!is_there(&base, hidden), "{hidden}");
        }
        assert!(is_there(&base, "plain.txt"));
    }

    #[test]
    fn a_probe_tells_a_directory_that_folds_from_one_that_does_not() {
        let dir = tree();
        let probed = |base: &HostDir, at: &str| {
            let opened = base.walker.open_listing(&path(at)).unwrap();
            let Reached::Object(fd) = opened else { panic!("a mount point") };
            base.probe(fd)
        };
        assert_eq!(probed(&folding(&dir, Folds::Unknown), ""), Some(true));
        let exact = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
        assert_eq!(probed(&exact, ""), Some(false));
        std::fs::create_dir(dir.path().join("123")).unwrap();
        assert_eq!(probed(&exact, "123"), None);
        for name in ["both", "BOTH"] {
            std::fs::write(dir.path().join("123").join(name), name).unwrap();
        }
        assert_eq!(probed(&exact, "123"), Some(false));
    }

    #[test]
    fn where_nothing_is_folded_a_name_costs_nothing() {
        let dir = tree();
        let mut base = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
        base.folding = NameFolding::new(Folds::Flagged);
        assert!(is_there(&base, "dir/inner.txt") && !is_there(&base, "dir/INNER.TXT"));
        let known = |base: &HostDir, at: &[u8]| base.folding.known(at);
        assert_eq!((known(&base, b""), known(&base, b"dir")), (Some(true), Some(true)));
        base.folding = NameFolding::new(Folds::Alike);
        assert!(is_there(&base, "plain.txt") && !is_there(&base, "PLAIN.TXT"));
        assert_eq!(base.folding.all.get(), Some(&false));
    }
}
