//! The status of a session: its content, its changes, and its server.

use std::collections::HashSet;

use super::agent_rows::AgentRows;
use super::counts::ChangeCounts;
use super::diff::{DiffOptions, DifferenceKind, compare, is_chosen, old_object, top};
use super::error::{InspectError, Result};
use super::opened::OpenSession;
use super::split::walk_base_past_denied;
use crate::base::BaseAttr;
use crate::delta::sqlite::{AgentAccess, SessionStats};
use crate::overlay::{BaseObject, Change};
use crate::vfs::{Attr, FileKind};

/// The status of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// Figures about the session file.
    pub figures: SessionStats,
    /// The server that has the session, with its process id if it is known.
    pub served_by: Option<Option<u32>>,
    /// Changes by path, without comparing contents.
    pub touched: TouchedCounts,
}

/// Counts of changed objects, without directories that only lead to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TouchedCounts {
    /// Objects that the session created.
    pub added: u64,
    /// Deleted objects, those in removed directories included.
    pub deleted: u64,
    /// Objects copied up or replaced at their path, and directories with another mode or owner.
    pub modified: u64,
    /// Objects at another path than in the base.
    pub renamed: u64,
    /// Objects that changed in the base after the session changed, replaced or removed them.
    pub drifted: u64,
    /// Changes that are not counted because access to the base object is denied.
    pub denied: u64,
}

/// Collects the status of a session.
///
/// # Errors
/// The session or its base cannot be read.
pub fn status(opened: &OpenSession) -> Result<SessionStatus> {
    let session = opened.session();
    let mut figures = session
        .stats()
        .map_err(|source| InspectError::Store { session: session.path().to_owned(), source })?;
    if session.replica_of().is_some() {
        let rows = AgentRows::open(session.path(), AgentAccess::Read)?;
        (figures.values, figures.tool_calls) = rows.counts()?;
    }
    Ok(SessionStatus { figures, served_by: session.served_by(), touched: touched(opened)? })
}

/// Counts the paths that a session changed, as [`ChangeCounts`] does. Contents are compared only
/// where the base changed too: there, [`diff`](super::diff::diff()) may find no difference.
///
/// # Errors
/// The session or its base cannot be read.
pub fn touched(opened: &OpenSession) -> Result<TouchedCounts> {
    let options = DiffOptions::default();
    let (mut counts, mut drifted, mut denied) = (ChangeCounts::default(), 0, 0);
    let (mut gone, mut moved) = (Vec::new(), HashSet::new());
    opened.with_tree(|view| {
        if top(opened, view, &options)?.is_some() {
            counts.add(DifferenceKind::Modified);
        }
        let mut failed = None;
        let mut count = |change: Change| {
            if !is_chosen(&options, view, &change) {
                return true;
            }
            if change.has_drifted() {
                // The base may have changed what the session holds unchanged.
                match compare(opened, view, &options, change.clone()) {
                    Ok(None) => return true,
                    Ok(Some(_)) => drifted += 1,
                    Err(error) => {
                        failed = Some(error);
                        return false;
                    }
                }
            }
            let old = old_object(&change);
            let Some(kind) = kind_of(&change, old.as_ref()) else { return true };
            match (kind, old) {
                (DifferenceKind::Deleted, Some(old)) if old.attr.kind == FileKind::Directory => {
                    gone.push(old);
                }
                (DifferenceKind::Renamed, Some(old)) => {
                    moved.insert(old.path);
                    counts.add(kind);
                }
                _ => counts.add(kind),
            }
            true
        };
        let all = view.changes_past_denied(&mut count, &mut |_| denied += 1);
        match failed {
            Some(error) => Err(error),
            None => all.map(|_all| ()).map_err(InspectError::from),
        }
    })?;
    for dir in &gone {
        walk_base_past_denied(opened, dir, &mut |path, _| {
            let is_gone = !moved.contains(path);
            counts.deleted += u64::from(is_gone);
            Ok(is_gone)
        })?;
    }
    let ChangeCounts { added, deleted, modified, renamed, .. } = counts;
    Ok(TouchedCounts { added, deleted, modified, renamed, drifted, denied })
}

/// What happened to an object, without a look into its content; `None` for a directory that only
/// leads to others.
fn kind_of(change: &Change, old: Option<&BaseObject>) -> Option<DifferenceKind> {
    let (before, after) = match (old, &change.after) {
        (_, None) => return Some(DifferenceKind::Deleted),
        (None, Some(_)) => return Some(DifferenceKind::Added),
        (Some(before), Some(after)) => (before, after),
    };
    if before.attr.kind != after.attr().kind {
        return Some(DifferenceKind::Retyped);
    }
    let is_moved = change.is_moved || before.path.as_bytes() != &after.path().as_bytes()[1..];
    let is_dir = after.attr().kind == FileKind::Directory;
    let only_leads = is_dir && !has_other_rights(&before.attr, after.attr());
    match (is_moved, only_leads) {
        (true, true) if change.moved_with_parent => None,
        (true, _) => Some(DifferenceKind::Renamed),
        (false, true) => None,
        (false, false) => Some(DifferenceKind::Modified),
    }
}

fn has_other_rights(before: &BaseAttr, after: &Attr) -> bool {
    (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid)
}
