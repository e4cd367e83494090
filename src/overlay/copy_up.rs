//! Copy-up: makes a base object a delta object with the same file number, handle, owner, mode,
//! times and content, right before its first change.
//!
//! Content is copied in pieces; holes stay holes. If the base file changes during the copy, the
//! operation rolls back and the client gets JUKEBOX, so the session never mixes two states of a
//! file. The content of a large file stays [pending](super::copy_up_pending): the background copies
//! it after the change.

use crate::base::{BaseAttr, BasePath};
use crate::delta::{CopyUp, Ino, InodeRow, MergedPath, Origin};
use crate::vfs::{FileKind, FsError, Name, Time};

use super::cache::Invalidation;
use super::copy_up_pending::{set_pending, write_content};
use super::edit::Edit;
use super::error::Result;
use super::node::{DirId, DirPlace, Node, is_linked};
use super::original::{keep_original, keeps_original_of, read_original};

/// The content of the new delta file.
#[derive(Clone, Copy)]
enum CopiedContent<'d> {
    /// The first bytes of the base file, up to this number.
    Head(u64),
    /// The whole base file, with these bytes written at this offset.
    Written(u64, &'d [u8]),
}

/// Whether a base file certainly has no holes.
fn is_dense(attr: &BaseAttr) -> bool {
    attr.used >= attr.size
}

/// Copies an object up unless it is in the delta, and returns its row. The caller must store
/// the row, changed or not.
pub(super) fn copy_up(edit: &mut Edit<'_>, node: Node) -> Result<Box<InodeRow>> {
    copy_up_as(edit, node, CopiedContent::Head(u64::MAX))
}

/// As [`Edit<'_>::copy_up`], but copies only the first `keep` bytes: the caller truncates the file.
pub(super) fn copy_up_head(edit: &mut Edit<'_>, node: Node, keep: u64) -> Result<Box<InodeRow>> {
    copy_up_as(edit, node, CopiedContent::Head(keep))
}

/// As [`Edit<'_>::copy_up`] of a file, with `data` written at byte `offset`.
pub(super) fn copy_up_written(
    edit: &mut Edit<'_>,
    node: Node,
    offset: u64,
    data: &[u8],
) -> Result<Box<InodeRow>> {
    copy_up_as(edit, node, CopiedContent::Written(offset, data))
}

fn copy_up_as(
    edit: &mut Edit<'_>,
    node: Node,
    content: CopiedContent<'_>,
) -> Result<Box<InodeRow>> {
    let (path, attr) = match node {
        Node::Delta(mut row) => {
            if let CopiedContent::Written(offset, data) = content {
                write_content(edit, &mut row, offset, data)?;
            }
            return Ok(row);
        }
        Node::Base { path, attr } => (path, attr),
    };
    if attr.kind == FileKind::Directory {
        let place = edit.view().place_of_base(&path)?.ok_or(FsError::Stale)?;
        let ino = ensure_dir(edit, &place)?;
        return Ok(Box::new(edit.view().inode(ino)?));
    }
    let (parent, name) = path.split().ok_or(FsError::Stale)?;
    let place = edit.view().place_of_base(&parent)?.ok_or(FsError::Stale)?;
    let parent = ensure_dir(edit, &place)?;
    edit.count_once(parent)?;
    let mut row = row_from_base(edit, &path, &attr)?;
    match attr.kind {
        FileKind::Regular => copy_content(edit, &path, &attr, &mut row, content)?,
        FileKind::Symlink => {
            let target = edit.core.base.read_link(&path)?;
            row.size = target.len() as u64;
            edit.txn.put_symlink(row.ino, &target)?;
            keep_original(edit, &path, &attr, Some(&target), true)?;
        }
        _ => {}
    }
    edit.txn.insert_dentry(parent, &name, row.ino)?;
    edit.copied = Some((row.ino, place.merged.join(&name)));
    if is_linked(attr.kind, attr.nlink) {
        let (_, since) = edit.txn.hidden_links(attr.fileid)?;
        edit.txn.hide_link(attr.fileid, since.unwrap_or(attr.ctime))?;
    }
    edit.touch_child(place.id(), &name);
    Ok(Box::new(row))
}

/// The delta inode of a visible directory. Copies the directory and its missing ancestors up,
/// the topmost first.
pub(super) fn ensure_dir(edit: &mut Edit<'_>, place: &DirPlace) -> Result<Ino> {
    if let Some(ino) = place.ino {
        return Ok(ino);
    }
    // `place` may be outdated: the operation may already have copied this directory up, as an
    // ancestor of another directory that it changes.
    let mut missing = Vec::new();
    let mut path = place.base.clone().ok_or(FsError::Stale)?;
    let mut ino = loop {
        let found = edit.view().place_of_base(&path)?.ok_or(FsError::Stale)?;
        if let Some(ino) = found.ino {
            break ino;
        }
        let (parent, _) = path.split().ok_or(FsError::Stale)?;
        missing.push(std::mem::replace(&mut path, parent));
    };
    if !missing.is_empty() {
        edit.count_once(ino)?;
    }
    while let Some(path) = missing.pop() {
        let (above, name) = path.split().ok_or(FsError::Stale)?;
        let above = edit.view().place_of_base(&above)?.ok_or(FsError::Stale)?;
        let row = dir_from_base(edit, &path)?;
        edit.txn.insert_dentry(ino, &name, row.ino)?;
        edit.touch_child(above.id(), &name);
        ino = row.ino;
    }
    Ok(ino)
}

/// Stores an inode for a base directory. The caller adds the dentry.
pub(super) fn dir_from_base(edit: &mut Edit<'_>, path: &BasePath) -> Result<InodeRow> {
    let attr = edit.core.base.stat(path)?;
    if attr.kind != FileKind::Directory {
        return Err(FsError::Stale.into());
    }
    let subdirs = match attr.nlink.checked_sub(2) {
        Some(subdirs) => subdirs,
        None => {
            let place = edit.view().place_of_base(path)?.ok_or(FsError::Stale)?;
            edit.view().count_subdirs(&place)?
        }
    };
    let mut row = row_from_base(edit, path, &attr)?;
    row.subdirs = Some(subdirs);
    edit.txn.put_inode(&row)?;
    edit.touch_place(None, Some(path.clone()));
    Ok(row)
}

/// A new inode with the attributes and the origin of a base object.
fn row_from_base(edit: &mut Edit<'_>, path: &BasePath, attr: &BaseAttr) -> Result<InodeRow> {
    let (_, hidden_since) = match is_linked(attr.kind, attr.nlink) {
        true => edit.txn.hidden_links(attr.fileid)?,
        false => (0, None),
    };
    Ok(InodeRow {
        ino: edit.txn.allocate_ino()?,
        kind: attr.kind,
        mode: attr.mode,
        nlink: 1,
        uid: attr.uid,
        gid: attr.gid,
        size: 0,
        rdev: attr.rdev,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime.max(hidden_since.unwrap_or(attr.ctime)),
        subdirs: None,
        holes: 0,
        create_verifier: None,
        copy_up: None,
        origin: Some(origin_of(path.clone(), attr)),
    })
}

/// Copies the content of a base file into `row`.
fn copy_content(
    edit: &mut Edit<'_>,
    path: &BasePath,
    attr: &BaseAttr,
    row: &mut InodeRow,
    content: CopiedContent<'_>,
) -> Result<()> {
    let is_cut = matches!(content, CopiedContent::Head(keep) if keep < attr.size);
    let whole = match is_cut || !keeps_original_of(edit, attr.size) {
        // The part that is cut off need not be readable.
        true => read_original(edit, path, attr)?,
        false => {
            let mut whole = vec![0; attr.size as usize];
            read_unchanged(edit, path, attr, 0, &mut whole)?;
            Some(whole)
        }
    };
    keep_original(edit, path, attr, whole.as_deref(), true)?;
    let is_inline = attr.size <= edit.core.copy_up.inline_bytes && is_dense(attr);
    let whole = whole.filter(|_| is_inline);
    match (content, whole) {
        (CopiedContent::Head(keep), Some(whole)) => {
            let end = attr.size.min(keep) as usize;
            Ok(edit.txn.write_data(row, 0, &whole[..end])?)
        }
        // Copy and write in one step: no chunk is stored twice.
        (CopiedContent::Written(offset, data), Some(mut whole)) if offset <= attr.size => {
            let from = offset as usize;
            whole.resize(whole.len().max(from + data.len()), 0);
            whole[from..from + data.len()].copy_from_slice(data);
            Ok(edit.txn.write_data(row, 0, &whole)?)
        }
        (content, _) => copy_pieces(edit, path, attr, row, content),
    }
}

/// As [`Edit<'_>::copy_content`], in pieces or in the background.
fn copy_pieces(
    edit: &mut Edit<'_>,
    path: &BasePath,
    attr: &BaseAttr,
    row: &mut InodeRow,
    content: CopiedContent<'_>,
) -> Result<()> {
    match content {
        CopiedContent::Head(keep) => copy_head(edit, path, attr, row, attr.size.min(keep)),
        CopiedContent::Written(offset, data) => {
            copy_head(edit, path, attr, row, attr.size)?;
            write_content(edit, row, offset, data)
        }
    }
}

/// Copies the first `end` bytes of a base file into `row`.
fn copy_head(
    edit: &mut Edit<'_>,
    path: &BasePath,
    attr: &BaseAttr,
    row: &mut InodeRow,
    end: u64,
) -> Result<()> {
    if end > edit.core.copy_up.inline_bytes {
        return begin_copy(edit, path, attr, row, end);
    }
    let mut buffer = vec![0; edit.core.copy_up.piece_bytes.min(end) as usize];
    let mut at = 0;
    while at < end {
        let data = match is_dense(attr) {
            true => Some((at, end)),
            false => edit.core.base.next_data(path, attr.fileid, at)?,
        };
        let Some((start, stop)) = data else { break };
        at = start;
        while at < stop.min(end) {
            let piece = (stop.min(end) - at).min(buffer.len() as u64) as usize;
            read_unchanged(edit, path, attr, at, &mut buffer[..piece])?;
            edit.txn.write_data(row, at, &buffer[..piece])?;
            at += piece as u64;
        }
    }
    Ok(edit.txn.truncate(row, end)?)
}

/// Marks the first `end` bytes of a base file as pending.
fn begin_copy(
    edit: &mut Edit<'_>,
    path: &BasePath,
    attr: &BaseAttr,
    row: &mut InodeRow,
    end: u64,
) -> Result<()> {
    // Fails now if the server may not read the file, instead of in the background.
    read_unchanged(edit, path, attr, end - 1, &mut [0])?;
    edit.txn.truncate(row, end)?;
    row.holes = 0;
    set_pending(edit, row, CopyUp { next: 0, end })
}

/// Reads a base file from byte `offset` into `buffer`; [`FsError::TryLater`] if the file
/// changed since `attr` was read.
fn read_unchanged(
    edit: &Edit<'_>,
    path: &BasePath,
    attr: &BaseAttr,
    offset: u64,
    buffer: &mut [u8],
) -> Result<()> {
    let (got, now) = edit.core.base.read(path, attr.fileid, offset, buffer)?;
    if got != buffer.len() || (now.size, now.mtime) != (attr.size, attr.mtime) {
        tracing::warn!(?path, "changed while it was copied up");
        return Err(FsError::TryLater.into());
    }
    Ok(())
}

/// Marks a directory opaque: nothing of the base shows through it.
pub(super) fn make_opaque(edit: &mut Edit<'_>, dir: &InodeRow) -> Result<()> {
    edit.txn.put_opaque(dir.ino, edit.now)?;
    edit.touch_place(Some(dir.ino), None);
    Ok(())
}

/// Replaces the opaque mark of a directory by whiteouts with the same effect: O(names in the
/// base directory). The mark stays while the base has no directory there: it may get it again.
pub(super) fn replace_mark(edit: &mut Edit<'_>, dir: &InodeRow) -> Result<()> {
    let Some(secs) = edit.txn.opaque_since(dir.ino)? else { return Ok(()) };
    edit.txn.remove_opaque(dir.ino)?;
    edit.invalidate(Invalidation::All);
    let place = edit.view().place_of_inode(dir.ino, dir.fileid())?;
    let since = Time { secs, nanos: 0 };
    let Some(base) = &place.base else {
        edit.txn.put_opaque(dir.ino, since)?;
        edit.invalidate(Invalidation::All);
        return Ok(());
    };
    add_whiteouts_of(edit, dir, &place.merged, base, since)
}

/// Adds a whiteout for every base entry of `base` that shows below the delta directory `dir` at
/// `merged`. Programs that know only the specification's tables then see an opaque directory,
/// too. `since` is the time of the whiteouts.
pub(super) fn add_whiteouts_of(
    edit: &mut Edit<'_>,
    dir: &InodeRow,
    merged: &MergedPath,
    base: &BasePath,
    since: Time,
) -> Result<()> {
    let id = |row: &InodeRow| DirId { fileid: row.fileid(), ino: Some(row.ino) };
    let mut open = vec![(id(dir), dir.ino, merged.clone(), base.clone())];
    while let Some((dir, ino, merged, base)) = open.pop() {
        let listing = edit.core.base.list(&base)?;
        for entry in &listing.entries {
            let path = merged.join(&entry.name);
            match edit.txn.dentry(ino, &entry.name)? {
                None => {
                    edit.txn.add_whiteout(&path, since)?;
                    // The cache may hold "no whiteout" for this name, from before a rename to
                    // here.
                    edit.touch_child(dir, &entry.name);
                }
                Some(below) => {
                    if let Some(base) = implied_base(edit, below, &base, &entry.name)? {
                        let row = edit.view().inode(below)?;
                        open.push((id(&row), below, path, base));
                    }
                }
            }
        }
    }
    Ok(())
}

/// The base directory that shows through the delta inode `ino`, `name` below `base`, because of
/// its path: without redirect or opaque mark.
pub(super) fn implied_base(
    edit: &Edit<'_>,
    ino: Ino,
    base: &BasePath,
    name: &Name,
) -> Result<Option<BasePath>> {
    let view = edit.view();
    if view.inode(ino)?.kind != FileKind::Directory
        || view.txn.redirect(ino)?.is_some()
        || view.is_opaque(ino)?
    {
        return Ok(None);
    }
    view.base_dir_at(base.join(name))
}

/// The origin row for a base object in its current state.
pub(super) fn origin_of(path: BasePath, attr: &BaseAttr) -> Origin {
    Origin {
        fileid: attr.fileid,
        path,
        dev: attr.dev,
        ino: attr.ino,
        nlink: attr.nlink,
        size: attr.size,
        mtime: attr.mtime,
        ctime: attr.ctime,
        attributes: (attr.kind == FileKind::Directory).then_some([attr.mode, attr.uid, attr.gid]),
    }
}
