//! R1: no base directory shows at its own place and through a redirect.

use rusqlite::Connection;

use crate::base::BasePath;
use crate::delta::sqlite::table::{dentry, inode, opaque, redirect, value, whiteout};
use crate::delta::{Ino, MergedPath, Result};
use crate::vfs::{FileKind, Name};

use super::found::{BreachSubject, InodePaths, RuleFindings};
use super::{CheckedFile, RedirectedDir};

pub(super) fn check(subject: &CheckedFile<'_>, found: &mut RuleFindings) -> Result<()> {
    let query = "SELECT delta_ino, base_path FROM acetate_redirect";
    let mut statement = subject.conn.prepare(query)?;
    let mut rows = statement.query([])?;
    let paths = InodePaths::new(subject.conn)?;
    while let Some(row) = rows.next()? {
        let at = BreachSubject::Inode(value::int(row, 0)?);
        let Some(base) = BasePath::from_bytes(value::bytes(row, 1)?) else {
            found.add("R1", at, "a redirect to what is no path in the base");
            continue;
        };
        if let Some(place) = own_place(subject.conn, &paths, &base)? {
            let place = String::from_utf8_lossy(place.as_bytes()).into_owned();
            found.add("R1", at, format!("its base directory shows at {place} too"));
        }
    }
    Ok(())
}

/// The directories that have a redirect.
pub(super) fn all(conn: &Connection) -> Result<Vec<RedirectedDir>> {
    let paths = InodePaths::new(conn)?;
    let mut found = Vec::new();
    for ino in redirect::all(conn)? {
        // An invalid base path is already a finding.
        let Ok(Some(base)) = redirect::get(conn, ino) else { continue };
        let ino = ino.0.cast_signed();
        found.push(RedirectedDir { ino, path: paths.of(ino)?, base });
    }
    Ok(found)
}

/// The merged path where a redirected base directory also shows at its own place, if it does.
pub(in crate::delta::sqlite) fn shown_at_its_place(
    conn: &Connection,
    base: &BasePath,
) -> Result<Option<MergedPath>> {
    own_place(conn, &InodePaths::new(conn)?, base)
}

/// The merged path where the base directory `base` shows at its own place, if nothing hides it
/// there. A delta directory at that place has whiteouts for entries that it must not show.
fn own_place(
    conn: &Connection,
    paths: &InodePaths<'_>,
    base: &BasePath,
) -> Result<Option<MergedPath>> {
    // Go down from the closest redirected ancestor, or from the root.
    let mut below: Vec<Name> = Vec::new();
    let mut above = base.clone();
    let (mut place, mut ino) = loop {
        let Some((parent, name)) = above.split() else {
            break (MergedPath::root(), Some(Ino::ROOT));
        };
        below.push(name);
        above = parent;
        if let Some(ino) = redirect::of_base(conn, &above)? {
            let path = paths.of(ino.0.cast_signed())?;
            match path.as_deref().and_then(MergedPath::from_bytes) {
                Some(path) => break (path, Some(ino)),
                None => return Ok(None),
            }
        }
    };
    while let Some(name) = below.pop() {
        place = place.join(&name);
        if whiteout::exists(conn, &place)? {
            return Ok(None);
        }
        ino = match ino {
            Some(dir) => dentry::get(conn, dir, &name)?,
            None => None,
        };
        let Some(child) = ino else { continue };
        let row = inode::get(conn, child)?;
        let is_dir = row.is_some_and(|row| row.kind == FileKind::Directory);
        if !is_dir || redirect::get(conn, child)?.is_some() || opaque::since(conn, child)?.is_some()
        {
            return Ok(None);
        }
    }
    Ok(ino.is_none().then_some(place))
}
