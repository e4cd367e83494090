//! Collects the objects and paths that were changed after a row of the audit log.

use std::collections::{BTreeSet, HashSet};

use super::error::{InspectError, Result};
use crate::delta::sqlite::{AuditReader, MentionedNames, Order, Session};
use crate::delta::{AuditProcedure, MergedPath, StoreError};
use crate::vfs::FileId;

/// Objects and paths that rows of the audit log name.
#[derive(Debug, Default)]
pub struct LoggedChanges {
    objects: HashSet<FileId>,
    /// Paths, as of each row.
    paths: BTreeSet<Vec<u8>>,
    /// Whether the log still has all rows of the range.
    pub is_complete: bool,
    /// Whether a restore may have changed anything.
    has_restore: bool,
}

/// The id of the last row of the audit log; 0 if there is none.
///
/// # Errors
/// The session cannot be read.
pub fn last_change(session: &Session) -> Result<i64> {
    let failed = |source| failed(session, source);
    let log = session.audit().map_err(failed)?;
    log.map_or(Ok(0), |log| log.last_id()).map_err(failed)
}

impl LoggedChanges {
    /// Reads the rows after the id `last`.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn since(session: &Session, last: i64) -> Result<Self> {
        let read = session.audit().and_then(|log| match log {
            Some(log) => Self::read(&log, last),
            None => Ok(Self { is_complete: true, ..Self::default() }),
        });
        read.map_err(|source| failed(session, source))
    }

    fn read(log: &AuditReader, last: i64) -> std::result::Result<Self, StoreError> {
        let mut touched = Self::default();
        let ids = last.saturating_add(1)..=i64::MAX;
        let mut first = None;
        log.mentions(Order::OldestFirst, &ids, &mut |id, mention| {
            first = first.or(Some(id));
            if let Some(mention) = mention {
                touched.take(&mention);
            }
        })?;
        let begins_late = first.is_some_and(|first| first != *ids.start());
        touched.is_complete = !begins_late || log.dropped()?.is_none();
        Ok(touched)
    }

    fn take(&mut self, mention: &MentionedNames<'_>) {
        match mention.procedure {
            AuditProcedure::Refuse => return,
            AuditProcedure::Restore => self.has_restore = true,
            _ => {}
        }
        self.objects.insert(mention.fileid);
        let paths = [Some(mention.path), mention.path2];
        self.paths.extend(paths.into_iter().flatten().map(<[u8]>::to_vec));
    }

    /// Whether the object was changed, under any of its names.
    pub fn has_object(&self, object: FileId) -> bool {
        self.has_restore || self.objects.contains(&object)
    }

    /// Whether a row names the path or a path below it.
    pub fn has(&self, path: &MergedPath) -> bool {
        if self.has_restore {
            return true;
        }
        let path = path.as_bytes();
        let from = self.paths.range(path.to_vec()..);
        let mut below = from.take_while(|found| found.starts_with(path));
        below.any(|found| found.len() == path.len() || found[path.len()] == b'/')
    }
}

fn failed(session: &Session, source: StoreError) -> InspectError {
    InspectError::Store { session: session.path().to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> MergedPath {
        MergedPath::from_bytes(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_a_row_is_about_is_touched() {
        let mut touched = LoggedChanges::default();
        touched.take(&MentionedNames {
            procedure: AuditProcedure::Rename,
            path: b"/a/old",
            path2: Some(b"/b-new"),
            fileid: FileId(7),
        });
        touched.take(&MentionedNames {
            procedure: AuditProcedure::Refuse,
            path: b"/refused",
            path2: None,
            fileid: FileId(8),
        });
        for there in ["/a/old", "/b-new", "/a"] {
            assert!(touched.has(&path(there)), "{there}");
        }
        for other in ["/b", "/a/o", "/a/old/x", "/refused"] {
            assert!(!touched.has(&path(other)), "{other}");
        }
        assert!(touched.has_object(FileId(7)) && !touched.has_object(FileId(8)));
    }
}
