//! [`SeenObject`]: identifies an object and detects changes of it.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use crate::base::BaseAttr;
use crate::vfs::{FileKind, Time};

/// The identity and state of an object when it was last looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenObject {
    /// Type.
    pub kind: FileKind,
    /// Device number of the filesystem.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Size, in bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes; `None` if our own work may change it.
    pub ctime: Option<Time>,
}

impl From<&BaseAttr> for SeenObject {
    fn from(attr: &BaseAttr) -> Self {
        // Removing one name of a hard-linked file changes the ctime of the others.
        let is_alone = attr.nlink < 2;
        Self {
            kind: attr.kind,
            dev: attr.dev,
            ino: attr.ino,
            size: attr.size,
            mtime: attr.mtime,
            ctime: is_alone.then_some(attr.ctime),
        }
    }
}

impl SeenObject {
    /// An object that our own work may change.
    pub fn without_ctime(attr: &BaseAttr) -> Self {
        Self { ctime: None, ..Self::from(attr) }
    }

    /// The entry `name` of an open directory; `None` if it does not exist.
    pub(super) fn at(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Self>> {
        match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Self::of(&stat).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    // The fields' types differ from platform to platform.
    #[allow(clippy::unnecessary_cast)]
    pub(super) fn of(stat: &Stat) -> io::Result<Self> {
        let kind = FileKind::from_mode(stat.st_mode as u32).ok_or(Errno::NOTSUP)?;
        Ok(Self {
            kind,
            dev: stat.st_dev as u64,
            ino: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime: Time { secs: stat.st_mtime as i64, nanos: stat.st_mtime_nsec as u32 },
            ctime: Some(Time { secs: stat.st_ctime as i64, nanos: stat.st_ctime_nsec as u32 }),
        })
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether `now` is the same object.
    pub fn is(&self, now: &Self) -> bool {
        (self.kind, self.dev, self.ino) == (now.kind, now.dev, now.ino)
    }

    /// Whether `now` is the same object, unchanged. The size and times of a directory are ignored,
    /// because they change with its entries.
    pub fn is_as_seen(&self, now: &Self) -> bool {
        let same_ctime = self.ctime.is_none() || now.ctime.is_none() || self.ctime == now.ctime;
        let unchanged = (self.size, self.mtime) == (now.size, now.mtime) && same_ctime;
        self.is(now) && (self.is_dir() || unchanged)
    }
}
