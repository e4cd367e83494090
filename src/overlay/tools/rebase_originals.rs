//! The originals of applied objects.
//!
//! The original of an object that a client changed during the apply becomes what the session had
//! when the apply was planned, as far as that is known: the base's object, except where the apply
//! merged the base's own changes. There, the original stays as it was. With the merged object as
//! the original, these changes of the base would look like the session's removal of them.

use std::collections::BTreeMap;

use super::rebase::{MergedParts, RebaseItem};
use super::rebase_moves::base_bytes;
use super::tree::visible_dir;
use crate::base::{BaseAttr, BasePath, STAGING};
use crate::delta::{MergedPath, Original};
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::original::{
    BlobDigest, copy_original, forget_originals, original_of, read_original, replace_original,
};
use crate::vfs::{FileKind, FsError, Time};

/// Updates originals: they go with applied objects, except those that a client changed since, and
/// move with base objects: `moved` has the old and new paths of directories, and of their entries.
pub(super) fn follow_originals(
    edit: &mut Edit<'_>,
    applied: &[RebaseItem],
    kept: &BTreeMap<&MergedPath, &RebaseItem>,
    mut moved: Vec<(BasePath, BasePath)>,
) -> Result<()> {
    let (mut gone, mut old, mut changed) = (Vec::new(), Vec::new(), BTreeMap::new());
    for applied in applied {
        let found = visible_dir(edit, &applied.path.parent())?;
        let base = found.and_then(|dir| dir.base.clone()).zip(applied.path.name());
        let Some(path) = base.map(|(dir, name)| dir.join(&name)) else { continue };
        let now = edit.view().base_attr_at(&path)?;
        let from = applied.from.as_ref().and_then(|from| BasePath::from_bytes(base_bytes(from)));
        if now.as_ref().is_some_and(|now| now.kind == FileKind::Directory) {
            continue;
        }
        let has_original =
            |now: &BaseAttr| matches!(now.kind, FileKind::Regular | FileKind::Symlink);
        match now.filter(|now| has_original(now) && kept.contains_key(&applied.path)) {
            Some(now) => {
                if let Some(from) = from {
                    move_origin(edit, applied, &from, &path)?;
                    // After an earlier call, another object's original may be at the old path.
                    let id = edit.txn.original(&from)?.map(|original| original.fileid);
                    if id.is_some() && id == applied.object.map(|(id, _)| id) {
                        moved.push((from, path.clone()));
                        gone.push(path.clone());
                    }
                }
                changed.insert(path, (applied, now));
            }
            None => {
                old.extend(from);
                gone.push(path);
            }
        }
    }
    // At an old path, an earlier call may have put the original of a kept object.
    gone.extend(old.into_iter().filter(|path| !changed.contains_key(path)));
    move_originals(edit, moved, &gone)?;
    for (path, (applied, now)) in &changed {
        replace_by_planned(edit, applied, path, now)?;
    }
    Ok(())
}

/// Moves originals, and forgets the other ones at the paths `gone`. Objects may have exchanged
/// their paths, so that all originals move first to paths that no base object has.
fn move_originals(
    edit: &mut Edit<'_>,
    mut moved: Vec<(BasePath, BasePath)>,
    gone: &[BasePath],
) -> Result<()> {
    // What moved by itself, before the directory that it was in.
    moved.sort_by(|(a, _), (b, _)| b.cmp(a));
    moved.dedup();
    let mut aside: Vec<(BasePath, Vec<BasePath>)> = Vec::new();
    for same in moved.chunk_by(|(a, _), (b, _)| a == b) {
        let place = BasePath::from_bytes(format!("{STAGING}/{}", aside.len()).as_bytes());
        let place = place.ok_or(FsError::Stale)?;
        edit.txn.rename_originals(&same[0].0, &place)?;
        aside.push((place, same.iter().map(|(_, now)| now.clone()).collect()));
    }
    for path in gone {
        forget_originals(edit, path)?;
    }
    for (place, names) in aside {
        edit.txn.rename_originals(&place, &names[0])?;
        // A file that got several names.
        for other in &names[1..] {
            copy_original(edit, &names[0], other)?;
        }
    }
    Ok(())
}

/// Gives the session's object that moved in the base the new path as its origin: its original is
/// found by that.
fn move_origin(
    edit: &mut Edit<'_>,
    applied: &RebaseItem,
    from: &BasePath,
    path: &BasePath,
) -> Result<()> {
    let Some((id, _)) = applied.object else { return Ok(()) };
    for ino in edit.txn.copied_up(id)? {
        let mut row = edit.view().inode(ino)?;
        if let Some(origin) = row.origin.as_mut().filter(|origin| origin.path == *from) {
            origin.path = path.clone();
            edit.txn.put_inode(&row)?;
        }
    }
    Ok(())
}

/// Makes the state of the session's object at the plan the original of `path`. If something else
/// changed the base object (`now`) since it was applied, the original stays.
fn replace_by_planned(
    edit: &mut Edit<'_>,
    applied: &RebaseItem,
    path: &BasePath,
    now: &BaseAttr,
) -> Result<()> {
    if applied.base_ctime != Some(now.ctime) {
        return Ok(());
    }
    let (merged, old) = (applied.merged, edit.txn.original(path)?);
    if old.is_none() && merged != MergedParts::default() {
        // What the base had before is not known.
        return Ok(());
    }
    let (mut original, content) = match &old {
        Some(old) if merged.content => (old.clone(), edit.txn.original_content(path)?),
        _ => {
            let content = match now.kind {
                FileKind::Symlink => Some(edit.core.base.read_link(path)?),
                _ => read_original(edit, path, now)?,
            };
            let size = content.as_ref().map_or(now.size, |content| content.len() as u64);
            let digest = content.as_deref().map(BlobDigest::of);
            (Original { size, digest, ..original_of(path, now) }, content)
        }
    };
    (original.mode, original.uid, original.gid) = (now.mode, now.uid, now.gid);
    if let Some(old) = old {
        let [has_mode, has_owner, has_group] = merged.attributes;
        if has_mode {
            original.mode = old.mode;
        }
        if has_owner {
            original.uid = old.uid;
        }
        if has_group {
            original.gid = old.gid;
        }
        if merged.mtime {
            original.mtime = old.mtime;
        }
        if merged != MergedParts::default() {
            // No base file has this time, so that the original is compared by its content.
            original.ctime = Time::default();
        }
    }
    replace_original(edit, original, content.as_deref())
}
