//! What a restore of a checkpoint would change, and where an undo leads.

use std::path::Path;

use super::between::Moments;
use super::checkpoint::checkpoints;
use super::diff::{DiffOptions, Difference};
use super::error::{InspectError, Result};
use super::logged_changes::last_change;
use super::opened::OpenSession;
use super::restore_paths::RestoreScope;
use crate::delta::sqlite::Session;
use crate::delta::{Checkpoint, MergedPath, StoreError};

/// What a restore would change.
#[derive(Debug, Default)]
pub struct RestorePlan {
    /// The differences between the tree now and that of the checkpoint, sorted by path.
    pub differences: Vec<Difference>,
    /// What the base denies access to.
    pub denied: Vec<MergedPath>,
    /// The last row of the audit log that the plan has seen.
    pub seen: i64,
    /// The paths that change; `None` for the whole tree.
    pub scope: Option<RestoreScope>,
    /// The tool call that it takes back: not if anything changed since it was planned.
    pub call: Option<i64>,
}

/// Compares the tree as it is with that of a checkpoint, over the same base.
///
/// # Errors
/// The session or the base cannot be read.
pub fn plan_restore(
    now: &OpenSession,
    base: Option<&Path>,
    to: &Checkpoint,
) -> Result<RestorePlan> {
    // Before the comparison: a later change is noticed then.
    let seen = last_change(now.session())?;
    let past = OpenSession::open_at(now.session().path(), base, to)?;
    let moments = Moments { old: now, new: &past, from: to, until: None };
    let found = moments.differences(&DiffOptions { times: true, ..DiffOptions::default() })?;
    let (differences, denied) = (found.all, found.denied);
    Ok(RestorePlan { differences, denied, seen, ..RestorePlan::default() })
}

/// The checkpoints after which anything changed, the newest first. What another program changed is
/// not in the log.
///
/// # Errors
/// The session cannot be read.
pub fn undo_targets(session: &Session) -> Result<Vec<Checkpoint>> {
    let mut all = checkpoints(session)?;
    while let Some(newest) = all.last().filter(|newest| newest.incomplete.is_none()) {
        let is_changed = session.is_changed_since(newest.last_op);
        if is_changed.map_err(|source| failed(session, source))? {
            break;
        }
        all.pop();
    }
    all.reverse();
    Ok(all)
}

/// How often the session's changes were applied to the base after a checkpoint, or more often than
/// that; `None` if the log does not have all rows since.
///
/// # Errors
/// The session cannot be read.
pub fn applies_since(session: &Session, to: &Checkpoint) -> Result<Option<u64>> {
    session.applies_since(to).map_err(|source| failed(session, source))
}

fn failed(session: &Session, source: StoreError) -> InspectError {
    InspectError::Store { session: session.path().to_owned(), source }
}
