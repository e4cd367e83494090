//! `acetate_past`: facts from deleted audit rows that say since when the session hides a base path.
//! `apply` needs them.
//!
//! A row is kept if it adds a fact to earlier rows here: the first change of a path since the path
//! last showed the base; a removal or rename of a base object; an apply or discard of a path named
//! here; the creation of an object that still exists. So the table has a few rows per object of the
//! session and per base object that it touched, no matter how often ([decision 0049]). It is
//! emptied when the log is pruned while the session holds no change and has no checkpoint. It is
//! created when the log is first pruned.
//!
//! [decision 0049]: ../../../../docs/decisions/0049-pruning-the-audit-log.md

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::base::DELTA_IDS;
use crate::delta::{AuditProcedure, Result};

use super::undone_rows::{self, RowRemains};
use super::value::{self, Bytes, keys};
use super::{checkpoint, meta, schema};

/// The table's name.
pub const TABLE: &str = "acetate_past";

/// The table and its indexes.
const SCHEMA: &str = "
CREATE TABLE acetate_past (
  id INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  time_nsec INTEGER NOT NULL,
  procedure TEXT NOT NULL,
  path TEXT NOT NULL,
  path2 TEXT,
  fileid INTEGER NOT NULL
);
CREATE INDEX acetate_past_path ON acetate_past(path);
CREATE INDEX acetate_past_path2 ON acetate_past(path2) WHERE path2 IS NOT NULL;";

/// Columns of `acetate_op` and `acetate_past` for a [`PastRow`].
const COLUMNS: &str = "id, time, time_nsec, procedure, path, path2, fileid";

/// The same, each.
pub const NAMES: [&str; 7] = ["id", "time", "time_nsec", "procedure", "path", "path2", "fileid"];

/// A row that is about to be deleted from the audit log.
struct PastRow {
    id: i64,
    procedure: AuditProcedure,
    path: Vec<u8>,
    path2: Option<Vec<u8>>,
    /// Whether the session created the object: its file number is not one of the base.
    is_own: bool,
    fileid: i64,
}

/// The last row of `acetate_past` that names a path.
struct LastMention {
    id: i64,
    procedure: AuditProcedure,
    /// Whether the row names it as `path2`.
    is_second: bool,
}

impl LastMention {
    /// Whether the row records that the session created an object at the path.
    fn is_made(&self) -> bool {
        matches!(
            self.procedure,
            AuditProcedure::Create
                | AuditProcedure::Mkdir
                | AuditProcedure::Symlink
                | AuditProcedure::Mknod
        )
    }
}

/// Stores the needed facts of the audit rows up to `last`, in the caller's transaction, before
/// those rows are deleted.
pub(super) fn keep(conn: &Connection, last: i64) -> Result<()> {
    if !schema::has_table(conn, TABLE)? {
        create(conn)?;
        if meta::get::<i64>(conn, meta::AUDIT_DROPPED)?.is_none() {
            meta::put(conn, meta::AUDIT_KEPT, 1)?;
        }
    }
    let oldest = format!("SELECT {COLUMNS} FROM acetate_op WHERE id <= ?1 ORDER BY id");
    let mut statement = conn.prepare_cached(&oldest)?;
    let undone = undone_rows::load(conn)?;
    let mut passes_undone = false;
    let mut rows = statement.query([last])?;
    while let Some(row) = rows.next()? {
        let Some(row) = decode(row)? else { continue };
        match undone.remains(row.id, &row.path, row.path2.as_deref()) {
            RowRemains::All => {}
            RowRemains::Nothing => {
                passes_undone = true;
                continue;
            }
            // Kept for both paths, although one was taken back; so drift is assumed.
            RowRemains::OnlyAtPath | RowRemains::OnlyAtPath2 => note_incomplete(conn)?,
        }
        if drop_superseded(conn, &row)? {
            let copy = format!(
                "INSERT OR IGNORE INTO acetate_past ({COLUMNS})
                 SELECT {COLUMNS} FROM acetate_op WHERE id = ?1"
            );
            conn.prepare_cached(&copy)?.execute([row.id])?;
        }
    }
    // A restore can make these rows the tree's again.
    if passes_undone && checkpoint::any(conn)? {
        note_incomplete(conn)?;
    }
    if holds_nothing(conn)? && !checkpoint::any(conn)? {
        conn.execute("DELETE FROM acetate_past WHERE path <> '/'", [])?;
    }
    Ok(())
}

/// Creates the table, in the caller's transaction.
pub fn create(conn: &Connection) -> Result<()> {
    Ok(conn.execute_batch(SCHEMA)?)
}

/// Records that rows are deleted from the audit log without keeping their facts.
pub fn note_incomplete(conn: &Connection) -> Result<()> {
    if meta::get::<i64>(conn, meta::AUDIT_KEPT)?.is_some() {
        conn.execute("DELETE FROM acetate_meta WHERE key = ?1", [meta::AUDIT_KEPT])?;
    }
    Ok(())
}

/// Decodes a row; `None` if its procedure is unknown.
fn decode(row: &Row<'_>) -> Result<Option<PastRow>> {
    let name = row.get_ref(3)?.as_str().ok();
    let Some(procedure) = name.and_then(AuditProcedure::from_name) else { return Ok(None) };
    let path2 = value::optional_bytes(row, 5)?;
    let fileid = value::int(row, 6)?;
    Ok(Some(PastRow {
        id: row.get(0)?,
        procedure,
        path: value::bytes(row, 4)?.to_vec(),
        path2,
        is_own: fileid.cast_unsigned() >= DELTA_IDS,
        fileid,
    }))
}

/// Deletes rows that `row` supersedes. Returns whether `row` itself adds a fact.
fn drop_superseded(conn: &Connection, row: &PastRow) -> Result<bool> {
    // A shortened path: the changed object is unknown, somewhere below it.
    if row.path.len() > 1 && row.path.ends_with(b"/") {
        return Ok(true);
    }
    match row.procedure {
        AuditProcedure::Refuse | AuditProcedure::Restore => Ok(false),
        AuditProcedure::Write | AuditProcedure::Setattr | AuditProcedure::Publish => {
            let mention = last_mention(conn, &row.path)?;
            let is_known = row.is_own && mention.is_none();
            Ok(!is_known && !is_hidden(conn, &row.path, mention)?)
        }
        AuditProcedure::Create
        | AuditProcedure::Mkdir
        | AuditProcedure::Symlink
        | AuditProcedure::Mknod => comes(conn, &row.path, true),
        AuditProcedure::Remove | AuditProcedure::Rmdir => {
            if !row.is_own {
                return Ok(true);
            }
            let mention = last_mention(conn, &row.path)?;
            if unmake(conn, &row.path, mention.as_ref())? {
                return Ok(false);
            }
            Ok(mention.is_some() && !is_hidden(conn, &row.path, mention)?)
        }
        AuditProcedure::Link => {
            let mention = last_mention(conn, &row.path)?;
            let is_first = !row.is_own && !is_hidden(conn, &row.path, mention)?;
            Ok(is_first || row.path2.as_deref().map_or(Ok(false), |to| comes(conn, to, false))?)
        }
        AuditProcedure::Rename => moves(conn, row),
        AuditProcedure::Apply => {
            forget(conn, &row.path, false)?;
            let is_told = row.is_own || row.fileid == 0;
            Ok(is_told || last_mention(conn, &row.path)?.is_some())
        }
        AuditProcedure::Discard => {
            forget(conn, &row.path, true)?;
            let mut any = conn.prepare_cached("SELECT 1 FROM acetate_past")?;
            Ok(any.exists([])?)
        }
    }
}

/// Whether the arrival of an object at a path is a new fact: the rows do not yet say that an object
/// was created there. If no row names the path, `is_made` is returned.
fn comes(conn: &Connection, path: &[u8], is_made: bool) -> Result<bool> {
    let Some(mention) = last_mention(conn, path)? else { return Ok(is_made) };
    Ok(!mention.is_made() || moved_above(conn, path, mention.id)?)
}

/// Deletes the fact that an object was created at a path, after the object was removed, if that is
/// the only fact about the path. Returns whether it did. If the base has an object there now, the
/// session has hidden it since the creation; then there is a whiteout, or a directory above was
/// moved away with it, and the fact is kept.
fn unmake(conn: &Connection, path: &[u8], mention: Option<&LastMention>) -> Result<bool> {
    let Some(mention) = mention.filter(|mention| mention.is_made()) else { return Ok(false) };
    let mut all = conn.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM acetate_past WHERE path = ?1
                               UNION ALL SELECT 1 FROM acetate_past WHERE path2 = ?1)",
    )?;
    let is_only = all.query_row([Bytes(path)], |row| row.get::<_, i64>(0))? == 1;
    let mut hides = conn.prepare_cached(
        "SELECT 1 FROM fs_whiteout WHERE path = ?1 UNION ALL SELECT 1 FROM acetate_redirect",
    )?;
    if !is_only || hides.exists([Bytes(path)])? || moved_above(conn, path, mention.id)? {
        return Ok(false);
    }
    conn.prepare_cached("DELETE FROM acetate_past WHERE id = ?1")?.execute([mention.id])?;
    Ok(true)
}

/// Whether a rename moves or replaces anything except files that the session created.
fn moves(conn: &Connection, row: &PastRow) -> Result<bool> {
    let Some(to) = row.path2.as_deref() else { return Ok(true) };
    if !row.is_own || has_below(conn, &row.path)? || has_below(conn, to)? {
        return Ok(true);
    }
    let source = last_mention(conn, &row.path)?;
    if source.is_some() && !unmake(conn, &row.path, source.as_ref())? {
        return Ok(true);
    }
    let Some(mention) = last_mention(conn, to)? else { return Ok(true) };
    let is_gone = match mention.procedure {
        AuditProcedure::Rename => mention.is_second,
        AuditProcedure::Remove | AuditProcedure::Rmdir => true,
        _ => mention.is_made(),
    };
    Ok(!is_gone || moved_above(conn, to, mention.id)?)
}

/// Whether the session has hidden the base at a path at least since its last mention.
fn is_hidden(conn: &Connection, path: &[u8], mention: Option<LastMention>) -> Result<bool> {
    let Some(mention) = mention else { return Ok(false) };
    let hides = match mention.procedure {
        AuditProcedure::Apply | AuditProcedure::Discard => false,
        AuditProcedure::Rename => mention.is_second,
        _ => true,
    };
    Ok(hides && !moved_above(conn, path, mention.id)?)
}

/// Whether a directory above a path was renamed, applied or discarded after the row `since`.
fn moved_above(conn: &Connection, path: &[u8], since: i64) -> Result<bool> {
    const STRUCTURAL: &str = "id > ?2 AND procedure IN ('RENAME', 'APPLY', 'DISCARD')";
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for slash in slashes {
        let above = if slash == 0 { &path[..1] } else { &path[..slash] };
        if above == path {
            continue;
        }
        for column in ["path", "path2"] {
            let sql = format!("SELECT 1 FROM acetate_past WHERE {column} = ?1 AND {STRUCTURAL}");
            if conn.prepare_cached(&sql)?.exists(params![Bytes(above), since])? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn last_mention(conn: &Connection, path: &[u8]) -> Result<Option<LastMention>> {
    let mut last: Option<LastMention> = None;
    for (column, is_second) in [("path", false), ("path2", true)] {
        let sql = format!(
            "SELECT id, procedure FROM acetate_past WHERE {column} = ?1 ORDER BY id DESC LIMIT 1"
        );
        let mut statement = conn.prepare_cached(&sql)?;
        let found = statement.query_row([Bytes(path)], |row| {
            Ok((row.get::<_, i64>(0)?, AuditProcedure::from_name(row.get_ref(1)?.as_str()?)))
        });
        if let Some((id, Some(procedure))) = found.optional()?
            && last.as_ref().is_none_or(|last| last.id < id)
        {
            last = Some(LastMention { id, procedure, is_second });
        }
    }
    Ok(last)
}

/// Exclusive bounds of the paths below a directory.
fn below(path: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let stem = if path == b"/" { b"" } else { path };
    ([stem, b"/"].concat(), [stem, b"0"].concat())
}

fn has_below(conn: &Connection, path: &[u8]) -> Result<bool> {
    let (from, to) = below(path);
    for (from, to) in keys(&from).into_iter().zip(keys(&to)) {
        for column in ["path", "path2"] {
            let sql =
                format!("SELECT 1 FROM acetate_past WHERE {column} > ?1 AND {column} < ?2 LIMIT 1");
            if conn.prepare_cached(&sql)?.exists(params![from, to])? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Deletes facts about a path from before it showed the base again; with `with_below` also about
/// the paths below it.
fn forget(conn: &Connection, path: &[u8], with_below: bool) -> Result<()> {
    // Removals and renames are kept: the object may have been below another name.
    const USELESS: &str = "(procedure IN ('WRITE', 'SETATTR', 'PUBLISH')
                            OR procedure = 'APPLY' AND fileid <> 0)";
    let here = format!("DELETE FROM acetate_past WHERE path = ?1 AND {USELESS}");
    conn.prepare_cached(&here)?.execute([Bytes(path)])?;
    if !with_below {
        return Ok(());
    }
    let (from, to) = below(path);
    let ends = keys(&from).into_iter().zip(keys(&to));
    let ends: Vec<(ToSqlOutput<'_>, ToSqlOutput<'_>)> = ends.collect();
    let below = format!("DELETE FROM acetate_past WHERE path > ?1 AND path < ?2 AND {USELESS}");
    for (from, to) in ends {
        conn.prepare_cached(&below)?.execute(params![from, to])?;
    }
    Ok(())
}

/// Whether the session shows the unchanged base, except for attributes of the root.
fn holds_nothing(conn: &Connection) -> Result<bool> {
    for table in ["fs_dentry", "fs_whiteout", "acetate_redirect", "acetate_opaque"] {
        let sql = format!("SELECT 1 FROM {table} LIMIT 1");
        if conn.prepare_cached(&sql)?.exists([])? {
            return Ok(false);
        }
    }
    Ok(true)
}
