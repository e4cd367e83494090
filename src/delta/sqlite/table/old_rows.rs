//! `acetate_old_*`: rows of the tree as they were at checkpoints.
//!
//! While a session has a checkpoint, triggers of the writing connection save each row before its
//! first change after the newest one (invariant K1). They are temporary triggers: no file has them,
//! so no other program runs them, and a session without checkpoints pays nothing.
//!
//! The row of a key *at* a checkpoint is the oldest saved one of that checkpoint or a later one, or
//! else the present one. An object that was made later needs no saved rows: its number is not below
//! the checkpoint's `next_ino` (invariant M2).

use rusqlite::{Connection, Params, Row};

use crate::delta::{ChangedRows, Checkpoint, CheckpointId, Ino, MergedPath, Result};
use crate::vfs::Name;

use super::incomplete::IS_SAVING;
use super::{old_pieces, schema, value};

/// A table whose rows make up the tree.
pub(super) struct TreeTable {
    pub name: &'static str,
    /// The columns that identify a row.
    pub key: &'static [&'static str],
    /// The column of the key with an inode number; `None` for keys of the base.
    pub number: Option<&'static str>,
    /// Columns in which a difference is no change of the tree.
    ignored: &'static [&'static str],
    /// A column that may be large: it is read only if the row is saved.
    pub large: Option<&'static str>,
}

const fn of_inodes(name: &'static str, key: &'static [&'static str]) -> TreeTable {
    TreeTable { name, key, number: Some(key[0]), ignored: &[], large: None }
}

const fn of_base(name: &'static str, key: &'static [&'static str]) -> TreeTable {
    TreeTable { name, key, number: None, ignored: &[], large: None }
}

pub(super) const TREE_TABLES: [TreeTable; 13] = [
    TreeTable { ignored: &["atime", "atime_nsec"], ..of_inodes(INODES, &["ino"]) },
    TreeTable { ignored: &["subdirs"], ..of_inodes("acetate_inode", &["ino"]) },
    of_inodes(PENDING, &["delta_ino"]),
    of_inodes("acetate_origin", &["delta_ino"]),
    of_inodes("fs_origin", &["delta_ino"]),
    of_inodes(DENTRIES, &["parent_ino", "name"]),
    TreeTable { large: Some("data"), ..of_inodes("fs_data", &["ino", "chunk_index"]) },
    of_inodes("fs_symlink", &["ino"]),
    of_inodes("acetate_redirect", &["delta_ino"]),
    of_inodes("acetate_opaque", &["delta_ino"]),
    of_base(WHITEOUTS, &["path"]),
    of_base(HIDDEN_LINKS, &["base_ino"]),
    TreeTable { large: Some("content"), ..of_base(ORIGINALS, &["base_path"]) },
];

/// The beginning of the names of the tables with old rows.
const OLD: &str = "acetate_old_";

/// The table with the content that is still to be copied up.
const PENDING: &str = "acetate_copy_up";

/// The table with the objects.
pub(super) const INODES: &str = "fs_inode";

/// The table with the entries of directories.
pub(super) const DENTRIES: &str = "fs_dentry";

/// The table with the hidden paths of the base.
pub(super) const WHITEOUTS: &str = "fs_whiteout";

/// The table with the numbers of hidden names of base files.
pub(super) const HIDDEN_LINKS: &str = "acetate_link";

/// The table with base objects as they were before their first change.
pub(super) const ORIGINALS: &str = "acetate_original";

/// The table with content. Pieces of its rows are saved too.
pub const CONTENT: &str = "fs_data";

/// For this many checkpoints it is looked up what they saved of a file that is being copied.
const LAST_FEW: u32 = 16;

/// Of rows `m` of that table: no piece is saved.
const NO_PIECES: &str = "AND NOT EXISTS (SELECT 1 FROM temp.whole_chunk w
     WHERE w.ino = m.ino AND w.chunk_index = m.chunk_index)";

/// The newest checkpoint, as the triggers see it; none if nothing is saved for it.
fn newest(of: &str) -> String {
    // None for content while no content is saved.
    let content = " AND NOT EXISTS (SELECT 1 FROM temp.old_unsaved)";
    let condition = if of == CONTENT { content } else { "" };
    format!("acetate_checkpoint c WHERE {IS_SAVING}{condition}")
}

impl TreeTable {
    /// The name of the table with the old rows.
    pub fn old(&self) -> String {
        format!("{OLD}{}", self.name)
    }

    /// The table's columns with their types, as we declare them: a file may come from anywhere, and
    /// the names go into SQL.
    fn columns(&self) -> Vec<(&'static str, &'static str)> {
        schema::columns(self.name)
    }

    /// The columns' names.
    pub fn names(&self) -> Vec<&'static str> {
        schema::column_names(self.name)
    }

    /// The columns in which a difference is a change of the tree.
    pub fn compared(&self) -> Vec<&'static str> {
        self.names().into_iter().filter(|column| !self.ignored.contains(column)).collect()
    }

    /// The condition that the rows `a` and `b` have the same key.
    pub fn same_key(&self, a: &str, b: &str) -> String {
        let same = self.key.iter().map(|key| format!("{a}.{key} = {b}.{key}"));
        same.collect::<Vec<_>>().join(" AND ")
    }

    /// Creates the table with the old rows, or the columns that it lacks.
    fn create(&self, conn: &Connection) -> Result<()> {
        let (old, key) = (self.old(), self.key.join(", "));
        if !schema::has_table(conn, &old)? {
            conn.execute_batch(&format!(
                "CREATE TABLE {old} (old_id INTEGER PRIMARY KEY, checkpoint INTEGER NOT NULL,
                   present INTEGER NOT NULL)"
            ))?;
        }
        for (column, kind) in self.columns() {
            if !schema::has_column(conn, &old, column)? {
                conn.execute_batch(&format!("ALTER TABLE {old} ADD COLUMN {column} {kind}"))?;
            }
        }
        index(conn, &old, &key)
    }

    /// The condition under which a trigger saves a row for `row`: its object was not made later,
    /// and the key has no saved row.
    fn is_unsaved(&self, row: &str) -> String {
        let is_older = self.number.map(|n| format!("{row}.{n} < c.next_ino AND "));
        let (is_older, old, same) =
            (is_older.unwrap_or_default(), self.old(), self.same_key("o", row));
        let newest = newest(self.name);
        format!(
            "EXISTS (SELECT 1 FROM {newest} AND {is_older}NOT EXISTS
               (SELECT 1 FROM {old} o WHERE {same} AND o.checkpoint = c.id))"
        )
    }

    /// Creates the triggers on the connection. All conditions are in their `WHEN`, so that a row
    /// that is not saved costs little. With `ABORT`, the default, SQLite copies each page before a
    /// statement with triggers changes it, to be able to take back that statement alone. So they
    /// say `OR FAIL`, and so do frequent statements that fire them, because a statement's word
    /// overrides those in its triggers. After a failure the whole operation is rolled back.
    fn watch(&self, conn: &Connection) -> Result<()> {
        let (name, old, key) = (self.name, self.old(), self.key.join(", "));
        let columns = self.names();
        // A large value is read from the table, where the row still is before the change.
        let time = if self.large.is_some() { "BEFORE" } else { "AFTER" };
        let value = |column: &&str| match self.large == Some(*column) {
            true => format!("(SELECT {column} FROM main.{name} t WHERE t.rowid = OLD.rowid)"),
            false => format!("OLD.{column}"),
        };
        let values = columns.iter().map(value).collect::<Vec<_>>().join(", ");
        let all = columns.join(", ");
        let newest = "(SELECT max(id) FROM acetate_checkpoint)";
        let save = format!(
            "INSERT OR FAIL INTO {old} (checkpoint, present, {all})
             VALUES ({newest}, 1, {values})"
        );
        let new_key = of("NEW", self.key);
        let absent = format!(
            "INSERT OR FAIL INTO {old} (checkpoint, present, {key})
             VALUES ({newest}, 0, {new_key})"
        );
        let (old_unsaved, new_unsaved) = (self.is_unsaved("OLD"), self.is_unsaved("NEW"));
        let compared = self.compared();
        let is_change = match self.large {
            Some(_) => String::new(),
            None => format!("({}) IS NOT ({}) AND", of("OLD", &compared), of("NEW", &compared)),
        };
        let moved = format!("({}) IS NOT ({})", of("OLD", self.key), of("NEW", self.key));
        // The row that a moved one replaces is saved before.
        Ok(conn.execute_batch(&format!(
            "CREATE TEMP TRIGGER old_{name}_update {time} UPDATE ON main.{name}
               WHEN {is_change} {old_unsaved} BEGIN {save}; END;
             CREATE TEMP TRIGGER old_{name}_move AFTER UPDATE OF {key} ON main.{name}
               WHEN {moved} AND {new_unsaved} BEGIN {absent}; END;
             CREATE TEMP TRIGGER old_{name}_delete {time} DELETE ON main.{name}
               WHEN {old_unsaved} BEGIN {save}; END;
             CREATE TEMP TRIGGER old_{name}_insert AFTER INSERT ON main.{name}
               WHEN {new_unsaved} BEGIN {absent}; END;"
        ))?)
    }

    /// Creates the temporary table `first_…` with the keys that were saved for a checkpoint or
    /// later ones, and of each the oldest of these checkpoints.
    pub fn find_first(&self, conn: &Connection, at: CheckpointId) -> Result<()> {
        let (name, old, key) = (self.name, self.old(), self.key.join(", "));
        Ok(conn.execute_batch(&format!(
            "CREATE TEMP TABLE first_{name} AS
               SELECT {key}, min(checkpoint) AS checkpoint FROM main.{old}
               WHERE checkpoint >= {at} GROUP BY {key};
             CREATE UNIQUE INDEX temp.first_{name}_key ON first_{name} ({key});"
        ))?)
    }

    /// Replaces the table on this connection by a temporary one with the rows at a checkpoint.
    fn show_at(&self, conn: &Connection, (at, next_ino): (CheckpointId, Ino)) -> Result<()> {
        let (name, old, columns) = (self.name, self.old(), self.names());
        let all = columns.join(", ");
        let is_older = self.number.map(|n| format!("AND m.{n} < {}", next_ino.0.cast_signed()));
        let is_older = is_older.unwrap_or_default();
        let same = self.same_key("s", "m");
        let first = format!("temp.first_{name}");
        self.find_first(conn, at)?;
        let now = format!(
            "SELECT {} FROM main.{name} m
             WHERE NOT EXISTS (SELECT 1 FROM {first} s WHERE {same}) {is_older}",
            of("m", &columns)
        );
        let then = format!(
            "SELECT {} FROM {first} s
             JOIN main.{old} m ON {same} AND m.checkpoint = s.checkpoint
             WHERE m.present {is_older}",
            of("m", &columns)
        );
        if self.large.is_some() {
            // Content stays where it is.
            let (apart, pieced) = match name == CONTENT {
                true => {
                    (NO_PIECES, " UNION ALL SELECT ino, chunk_index, data FROM temp.whole_chunk")
                }
                false => ("", ""),
            };
            return Ok(conn.execute_batch(&format!(
                "CREATE TEMP VIEW {name} AS {now} {apart} UNION ALL {then} {apart}{pieced}"
            ))?);
        }
        let declared = schema::declaration(name);
        conn.execute_batch(&format!(
            "CREATE TEMP TABLE {name} {declared};
             INSERT INTO temp.{name} ({all}) {now};
             INSERT INTO temp.{name} ({all}) {then};"
        ))?;
        schema::index_temp(conn, name)
    }
}

/// Some columns of a row, as SQL lists them.
pub(super) fn of(row: &str, columns: &[&str]) -> String {
    columns.iter().map(|column| format!("{row}.{column}")).collect::<Vec<_>>().join(", ")
}

/// Creates the index of a table with saved rows. The checkpoint comes first, so that what is saved
/// for the newest one lies together: a change of a row anywhere in the tree changes few more pages.
pub(super) fn index(conn: &Connection, old: &str, key: &str) -> Result<()> {
    // Two others did its work before.
    Ok(conn.execute_batch(&format!(
        "CREATE UNIQUE INDEX IF NOT EXISTS {old}_at ON {old} (checkpoint, {key});
         DROP INDEX IF EXISTS {old}_key;
         DROP INDEX IF EXISTS {old}_checkpoint;"
    ))?)
}

/// Whether the tables are there, with the indexes of this version.
pub fn is_created(conn: &Connection) -> Result<bool> {
    schema::has_index(conn, &format!("{}_at", old_pieces::TABLE))
}

/// Creates the tables with the old rows, in the caller's transaction.
pub fn create(conn: &Connection) -> Result<()> {
    for table in &TREE_TABLES {
        table.create(conn)?;
    }
    old_pieces::create(conn)
}

/// Creates the triggers on a writing connection, or replaces them.
pub fn watch(conn: &Connection) -> Result<()> {
    unwatch(conn)?;
    // `INSERT OR REPLACE` otherwise removes rows without a trigger.
    conn.pragma_update(None, "recursive_triggers", true)?;
    conn.execute_batch("CREATE TEMP TABLE old_unsaved (id INTEGER PRIMARY KEY)")?;
    TREE_TABLES.iter().try_for_each(|table| table.watch(conn))
}

/// Removes the triggers from a connection.
pub fn unwatch(conn: &Connection) -> Result<()> {
    for TreeTable { name, .. } in &TREE_TABLES {
        conn.execute_batch(&format!(
            "DROP TRIGGER IF EXISTS temp.old_{name}_update;
             DROP TRIGGER IF EXISTS temp.old_{name}_move;
             DROP TRIGGER IF EXISTS temp.old_{name}_delete;
             DROP TRIGGER IF EXISTS temp.old_{name}_insert;"
        ))?;
    }
    Ok(conn.execute_batch("DROP TABLE IF EXISTS temp.old_unsaved")?)
}

/// Whether chunks that the connection stores next are saved as absent; they are at first. Those of
/// an unfinished copy-up, of the file `copied`, need not be: where the content is pending at a
/// checkpoint, a stored chunk comes first, and equals the base's. They are saved all the same if at
/// some checkpoint less of the content was pending, or the file had another size, or if the file is
/// older than the last few checkpoints.
pub fn put_saving_content(conn: &Connection, copied: Option<Ino>) -> Result<()> {
    let Some(copied) = copied else {
        conn.prepare_cached("DELETE FROM temp.old_unsaved")?.execute([])?;
        return Ok(());
    };
    let unless_needed = format!(
        "WITH c AS (SELECT id, next_ino FROM acetate_checkpoint ORDER BY id DESC LIMIT {LAST_FEW})
         INSERT OR IGNORE INTO temp.old_unsaved SELECT 1
         WHERE ?1 >= ifnull((SELECT next_ino FROM acetate_checkpoint
                             ORDER BY id DESC LIMIT 1 OFFSET {LAST_FEW}), 0)
         AND NOT EXISTS
           (SELECT 1 FROM c CROSS JOIN {OLD}{PENDING} o
              ON o.checkpoint = c.id AND o.delta_ino = ?1
            CROSS JOIN main.{PENDING} m ON m.delta_ino = ?1
            WHERE c.next_ino > ?1
              AND (NOT o.present OR o.next_byte > m.next_byte OR o.end_byte < m.end_byte))
         AND NOT EXISTS
           (SELECT 1 FROM c CROSS JOIN {OLD}{INODES} o ON o.checkpoint = c.id AND o.ino = ?1
            CROSS JOIN main.{INODES} m ON m.ino = ?1
            WHERE c.next_ino > ?1 AND (NOT o.present OR o.size <> m.size))"
    );
    let mut unless_needed = conn.prepare_cached(&unless_needed)?;
    unless_needed.execute([copied.0.cast_signed()])?;
    Ok(())
}

/// Replaces the tree's tables on this connection by temporary ones with the rows at a checkpoint.
/// The caller has a read transaction, and keeps it as long as it reads.
pub fn show_at(conn: &Connection, at: (CheckpointId, Ino)) -> Result<()> {
    TREE_TABLES.iter().try_for_each(|table| table.show_at(conn, at))?;
    old_pieces::show_at(conn, at)
}

/// Whether any row is saved for a checkpoint or a later one.
pub fn any_saved(conn: &Connection, at: CheckpointId) -> Result<bool> {
    for table in tables() {
        let saved = format!("SELECT 1 FROM main.{table} WHERE checkpoint >= ?1 LIMIT 1");
        if conn.prepare(&saved)?.exists([at.0])? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The saved rows without a checkpoint: table and number of the checkpoint.
pub fn without_checkpoint(conn: &Connection) -> Result<Vec<(String, i64)>> {
    let mut found = Vec::new();
    for table in tables().filter(|table| schema::has_table(conn, table).unwrap_or(true)) {
        let sql = format!(
            "SELECT DISTINCT checkpoint FROM {table}
             WHERE checkpoint NOT IN (SELECT id FROM acetate_checkpoint) ORDER BY checkpoint"
        );
        let mut statement = conn.prepare(&sql)?;
        for id in statement.query_map([], |row| row.get(0))? {
            found.push((table.clone(), id?));
        }
    }
    Ok(found)
}

/// Deletes the saved rows without a checkpoint.
pub fn delete_without_checkpoint(conn: &Connection) -> Result<()> {
    for (table, id) in without_checkpoint(conn)? {
        conn.execute(&format!("DELETE FROM {table} WHERE checkpoint = ?1"), [id])?;
    }
    Ok(())
}

/// The names of the tables with saved rows.
fn tables() -> impl Iterator<Item = String> {
    TREE_TABLES.iter().map(TreeTable::old).chain([old_pieces::TABLE.to_owned()])
}

/// Where rows changed after the checkpoint `from`, and before `until`, or up to now: what is saved
/// for the checkpoints between, and what was made.
pub fn changed(
    conn: &Connection,
    from: &Checkpoint,
    until: Option<&Checkpoint>,
) -> Result<ChangedRows> {
    let made_until = until.map_or(i64::MAX, |until| until.next_ino.0.cast_signed());
    let bounds = [from.id.0, until.map_or(i64::MAX, |until| until.id.0)];
    let between = "checkpoint >= ?1 AND checkpoint < ?2";
    let mut changed = ChangedRows::default();
    for table in &TREE_TABLES {
        let Some(number) = table.number.filter(|_| table.name != DENTRIES) else { continue };
        let sql = format!("SELECT DISTINCT {number} FROM {} WHERE {between}", table.old());
        add_objects(conn, &sql, bounds, &mut changed)?;
    }
    let pieces = format!("SELECT DISTINCT ino FROM {} WHERE {between}", old_pieces::TABLE);
    add_objects(conn, &pieces, bounds, &mut changed)?;
    // What was made is saved only for later checkpoints.
    let made = from.next_ino.0.cast_signed();
    let now = "SELECT ino FROM fs_inode WHERE ino >= ?1 AND ino < ?2";
    add_objects(conn, now, [made, made_until], &mut changed)?;
    let then =
        format!("SELECT DISTINCT ino FROM {OLD}{INODES} WHERE ino >= ?1 AND checkpoint > ?2");
    add_objects(conn, &then, [made, from.id.0], &mut changed)?;
    let entries = format!("SELECT parent_ino, name FROM {OLD}{DENTRIES} WHERE {between}");
    add_entries(conn, &entries, bounds, &mut changed)?;
    let paths = format!("SELECT DISTINCT path FROM {OLD}{WHITEOUTS} WHERE {between}");
    add_paths(conn, &paths, bounds, &mut changed)?;
    Ok(changed)
}

/// All rows of the tree.
pub fn all(conn: &Connection) -> Result<ChangedRows> {
    let mut all = ChangedRows::default();
    add_objects(conn, "SELECT ino FROM fs_inode", [], &mut all)?;
    add_entries(conn, "SELECT parent_ino, name FROM fs_dentry", [], &mut all)?;
    add_paths(conn, "SELECT path FROM fs_whiteout", [], &mut all)?;
    Ok(all)
}

/// Adds the objects with the numbers that a query finds.
fn add_objects(
    conn: &Connection,
    sql: &str,
    bounds: impl Params,
    to: &mut ChangedRows,
) -> Result<()> {
    each_row(conn, sql, bounds, |row| {
        to.objects.insert(Ino(value::unsigned(row, 0)?));
        Ok(())
    })
}

/// Adds the entries that a query finds, by directory and name.
fn add_entries(
    conn: &Connection,
    sql: &str,
    bounds: impl Params,
    to: &mut ChangedRows,
) -> Result<()> {
    each_row(conn, sql, bounds, |row| {
        if let Ok(name) = Name::new(value::bytes(row, 1)?) {
            to.entries.insert((Ino(value::unsigned(row, 0)?), name));
        }
        Ok(())
    })
}

/// Adds the paths that a query finds.
fn add_paths(
    conn: &Connection,
    sql: &str,
    bounds: impl Params,
    to: &mut ChangedRows,
) -> Result<()> {
    each_row(conn, sql, bounds, |row| {
        to.paths.extend(MergedPath::from_bytes(value::bytes(row, 0)?));
        Ok(())
    })
}

fn each_row(
    conn: &Connection,
    sql: &str,
    bounds: impl Params,
    mut each: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    let mut statement = conn.prepare(sql)?;
    let mut rows = statement.query(bounds)?;
    while let Some(row) = rows.next()? {
        each(row)?;
    }
    Ok(())
}

/// How many rows are saved for a checkpoint, and the size of their content in bytes.
pub fn count(conn: &Connection, id: CheckpointId) -> Result<(u64, u64)> {
    let (mut rows, mut bytes) = old_pieces::count(conn, id)?;
    for table in &TREE_TABLES {
        let large = table.large.map_or("0".to_owned(), |column| format!("length({column})"));
        let sql = format!(
            "SELECT count(*), ifnull(sum({large}), 0) FROM {} WHERE checkpoint = ?1",
            table.old()
        );
        let (some, size): (i64, i64) =
            conn.prepare(&sql)?.query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows += some.cast_unsigned();
        bytes += size.cast_unsigned();
    }
    Ok((rows, bytes))
}
