//! A copy that an apply drops, in a request.

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::request::PathText;
use crate::overlay::{BaseVersion, UnchangedCopy};
use crate::vfs::{FileId, Time};

/// An object that the session drops: see [`UnchangedCopy`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyToDrop {
    /// Its merged path.
    pub path: PathText,
    /// File number, and seconds and nanoseconds of the ctime.
    pub object: (u64, i64, u32),
    /// The base's object, if that is compared.
    pub base: Option<SeenBase>,
}

/// An object of the base: see [`BaseVersion`]. Times are seconds and nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenBase {
    /// File number.
    pub fileid: u64,
    /// Size, in bytes.
    pub size: u64,
    /// mtime.
    pub mtime: (i64, u32),
    /// ctime, if that is compared.
    pub ctime: Option<(i64, u32)>,
}

impl From<&UnchangedCopy> for CopyToDrop {
    fn from(copy: &UnchangedCopy) -> Self {
        let time = |time: Time| (time.secs, time.nanos);
        let (id, changed) = copy.object;
        let base = copy.base.as_ref().map(|base| SeenBase {
            fileid: base.fileid.0,
            size: base.size,
            mtime: time(base.mtime),
            ctime: base.ctime.map(time),
        });
        Self { path: (&copy.path).into(), object: (id.0, changed.secs, changed.nanos), base }
    }
}

impl CopyToDrop {
    /// Converts it for the overlay.
    pub(super) fn to_unchanged_copy(&self) -> Result<UnchangedCopy, Refusal> {
        let time = |(secs, nanos)| Time { secs, nanos };
        let (id, secs, nanos) = self.object;
        Ok(UnchangedCopy {
            path: self.path.merged()?,
            object: (FileId(id), time((secs, nanos))),
            base: self.base.as_ref().map(|base| BaseVersion {
                fileid: FileId(base.fileid),
                size: base.size,
                mtime: time(base.mtime),
                ctime: base.ctime.map(time),
            }),
        })
    }
}
