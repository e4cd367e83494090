//! O1 to O3, C1, W3, R1, L1, D4: repairs copies, originals, redirects, marks and `acetate_inode`.

use crate::base::BasePath;
use crate::delta::sqlite::table::{redirect, value};
use crate::delta::sqlite::tools::check;
use crate::delta::{Ino, Result};

use super::repairer::Repairer;
use super::whiteouts;

pub(super) fn mend(mender: &mut Repairer<'_>) -> Result<()> {
    mender.change(
        "O1",
        "DELETE FROM acetate_origin WHERE delta_ino NOT IN (SELECT ino FROM fs_inode)",
        "an origin of nothing is removed",
    )?;
    mender.change(
        "O2",
        // Keep origins of pending copy-ups: they are needed to find the content.
        "DELETE FROM acetate_origin WHERE delta_ino IN (SELECT delta_ino FROM
           (SELECT o.delta_ino, u.delta_ino AS pending, row_number() OVER
              (PARTITION BY o.base_ino,
                 iif(o.nlink > 1 AND i.mode & 61440 <> 16384, NULL, o.base_path)
               ORDER BY u.delta_ino IS NULL, o.delta_ino) AS nth
            FROM acetate_origin o LEFT JOIN fs_inode i ON i.ino = o.delta_ino
              LEFT JOIN acetate_copy_up u ON u.delta_ino = o.delta_ino)
         WHERE nth > 1 AND pending IS NULL)",
        "a second copy of a base object becomes an object of its own",
    )?;
    mender.change(
        "O1",
        "INSERT INTO fs_origin (delta_ino, base_ino) SELECT a.delta_ino, a.base_ino
         FROM acetate_origin a LEFT JOIN fs_origin f ON f.delta_ino = a.delta_ino
         WHERE f.base_ino IS NOT a.base_ino
           AND (f.delta_ino IS NOT NULL
             OR NOT EXISTS (SELECT 1 FROM acetate_meta WHERE key = 'sealed_for'))
         ON CONFLICT(delta_ino) DO UPDATE SET base_ino = excluded.base_ino",
        "fs_origin says what acetate_origin does",
    )?;
    mender.change(
        "O3",
        "DELETE FROM acetate_original
         WHERE mode & 61440 NOT IN (16384, 32768, 40960) OR content IS NOT NULL
           AND (digest IS NULL OR length(digest) <> 20 OR length(content) <> size)",
        "an original that cannot be one is removed",
    )?;
    pending(mender)?;
    redirects(mender)?;
    opaque(mender)?;
    mender.change(
        "L1",
        "DELETE FROM acetate_link WHERE typeof(hidden) <> 'integer' OR hidden < 1",
        "a count of hidden names that is none is removed",
    )?;
    mender.change(
        "D4",
        "DELETE FROM acetate_inode WHERE ino NOT IN (SELECT ino FROM fs_inode)
           OR (subdirs IS NULL AND holes IS 0 AND create_verifier IS NULL)",
        "a row of acetate_inode for nothing is removed",
    )?;
    mender.change(
        "D4",
        "UPDATE acetate_inode SET subdirs = NULL, holes = 0, create_verifier =
           iif(typeof(create_verifier) = 'blob' AND length(create_verifier) = 8,
             create_verifier, NULL)
         WHERE subdirs < 0 OR holes IS NULL OR holes < 0
           OR (subdirs IS NOT NULL AND ino NOT IN
             (SELECT ino FROM fs_inode WHERE mode & 61440 = 16384))
           OR (holes > 0 AND ino NOT IN (SELECT ino FROM fs_inode WHERE mode & 61440 = 32768))
           OR (create_verifier IS NOT NULL
             AND (typeof(create_verifier) <> 'blob' OR length(create_verifier) <> 8))",
        "a row of acetate_inode says what can be",
    )
}

/// C1: a pending range lies within the file and within the base file. Without an origin the range
/// is unknown and stays as it is.
fn pending(mender: &mut Repairer<'_>) -> Result<()> {
    mender.change(
        "C1",
        "DELETE FROM acetate_copy_up
         WHERE delta_ino NOT IN (SELECT ino FROM fs_inode WHERE mode & 61440 = 32768)",
        "a copy to what is no file is removed",
    )?;
    let chunk = mender.chunk;
    let sizes = "(SELECT min(i.size, o.size) FROM fs_inode i JOIN acetate_origin o
        ON o.delta_ino = i.ino WHERE i.ino = acetate_copy_up.delta_ino)";
    mender.change(
        "C1",
        &format!(
            "UPDATE acetate_copy_up SET next_byte = max(0, next_byte - next_byte % {chunk}),
               end_byte = min(end_byte, {sizes})
             WHERE {sizes} IS NOT NULL
               AND (next_byte < 0 OR next_byte % {chunk} <> 0 OR end_byte > {sizes})"
        ),
        "what is pending begins with a chunk, and ends with the file",
    )?;
    mender.change(
        "C1",
        "DELETE FROM acetate_copy_up WHERE next_byte >= end_byte",
        "a copy of no bytes is removed",
    )
}

/// W3: only directories have a mark; the root and redirected directories have none.
fn opaque(mender: &mut Repairer<'_>) -> Result<()> {
    mender.change(
        "W3",
        "DELETE FROM acetate_opaque WHERE delta_ino = 1
           OR delta_ino NOT IN (SELECT ino FROM fs_inode WHERE mode & 61440 = 16384)
           OR delta_ino IN (SELECT delta_ino FROM acetate_redirect)",
        "the mark of what cannot be opaque is removed",
    )
}

/// R1: only directories have a redirect, and no base directory shows twice.
fn redirects(mender: &mut Repairer<'_>) -> Result<()> {
    mender.change(
        "R1",
        "DELETE FROM acetate_redirect
         WHERE delta_ino NOT IN (SELECT ino FROM fs_inode WHERE mode & 61440 = 16384)",
        "a redirect of what is no directory is removed",
    )?;
    for ino in mender.numbers(
        "SELECT delta_ino FROM (SELECT delta_ino, row_number() OVER
           (PARTITION BY CAST(base_path AS BLOB) ORDER BY delta_ino) AS nth FROM acetate_redirect)
         WHERE nth > 1",
    )? {
        drop_redirect(mender, ino, "its base directory shows through another one")?;
    }
    let mut statement = mender.conn.prepare("SELECT delta_ino, base_path FROM acetate_redirect")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push((value::int(row, 0)?, BasePath::from_bytes(value::bytes(row, 1)?)));
    }
    for (ino, base) in all {
        let Some(base) = base else {
            drop_redirect(mender, ino, "it leads to what is no path in the base")?;
            continue;
        };
        if let Some(place) = check::shown_at_its_place(mender.conn, &base)? {
            whiteouts::add(mender, std::slice::from_ref(&place))?;
            let what =
                format!("the base directory at {} shows in its new place alone", place.display());
            mender.mended("R1", what);
        }
    }
    Ok(())
}

/// Removes a redirect, and hides what the base has at the directory's own place.
fn drop_redirect(mender: &mut Repairer<'_>, ino: i64, why: &str) -> Result<()> {
    let dir = Ino(ino.cast_unsigned());
    let was = "SELECT base_path FROM acetate_redirect WHERE delta_ino = ?1";
    let was: rusqlite::types::Value = mender.conn.query_row(was, [ino], |row| row.get(0))?;
    redirect::delete(mender.conn, dir)?;
    let path = mender.path(dir)?;
    let masks = match &path {
        Some(path) => whiteouts::masks_at(mender, dir, path)?,
        None => Some(Vec::new()),
    };
    let Some(masks) = masks else {
        let back = "INSERT INTO acetate_redirect (delta_ino, base_path) VALUES (?1, ?2)";
        mender.conn.execute(back, rusqlite::params![ino, was])?;
        return Ok(());
    };
    whiteouts::add(mender, &masks)?;
    mender.mended("R1", format!("the redirect of directory {ino} is removed: {why}"));
    Ok(())
}
