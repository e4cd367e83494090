//! Makes the tree's rows those of a checkpoint again.
//!
//! Only keys with saved rows are looked at, and objects that were made since. What changes is saved
//! for the newest checkpoint by the triggers, as with any other change ([`old_rows`]).
//!
//! [`old_rows`]: super::old_rows

use rusqlite::{Connection, params};

use crate::delta::{Checkpoint, Ino, RestorePaths, RestoredRows, Result};
use crate::vfs::Time;

use super::later_objects::LaterObjects;
use super::old_rows::{TREE_TABLES, TreeTable, of};
use super::{checkpoint, meta, old_foreign, old_pieces, old_restore_paths, past, value};

/// Sets the tree's rows, or those of some paths, to those of the checkpoint `to`, in the caller's
/// transaction. Objects that change get a ctime of `now`, or a later one than before.
pub fn restore(
    conn: &Connection,
    (to, paths): (&Checkpoint, Option<&RestorePaths>),
    now: Time,
    needs: &mut RestoreNeeds<'_>,
) -> Result<RestoredRows> {
    if checkpoint::is_cut(conn, to.last_op)? {
        // What was kept of the deleted rows is of the tree that goes.
        past::note_incomplete(conn)?;
    }
    drop_temporary(conn)?;
    // All is found before anything changes: from then on more rows are saved.
    old_pieces::find_chunks(conn, (to.id, to.next_ino))?;
    for table in &TREE_TABLES {
        table.find_then(conn, to)?;
    }
    let later = match paths {
        None => LaterObjects::all(to),
        Some(paths) => old_restore_paths::select_rows_of_paths(conn, to, paths)?,
    };
    (needs.room)(content_bytes(conn, to, &later)?)?;
    advance_ctimes(conn, now)?;
    let objects = count_objects(conn, to.next_ino, &later)?;
    old_pieces::restore_chunks(conn)?;
    for table in &TREE_TABLES {
        table.delete_changed(conn, &later)?;
    }
    renumber_taken_entries(conn, needs.allocate_id)?;
    for table in &TREE_TABLES {
        table.insert_then(conn, to.next_ino)?;
    }
    old_foreign::mend(conn, &later)?;
    forget_unsaved(conn)?;
    sync_fs_origin(conn)?;
    let dirs = changed_dirs(conn)?;
    drop_temporary(conn)?;
    Ok(RestoredRows { objects, dirs })
}

/// What a restore asks its caller for.
pub struct RestoreNeeds<'a> {
    /// Returns a free `fs_dentry.id`.
    pub allocate_id: &'a mut dyn FnMut() -> Result<i64>,
    /// Checks that the disk has room for this many bytes.
    pub room: &'a mut dyn FnMut(u64) -> Result<()>,
}

/// How many bytes of content a restore writes: what it brings back, and what it saves of the
/// content that goes.
fn content_bytes(conn: &Connection, to: &Checkpoint, later: &LaterObjects) -> Result<u64> {
    let sum = format!(
        "SELECT
       (SELECT ifnull(sum(length(o.data)), 0) FROM temp.first_fs_data s
        CROSS JOIN acetate_old_fs_data o ON o.ino = s.ino AND o.chunk_index = s.chunk_index
          AND o.checkpoint = s.checkpoint WHERE o.present AND o.ino < ?1)
       + (SELECT ifnull(sum(length(m.data)), 0) FROM temp.first_fs_data s
          CROSS JOIN main.fs_data m ON m.ino = s.ino AND m.chunk_index = s.chunk_index)
       + (SELECT ifnull(sum(length(data)), 0) FROM main.fs_data WHERE {})
       + 2 * (SELECT ifnull(sum(length(m.data)), 0) FROM temp.pieced p
          CROSS JOIN main.fs_data m ON m.ino = p.ino AND m.chunk_index = p.chunk_index)",
        later.condition("ino")
    );
    Ok(conn.query_row(&sum, [to.next_ino.0.cast_signed()], |row| value::unsigned(row, 0))?)
}

impl TreeTable {
    /// Creates the temporary tables `first_…` with the keys of saved rows and, unless it holds
    /// content, `then_…` with the rows at the checkpoint. Rows that are the same now are in
    /// neither.
    fn find_then(&self, conn: &Connection, to: &Checkpoint) -> Result<()> {
        self.find_first(conn, to.id)?;
        if self.large.is_some() {
            return Ok(());
        }
        let (name, old, key) = (self.name, self.old(), self.key.join(", "));
        let (compared, same) = (self.compared(), self.same_key("s", "m"));
        conn.execute_batch(&format!(
            "CREATE TEMP TABLE then_{name} AS SELECT {} FROM temp.first_{name} s
               CROSS JOIN main.{old} m ON {same} AND m.checkpoint = s.checkpoint
               WHERE m.present {};
             CREATE UNIQUE INDEX temp.then_{name}_key ON then_{name} ({key});
             DELETE FROM temp.first_{name} AS s WHERE EXISTS (SELECT 1 FROM temp.then_{name} t
               CROSS JOIN main.{name} m ON {} WHERE {} AND ({}) IS ({}));
             DELETE FROM temp.then_{name} AS t WHERE NOT EXISTS
               (SELECT 1 FROM temp.first_{name} s WHERE {});",
            of("m", &self.names()),
            self.and_older("m", to.next_ino),
            self.same_key("t", "m"),
            self.same_key("t", "s"),
            of("t", &compared),
            of("m", &compared),
            self.same_key("t", "s"),
        ))?;
        Ok(())
    }

    /// A condition that is to be appended: the object of a row is older than `next_ino`.
    fn and_older(&self, row: &str, next_ino: Ino) -> String {
        let number = self.number.map(|n| format!("AND {row}.{n} < {}", next_ino.0.cast_signed()));
        number.unwrap_or_default()
    }

    /// Deletes the rows that are different at the checkpoint, and those of later objects.
    fn delete_changed(&self, conn: &Connection, later: &LaterObjects) -> Result<()> {
        let name = self.name;
        conn.execute_batch(&format!(
            "DELETE FROM main.{name} WHERE rowid IN (SELECT m.rowid FROM temp.first_{name} s
               CROSS JOIN main.{name} m ON {})",
            self.same_key("s", "m")
        ))?;
        if let Some(number) = self.number {
            let later = format!("DELETE FROM main.{name} WHERE {}", later.condition(number));
            conn.execute_batch(&later)?;
        }
        Ok(())
    }

    /// Inserts the rows at the checkpoint.
    fn insert_then(&self, conn: &Connection, next_ino: Ino) -> Result<()> {
        let (name, old, names) = (self.name, self.old(), self.names());
        let all = names.join(", ");
        if self.large.is_none() {
            let copy =
                format!("INSERT INTO main.{name} ({all}) SELECT {all} FROM temp.then_{name}");
            return Ok(conn.execute_batch(&copy)?);
        }
        // A number that was given to another row since is replaced by a free one.
        let taken = format!("(SELECT 1 FROM main.{name} x WHERE x.id = m.id)");
        let value = |column: &&str| match *column {
            "id" => format!("CASE WHEN EXISTS {taken} THEN NULL ELSE m.id END"),
            column => format!("m.{column}"),
        };
        let values: Vec<_> = names.iter().map(value).collect();
        conn.execute_batch(&format!(
            "INSERT INTO main.{name} ({all}) SELECT {} FROM temp.first_{name} s
               CROSS JOIN main.{old} m ON {} AND m.checkpoint = s.checkpoint
               WHERE m.present {}",
            values.join(", "),
            self.same_key("s", "m"),
            self.and_older("m", next_ino),
        ))?;
        Ok(())
    }
}

/// Gives each restored object the time `now` as ctime, or the first one after those that it had.
fn advance_ctimes(conn: &Connection, now: Time) -> Result<()> {
    let mut ahead = conn.prepare(
        "SELECT t.ino, t.ctime, t.ctime_nsec, ifnull(m.ctime, t.ctime),
           ifnull(m.ctime_nsec, t.ctime_nsec)
         FROM temp.then_fs_inode t LEFT JOIN main.fs_inode m ON m.ino = t.ino
         WHERE (t.ctime, t.ctime_nsec) >= (?1, ?2) OR (m.ctime, m.ctime_nsec) >= (?1, ?2)",
    )?;
    let ahead = ahead.query_map(params![now.secs, now.nanos], |row| {
        let last = value::time(row, 1, 2)?.max(value::time(row, 3, 4)?);
        Ok((row.get::<_, i64>(0)?, last.next()))
    })?;
    let ahead = ahead.collect::<rusqlite::Result<Vec<_>>>()?;
    let all = "UPDATE temp.then_fs_inode SET ctime = ?1, ctime_nsec = ?2";
    conn.execute(all, params![now.secs, now.nanos])?;
    let mut one =
        conn.prepare("UPDATE temp.then_fs_inode SET ctime = ?2, ctime_nsec = ?3 WHERE ino = ?1")?;
    for (ino, time) in ahead {
        one.execute(params![ino, time.secs, time.nanos])?;
    }
    Ok(())
}

/// How many objects change: with other attributes or content, or that are there only at one of both
/// moments.
fn count_objects(conn: &Connection, next_ino: Ino, later: &LaterObjects) -> Result<u64> {
    let changed = format!(
        "SELECT (SELECT count(*) FROM temp.first_fs_inode WHERE ino < ?1)
         + (SELECT count(*) FROM main.fs_inode WHERE {})",
        later.condition("ino")
    );
    Ok(conn.query_row(&changed, [next_ino.0.cast_signed()], |row| value::unsigned(row, 0))?)
}

/// Gives entries other numbers whose own is taken.
fn renumber_taken_entries(
    conn: &Connection,
    allocate_id: &mut dyn FnMut() -> Result<i64>,
) -> Result<()> {
    let mut taken = conn.prepare(
        "SELECT t.rowid FROM temp.then_fs_dentry t
         WHERE EXISTS (SELECT 1 FROM main.fs_dentry d WHERE d.id = t.id)",
    )?;
    let taken = taken.query_map([], |row| row.get::<_, i64>(0))?;
    let taken = taken.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut give = conn.prepare("UPDATE temp.then_fs_dentry SET id = ?2 WHERE rowid = ?1")?;
    for row in taken {
        give.execute([row, allocate_id()?])?;
    }
    Ok(())
}

/// Forgets the subdirectory counts of changed directories, which are not saved, and the verifiers
/// of files that exclusive creates made: no retransmission of these is meant any more.
fn forget_unsaved(conn: &Connection) -> Result<()> {
    const CHANGED: &str = "ino IN (SELECT ino FROM temp.first_fs_inode
       UNION ALL SELECT ino FROM temp.first_acetate_inode)";
    Ok(conn.execute_batch(&format!(
        "UPDATE OR FAIL acetate_inode SET subdirs = NULL, create_verifier = NULL
           WHERE {CHANGED} AND (subdirs IS NOT NULL OR create_verifier IS NOT NULL);
         DELETE FROM acetate_inode WHERE {CHANGED} AND holes = 0;"
    ))?)
}

/// Shows or hides the restored origins for other implementations as the session's seal says now
/// (invariant O1).
fn sync_fs_origin(conn: &Connection) -> Result<()> {
    let follow = match meta::get::<String>(conn, meta::SEALED_FOR)? {
        Some(_) => {
            "DELETE FROM fs_origin WHERE delta_ino IN (SELECT delta_ino FROM temp.then_fs_origin)"
        }
        None => {
            "INSERT OR IGNORE INTO fs_origin (delta_ino, base_ino)
             SELECT delta_ino, base_ino FROM temp.then_acetate_origin"
        }
    };
    Ok(conn.execute_batch(follow)?)
}

/// The directories that changed and are there now.
fn changed_dirs(conn: &Connection) -> Result<Vec<Ino>> {
    let mut dirs = conn.prepare(
        "SELECT ino FROM temp.then_fs_inode t WHERE mode & 61440 = 16384
           AND EXISTS (SELECT 1 FROM main.fs_inode i WHERE i.ino = t.ino) ORDER BY ino",
    )?;
    let dirs = dirs.query_map([], |row| Ok(Ino(value::unsigned(row, 0)?)))?;
    Ok(dirs.collect::<rusqlite::Result<_>>()?)
}

/// Drops the temporary tables, also those that an interrupted restore left.
fn drop_temporary(conn: &Connection) -> Result<()> {
    old_restore_paths::drop_temporary(conn)?;
    conn.execute_batch("DROP TABLE IF EXISTS temp.pieced; DROP TABLE IF EXISTS temp.old_pieces")?;
    for TreeTable { name, .. } in &TREE_TABLES {
        conn.execute_batch(&format!(
            "DROP TABLE IF EXISTS temp.first_{name}; DROP TABLE IF EXISTS temp.then_{name};"
        ))?;
    }
    Ok(())
}
