//! Finds the object of a path without leaving the base.
//!
//! [`Walker`] holds the base's directory, opened once, and is the only place that opens objects.
//! There are two methods: the kernel walks (`openat2`, Linux), or `Walker` walks component by
//! component (macOS, and Linux where `openat2` is missing or forbidden). Neither follows a symbolic
//! link or enters a filesystem mounted below the base.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::local::Local;
use super::walk_steps::{self as steps, MountIdentity};
use crate::base::BasePath;

#[cfg(target_os = "linux")]
use super::walk_beneath as beneath;

/// Flags to open a directory for `*at` calls: only search permission is needed.
#[cfg(target_os = "linux")]
pub(super) const DIR_FLAGS: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags to open a directory for `*at` calls.
#[cfg(not(target_os = "linux"))]
pub(super) const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags to read a directory's entries.
const LISTING: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags to read a regular file. If a FIFO has replaced the file, the open does not block; if a
/// terminal has, it does not become the controlling terminal.
const CONTENT: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The object at the end of a path.
#[derive(Debug)]
pub(super) enum Reached<T> {
    /// An object on the base's own filesystem.
    Object(T),
    /// A mount point. The filesystem mounted there was not accessed.
    MountPoint,
}

/// The open root of the base, and the method to walk from it.
#[derive(Debug)]
pub(super) struct Walker {
    root: OwnedFd,
    way: WalkMethod,
    local: Option<Local>,
    /// Test only: finds names in any case, see [`Walker::fold_case`].
    #[cfg(test)]
    folds_case: bool,
}

#[derive(Debug)]
enum WalkMethod {
    /// The kernel walks, with `openat2`.
    #[cfg(target_os = "linux")]
    Beneath,
    /// Component by component; each must be on this mount.
    Steps(MountIdentity),
}

impl Walker {
    /// Opens the directory `root`, which may be named through symbolic links.
    ///
    /// With `stepwise`, `openat2` is not used even if it is available.
    pub(super) fn open(root: &Path, stepwise: bool) -> Result<Self, Errno> {
        let flags = DIR_FLAGS.difference(OFlags::NOFOLLOW);
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        #[cfg(target_os = "linux")]
        if !stepwise && beneath::is_available(root.as_fd()) {
            let local = Local::of(root.as_fd());
            return Ok(Self {
                root,
                way: WalkMethod::Beneath,
                local,
                #[cfg(test)]
                folds_case: false,
            });
        }
        let _ = stepwise;
        let way = WalkMethod::Steps(MountIdentity::of(root.as_fd())?);
        Ok(Self {
            root,
            way,
            local: None,
            #[cfg(test)]
            folds_case: false,
        })
    }

    /// The base's root.
    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// The mount for one-call lookups in open directories, if these are possible.
    pub(super) fn local(&self) -> Option<Local> {
        self.local
    }

    /// Opens the directory `path` for `*at` calls.
    pub(super) fn open_dir(&self, path: &BasePath) -> Result<Reached<OwnedFd>, Errno> {
        self.open_with(path, DIR_FLAGS)
    }

    /// `stat` of `path`, not following a symbolic link.
    pub(super) fn stat(&self, path: &BasePath) -> Result<Reached<Stat>, Errno> {
        if path.is_root() {
            return rustix::fs::fstat(&self.root).map(Reached::Object);
        }
        self.stat_from(self.root.as_fd(), path.as_bytes())
    }

    /// `stat` of the entry `name` of the open directory `dir`.
    pub(super) fn stat_entry(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<Reached<Stat>, Errno> {
        self.stat_from(dir, name.to_bytes())
    }

    fn stat_from(&self, from: BorrowedFd<'_>, path: &[u8]) -> Result<Reached<Stat>, Errno> {
        #[cfg(test)]
        let path = &*self.in_any_case(from, path);
        match &self.way {
            #[cfg(target_os = "linux")]
            WalkMethod::Beneath => beneath::stat(from, path),
            WalkMethod::Steps(mount) => steps::stat(from, mount, path),
        }
    }

    /// The target of the symbolic link `path`; EINVAL if it is not a link.
    pub(super) fn read_link(&self, path: &BasePath) -> Result<Reached<Vec<u8>>, Errno> {
        let (root, path) = (self.root.as_fd(), path.as_bytes());
        #[cfg(test)]
        let path = &*self.in_any_case(root, path);
        match &self.way {
            #[cfg(target_os = "linux")]
            WalkMethod::Beneath => beneath::read_link(root, path),
            WalkMethod::Steps(mount) => steps::read_link(root, mount, path),
        }
    }

    /// Opens the object `path`, of any type, with O_PATH.
    #[cfg(target_os = "linux")]
    pub(super) fn open_object(&self, path: &BasePath) -> Result<Reached<OwnedFd>, Errno> {
        let flags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
        self.open_with(path, flags)
    }

    /// Opens the directory `path` to read its entries.
    pub(super) fn open_listing(&self, path: &BasePath) -> Result<Reached<OwnedFd>, Errno> {
        self.open_unnoticed(path, LISTING)
    }

    /// Opens the regular file `path` for reading. The caller has checked its type before, and must
    /// check the opened object again.
    pub(super) fn open_file(&self, path: &BasePath) -> Result<Reached<OwnedFd>, Errno> {
        self.open_unnoticed(path, CONTENT)
    }

    /// Opens without updating atime, if the host permits that (to the owner, or with CAP_FOWNER).
    fn open_unnoticed(&self, path: &BasePath, flags: OFlags) -> Result<Reached<OwnedFd>, Errno> {
        #[cfg(target_os = "linux")]
        match self.open_with(path, flags.union(OFlags::NOATIME)) {
            Err(Errno::PERM) => {}
            other => return other,
        }
        self.open_with(path, flags)
    }

    fn open_with(&self, path: &BasePath, flags: OFlags) -> Result<Reached<OwnedFd>, Errno> {
        if path.is_root() {
            return retry(|| rustix::fs::openat(&self.root, c".", flags, Mode::empty()))
                .map(Reached::Object);
        }
        let (root, path) = (self.root.as_fd(), path.as_bytes());
        #[cfg(test)]
        let path = &*self.in_any_case(root, path);
        match &self.way {
            #[cfg(target_os = "linux")]
            WalkMethod::Beneath => beneath::open(root, path, flags),
            WalkMethod::Steps(mount) => steps::open(root, mount, path, flags),
        }
    }
}

#[cfg(test)]
impl Walker {
    /// Finds names in any case from now on, like a case-insensitive filesystem.
    pub(super) fn fold_case(&mut self) {
        (self.folds_case, self.local) = (true, None);
    }

    /// The path with the spelling of the directory entries.
    fn in_any_case<'p>(&self, from: BorrowedFd<'_>, path: &'p [u8]) -> std::borrow::Cow<'p, [u8]> {
        use std::os::fd::AsRawFd;
        use std::os::unix::ffi::OsStrExt;
        if !self.folds_case {
            return path.into();
        }
        let mut real = std::path::PathBuf::from(format!("/proc/self/fd/{}", from.as_raw_fd()));
        let start = real.clone();
        for name in path.split(|&byte| byte == b'/') {
            let mut names = std::fs::read_dir(&real).into_iter().flatten().flatten();
            let alike = names.find(|entry| entry.file_name().as_bytes().eq_ignore_ascii_case(name));
            real.push(alike.map_or_else(
                || std::ffi::OsStr::from_bytes(name).to_owned(),
                |entry| entry.file_name(),
            ));
        }
        real.strip_prefix(&start).unwrap().as_os_str().as_bytes().to_vec().into()
    }
}

/// Flags of every `stat` by name: follow no symbolic link.
pub(super) const AS_IT_IS: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

/// Retries `f` while it fails with EINTR.
pub(super) fn retry<T>(f: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    rustix::io::retry_on_intr(f)
}
