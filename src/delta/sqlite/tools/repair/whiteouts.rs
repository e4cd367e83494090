//! W1, W2, D5: repairs invalid whiteouts, and whiteouts that hide an entry of the session.

use crate::base::BasePath;
use crate::delta::sqlite::table::{dentry, inode, opaque, redirect, value, whiteout};
use crate::delta::sqlite::tools::check::storage_type_error;
use crate::delta::{Ino, MergedPath, Result};
use crate::vfs::{FileKind, Time};

use super::repairer::{BaseListing, Repairer};

pub(super) fn mend(mender: &mut Repairer<'_>) -> Result<()> {
    rows(mender)?;
    let hiding = hiding(mender)?;
    for (path, ino) in hiding {
        let Some(masks) = masks_at(mender, ino, &path)? else { continue };
        whiteout::remove(mender.conn, &path)?;
        add(mender, &masks)?;
        let what = format!("{} was hidden, and is there again", path.display());
        mender.mended("W1", what);
    }
    Ok(())
}

/// Adds whiteouts.
pub(super) fn add(mender: &Repairer<'_>, paths: &[MergedPath]) -> Result<()> {
    let now = mender.host.now;
    paths.iter().try_for_each(|path| whiteout::add(mender.conn, path, now).map(drop))
}

/// W2 and D5: valid paths, the right parent, and the right storage types.
fn rows(mender: &mut Repairer<'_>) -> Result<()> {
    let mut statement =
        mender.conn.prepare("SELECT rowid, path, parent_path, created_at FROM fs_whiteout")?;
    let mut rows = statement.query([])?;
    let mut odd = Vec::new();
    while let Some(row) = rows.next()? {
        let (bytes, parent) = (value::bytes(row, 1)?, value::bytes(row, 2)?);
        let path = MergedPath::from_bytes(bytes).filter(|path| path.name().is_some());
        let is_derived = path.as_ref().is_some_and(|path| path.parent().as_bytes() == parent);
        let is_odd = storage_type_error(row.get_ref(1)?).is_some()
            || storage_type_error(row.get_ref(2)?).is_some();
        if is_derived && !is_odd {
            continue;
        }
        let rule = if is_derived { "D5" } else { "W2" };
        odd.push((row.get::<_, i64>(0)?, rule, bytes.to_vec(), path, value::int(row, 3)?));
    }
    for (rowid, rule, bytes, path, secs) in odd {
        mender.conn.execute("DELETE FROM fs_whiteout WHERE rowid = ?1", [rowid])?;
        let shown = String::from_utf8_lossy(&bytes);
        let Some(path) = path else {
            mender.mended(rule, format!("the whiteout \"{shown}\" is no path: it is removed"));
            continue;
        };
        whiteout::add(mender.conn, &path, Time { secs, nanos: 0 })?;
        mender.mended(rule, format!("the whiteout {shown} is rewritten"));
    }
    Ok(())
}

/// Whiteouts that hide an entry of the session; parents before children.
fn hiding(mender: &Repairer<'_>) -> Result<Vec<(MergedPath, Ino)>> {
    let mut statement = mender.conn.prepare("SELECT path FROM fs_whiteout ORDER BY path")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(path) = MergedPath::from_bytes(value::bytes(row, 0)?) else { continue };
        let mut at = Some(Ino::ROOT);
        for name in path.names() {
            at = match at {
                Some(dir) => dentry::get(mender.conn, dir, &name)?,
                None => None,
            };
        }
        found.extend(at.map(|ino| (path, ino)));
    }
    Ok(found)
}

/// The whiteouts needed to keep base names hidden once the directory `ino` at `path` is no longer
/// whited out; `None` if the base cannot be listed.
pub(super) fn masks_at(
    mender: &Repairer<'_>,
    ino: Ino,
    path: &MergedPath,
) -> Result<Option<Vec<MergedPath>>> {
    let mut masks = Vec::new();
    let is_own = redirect::get(mender.conn, ino)?.is_none();
    if !is_own || !is_dir(mender, ino)? {
        return Ok(Some(masks));
    }
    let Some(base) = mender.base_dir(ino)? else { return Ok(Some(masks)) };
    let mut todo: Vec<(Ino, MergedPath, BasePath)> = vec![(ino, path.clone(), base)];
    while let Some((dir, path, base)) = todo.pop() {
        let names = match (mender.base)(&base) {
            BaseListing::Names(names) => names,
            BaseListing::Nothing => continue,
            BaseListing::Unknown => return Ok(None),
        };
        for name in names {
            let below = path.join(&name);
            match dentry::get(mender.conn, dir, &name)? {
                None => masks.push(below),
                // A redirected directory keeps showing its base directory.
                Some(child) if redirect::get(mender.conn, child)?.is_some() => {}
                Some(child) if opaque::since(mender.conn, child)?.is_some() => {}
                Some(child) if is_dir(mender, child)? => {
                    todo.push((child, below, base.join(&name)));
                }
                Some(_) => {}
            }
        }
    }
    Ok(Some(masks))
}

fn is_dir(mender: &Repairer<'_>, ino: Ino) -> Result<bool> {
    let row = inode::get(mender.conn, ino)?;
    Ok(row.is_some_and(|row| row.kind == FileKind::Directory))
}
