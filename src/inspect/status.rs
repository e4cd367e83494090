//! The status of a session: its content, its changes, and its server.

use super::diff::is_dropping;
use super::error::{InspectError, Result};
use super::opened::Opened;
use crate::base::BaseAttr;
use crate::delta::sqlite::SessionStats;
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
    /// Deleted objects; a directory counts as one, with all its content.
    pub deleted: u64,
    /// Objects copied up or replaced at their path, and directories with another mode or owner.
    pub modified: u64,
    /// Objects at another path than in the base.
    pub renamed: u64,
    /// Objects that changed in the base after the session changed, replaced or removed them.
    pub drifted: u64,
}

/// Collects the status of a session.
///
/// # Errors
/// The session or its base cannot be read.
pub fn status(opened: &Opened) -> Result<SessionStatus> {
    let session = opened.session();
    let figures = session
        .stats()
        .map_err(|source| InspectError::Store { session: session.path().to_owned(), source })?;
    Ok(SessionStatus { figures, served_by: session.served_by(), touched: touched(opened)? })
}

/// Counts the objects that a session changed.
///
/// # Errors
/// The session or its base cannot be read.
pub fn touched(opened: &Opened) -> Result<TouchedCounts> {
    let mut sum = TouchedCounts::default();
    opened.look(|view| {
        let counted = view.changes(&mut |change| {
            let path = change.after.as_ref().map(|after| after.path());
            if path.is_some_and(is_dropping) {
                return true;
            }
            sum.drifted += u64::from(change.has_drifted());
            if change.is_carried {
                return true;
            }
            match (&change.before, &change.after) {
                (_, None) => sum.deleted += 1,
                (None, Some(_)) => sum.added += 1,
                (Some(_), Some(_)) if change.is_link => sum.added += 1,
                (Some(before), Some(after)) => {
                    let path = after.path().as_bytes();
                    let is_dir = after.attr().kind == FileKind::Directory;
                    if before.path.as_bytes() != &path[1..] {
                        sum.renamed += 1;
                    } else if !(is_dir && before.attr.kind == FileKind::Directory)
                        || has_other_rights(&before.attr, after.attr())
                    {
                        sum.modified += 1;
                    }
                }
            }
            true
        });
        counted.map(|_all| ()).map_err(InspectError::from)
    })?;
    Ok(sum)
}

fn has_other_rights(before: &BaseAttr, after: &Attr) -> bool {
    (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid)
}
