//! Plans a migration, and predicts what it leaves broken.

use rusqlite::Connection;

use crate::delta::Result;
use crate::delta::sqlite::ChunkSize;
use crate::delta::sqlite::file::{config, create};
use crate::delta::sqlite::table::meta;
use crate::delta::sqlite::table::schema::{self, SPEC_TABLES};
use crate::delta::sqlite::tools::check::{self, Broken, CheckOptions};

use super::chunks;
use super::rebuild::OutdatedTable;

/// One step of a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStep {
    /// The table, or `session`.
    pub table: &'static str,
    /// A description of the change.
    pub what: String,
}

/// All steps of a migration.
pub(super) struct MigrationPlan {
    /// The tables to rebuild.
    pub odd: Vec<OutdatedTable>,
    /// The chunk size to record, in bytes, if the file does not have one.
    pub chunk_bytes: Option<u64>,
    /// All steps, as descriptions.
    pub steps: Vec<MigrationStep>,
}

impl MigrationPlan {
    /// Plans the migration of an open file, without changing the file.
    pub(super) fn of(conn: &Connection) -> Result<Self> {
        let mut plan = Self { odd: Vec::new(), chunk_bytes: None, steps: Vec::new() };
        for &pair in SPEC_TABLES {
            match OutdatedTable::find(conn, pair)? {
                Some(odd) => plan.add(odd, conn)?,
                None if !schema::has_table(conn, pair.0)? => plan.say(pair.0, "is made, empty"),
                None => {}
            }
        }
        plan.config(conn)?;
        plan.identity(conn)?;
        Ok(plan)
    }

    fn say(&mut self, table: &'static str, what: impl Into<String>) {
        self.steps.push(MigrationStep { table, what: what.into() });
    }

    fn add(&mut self, odd: OutdatedTable, conn: &Connection) -> Result<()> {
        if is_first(&odd) {
            let survey = chunks::survey(conn, "main.fs_data")?;
            let bytes = chunk_bytes(conn, true)?;
            self.say("fs_data", format!("chunks are cut to {bytes} bytes: {}", survey.chunks));
            if survey.resized > 0 {
                let what = format!("files get the size that their chunks have: {}", survey.resized);
                self.say("fs_inode", what);
            }
        } else {
            self.say(odd.table, odd.words());
        }
        self.odd.push(odd);
        Ok(())
    }

    fn config(&mut self, conn: &Connection) -> Result<()> {
        if !says_chunk_bytes(conn)? {
            let bytes = chunk_bytes(conn, self.odd.iter().any(is_first))?;
            self.chunk_bytes = Some(bytes);
            self.say("fs_config", format!("says that chunks have {bytes} bytes"));
        }
        Ok(())
    }

    /// Plans the id, the mark as acetate's, and the link counts. Wrong counts in a session that
    /// acetate served are damage, for `check --repair`, and not part of a migration.
    fn identity(&mut self, conn: &Connection) -> Result<()> {
        let id: i64 = conn.query_row("PRAGMA main.application_id", [], |row| row.get(0))?;
        let is_served = schema::has_table(conn, "acetate_meta")?
            && meta::get::<i64>(conn, meta::FORMAT)?.is_some();
        let is_marked = id == i64::from(create::APPLICATION_ID);
        if is_served && is_marked && self.odd.is_empty() {
            return Ok(());
        }
        let has_nlink =
            !self.odd.iter().any(|odd| odd.table == "fs_inode" && !odd.now.has("nlink"));
        let nlink = if has_nlink { "i.nlink" } else { "NULL" };
        let wrong = conn.query_row(
            &format!(
                "SELECT count(*) FROM main.fs_inode i LEFT JOIN
                   (SELECT ino, count(*) AS entries FROM main.fs_dentry GROUP BY ino) c USING (ino)
                 WHERE {nlink} IS NOT iif(i.ino = 1, 1, ifnull(c.entries, 0))"
            ),
            [],
            |row| row.get::<_, i64>(0),
        )?;
        if wrong > 0 {
            self.say("fs_inode", format!("link counts are recounted: {wrong}"));
        }
        match (is_served, is_marked) {
            (false, _) => {
                self.say("session", "becomes one of acetate's, with an id and a key of handles");
            }
            (true, false) => self.say("session", "is marked as acetate's"),
            (true, true) => {}
        }
        Ok(())
    }
}

/// Whether the table has chunks in the form of version 0.0.
pub(super) fn is_first(odd: &OutdatedTable) -> bool {
    odd.table == "fs_data" && !odd.now.has("chunk_index")
}

fn says_chunk_bytes(conn: &Connection) -> Result<bool> {
    let query = "SELECT 1 FROM main.fs_config WHERE key = 'chunk_size'";
    Ok(schema::has_table(conn, "fs_config")? && conn.prepare(query)?.exists([])?)
}

/// The chunk size of a file: the recorded one, or else that of version 0.1. For chunks in the form
/// of version 0.0 (`is_first`): that of new sessions.
pub(super) fn chunk_bytes(conn: &Connection, is_first: bool) -> Result<u64> {
    match (says_chunk_bytes(conn)?, is_first) {
        (true, _) => config::chunk_bytes(conn),
        (false, true) => Ok(ChunkSize::default().bytes()),
        (false, false) => Ok(config::DEFAULT_CHUNK_BYTES),
    }
}

/// The rules of docs/SCHEMA.md that will be broken after the plan is carried out. `conn` must be
/// read-only, and cannot be used afterwards.
pub(super) fn left(
    conn: &Connection,
    plan: &MigrationPlan,
    options: &CheckOptions,
) -> Result<Vec<Broken>> {
    conn.pragma_update(None, "query_only", false)?;
    for &(table, ddl) in SPEC_TABLES {
        if !schema::has_table(conn, table)? {
            conn.execute_batch(&format!("CREATE TEMP TABLE IF NOT EXISTS {table} {ddl}"))?;
        }
    }
    for odd in &plan.odd {
        // The temporary view that replaces a missing column in a read-only session.
        conn.execute_batch(&format!("DROP VIEW IF EXISTS temp.{}", odd.table))?;
        let rows = if is_first(odd) {
            // Chunks of files will have valid lengths; report those of inodes that are no regular
            // file.
            "SELECT DISTINCT ino, 0 AS chunk_index, x'' AS data FROM main.fs_data WHERE ino NOT IN
               (SELECT ino FROM main.fs_inode WHERE mode & 61440 = 32768)"
                .to_owned()
        } else {
            odd.select(&format!("main.{}", odd.table))
        };
        conn.execute_batch(&format!("CREATE TEMP VIEW {} AS {rows}", odd.table))?;
    }
    let mut broken = check::check(conn, options)?.broken;
    // The migration recounts these.
    broken.retain(|broken| !matches!(broken.rule, "S7" | "D3"));
    broken.iter_mut().for_each(|broken| broken.is_note = false);
    Ok(broken)
}
