//! Collects findings: the first few of each rule, and their number.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, named_params};

use crate::delta::Result;
use crate::delta::sqlite::table::value;

use super::rules::{RULES, is_tolerated};
use super::{Breach, Broken, CheckedFile, INTEGRITY};

/// Maximum depth of a tree; a longer chain of parents counts as endless.
const MOST_STEPS: usize = 4096;

/// The subject of a violation.
pub(super) enum BreachSubject {
    /// The session as a whole.
    Session,
    /// An inode.
    Inode(i64),
    /// An entry: its directory, its name, and the inode that it points to, if that matters.
    Entry(i64, Vec<u8>, Option<i64>),
    /// A path, even if there is no object.
    Path(Vec<u8>),
}

/// Findings by rule.
pub(super) struct RuleFindings {
    most: usize,
    rules: BTreeMap<&'static str, OfRule>,
}

/// Findings of one rule.
#[derive(Default)]
struct OfRule {
    count: u64,
    first: Vec<(BreachSubject, String)>,
}

impl RuleFindings {
    /// No findings yet; `most` of each rule will be reported.
    pub(super) fn new(most: usize) -> Self {
        Self { most, rules: BTreeMap::new() }
    }

    /// Adds a violation.
    pub(super) fn add(&mut self, rule: &'static str, at: BreachSubject, what: impl Into<String>) {
        let found = self.rules.entry(rule).or_default();
        found.count += 1;
        if found.first.len() < self.most {
            found.first.push((at, what.into()));
        }
    }

    /// Adds damage that SQLite reports.
    pub(super) fn damage(&mut self, text: impl Into<String>) {
        self.add(INTEGRITY, BreachSubject::Session, text.into());
    }

    /// Adds the rows that a query returns as violations. Columns: inode, the entry's directory and
    /// name, and a description; NULL where a column does not apply. `:chunk` is the chunk size.
    pub(super) fn ask(
        &mut self,
        subject: &CheckedFile<'_>,
        rule: &'static str,
        query: &str,
    ) -> Result<()> {
        let mut statement = subject.conn.prepare(query)?;
        let mut rows = match statement.parameter_index(":chunk")? {
            Some(_) => statement.query(named_params! { ":chunk": subject.chunk_bytes })?,
            None => statement.query([])?,
        };
        while let Some(row) = rows.next()? {
            let number = |at| row.get::<_, Option<i64>>(at).unwrap_or(None);
            let at = match (number(0), number(1)) {
                (ino, Some(parent)) => {
                    BreachSubject::Entry(parent, value::bytes(row, 2)?.to_vec(), ino)
                }
                (Some(ino), None) => BreachSubject::Inode(ino),
                (None, None) => BreachSubject::Session,
            };
            let what = String::from_utf8_lossy(value::bytes(row, 3)?).into_owned();
            self.add(rule, at, what);
        }
        Ok(())
    }

    /// All findings, with paths.
    pub(super) fn end(mut self, conn: &Connection, is_foreign: bool) -> Result<Vec<Broken>> {
        let paths = InodePaths::new(conn)?;
        let mut all = Vec::new();
        for &rule in [INTEGRITY].iter().chain(RULES) {
            let Some(OfRule { count, first }) = self.rules.remove(rule) else { continue };
            let is_note = is_foreign && is_tolerated(rule);
            let first = first.into_iter().map(|(at, what)| paths.breach(at, what));
            all.push(Broken { rule, is_note, count, first: first.collect::<Result<_>>()? });
        }
        Ok(all)
    }
}

/// Determines the paths of inodes.
pub(in crate::delta::sqlite) struct InodePaths<'c> {
    conn: &'c Connection,
    query: &'static str,
}

impl<'c> InodePaths<'c> {
    /// Of an open file.
    pub(in crate::delta::sqlite) fn new(conn: &'c Connection) -> Result<Self> {
        const INDEXED: &str = "SELECT 1 FROM main.sqlite_master
            WHERE type = 'index' AND name = 'acetate_dentry_ino'";
        if conn.prepare(INDEXED)?.exists([])? {
            let query = "SELECT parent_ino, name FROM fs_dentry WHERE ino = ?1 ORDER BY id LIMIT 1";
            return Ok(Self { conn, query });
        }
        // Without the index, each step up would read all entries.
        conn.execute_batch(
            "CREATE TEMP TABLE IF NOT EXISTS up (ino INTEGER PRIMARY KEY, parent_ino, name);
             INSERT OR IGNORE INTO up SELECT ino, parent_ino, name FROM fs_dentry
             WHERE typeof(ino) = 'integer' ORDER BY id",
        )?;
        Ok(Self { conn, query: "SELECT parent_ino, name FROM up WHERE ino = ?1" })
    }

    /// A path of an inode; `None` if no chain of entries leads to the root.
    pub(in crate::delta::sqlite) fn of(&self, ino: i64) -> Result<Option<Vec<u8>>> {
        let mut names = Vec::new();
        let mut at = ino;
        let mut statement = self.conn.prepare_cached(self.query)?;
        while at != 1 {
            let up = statement
                .query_row([at], |row| Ok((value::int(row, 0)?, value::bytes(row, 1)?.to_vec())));
            match up.optional()? {
                Some((parent, name)) if names.len() < MOST_STEPS => {
                    names.push(name);
                    at = parent;
                }
                _ => return Ok(None),
            }
        }
        if names.is_empty() {
            return Ok(Some(b"/".to_vec()));
        }
        let path = names.iter().rev().flat_map(|name| [b"/", &name[..]].concat());
        Ok(Some(path.collect()))
    }

    fn breach(&self, at: BreachSubject, what: String) -> Result<Breach> {
        Ok(match at {
            BreachSubject::Session => Breach { ino: None, path: None, what },
            BreachSubject::Inode(ino) => Breach { ino: Some(ino), path: self.of(ino)?, what },
            BreachSubject::Path(path) => Breach { ino: None, path: Some(path), what },
            BreachSubject::Entry(parent, name, ino) => match self.of(parent)? {
                Some(mut path) => {
                    if path != b"/" {
                        path.push(b'/');
                    }
                    path.extend_from_slice(&name);
                    Breach { ino, path: Some(path), what }
                }
                None => {
                    let name = String::from_utf8_lossy(&name);
                    let what = format!("entry \"{name}\" of inode {parent}: {what}");
                    Breach { ino, path: None, what }
                }
            },
        })
    }
}
