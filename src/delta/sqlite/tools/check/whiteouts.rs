//! W1 and W2: whiteouts, and entries that they must not hide.

use rusqlite::{OptionalExtension, params};

use crate::delta::sqlite::table::value;
use crate::delta::{MergedPath, Result};
use crate::vfs::Name;

use super::CheckedFile;
use super::found::{BreachSubject, RuleFindings};

pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    // Sorted, so that paths of one directory are adjacent.
    let query = "SELECT path, parent_path FROM fs_whiteout ORDER BY path";
    let mut statement = subject.conn.prepare(query)?;
    let mut rows = statement.query([])?;
    let has_blobs = "SELECT 1 FROM fs_dentry WHERE typeof(name) = 'blob'";
    let has_blobs = subject.conn.prepare(has_blobs)?.exists([])?;
    let mut way = PathDescent { subject, has_blobs, steps: Vec::new() };
    while let Some(row) = rows.next()? {
        let (bytes, parent) = (value::bytes(row, 0)?, value::bytes(row, 1)?);
        let path = MergedPath::from_bytes(bytes).filter(|path| path.name().is_some());
        let Some(path) = path else {
            found.add("W2", BreachSubject::Path(bytes.to_vec()), "a whiteout of what is no path");
            continue;
        };
        if !parent.is_empty() && parent != path.parent().as_bytes() {
            let what =
                format!("the whiteout's parent_path is \"{}\"", String::from_utf8_lossy(parent));
            found.add("W2", BreachSubject::Path(bytes.to_vec()), what);
        }
        if way.leads_to_an_entry(&path)? {
            // Report the whiteout's path: the inode may have another path.
            found.add("W1", BreachSubject::Path(bytes.to_vec()), "a whiteout hides this entry");
        }
    }
    Ok(())
}

/// The components of the last path, each with the inode that it leads to, if there is one.
struct PathDescent<'s, 'c> {
    subject: &'s CheckedFile<'c>,
    /// Whether any name is stored as BLOB; otherwise lookups as BLOB are skipped.
    has_blobs: bool,
    steps: Vec<(Name, Option<i64>)>,
}

impl PathDescent<'_, '_> {
    /// Whether the delta has an entry at `path`. If it has an entry below, it also has one here.
    fn leads_to_an_entry(&mut self, path: &MergedPath) -> Result<bool> {
        let names: Vec<Name> = path.names().collect();
        let shared = self.steps.iter().zip(&names).take_while(|(step, name)| step.0 == **name);
        let shared = shared.count();
        self.steps.truncate(shared);
        for name in names.into_iter().skip(shared) {
            let above = self.steps.last().map_or(Some(1), |(_, ino)| *ino);
            let ino = above.map(|above| self.look_up(above, &name)).transpose()?.flatten();
            self.steps.push((name, ino));
        }
        Ok(self.steps.last().is_some_and(|(_, ino)| ino.is_some()))
    }

    fn look_up(&self, parent: i64, name: &Name) -> Result<Option<i64>> {
        let mut statement = self.subject.conn.prepare_cached(
            "SELECT d.ino FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino
             WHERE d.parent_ino = ?1 AND d.name = ?2",
        )?;
        let keys = if self.has_blobs { 2 } else { 1 };
        for key in value::keys(name.as_bytes()).into_iter().take(keys) {
            let found = statement.query_row(params![parent, key], |row| row.get(0)).optional()?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}
