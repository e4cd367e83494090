//! How a session stands: what it holds, what it changed, and whether all is well with it.

use super::diff::{DiffOptions, compare, is_dropping};
use super::error::{InspectError, Result};
use super::opened::Opened;
use crate::base::BaseAttr;
use crate::delta::sqlite::Figures;
use crate::vfs::{Attr, FileKind};

/// How a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// What its file holds.
    pub figures: Figures,
    /// The server that has it: its process id, where that is known.
    pub served_by: Option<Option<u32>>,
    /// What it changes, by path and without a look into contents.
    pub touched: TouchedCounts,
}

/// Objects that a session touched, directories left out that only lead to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TouchedCounts {
    /// Made in the session.
    pub added: u64,
    /// Gone; a directory with all that was in it counts as one.
    pub deleted: u64,
    /// Copied up, or replaced, at their path; directories with another mode or owner.
    pub modified: u64,
    /// At another path than in the base.
    pub renamed: u64,
    /// Objects that changed in the base since the session changed, replaced or removed them.
    pub drifted: u64,
}

/// Looks at a session.
///
/// # Errors
/// It, or its base, cannot be read.
pub fn status(opened: &Opened) -> Result<SessionStatus> {
    let session = opened.session();
    let figures = session
        .figures()
        .map_err(|source| InspectError::Store { session: session.path().to_owned(), source })?;
    Ok(SessionStatus { figures, served_by: session.served_by(), touched: touched(opened)? })
}

/// Counts what a session touched. What the base changed is counted only where the session did too,
/// as [`diff`](super::diff::diff()) tells it: there contents are compared.
///
/// # Errors
/// It, or its base, cannot be read.
pub fn touched(opened: &Opened) -> Result<TouchedCounts> {
    let mut sum = TouchedCounts::default();
    opened.look(|view| {
        let mut failed = None;
        let counted = view.changes(&mut |change| {
            let path = change.after.as_ref().map(|after| after.path());
            if path.is_some_and(is_dropping) {
                return true;
            }
            if change.has_drifted() {
                let differs = compare(opened, view, &DiffOptions::default(), change.clone());
                match differs {
                    Ok(None) => return true,
                    Ok(Some(_)) => sum.drifted += 1,
                    Err(error) => {
                        failed = Some(error);
                        return false;
                    }
                }
            }
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
        match failed {
            Some(error) => Err(error),
            None => counted.map(|_all| ()).map_err(InspectError::from),
        }
    })?;
    Ok(sum)
}

fn has_other_rights(before: &BaseAttr, after: &Attr) -> bool {
    (before.mode, before.uid, before.gid) != (after.mode, after.uid, after.gid)
}
