//! What tells an object from others, and from itself before and after a change.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use crate::base::BaseAttr;
use crate::vfs::{FileKind, Time};

/// What was seen of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenObject {
    /// Type.
    pub kind: FileKind,
    /// Device number of the filesystem.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of content or attributes; `None` where our own work moves it.
    pub ctime: Option<Time>,
}

impl From<&BaseAttr> for SeenObject {
    fn from(attr: &BaseAttr) -> Self {
        // The ctime of a file with several names moves when one of them goes.
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
    /// What is at `name` in an open directory.
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

    /// Whether `now` is the object that was seen.
    pub fn is(&self, now: &Self) -> bool {
        (self.kind, self.dev, self.ino) == (now.kind, now.dev, now.ino)
    }

    /// Whether `now` is the object that was seen, and unchanged. A directory's size and times
    /// follow its entries.
    pub fn is_as_seen(&self, now: &Self) -> bool {
        let same_ctime = self.ctime.is_none() || now.ctime.is_none() || self.ctime == now.ctime;
        let unchanged = (self.size, self.mtime) == (now.size, now.mtime) && same_ctime;
        self.is(now) && (self.is_dir() || unchanged)
    }
}
