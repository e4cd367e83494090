//! S2, S3, S4, S6, S8, S10, D5: repairs entries without an inode or a directory, invalid names, and
//! inodes without an entry.

use rusqlite::{Connection, OptionalExtension, params};

use crate::delta::sqlite::table::value::{self, Bytes};
use crate::delta::sqlite::tools::check::storage_type_error;
use crate::delta::{Ino, Result};
use crate::vfs::Name;

use super::repairer::Repairer;

pub(super) fn mend(mender: &mut Repairer<'_>) -> Result<()> {
    mender.change(
        "S2",
        "DELETE FROM fs_dentry WHERE ino NOT IN (SELECT ino FROM fs_inode) OR ino IS NULL",
        "an entry that leads to nothing is removed",
    )?;
    parents(mender)?;
    names(mender)?;
    targets(mender)?;
    mender.change(
        "S8",
        "DELETE FROM fs_dentry WHERE id IN (SELECT id FROM
           (SELECT d.id, row_number() OVER (PARTITION BY d.ino ORDER BY d.id) AS nth
            FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino WHERE i.mode & 61440 = 16384)
         WHERE nth > 1)",
        "a directory keeps its first entry alone",
    )?;
    cycles(mender)?;
    for ino in mender.numbers(
        "SELECT i.ino FROM fs_inode i LEFT JOIN fs_dentry d ON d.ino = i.ino
         WHERE i.ino <> 1 AND d.ino IS NULL ORDER BY i.ino",
    )? {
        let path = mender.attach(ino, ino.to_string().as_bytes())?;
        mender.mended("S6", format!("inode {ino} has no entry: it is {path}"));
    }
    Ok(())
}

/// S3: a missing directory is created for its entries; entries of a non-directory are moved.
fn parents(mender: &mut Repairer<'_>) -> Result<()> {
    for ino in mender.numbers(
        "SELECT DISTINCT parent_ino FROM fs_dentry WHERE typeof(parent_ino) = 'integer'
           AND parent_ino > 1 AND parent_ino NOT IN (SELECT ino FROM fs_inode)",
    )? {
        mender.make_as(ino, 0o040_700, 0)?;
        mender.mended("S3", format!("directory {ino} is not there: it is made"));
    }
    for id in mender.numbers(
        "SELECT d.id FROM fs_dentry d LEFT JOIN fs_inode p ON p.ino = d.parent_ino
         WHERE p.mode & 61440 IS NOT 16384 ORDER BY d.id",
    )? {
        let (_, name, ino) = entry(mender.conn, id)?;
        mender.conn.execute("DELETE FROM fs_dentry WHERE id = ?1", [id])?;
        let path = mender.attach(ino, &name)?;
        mender.mended("S3", format!("an entry of what is no directory is {path}"));
    }
    Ok(())
}

/// An entry's directory, name and inode.
fn entry(conn: &Connection, id: i64) -> Result<(i64, Vec<u8>, i64)> {
    let query = "SELECT parent_ino, name, ino FROM fs_dentry WHERE id = ?1";
    let mut statement = conn.prepare_cached(query)?;
    Ok(statement.query_row([id], |row| {
        Ok((value::int(row, 0)?, value::bytes(row, 1)?.to_vec(), value::int(row, 2)?))
    })?)
}

/// S10, S4, D5: each entry gets a valid, unique name in the right storage type.
fn names(mender: &mut Repairer<'_>) -> Result<()> {
    for (id, rule) in odd_names(mender.conn)? {
        let (parent, name, _) = entry(mender.conn, id)?;
        let dir = Ino(parent.cast_unsigned());
        let wanted = Name::new(&name).ok().filter(|_| rule != "S4");
        let taken = "SELECT 1 FROM fs_dentry WHERE parent_ino = ?1 AND name = ?2 AND id <> ?3";
        let key = params![parent, Bytes(&name), id];
        let is_taken = mender.conn.prepare_cached(taken)?.exists(key)?;
        let (rule, new) = match wanted {
            Some(name) if !is_taken => (rule, name),
            Some(_) => ("S4", mender.free_name(dir, &name)?),
            None => (rule, mender.free_name(dir, &name)?),
        };
        let update = "UPDATE fs_dentry SET name = ?2 WHERE id = ?1";
        mender.conn.execute(update, params![id, Bytes(new.as_bytes())])?;
        let (was, now) = (String::from_utf8_lossy(&name), String::from_utf8_lossy(new.as_bytes()));
        mender.mended(
            rule,
            match was == now {
                true => format!("the name \"{now}\" is stored as it has to be"),
                false => format!("the entry \"{was}\" of directory {parent} is \"{now}\" now"),
            },
        );
    }
    Ok(())
}

/// The entries whose names must change, and the rule that each breaks.
fn odd_names(conn: &Connection) -> Result<Vec<(i64, &'static str)>> {
    let mut odd = Vec::new();
    let mut statement = conn.prepare("SELECT id, name FROM fs_dentry ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if Name::check(value::bytes(row, 1)?).is_err() {
            odd.push((row.get(0)?, "S10"));
        } else if storage_type_error(row.get_ref(1)?).is_some() {
            odd.push((row.get(0)?, "D5"));
        }
    }
    // Only possible without the UNIQUE constraint.
    let mut statement = conn.prepare(
        "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY parent_ino, name ORDER BY id)
           AS nth FROM fs_dentry) WHERE nth > 1",
    )?;
    for id in statement.query_map([], |row| row.get(0))? {
        odd.push((id?, "S4"));
    }
    Ok(odd)
}

/// D5: storage types of link targets.
fn targets(mender: &mut Repairer<'_>) -> Result<()> {
    let mut statement = mender.conn.prepare("SELECT ino, target FROM fs_symlink")?;
    let mut rows = statement.query([])?;
    let mut odd = Vec::new();
    while let Some(row) = rows.next()? {
        if storage_type_error(row.get_ref(1)?).is_some() {
            odd.push((value::int(row, 0)?, value::bytes(row, 1)?.to_vec()));
        }
    }
    for (ino, target) in odd {
        let update = "UPDATE fs_symlink SET target = ?2 WHERE ino = ?1";
        mender.conn.execute(update, params![ino, Bytes(&target)])?;
        mender.mended("D5", format!("the target of inode {ino} is stored as it has to be"));
    }
    Ok(())
}

/// S8: detaches one directory of each cycle.
fn cycles(mender: &mut Repairer<'_>) -> Result<()> {
    let unreached = "WITH RECURSIVE
         dirs (parent_ino, ino) AS MATERIALIZED (SELECT d.parent_ino, d.ino
           FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino WHERE i.mode & 61440 = 16384),
         reached (ino) AS (SELECT parent_ino FROM dirs WHERE parent_ino NOT IN
             (SELECT ino FROM dirs)
           UNION SELECT d.ino FROM reached r JOIN dirs d ON d.parent_ino = r.ino)
         SELECT min(ino) FROM dirs WHERE ino NOT IN (SELECT ino FROM reached)";
    loop {
        let below: Option<i64> = mender.conn.query_row(unreached, [], |row| row.get(0))?;
        let Some(mut at) = below else { return Ok(()) };
        let mut seen = std::collections::BTreeSet::new();
        // Go up until a directory repeats.
        while seen.insert(at) {
            let query = "SELECT parent_ino FROM fs_dentry WHERE ino = ?1";
            let up = mender.conn.query_row(query, [at], |row| row.get(0)).optional()?;
            at = up.unwrap_or(at);
        }
        mender.conn.execute("DELETE FROM fs_dentry WHERE ino = ?1", [at])?;
        mender.mended("S8", format!("directory {at} lay in itself: its entry is removed"));
    }
}
