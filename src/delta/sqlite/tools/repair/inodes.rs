//! S1, S5, S9, D6, D7: repairs inodes with invalid columns.

use rusqlite::OptionalExtension;

use crate::delta::Result;
use crate::delta::sqlite::table::value;

use super::repairer::Repairer;

pub(super) fn mend(mender: &mut Repairer<'_>) -> Result<()> {
    modes(mender)?;
    root(mender)?;
    links(mender)?;
    mender.change(
        "S9",
        "UPDATE fs_inode SET atime_nsec = max(0, min(999999999, CAST(atime_nsec AS INTEGER))),
           mtime_nsec = max(0, min(999999999, CAST(mtime_nsec AS INTEGER))),
           ctime_nsec = max(0, min(999999999, CAST(ctime_nsec AS INTEGER)))
         WHERE NOT (atime_nsec BETWEEN 0 AND 999999999 AND mtime_nsec BETWEEN 0 AND 999999999
           AND ctime_nsec BETWEEN 0 AND 999999999)",
        "nanoseconds are brought into their range",
    )?;
    sizes(mender)?;
    mender.change(
        "D7",
        "UPDATE fs_inode SET rdev = 0
         WHERE typeof(rdev) <> 'integer' OR (rdev <> 0 AND mode & 61440 NOT IN (8192, 24576))",
        "what is no device has no device number",
    )
}

/// S5: an inode without a valid type gets the one that its rows suggest, or regular file.
fn modes(mender: &mut Repairer<'_>) -> Result<()> {
    mender.change(
        "S5",
        "UPDATE fs_inode SET mode = CAST(mode AS INTEGER) & 65535
         WHERE (mode NOT BETWEEN 0 AND 65535 OR typeof(mode) <> 'integer')
           AND CAST(mode AS INTEGER) & 61440 IN (4096, 8192, 16384, 24576, 32768, 40960, 49152)",
        "a mode has bits that mean nothing: they are dropped",
    )?;
    mender.change(
        "S5",
        "UPDATE fs_inode SET mode = (CAST(mode AS INTEGER) & 4095) | CASE
           WHEN ino = 1 OR EXISTS (SELECT 1 FROM fs_dentry d WHERE d.parent_ino = fs_inode.ino)
             THEN 16384
           WHEN EXISTS (SELECT 1 FROM fs_symlink s WHERE s.ino = fs_inode.ino) THEN 40960
           ELSE 32768 END
         WHERE typeof(mode) <> 'integer'
           OR mode & 61440 NOT IN (4096, 8192, 16384, 24576, 32768, 40960, 49152)",
        "an inode of no type becomes what its rows say, or a file",
    )
}

/// S1: creates the root, or makes it a directory. Content of the old root moves to a new inode.
fn root(mender: &mut Repairer<'_>) -> Result<()> {
    let query = "SELECT mode FROM fs_inode WHERE ino = 1";
    let mode = mender.conn.query_row(query, [], |row| value::int(row, 0)).optional()?;
    match mode {
        None => {
            mender.make_as(1, 0o040_755, 0)?;
            mender.mended("S1", "the root is made");
        }
        Some(mode) if mode & 0o170_000 != 0o040_000 => {
            let holds = "SELECT 1 FROM fs_data WHERE ino = 1 UNION ALL
                SELECT 1 FROM fs_symlink WHERE ino = 1";
            if mender.conn.prepare(holds)?.exists([])? {
                let other = mender.make(0, 0)?;
                mender.conn.execute_batch(&format!(
                    "UPDATE fs_inode SET (mode, size) = (SELECT mode, size FROM fs_inode
                       WHERE ino = 1) WHERE ino = {other};
                     UPDATE fs_data SET ino = {other} WHERE ino = 1;
                     UPDATE fs_symlink SET ino = {other} WHERE ino = 1;"
                ))?;
            }
            let update = "UPDATE fs_inode SET mode = 16877, size = 0 WHERE ino = 1";
            mender.conn.execute(update, [])?;
            mender.mended("S1", "the root becomes a directory");
        }
        Some(_) => {}
    }
    mender.change("S1", "DELETE FROM fs_dentry WHERE ino = 1", "an entry of the root is removed")
}

/// D6: a symbolic link without a target becomes a file; a target without a link gets one.
fn links(mender: &mut Repairer<'_>) -> Result<()> {
    mender.change(
        "D6",
        "UPDATE fs_inode SET mode = 33152
         WHERE mode & 61440 = 40960 AND ino NOT IN (SELECT ino FROM fs_symlink)",
        "a symbolic link without a target becomes a file",
    )?;
    for ino in mender.numbers(
        "SELECT s.ino FROM fs_symlink s LEFT JOIN fs_inode i ON i.ino = s.ino
         WHERE i.mode & 61440 IS NOT 40960",
    )? {
        let new = mender.make(0o120_777, 0)?;
        mender.conn.execute("UPDATE fs_symlink SET ino = ?2 WHERE ino = ?1", [ino, new])?;
        let path = mender.attach(new, format!("{ino}.target").as_bytes())?;
        mender.mended("D6", format!("inode {ino} is no symbolic link: its target is {path}"));
    }
    Ok(())
}

/// S9: an invalid size becomes the end of the last chunk.
fn sizes(mender: &mut Repairer<'_>) -> Result<()> {
    let sql = format!(
        "UPDATE fs_inode SET size = ifnull((SELECT chunk_index * {0} + min(octet_length(data), {0})
           FROM fs_data d WHERE d.ino = fs_inode.ino AND typeof(chunk_index) = 'integer'
             AND chunk_index BETWEEN 0 AND {1} ORDER BY chunk_index DESC LIMIT 1), 0)
         WHERE typeof(size) <> 'integer' OR size < 0",
        mender.chunk,
        i64::MAX.cast_unsigned() / mender.chunk - 1,
    );
    mender.change("S9", &sql, "a size that cannot be becomes what the chunks hold")
}
