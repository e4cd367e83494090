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
    /// Number, size, mtime and ctime of the base's object, if that is compared.
    pub base: Option<(u64, u64, (i64, u32), Option<(i64, u32)>)>,
}

impl From<&UnchangedCopy> for CopyToDrop {
    fn from(copy: &UnchangedCopy) -> Self {
        let time = |time: Time| (time.secs, time.nanos);
        let (id, changed) = copy.object;
        let base = copy.base.as_ref();
        let base =
            base.map(|base| (base.fileid.0, base.size, time(base.mtime), base.ctime.map(time)));
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
            base: self.base.map(|(id, size, mtime, ctime)| BaseVersion {
                fileid: FileId(id),
                size,
                mtime: time(mtime),
                ctime: ctime.map(time),
            }),
        })
    }
}
