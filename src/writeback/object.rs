//! Looks at objects in a host directory, and walks trees of them.

use std::fs::File;
use std::io::{self, Read};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{Attrs, Result, SeenObject, Target, is_absent};
use crate::base::BasePath;
use crate::vfs::{FileKind, Time};

/// An object and its attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetObject {
    /// Identity and state; without ctime if it has several hard links.
    pub seen: SeenObject,
    /// Attributes, with the host's mode.
    pub attrs: Attrs,
    /// Hard links on the host.
    pub nlink: u64,
    /// Bytes of data, without holes.
    pub data_bytes: u64,
}

/// The block size of `st_blocks`, in bytes (stat(2)).
const STAT_BLOCK_BYTES: u64 = 512;

impl TargetObject {
    // The fields' types differ from platform to platform.
    #[allow(clippy::unnecessary_cast)]
    fn of(stat: &Stat) -> io::Result<Self> {
        let mut seen = SeenObject::of(stat)?;
        let nlink = stat.st_nlink as u64;
        if nlink > 1 {
            seen.ctime = None;
        }
        let attrs = Attrs {
            kind: seen.kind,
            mode: stat.st_mode as u32 & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: Time { secs: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 },
        };
        let on_disk = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK_BYTES);
        // Small files may be stored inline in the inode, without a block.
        let data_bytes = match seen.size {
            0..=STAT_BLOCK_BYTES => seen.size,
            size => size.min(on_disk),
        };
        Ok(Self { seen, attrs, nlink, data_bytes })
    }

    /// Device and inode number.
    pub fn id(&self) -> (u64, u64) {
        (self.seen.dev, self.seen.ino)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.seen.is_dir()
    }
}

/// The path of the entry `name` of a directory.
pub(super) fn entry(dir: &BasePath, name: &[u8]) -> BasePath {
    let path = match dir.is_root() {
        true => name.to_vec(),
        false => [dir.as_bytes(), b"/", name].concat(),
    };
    BasePath::from_bytes(&path).unwrap_or_default()
}

impl Target {
    /// The object at `path`; a symbolic link is not followed.
    ///
    /// # Errors
    /// The object cannot be accessed, or `path` or an ancestor is a mount point. Also for all
    /// methods below.
    pub fn object(&self, path: &BasePath) -> Result<Option<TargetObject>> {
        let looked = || -> io::Result<Option<TargetObject>> {
            if path.is_root() {
                let stat = rustix::fs::fstat(self.beneath.dir(path)?)?;
                return TargetObject::of(&stat).map(Some);
            }
            let (dir, name) = match self.parent(path) {
                Ok(found) => found,
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) => return Err(error),
            };
            match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => TargetObject::of(&stat).map(Some),
                Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        looked().map_err(|source| self.error(path, source))
    }

    /// The names in the directory `path`, in no particular order.
    pub fn names(&self, path: &BasePath) -> Result<Vec<Vec<u8>>> {
        let listed = || -> io::Result<Vec<Vec<u8>>> {
            let mut names = Vec::new();
            for entry in Dir::read_from(self.readable(path)?)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b"..") {
                    names.push(name.to_vec());
                }
            }
            Ok(names)
        };
        listed().map_err(|source| self.error(path, source))
    }

    /// Calls `each` for the object at `path`, and for the entries of directories for which `each`
    /// returns true; parents before children. A directory that we may not read counts as empty.
    pub fn walk(
        &self,
        path: &BasePath,
        each: &mut dyn FnMut(&BasePath, &TargetObject) -> bool,
    ) -> Result<()> {
        let mut open = vec![path.clone()];
        while let Some(path) = open.pop() {
            let Some(object) = self.object(&path)? else { continue };
            if !each(&path, &object) || !object.is_dir() {
                continue;
            }
            match self.names(&path) {
                Ok(names) => open.extend(names.iter().map(|name| entry(&path, name))),
                Err(error) if error.is_of_object() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The content of the regular file `path`, or the target of a symbolic link. `None` for an
    /// object of another type, or a file larger than `max_bytes`.
    pub fn content(&self, path: &BasePath, max_bytes: u64) -> Result<Option<Vec<u8>>> {
        let read = || -> io::Result<Option<Vec<u8>>> {
            let (dir, name) = self.parent(path)?;
            let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileKind::from_mode(stat.st_mode) {
                Some(FileKind::Regular)
                    if u64::try_from(stat.st_size).is_ok_and(|size| size <= max_bytes) => {}
                Some(FileKind::Symlink) => {
                    let target = rustix::fs::readlinkat(&dir, name, Vec::new())?;
                    return Ok(Some(target.into_bytes()));
                }
                _ => return Ok(None),
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file: File = rustix::fs::openat(&dir, name, flags, Mode::empty())?.into();
            let mut content = Vec::new();
            file.take(max_bytes + 1).read_to_end(&mut content)?;
            Ok((content.len() as u64 <= max_bytes).then_some(content))
        };
        read().map_err(|source| self.error(path, source))
    }
}
