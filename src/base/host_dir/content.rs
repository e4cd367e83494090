//! Reads regular files.
//!
//! A file is checked, opened without blocking, and checked again: the opened object must be a
//! regular file and the expected object, even if a hostile process replaces files at the same time.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::HostDir;
use super::acl::AclSource;
use super::attr::{base_attr, path_error};
use super::file_fds::OpenFile;
use super::walk::{Reached, retry};
use crate::base::{BaseAttr, BaseError, BasePath};
use crate::vfs::{FileId, FileKind};

/// Offsets from here on are beyond the end of any file (`off_t` is signed).
const END_OF_OFFSETS: u64 = i64::MAX as u64;

/// The content at a path.
pub(super) enum BaseContent {
    /// An open file.
    File(Arc<OpenFile>),
    /// Something is mounted over the file: an empty one is shown.
    Covered(BaseAttr),
}

impl HostDir {
    /// Fills `buffer` from byte `offset` of the object `id`, as [`crate::base::Base::read`].
    pub(super) fn read_content(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        let file = match self.content(path, id)? {
            BaseContent::File(file) => file,
            BaseContent::Covered(attr) => return Ok((0, attr)),
        };
        let length = fill(&file.fd, offset, buffer).map_err(path_error)?;
        let attr = self.attr_of(&file.fd)?;
        self.check_still_there(path, &file, &attr)?;
        self.recent_attrs.note(&attr);
        Ok((length, attr))
    }

    /// The next range with data, as [`crate::base::Base::next_data`].
    pub(super) fn find_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        let BaseContent::File(file) = self.content(path, id)? else { return Ok(None) };
        let size = self.attr_of(&file.fd)?.size;
        let range = data_range(&file.fd, offset, size).map_err(path_error)?;
        let attr = self.attr_of(&file.fd)?;
        self.check_still_there(path, &file, &attr)?;
        Ok(range)
    }

    /// The content at `path`, which must be the object `id`.
    fn content(&self, path: &BasePath, id: FileId) -> Result<BaseContent, BaseError> {
        if let Some(file) = self.descriptors.get(path)
            && file.fileid == id
        {
            return Ok(BaseContent::File(file));
        }
        let (attr, covered) = self.look_at(path)?;
        if attr.fileid != id {
            return Err(BaseError::Changed);
        }
        if attr.kind != FileKind::Regular {
            return Err(BaseError::WrongKind);
        }
        if covered {
            return Ok(BaseContent::Covered(attr));
        }
        let (fd, attr) = self.open_regular(path)?;
        if attr.fileid != id {
            return Err(BaseError::Changed);
        }
        let file = Arc::new(OpenFile::new(fd, &attr));
        self.descriptors.put(path, Arc::clone(&file));
        Ok(BaseContent::File(file))
    }

    /// Opens `path`, which was a regular file when it was last checked; [`BaseError::Changed`] if
    /// it no longer is.
    fn open_regular(&self, path: &BasePath) -> Result<(OwnedFd, BaseAttr), BaseError> {
        let opened = match self.walker.open_file(path) {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.descriptors.clear();
                self.walker.open_file(path)
            }
            other => other,
        };
        match opened {
            Ok(Reached::Object(fd)) => {
                let attr = self.attr_of(&fd)?;
                match attr.kind {
                    FileKind::Regular => Ok((fd, attr)),
                    _ => Err(BaseError::Changed),
                }
            }
            Ok(Reached::MountPoint) | Err(Errno::LOOP | Errno::NXIO) => Err(BaseError::Changed),
            Err(error) => Err(path_error(error)),
        }
    }

    /// Fails unless `path` still leads to `file`, whose attributes after the read are `attr`.
    fn check_still_there(
        &self,
        path: &BasePath,
        file: &Arc<OpenFile>,
        attr: &BaseAttr,
    ) -> Result<(), BaseError> {
        if file.is_fresh(attr) {
            return Ok(());
        }
        let found = self.walk_to(path).and_then(|(now, covered)| {
            if covered || now.fileid != file.fileid { Err(BaseError::Changed) } else { Ok(()) }
        });
        match found {
            Ok(()) => file.confirm(attr),
            Err(_) => self.descriptors.forget(path, file),
        }
        found
    }

    fn attr_of(&self, fd: &OwnedFd) -> Result<BaseAttr, BaseError> {
        let attr = base_attr(self.root_dev, &rustix::fs::fstat(fd).map_err(path_error)?)?;
        Ok(self.limited(attr, AclSource::Open(fd.as_fd())))
    }
}

/// Reads until `buffer` is full or the file ends.
fn fill(fd: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        let at = offset.saturating_add(done as u64);
        if at >= END_OF_OFFSETS {
            break;
        }
        match retry(|| rustix::io::pread(fd, &mut buffer[done..], at))? {
            0 => break,
            length => done += length,
        }
    }
    Ok(done)
}

/// The next range with data in a file of `size` bytes. Moves the descriptor's offset, which is not
/// used otherwise.
fn data_range(fd: &OwnedFd, offset: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    if offset >= size {
        return Ok(None);
    }
    let start = match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // Not supported by this filesystem.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOTTY) => return Ok(Some((offset, size))),
        Err(error) => return Err(error),
    };
    match rustix::fs::seek(fd, SeekFrom::Hole(start)) {
        Ok(end) => Ok(Some((start, end))),
        // The file was truncated at the same time.
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}
