//! Names are taken as their directory spells them, also where its filesystem finds them spelled
//! in another way: in another case, or in another form of Unicode.
//!
//! Such a filesystem would lead past everything that goes by names: what is hidden, and
//! whiteouts. So in a directory that may fold names, a name has to be in the listing, byte for
//! byte. Whether a directory may is detected once and cached for [`REMEMBERED_FOR`]; where it does
//! not, a name costs no call.

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

/// How long it is remembered whether a directory folds names. A host that puts another directory
/// in its place, of a filesystem or with a flag that folds, is noticed after this.
const REMEMBERED_FOR: Duration = Duration::from_secs(10);

/// Directories whose answer is cached.
const MAX_FOLDING_DIRECTORIES: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Names of a directory that are tried until one has an ASCII letter.
const MAX_PROBED_NAMES: usize = 256;

/// How it is known whether directories fold names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folds {
    /// None does.
    Never,
    /// All may.
    Always,
    /// Those with the flag for it (`chattr +F`).
    #[cfg(target_os = "linux")]
    Flagged,
    /// All do, or none: a probe of one tells.
    #[cfg(target_os = "linux")]
    Alike,
    /// A probe of each tells; not of names that are no ASCII.
    #[cfg(target_os = "linux")]
    Unknown,
}

impl Folds {
    /// How it is in the filesystem of the open directory `root`.
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

    /// APFS and HFS+ take all forms of Unicode for one, and mostly both cases.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn of(_root: BorrowedFd<'_>) -> Self {
        Self::Always
    }
}

/// What is known of directories.
pub(super) struct NameFolding {
    folds: Folds,
    /// Whether all do, where they are alike.
    all: OnceLock<bool>,
    /// Whether the names in a directory, and those of its path, are matched byte for byte, and
    /// when that was probed.
    known: Mutex<LruCache<BasePath, (bool, Instant)>>,
}

impl NameFolding {
    pub(super) fn new(folds: Folds) -> Self {
        let known = Mutex::new(LruCache::new(MAX_FOLDING_DIRECTORIES));
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
    /// Whether in the directory `dir`, and on the way there, only the spelling that a listing has
    /// leads to an object.
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

    /// Fails unless each directory on the way to `path` spells its component so, as far as it may
    /// fold names.
    pub(super) fn check_spelling(&self, path: &BasePath) -> Result<(), BaseError> {
        let (parent, name) = path.split_bytes();
        if path.is_root() || (self.is_exact(parent)? && self.is_probed(name)) {
            return Ok(());
        }
        let parent = BasePath::from_bytes(parent).ok_or(BaseError::NotFound)?;
        // Which looks at the directory, and so checks how its own path is spelled.
        let listing = match self.list(&parent) {
            Err(BaseError::WrongKind) => return Err(BaseError::NotFound),
            listing => listing?,
        };
        let is_listed = listing.entries.iter().any(|entry| entry.name.as_bytes() == name);
        if is_listed { Ok(()) } else { Err(BaseError::NotFound) }
    }

    /// Whether a probe of a directory says all about this name: it does not tell about forms of
    /// Unicode.
    fn is_probed(&self, name: &[u8]) -> bool {
        #[cfg(target_os = "linux")]
        if self.folding.folds == Folds::Unknown {
            return name.is_ascii();
        }
        let _ = name;
        true
    }

    /// Whether the directory `path` may fold names. One that we may search and not read is taken
    /// not to: its names cannot be listed.
    fn folds(&self, path: &BasePath) -> Result<bool, BaseError> {
        let opened = match self.walker.open_dir(path) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.anchors.clear();
                self.descriptors.clear();
                self.walker.open_dir(path)
            }
            opened => opened,
        };
        let dir = match opened {
            Ok(Reached::Object(dir)) => dir,
            // It is shown as empty.
            Ok(Reached::MountPoint) | Err(Errno::ACCESS | Errno::PERM) => return Ok(false),
            Err(error) => return Err(path_error(error)),
        };
        Ok(self.asked(dir))
    }

    #[cfg(target_os = "linux")]
    fn asked(&self, dir: OwnedFd) -> bool {
        /// FS_CASEFOLD_FL of linux/fs.h.
        const CASEFOLD: u32 = 0x4000_0000;
        match self.folding.folds {
            // Filesystems without such flags fold nothing.
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
    fn asked(&self, dir: OwnedFd) -> bool {
        self.probe(dir).unwrap_or(true)
    }

    /// Looks names of a directory up in the other case; `None` where none of them tells.
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
            // Two names of one file may differ in nothing but their case.
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
    use crate::vfs::{Pattern, PatternSet};

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

    /// A base on a filesystem that finds names in any case.
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
            let opened = base.walker.open_dir(&path(at)).unwrap();
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
