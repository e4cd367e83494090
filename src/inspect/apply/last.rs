//! What is known of the last apply of a session, for people.

use std::path::PathBuf;

use super::keep;
use super::may_keep::changes_nothing;
use super::place::Place;
use super::plan::Plan;
use super::record::Record;
use crate::delta::sqlite::Session;
use crate::inspect::error::Result;
use crate::target::UndoDir;
use crate::vfs::Time;

/// The last apply of which something is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastApply {
    /// The directory that was written to.
    pub target: PathBuf,
    /// When it was done, or taken back.
    pub time: Time,
    /// It was taken back.
    pub is_taken_back: bool,
}

impl From<Record> for LastApply {
    fn from(record: Record) -> Self {
        Self { target: record.target, time: record.begun, is_taken_back: record.is_taken_back }
    }
}

/// The last apply of a session, if something is kept of it.
///
/// # Errors
/// What is kept cannot be read.
pub fn last_apply(session: &Session) -> Result<Option<LastApply>> {
    let Some(dir) = UndoDir::open(&session.undo_dir(), false)? else { return Ok(None) };
    let record = keep::read(&dir)?.filter(|record| record.session == session.id());
    Ok(record.map(LastApply::from))
}

/// The last apply, if that was to another directory and can no longer be taken back after the plan.
pub(super) fn ended_by(place: &Place<'_>, plan: &Plan) -> Result<Option<LastApply>> {
    // What cannot be used is refused where something is to be kept.
    let Ok(Some(dir)) = UndoDir::open(&place.undo_dir(), false) else { return Ok(None) };
    let record = keep::read(&dir)?.filter(|record| !place.is_of(record));
    match record {
        Some(record) if !changes_nothing(place, plan)? => Ok(Some(record.into())),
        _ => Ok(None),
    }
}
