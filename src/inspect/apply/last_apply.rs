//! The last apply of a session, and the objects that are kept of it, for display.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::keep;
use super::keep_checks::changes_nothing;
use super::plan::ApplyPlan;
use super::record::Record;
use super::target_dir::ApplyTarget;
use crate::delta::sqlite::Session;
use crate::inspect::error::Result;
use crate::vfs::Time;
use crate::writeback::UndoDir;

/// The last apply whose replaced objects are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastApply {
    /// The directory that was written to.
    pub target: PathBuf,
    /// When the apply, or the undo that took it back, began.
    pub time: Time,
    /// It was undone: the next undo repeats it.
    pub is_undone: bool,
}

/// How much is kept of the last apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptForUndo {
    /// The apply.
    pub apply: LastApply,
    /// The undo directory.
    pub dir: PathBuf,
    /// The number of files, directories and other objects.
    pub objects: u64,
    /// The size of the files, in bytes.
    pub bytes: u64,
}

impl LastApply {
    /// The copy that was written to; `None` if it was `base` itself.
    pub fn copy(&self, base: Option<&Path>) -> Option<&Path> {
        Some(&*self.target).filter(|target| base != Some(target))
    }
}

impl From<Record> for LastApply {
    fn from(record: Record) -> Self {
        Self { target: record.target, time: record.begun, is_undone: record.is_undone }
    }
}

/// The last apply of a session. Does not wait for a running apply. `None` if nothing is kept of it,
/// or if the record cannot be read.
pub fn last_apply(session: &Session) -> Option<LastApply> {
    record(session).map(LastApply::from)
}

/// The last apply of a session, with how much is kept of it. `None` as in [`last_apply`].
pub fn kept(session: &Session) -> Option<KeptForUndo> {
    let (dir, record) = (session.undo_dir(), record(session)?);
    let (objects, bytes) = match count(&dir.join(record.round())) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (0, 0),
        counted => counted.ok()?,
    };
    Some(KeptForUndo { apply: record.into(), dir, objects, bytes })
}

fn record(session: &Session) -> Option<Record> {
    let file = File::open(session.undo_dir().join("record")).ok()?;
    Record::read(file).ok().filter(|record| record.session == session.id())
}

/// The number of objects below a directory, and the size of the files, in bytes.
fn count(dir: &Path) -> io::Result<(u64, u64)> {
    let (mut objects, mut bytes) = (0, 0);
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            objects += 1;
            if meta.is_dir() {
                left.push(entry.path());
            } else if meta.is_file() {
                bytes += meta.len();
            }
        }
    }
    Ok((objects, bytes))
}

/// The last apply, if it was to another directory and the plan ends its undo.
pub(super) fn ended_by(target: &ApplyTarget<'_>, plan: &ApplyPlan) -> Result<Option<LastApply>> {
    // An undo directory that cannot be used is refused when something is to be kept.
    let Ok(Some(dir)) = UndoDir::open(&target.undo_dir(), false) else { return Ok(None) };
    let record =
        keep::read(&dir)?.filter(|record| !target.is_of(record) && !record.changes_nothing());
    match record {
        Some(record) if !changes_nothing(target, plan)? => Ok(Some(record.into())),
        _ => Ok(None),
    }
}
