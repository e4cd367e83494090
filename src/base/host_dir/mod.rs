//! A directory of this machine as a base.
//!
//! Every access below the base's root goes through `walk`, from the open root. Nothing follows a
//! symbolic link or enters another mount, and only regular files are opened for reading. The caches
//! (`acl`, `dir_fds`, `file_fds`, `folding`, `listings`, `links`, `recent_attrs`) are bounded.
//! Entries are checked against the host before use, or trusted for a short time (see each module).
//!
//! This module does not depend on sessions, callers or the protocol.

mod acl;
mod attr;
mod beneath;
mod content;
mod dir_fds;
mod fd_closer;
mod file_fds;
mod folding;
mod hidden;
mod links;
mod listing;
mod listings;
mod local;
mod look;
mod recent_attrs;
mod remote;
mod walk;
#[cfg(target_os = "linux")]
mod walk_beneath;
mod walk_steps;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use self::acl::Acls;
use self::attr::{device_of, path_error};
use self::dir_fds::DirFds;
use self::file_fds::FileFds;
use self::folding::{Folds, NameFolding};
use self::hidden::HiddenPaths;
use self::links::Links;
use self::listing::ListingRead;
use self::listings::{DirStamp, HostListingCache};
use self::recent_attrs::RecentAttrs;
use self::walk::{Reached, Walker};
use super::{Base, BaseAttr, BaseError, BasePath, Entries, Listing, ListingLock};
use super::{STAGING, STAGING_JOURNAL, own_paths};
use crate::counters::Cache;
use crate::vfs::{FileId, FileKind};
pub use acl::shown_mode;
pub use beneath::Beneath;

/// Options for opening a [`HostDir`].
#[derive(Debug, Clone, Default)]
pub struct HostDirOptions {
    /// Paths that the export does not show: the session file and the files beside it.
    pub hidden: Vec<BasePath>,
}

/// A read-only view of a host directory.
///
/// Filesystems mounted below it are not shown: a mount point is an empty directory, or an empty
/// file if something is mounted over a file.
pub struct HostDir {
    walker: Walker,
    root_dev: u64,
    is_remote: bool,
    hidden: HiddenPaths,
    /// The journal of an unfinished `acetate apply`.
    journal: BasePath,
    acls: Acls,
    dir_fds: DirFds,
    descriptors: FileFds,
    listings: HostListingCache,
    links: Links,
    recent_attrs: RecentAttrs,
    folding: NameFolding,
    turn: Arc<ListingLock>,
}

impl HostDir {
    /// Opens the directory `root`, which may be named through symbolic links.
    ///
    /// Fails with [`BaseError::NotFound`] if there is no directory, and with [`BaseError::Denied`]
    /// if we may not enter it.
    pub fn open(root: &Path, options: HostDirOptions) -> Result<Self, BaseError> {
        Self::open_by(root, options, false)
    }

    /// Like [`HostDir::open`], but walks component by component, as on a host without `openat2`.
    #[cfg(feature = "internals")]
    pub fn open_stepwise(root: &Path, options: HostDirOptions) -> Result<Self, BaseError> {
        Self::open_by(root, options, true)
    }

    fn open_by(root: &Path, options: HostDirOptions, stepwise: bool) -> Result<Self, BaseError> {
        let walker = Walker::open(root, stepwise).map_err(path_error)?;
        let mut hidden = options.hidden;
        hidden.extend(own_paths());
        let journal = format!("{STAGING}/{STAGING_JOURNAL}");
        let root_dev = match walker.stat(&BasePath::root()).map_err(path_error)? {
            Reached::Object(stat) => device_of(&stat),
            Reached::MountPoint => return Err(BaseError::NotFound),
        };
        let folding = NameFolding::new(Folds::of(walker.root()));
        Ok(Self {
            acls: Acls::of(&walker),
            is_remote: remote::is_remote(walker.root()),
            walker,
            root_dev,
            hidden: HiddenPaths::new(hidden),
            journal: BasePath::from_bytes(journal.as_bytes()).unwrap_or_default(),
            dir_fds: DirFds::new(),
            descriptors: FileFds::new(),
            listings: HostListingCache::new(),
            links: Links::new(),
            recent_attrs: RecentAttrs::new(),
            folding,
            turn: Arc::default(),
        })
    }

    /// Shares `turn` with other bases, so that one large directory is listed at a time.
    #[must_use]
    pub fn with_turn(mut self, turn: Arc<ListingLock>) -> Self {
        self.turn = turn;
        self
    }

    /// Hides these paths, and everything below them, from now on.
    pub fn hide(&self, paths: Vec<BasePath>) {
        self.hidden.add(paths);
        self.listings.clear();
    }

    /// The number of entries of its caches.
    pub fn cache_entries(&self) -> [(Cache, usize); 3] {
        [
            (Cache::BaseDirs, self.dir_fds.len()),
            (Cache::BaseFiles, self.descriptors.len()),
            (Cache::BaseListings, self.listings.len()),
        ]
    }

    /// Closes the descriptors in the caches, on another thread if that takes long.
    fn close_cached(&self) {
        let fds = (self.dir_fds.take(), self.descriptors.take());
        if !fds.0.is_empty() || !fds.1.is_empty() {
            let count = fds.0.len() + fds.1.len();
            fd_closer::close(self.root_dev, count, fds);
        }
    }

    /// Reads the directory `path`, and caches the listing if it is reliable.
    fn read_listing(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        let began = SystemTime::now();
        let dir = match self.walker.open_listing(path).map_err(path_error)? {
            Reached::Object(dir) => dir,
            Reached::MountPoint => return Ok(Arc::default()),
        };
        let mut entries = match self.read_entries(path, dir)? {
            ListingRead::Whole(entries) => entries,
            ListingRead::Known(listing) => return Ok(listing),
        };
        let kept = listings::stamps(self.root_dev, &entries)
            .filter(|stamps| listings::is_reliable(path, *stamps, began, &entries.listing));
        let Some((_, stamp)) = kept else { return Ok(Arc::new(entries.listing)) };
        // From here on the cache owns the listing, which bounds its memory.
        entries.listing.turn = None;
        let listing = Arc::new(entries.listing);
        self.listings.put(path, stamp, &listing);
        Ok(listing)
    }
}

impl HostDir {
    /// Whether the staging directory of `acetate apply` exists and belongs to root.
    fn is_staging_of_root(&self) -> Result<bool, BaseError> {
        let staging = BasePath::from_bytes(STAGING.as_bytes()).unwrap_or_default();
        match self.walker.stat(&staging).map_err(path_error)? {
            Reached::Object(found) => Ok(found.st_uid == 0),
            Reached::MountPoint => Ok(false),
        }
    }
}

impl Base for HostDir {
    fn invalidate(&self) {
        self.dir_fds.clear();
        self.descriptors.clear();
    }

    fn rest(&self) {
        if !fd_closer::is_stuck(self.root_dev) {
            self.close_cached();
        }
    }

    fn must_stay_open(&self) -> bool {
        fd_closer::is_full(self.root_dev)
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn has_unfinished_apply(&self) -> Result<bool, BaseError> {
        let found = match self.walker.stat(&self.journal) {
            Ok(Reached::Object(found)) => found,
            Ok(Reached::MountPoint) => return Ok(false),
            Err(error) => match path_error(error) {
                BaseError::NotFound => return Ok(false),
                // Root may be applying to the session of another user's server, which then cannot
                // read the staging.
                BaseError::Denied => return self.is_staging_of_root(),
                error => return Err(error),
            },
        };
        // Any user who may write at the top can create a directory of that name.
        let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
        let is_trusted = [0, rustix::process::geteuid().as_raw()].contains(&found.st_uid);
        Ok(is_file && is_trusted)
    }

    fn stat(&self, path: &BasePath) -> Result<BaseAttr, BaseError> {
        Ok(self.look_at(path)?.0)
    }

    fn list(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        let (attr, covered) = self.look_at(path)?;
        if attr.kind != FileKind::Directory {
            return Err(BaseError::WrongKind);
        }
        if covered {
            return Ok(Arc::default());
        }
        match Cache::BaseListings.count(self.listings.get(path, DirStamp::from(&attr))) {
            Some(listing) => Ok(listing),
            None => self.read_listing(path),
        }
    }

    fn entries<'a>(&'a self, path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError> {
        Ok(Box::new(self.open_entries(path)?))
    }

    fn read_link(&self, path: &BasePath) -> Result<Vec<u8>, BaseError> {
        use rustix::io::Errno;
        if path.is_root() {
            return Err(BaseError::WrongKind);
        }
        if self.hidden.holds(path) {
            return Err(BaseError::NotFound);
        }
        self.check_spelling(path)?;
        match self.walker.read_link(path) {
            Ok(Reached::Object(target)) => Ok(target),
            Ok(Reached::MountPoint) | Err(Errno::INVAL) => Err(BaseError::WrongKind),
            Err(error) => Err(path_error(error)),
        }
    }

    fn read(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        self.read_content(path, id, offset, buffer)
    }

    fn next_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        self.find_data(path, id, offset)
    }

    fn find_linked(
        &self,
        id: FileId,
        wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError> {
        self.search(id, wanted)
    }
}

impl Drop for HostDir {
    fn drop(&mut self) {
        // A thread that closes one session after the other must not hang in a base.
        self.close_cached();
    }
}

impl fmt::Debug for HostDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDir").field("walker", &self.walker).finish_non_exhaustive()
    }
}
