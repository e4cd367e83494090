//! What a restore of one tool call takes back: what changed while it ran, and nothing else.
//!
//! The paths that the call's rows of the audit log name become those of the checkpoint before the
//! call, as in a restore of paths. Where anything else changed them since that checkpoint, the
//! restore is refused: it would take that back too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::error::{InspectError, Result};
use super::opened::{OpenSession, find_if_there};
use super::restore::{RestorePlan, plan_restore};
use super::restore_paths::plan_paths;
use super::tool::ToolCalls;
use crate::delta::sqlite::{
    AgentAccess, AuditFilter, AuditReader, CallBounds, CallFilter, CallRow, Order, RowRemains,
    Session, UndoneRows,
};
use crate::delta::{
    AuditProcedure, AuditRow, Checkpoint, CheckpointId, MergedPath, RestorePaths, StoreError,
};
use crate::overlay::TreeView;
use crate::vfs::{Attr, FileKind};

/// How many of the last calls an error names.
const MAX_OFFERED: u64 = 5;

/// Why a tool call is not taken back.
#[derive(Debug, thiserror::Error)]
pub enum CallRefusal {
    /// It was never recorded.
    #[error("no such tool call{}", offer(.last))]
    NoCall {
        /// The last calls.
        last: Vec<i64>,
    },
    /// Another program recorded it, or it was recorded afterwards.
    #[error("only its time is known, to the second, and not what changed while it ran")]
    NoBounds,
    /// It ran without a checkpoint.
    #[error("no checkpoint was made before it")]
    NoCheckpoint,
    /// The checkpoint before it was removed.
    #[error("the checkpoint before it, {0}, was removed")]
    CheckpointRemoved(CheckpointId),
    /// Rows since then are gone.
    #[error("the log has lost changes since then")]
    LogCut,
    /// A row of the log is not acetate's, or does not have the whole path.
    #[error("row {0} of acetate_op does not say which path changed")]
    UnknownPath(i64),
    /// Other calls ran at the same time.
    #[error("tool call {other} ({}) ran at the same time", String::from_utf8_lossy(.name))]
    Overlaps {
        /// One of them.
        other: i64,
        /// Its tool.
        name: Vec<u8>,
    },
    /// What the call changed was changed by others too.
    #[error("{} changed since by others: {}", count(.paths), list(.paths))]
    ChangedByOthers {
        /// The paths that others changed, sorted.
        paths: Vec<MergedPath>,
        /// The checkpoint before the call.
        to: CheckpointId,
    },
}

/// How many paths an error lists.
const MAX_LISTED: usize = 10;

fn offer(last: &[i64]) -> String {
    let last: Vec<_> = last.iter().map(i64::to_string).collect();
    match &*last {
        [] => "; the session has none".to_owned(),
        [only] => format!("; there is {only}"),
        _ => format!("; the last are {}", last.join(", ")),
    }
}

fn count(paths: &[MergedPath]) -> String {
    match paths {
        [_] => "a path was".to_owned(),
        _ => format!("{} paths were", paths.len()),
    }
}

fn list(paths: &[MergedPath]) -> String {
    let shown = paths.iter().take(MAX_LISTED).map(|path| path.display().to_string());
    let shown: Vec<_> = shown.collect();
    let more = if paths.len() > shown.len() { ", …" } else { "" };
    shown.join(", ") + more
}

/// A tool call that may be taken back.
#[derive(Debug)]
pub struct RestorableCall {
    /// The call's number.
    pub id: i64,
    /// The checkpoint before it.
    pub to: Checkpoint,
    bounds: CallBounds,
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
            let (other, name) = (other.id, other.name.clone());
            return Err(refused(CallRefusal::Overlaps { other, name }));
        }
        let found = session.checkpoint(to).map_err(|source| failed(session, source))?;
        let to = found.ok_or_else(|| refused(CallRefusal::CheckpointRemoved(to)))?;
        Ok(Self { id, to, bounds })
    }

    fn refused(&self, why: CallRefusal) -> InspectError {
        InspectError::CallRefused { call: self.id, why }
    }
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
            bounds.begin_op < bounds.end_op
                && call.completed_at.is_none_or(|end| other.started_at <= end)
                && other.completed_at.is_none_or(|end| call.started_at <= end)
        }
    }
}

/// Compares the tree as it is with that before a call, at the paths that the call changed and those
/// that must go along.
///
/// The plan has no differences if the call changed nothing, or that was taken back.
///
/// # Errors
/// [`InspectError::CallRefused`], or the session or the base cannot be read.
pub fn plan_restore_call(
    now: &OpenSession,
    base: Option<&Path>,
    call: &RestorableCall,
) -> Result<RestorePlan> {
    let changes = CallChanges::read(now.session(), call)?;
    let (root, to) = (MergedPath::root(), &call.to);
    let is_whole = match changes.own.get(&root) {
        None => false,
        Some(Named::Attributes) => changes.others.is_empty(),
        Some(_) => true,
    };
    let plan = if changes.own.is_empty() {
        RestorePlan::default()
    } else if is_whole {
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
    // A change after the log was read may be at these paths.
    Ok(RestorePlan { seen: changes.last, call: Some(call.id), ..plan })
}

/// How a path is named in the log, by what matters most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    /// Only attributes were set.
    Attributes,
    /// By another change.
    Object,
    /// By a rename.
    Moved,
}

/// The paths that changed since the checkpoint before a call, without what restores took back.
#[derive(Debug, Default)]
struct CallChanges {
    /// By the call.
    own: BTreeMap<MergedPath, Named>,
    /// By others, before it or since.
    others: BTreeMap<MergedPath, Named>,
    /// The last row of the log that was read.
    last: i64,
}

impl CallChanges {
    fn read(session: &Session, call: &RestorableCall) -> Result<Self> {
        let read = session.audit().and_then(|log| match log {
            Some(log) => log.at_once(|| Self::read_log(&log, call)),
            None => Ok(Ok(Self::default())),
        });
        read.map_err(|source| failed(session, source))?.map_err(|why| call.refused(why))
    }

    fn read_log(
        log: &AuditReader,
        call: &RestorableCall,
    ) -> std::result::Result<std::result::Result<Self, CallRefusal>, StoreError> {
        let undone = log.undone_rows()?;
        let mut changes = Self { last: log.last_id()?, ..Self::default() };
        let first = call.to.last_op.saturating_add(1);
        let mut rest = Some(first..=changes.last);
        while let Some(ids) = rest.take().filter(|ids| !ids.is_empty()) {
            let is_first = *ids.start() == first;
            let page = log.page(&AuditFilter::default(), Order::OldestFirst, ids, &|_| true)?;
            if is_first && page.rows.first().is_none_or(|(id, _)| *id != first) {
                return Ok(Err(CallRefusal::LogCut));
            }
            for (id, row) in page.rows {
                let Ok(row) = row else { return Ok(Err(CallRefusal::UnknownPath(id))) };
                if let Err(why) = changes.add(id, &row, (call, &undone)) {
                    return Ok(Err(why));
                }
            }
            rest = page.rest;
        }
        Ok(Ok(changes))
    }

    fn add(
        &mut self,
        id: i64,
        row: &AuditRow,
        (call, undone): (&RestorableCall, &UndoneRows),
    ) -> std::result::Result<(), CallRefusal> {
        let path2 = row.path2.as_ref();
        let remains = undone.remains(id, row.path.as_bytes(), path2.map(MergedPath::as_bytes));
        let (is_at_path, is_at_path2) = match (row.procedure, row.offset) {
            // An apply changes the base, and not the tree.
            (AuditProcedure::Refuse | AuditProcedure::Apply, _) => (false, false),
            // The rows that are left tell what it changed, unless it took back earlier ones.
            (AuditProcedure::Restore, Some(last)) => {
                let is_further = last < call.to.last_op.cast_unsigned();
                (is_further && !undone.is_taken_back(id, row), false)
            }
            _ => match remains {
                RowRemains::All => (true, true),
                RowRemains::OnlyAtPath => (true, false),
                RowRemains::OnlyAtPath2 => (false, true),
                RowRemains::Nothing => (false, false),
            },
        };
        let is_own = call.bounds.begin_op < id && id <= call.bounds.end_op;
        if is_own && is_at_path && row.is_shortened() {
            return Err(CallRefusal::UnknownPath(id));
        }
        let how = match row.procedure {
            AuditProcedure::Rename => Named::Moved,
            AuditProcedure::Setattr if !row.is_shortened() => Named::Attributes,
            _ => Named::Object,
        };
        let paths = if is_own { &mut self.own } else { &mut self.others };
        let named = [is_at_path.then_some(&row.path), path2.filter(|_| is_at_path2)];
        for path in named.into_iter().flatten() {
            match paths.get_mut(path) {
                Some(known) => *known = how.max(*known),
                None => drop(paths.insert(path.clone(), how)),
            }
        }
        Ok(())
    }

    /// The paths that go back, none below another; those that were there only in between do not.
    ///
    /// A directory whose attributes alone were set goes back whole if nothing else changed in it.
    /// Otherwise it stays, if only its times differ: they follow the changes in it.
    fn restored_paths(
        &self,
        call: &RestorableCall,
        trees: [&TreeView<'_>; 2],
    ) -> Result<BTreeSet<MergedPath>> {
        let mut paths: BTreeSet<MergedPath> = BTreeSet::new();
        let mut in_the_way = BTreeSet::new();
        for (path, how) in &self.own {
            if path.is_within_any(&paths) {
                continue;
            }
            let [current, past] = [find_if_there(trees[0], path)?, find_if_there(trees[1], path)?];
            match (*how, &current, &past) {
                // Others may have moved what the call made there.
                (_, None, None) => in_the_way.extend(self.others_above(path, Named::Moved)),
                (Named::Attributes, Some(current), Some(past))
                    if current.attr().kind == FileKind::Directory
                        && self.others_within(path).next().is_some() =>
                {
                    let set = |attr: &Attr| (attr.kind, attr.mode, attr.uid, attr.gid);
                    if set(current.attr()) != set(past.attr()) {
                        in_the_way.extend(self.others_within(path));
                    }
                }
                _ => drop(paths.insert(path.clone())),
            }
        }
        Self::check_empty(call, &in_the_way)?;
        Ok(paths)
    }

    /// A path and those above it that others changed, at least in this way.
    fn others_above(&self, path: &MergedPath, how: Named) -> impl Iterator<Item = &MergedPath> {
        let all = std::iter::once(path.clone()).chain(path.above());
        let found = all.filter_map(move |path| self.others.get_key_value(&path));
        found.filter(move |(_, named)| **named >= how).map(|(path, _)| path)
    }

    /// The paths at and below a path that others changed.
    fn others_within<'a>(&'a self, path: &'a MergedPath) -> impl Iterator<Item = &'a MergedPath> {
        // A path sorts before all below it, but `/a.b` sorts between `/a` and `/a/b`.
        let from = self.others.range(path.clone()..).map(|(other, _)| other);
        let is_near = |other: &&MergedPath| other.as_bytes().starts_with(path.as_bytes());
        from.take_while(is_near).filter(|other| other.is_within(path))
    }

    /// Refuses if others changed anything that a restore of these paths takes back.
    fn check(&self, call: &RestorableCall, closed: &RestorePaths) -> Result<()> {
        let mut found = BTreeSet::new();
        for path in &closed.paths {
            found.extend(self.others_within(path));
        }
        found.extend(closed.dirs.iter().filter(|dir| self.others.contains_key(*dir)));
        for path in closed.paths.union(&closed.dirs) {
            // What moved or went with a directory above.
            found.extend(self.others_above(path, Named::Object));
        }
        Self::check_empty(call, &found)
    }

    fn check_empty(call: &RestorableCall, others: &BTreeSet<&MergedPath>) -> Result<()> {
        if others.is_empty() {
            return Ok(());
        }
        let (paths, to) = (others.iter().copied().cloned().collect(), call.to.id);
        Err(call.refused(CallRefusal::ChangedByOthers { paths, to }))
    }
}

fn failed(session: &Session, source: StoreError) -> InspectError {
    InspectError::Store { session: session.path().to_owned(), source }
}
