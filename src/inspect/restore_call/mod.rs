//! What a restore of one tool call takes back: what changed while it ran, and nothing else.
//!
//! The paths that the call's rows of the audit log name become those of the checkpoint before the
//! call, as in a restore of paths. Where anything else changed them since that checkpoint, the
//! restore is refused: it would take that back too.

mod logged;
mod refusal;

use std::path::Path;

use super::error::{InspectError, Result};
use super::opened::{OpenSession, find_if_there};
use super::restore::{RestorePlan, plan_restore};
use super::restore_paths::plan_paths;
use super::tool::ToolCalls;
use crate::delta::sqlite::{AgentAccess, CallBounds, CallFilter, CallRow, Session};
use crate::delta::{Checkpoint, MergedPath, RestorePaths, StoreError};
use crate::vfs::FileKind;
use logged::{CallChanges, PathChange};
use refusal::MAX_OFFERED;
pub use refusal::{CallRefusal, LaterChanges, NamedCall, NothingLeft};

/// A tool call that may be taken back.
#[derive(Debug)]
pub struct RestorableCall {
    /// The call's number.
    pub id: i64,
    /// The checkpoint before it.
    pub to: Checkpoint,
    bounds: CallBounds,
    /// The calls with changes that ended after it, by their end.
    later: Vec<(CallBounds, NamedCall)>,
}

/// What taking back a call does.
#[derive(Debug)]
pub enum CallPlan {
    /// There are differences.
    Restore(RestorePlan),
    /// The tree stays as it is.
    Nothing(NothingLeft),
}

impl RestorableCall {
    /// Finds a call, its checkpoint, and whether another one overlaps it.
    ///
    /// # Errors
    /// [`InspectError::CallRefused`], or the session cannot be read.
    pub fn find(session: &Session, id: i64) -> Result<Self> {
        let refused = |why| InspectError::CallRefused { call: id, why };
        let calls = ToolCalls::open(session.path(), AgentAccess::Read)?;
        let Some(call) = calls.get(id)? else {
            let last = CallFilter { last: Some(MAX_OFFERED), ..CallFilter::default() };
            let last = calls.list(&last)?.iter().map(|call| call.id).collect();
            return Err(refused(CallRefusal::NoCall { last }));
        };
        let bounds = call.row.bounds.ok_or_else(|| refused(CallRefusal::NoBounds))?;
        let to = bounds.checkpoint.ok_or_else(|| refused(CallRefusal::NoCheckpoint))?;
        let all = calls.list(&CallFilter::default())?;
        if let Some(other) = all.iter().find(|other| overlaps(&call.row, bounds, other)) {
            let (other, to) = (named(other), bounds.checkpoint);
            return Err(refused(CallRefusal::Overlaps { other, to }));
        }
        let found = session.checkpoint(to).map_err(|source| failed(session, source))?;
        let to = found.ok_or_else(|| refused(CallRefusal::CheckpointRemoved(to)))?;
        let later = all.iter().filter_map(|other| Some((other.bounds?, named(other))));
        let mut later: Vec<_> =
            later.filter(|(other, _)| !other.is_empty() && other.end_op > bounds.end_op).collect();
        later.sort_by_key(|(other, _)| other.end_op);
        Ok(Self { id, to, bounds, later })
    }

    /// The later call in which a row of the log was written; of several, that which ended first.
    fn later_call_of(&self, row: i64) -> Option<i64> {
        let from = self.later.partition_point(|(bounds, _)| bounds.end_op < row);
        let found = self.later[from..].iter().find(|(bounds, _)| bounds.has(row));
        found.map(|(_, call)| call.id)
    }

    fn later_call(&self, id: i64) -> Option<NamedCall> {
        self.later.iter().map(|(_, call)| call).find(|call| call.id == id).cloned()
    }

    fn refused(&self, why: CallRefusal) -> InspectError {
        InspectError::CallRefused { call: self.id, why }
    }
}

fn named(call: &CallRow) -> NamedCall {
    NamedCall { id: call.id, tool: call.name.clone() }
}

/// Whether a change may be of both calls. A call without bounds has all changes of its seconds, and
/// without an end, it still runs.
fn overlaps(call: &CallRow, bounds: CallBounds, other: &CallRow) -> bool {
    if other.id == call.id {
        return false;
    }
    match other.bounds {
        Some(others) => bounds.overlaps(&others),
        None => {
            !bounds.is_empty()
                && call.completed_at.is_none_or(|end| other.started_at <= end)
                && other.completed_at.is_none_or(|end| call.started_at <= end)
        }
    }
}

/// Compares the tree as it is with that before a call, at the paths that the call changed and those
/// that must go along.
///
/// # Errors
/// [`InspectError::CallRefused`], or the session or the base cannot be read.
pub fn plan_restore_call(
    now: &OpenSession,
    base: Option<&Path>,
    call: &RestorableCall,
) -> Result<CallPlan> {
    let id = call.id;
    if call.bounds.is_empty() {
        return Ok(CallPlan::Nothing(NothingLeft::Unchanged { call: id }));
    }
    let changes = CallChanges::read(now.session(), call)?;
    if !changes.has_any {
        return Ok(CallPlan::Nothing(NothingLeft::Unchanged { call: id }));
    }
    if changes.by_call.is_empty() {
        return Ok(CallPlan::Nothing(NothingLeft::ChangedBack { call: id }));
    }
    let (root, to) = (MergedPath::root(), &call.to);
    let is_whole = match changes.by_call.get(&root) {
        None => false,
        Some(PathChange::AttributesSet) => changes.is_alone(),
        Some(_) => true,
    };
    let plan = if is_whole {
        let plan = plan_restore(now, base, to)?;
        changes.check(call, &RestorePaths { paths: [root].into(), ..RestorePaths::default() })?;
        plan
    } else {
        let plan = plan_paths(now, base, to, &|trees| changes.restored_paths(call, trees))?;
        if let Some(scope) = &plan.scope {
            changes.check(call, &scope.closed)?;
        }
        plan
    };
    if plan.differences.is_empty() {
        let dirs = dirs_with_other_times((now, base, to), &changes)?;
        return Ok(CallPlan::Nothing(match dirs.is_empty() {
            true => NothingLeft::ChangedBack { call: id },
            false => NothingLeft::DirTimes { call: id, dirs },
        }));
    }
    // A change after the log was read may be at these paths.
    Ok(CallPlan::Restore(RestorePlan { seen: changes.last, call: Some(id), ..plan }))
}

/// The directories whose attributes the call set, and whose mtime differs from before the call.
fn dirs_with_other_times(
    (now, base, to): (&OpenSession, Option<&Path>, &Checkpoint),
    changes: &CallChanges,
) -> Result<Vec<MergedPath>> {
    let past = OpenSession::open_at(now.session().path(), base, to)?;
    let set = changes.by_call.iter().filter(|(_, how)| **how == PathChange::AttributesSet);
    now.with_tree(|current| {
        past.with_tree(|past| {
            let mut dirs = Vec::new();
            for (path, _) in set {
                let both = (find_if_there(current, path)?, find_if_there(past, path)?);
                let (Some(current), Some(past)) = both else { continue };
                let (current, past) = (current.attr(), past.attr());
                if current.kind == FileKind::Directory && current.mtime != past.mtime {
                    dirs.push(path.clone());
                }
            }
            Ok(dirs)
        })
    })
}

fn failed(session: &Session, source: StoreError) -> InspectError {
    InspectError::Store { session: session.path().to_owned(), source }
}
