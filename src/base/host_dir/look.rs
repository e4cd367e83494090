//! Looks at objects: in their cached open directory if possible, otherwise by a walk from the root.
//!
//! Opens only directories, and these only with O_PATH where the system has it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;

use super::HostDir;
use super::acl::AclSource;
use super::attr::{base_attr, covered, path_error};
use super::dir_fds::OpenDir;
use super::listings::DirStamp;
use super::local::Local;
use super::walk::Reached;
use crate::base::{Base, BaseAttr, BaseError, BasePath, Entries};
use crate::vfs::{FileId, FileKind, Name};

/// The attributes to show, and whether they stand in for a mount point.
type StatResult = Result<(BaseAttr, bool), BaseError>;

impl HostDir {
    /// Looks at `path`. Its directory may be cached for up to
    /// [`TRUSTED_FOR`](super::file_fds::TRUSTED_FOR).
    pub(super) fn look_at(&self, path: &BasePath) -> StatResult {
        let Some(local) = self.walker.local().filter(|_| !path.is_root()) else {
            return self.walk_to(path);
        };
        if self.hidden.holds(path) {
            return Err(BaseError::NotFound);
        }
        if let Some(open_dir) = self.dir_fds.get(path.as_bytes()).filter(|dir| dir.is_exact) {
            let attr = self.attr_of_dir(open_dir.fd.as_fd())?;
            if open_dir.is_in_place(&attr) {
                let attr = self.limited(attr, AclSource::Open(open_dir.fd.as_fd()));
                self.recent_attrs.note(&attr);
                return Ok((attr, false));
            }
        }
        let (parent, name) = path.split_bytes();
        let open_dir = self.open_dir(parent)?;
        if !open_dir.as_ref().map_or_else(|| self.is_exact(b""), |dir| Ok(dir.is_exact))? {
            self.check_spelling(path)?;
        }
        let dir = open_dir.as_ref().map_or(self.walker.root(), |open_dir| open_dir.fd.as_fd());
        match local.stat(self.root_dev, dir, name)? {
            Reached::Object(attr) => {
                let attr = self.limited(attr, AclSource::Entry(dir, name));
                self.recent_attrs.note(&attr);
                Ok((attr, false))
            }
            Reached::MountPoint => Ok((self.mount_point(path)?, true)),
        }
    }

    /// Looks at `path` by a walk from the root.
    pub(super) fn walk_to(&self, path: &BasePath) -> StatResult {
        if self.hidden.holds(path) {
            return Err(BaseError::NotFound);
        }
        self.check_spelling(path)?;
        match self.walker.stat(path).map_err(path_error)? {
            Reached::Object(stat) => {
                let attr = self.limited(base_attr(self.root_dev, &stat)?, AclSource::Path(path));
                self.recent_attrs.note(&attr);
                Ok((attr, false))
            }
            Reached::MountPoint => Ok((self.mount_point(path)?, true)),
        }
    }

    /// Removes mode bits that the ACL of the object `at` this place denies.
    pub(super) fn limited(&self, attr: BaseAttr, at: AclSource<'_>) -> BaseAttr {
        self.acls.limit(&self.walker, at, attr)
    }

    /// The stand-in for the mount point `path`. Its number and type are those of the covered object
    /// in the parent's listing.
    fn mount_point(&self, path: &BasePath) -> Result<BaseAttr, BaseError> {
        let (parent, name) = path.split().ok_or(BaseError::NotFound)?;
        let listing = self.list(&parent)?;
        let entry = listing.entries.iter().find(|e| e.name == name).ok_or(BaseError::NotFound)?;
        let kind = match entry.kind {
            None | Some(FileKind::Directory) => FileKind::Directory,
            Some(_) => FileKind::Regular,
        };
        Ok(covered(self.root_dev, entry.fileid, kind))
    }

    /// The open directory `path`; `None` for the root, which is always open.
    fn open_dir(&self, path: &[u8]) -> Result<Option<Arc<OpenDir>>, BaseError> {
        if path.is_empty() {
            return Ok(None);
        }
        if let Some(open_dir) = self.dir_fds.get(path) {
            return Ok(Some(open_dir));
        }
        let path = BasePath::from_bytes(path).ok_or(BaseError::NotFound)?;
        let opened = match self.walker.open_dir(&path) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.dir_fds.clear();
                self.descriptors.clear();
                self.walker.open_dir(&path)
            }
            other => other,
        };
        let Reached::Object(fd) = opened.map_err(path_error)? else {
            return Err(BaseError::NotFound);
        };
        let attr = self.attr_of_dir(fd.as_fd())?;
        let is_exact = self.is_exact(path.as_bytes())?;
        let open_dir = Arc::new(OpenDir::new(fd, &attr, is_exact));
        self.dir_fds.put(path, Arc::clone(&open_dir));
        Ok(Some(open_dir))
    }

    fn attr_of_dir(&self, fd: BorrowedFd<'_>) -> Result<BaseAttr, BaseError> {
        base_attr(self.root_dev, &rustix::fs::fstat(fd).map_err(path_error)?)
    }

    /// Opens the directory `path` to look at its entries, as [`Base::entries`].
    pub(super) fn open_entries(&self, path: &BasePath) -> Result<OpenEntries<'_>, BaseError> {
        let began = SystemTime::now();
        self.recent_attrs.begin();
        let (attr, covered) = self.look_at(path)?;
        let shows_all = self.hidden.names_in(path).is_empty();
        let local = self.walker.local().filter(|_| !covered && shows_all);
        let open_dir = match local {
            Some(_) => self.open_dir(path.as_bytes())?,
            None => None,
        };
        Ok(OpenEntries {
            base: self,
            path: path.clone(),
            local,
            open_dir,
            settled: DirStamp::from(&attr).is_settled(began),
        })
    }
}

/// An open directory whose entries are looked at.
pub(super) struct OpenEntries<'a> {
    base: &'a HostDir,
    path: BasePath,
    /// Set if entries can be looked at with one call.
    local: Option<Local>,
    /// The open directory; `None` for the root.
    open_dir: Option<Arc<OpenDir>>,
    /// Whether the directory's last change is so old that a later one would change its times.
    settled: bool,
}

impl Entries for OpenEntries<'_> {
    fn stat(&self, name: &Name, id: FileId) -> Result<BaseAttr, BaseError> {
        if self.settled
            && let Some(attr) = self.base.recent_attrs.get(id)
        {
            return Ok(attr);
        }
        if let Some(local) = self.local {
            let dir = self.open_dir.as_ref().map_or(self.base.walker.root(), |a| a.fd.as_fd());
            if let Reached::Object(attr) = local.stat(self.base.root_dev, dir, name.as_bytes())? {
                let attr = self.base.limited(attr, AclSource::Entry(dir, name.as_bytes()));
                self.base.recent_attrs.note(&attr);
                return Ok(attr);
            }
        }
        Ok(self.base.look_at(&self.path.join(name))?.0)
    }
}
