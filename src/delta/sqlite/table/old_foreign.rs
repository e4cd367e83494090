//! Makes restored rows agree with those that other programs changed, which save none.
//!
//! What such a program made is newer than the checkpoint, and goes; what it removed stays removed.
//! Without such changes, nothing here finds a row.

use rusqlite::Connection;

use crate::delta::Result;

use super::later_objects::LaterObjects;
use super::old_rows::{INODES, TREE_TABLES};

/// Removes names that lead to no object, further names of directories, objects without a name and
/// rows without an object, and counts the names of restored objects. The temporary tables `then_…`
/// have what was restored, and `first_…` the keys of all that changed.
pub fn mend(conn: &Connection, later: &LaterObjects) -> Result<()> {
    conn.execute_batch(&format!("DELETE FROM main.fs_dentry WHERE {}", later.condition("ino")))?;
    conn.execute_batch(
        "DELETE FROM main.fs_dentry WHERE rowid IN (SELECT d.rowid FROM temp.then_fs_dentry t
           CROSS JOIN main.fs_dentry d ON d.parent_ino = t.parent_ino AND d.name = t.name
           WHERE NOT EXISTS (SELECT 1 FROM main.fs_inode i WHERE i.ino = d.ino));
         DELETE FROM main.fs_dentry WHERE rowid IN (SELECT d.rowid FROM temp.then_fs_dentry t
           CROSS JOIN main.fs_inode i ON i.ino = t.ino AND i.mode & 61440 = 16384
           CROSS JOIN main.fs_dentry d ON d.ino = t.ino
           WHERE (d.parent_ino, d.name) NOT IN
             (SELECT parent_ino, name FROM temp.then_fs_dentry));",
    )?;
    while remove_nameless(conn)? {}
    for (table, number) in numbered().filter(|(table, _)| *table != INODES) {
        conn.execute_batch(&format!(
            "DELETE FROM main.{table} AS m
               WHERE m.{number} IN (SELECT {number} FROM temp.first_{table})
               AND NOT EXISTS (SELECT 1 FROM main.fs_inode i WHERE i.ino = m.{number})"
        ))?;
    }
    Ok(conn.execute_batch(
        "UPDATE OR FAIL main.fs_inode AS i
           SET nlink = (SELECT count(*) FROM main.fs_dentry d WHERE d.ino = i.ino)
         WHERE i.ino <> 1
           AND i.ino IN (SELECT ino FROM temp.then_fs_inode
             UNION SELECT ino FROM temp.then_fs_dentry)
           AND i.nlink <> (SELECT count(*) FROM main.fs_dentry d WHERE d.ino = i.ino)",
    )?)
}

/// The tables with rows of objects, and the columns with their numbers.
fn numbered() -> impl Iterator<Item = (&'static str, &'static str)> {
    TREE_TABLES.iter().filter_map(|table| Some((table.name, table.number?)))
}

/// Removes the restored objects without a name, and the names in them; returns whether there were
/// any.
fn remove_nameless(conn: &Connection) -> Result<bool> {
    conn.execute_batch(
        "CREATE TEMP TABLE nameless AS SELECT ino FROM temp.then_fs_inode t
           WHERE ino <> 1 AND EXISTS (SELECT 1 FROM main.fs_inode i WHERE i.ino = t.ino)
             AND NOT EXISTS (SELECT 1 FROM main.fs_dentry d WHERE d.ino = t.ino)",
    )?;
    let found = conn.prepare("SELECT 1 FROM temp.nameless")?.exists([])?;
    if found {
        for (table, number) in numbered() {
            conn.execute_batch(&format!(
                "DELETE FROM main.{table} WHERE {number} IN (SELECT ino FROM temp.nameless)"
            ))?;
        }
    }
    conn.execute_batch("DROP TABLE temp.nameless")?;
    Ok(found)
}
