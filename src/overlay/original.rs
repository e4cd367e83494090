//! Originals: base objects as they were right before the session first changed or hid them
//! ([`Original`], docs/SCHEMA.md).
//!
//! A person may edit the base while the session has changes of the same files. Comparing session
//! and base with the original separates the changes of the two.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use sha1::{Digest, Sha1};

use crate::base::{BaseAttr, BaseError, BasePath};
use crate::delta::{MergedPath, Original};
use crate::vfs::{FileId, FileKind, Name, Time};

use super::edit::Edit;
use super::error::{OpError, Result};
use super::followed::{now_of, original_at};
use super::moved_out::recorded_path;
use super::node::DirPlace;
use super::rename::is_created_in_session;
use super::resolve::View;
use super::tools::changes::BaseObject;
use super::tools::tree::visible_dir;

/// Size of one read when a base file is compared, in bytes.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// Total content of the session's originals, in bytes.
///
/// A rollback does not undo the count: the total may be too large or too small until the session
/// is opened again.
#[derive(Debug, Default)]
pub(super) struct OriginalsTotal {
    is_counted: AtomicBool,
    bytes: AtomicU64,
    is_full_logged: AtomicBool,
}

impl OriginalsTotal {
    /// Counts again before the next original: rows were replaced.
    pub fn count_again(&self) {
        self.is_counted.store(false, Relaxed);
    }

    /// Subtracts deleted content, in bytes.
    pub fn forget(&self, freed: u64) {
        let less = |kept: u64| Some(kept.saturating_sub(freed));
        let _ = self.bytes.fetch_update(Relaxed, Relaxed, less);
    }
}

/// An original with the attributes `attr`, without digest and content.
pub(super) fn original_of(path: &BasePath, attr: &BaseAttr) -> Original {
    Original {
        path: path.clone(),
        fileid: attr.fileid,
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        mtime: attr.mtime,
        ctime: attr.ctime,
        digest: None,
        has_content: false,
    }
}

/// git's object name of a file's content: the SHA-1 of `blob SIZE\0` and the bytes.
pub struct BlobDigest(Sha1);

impl BlobDigest {
    /// Starts a digest of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self(Sha1::new_with_prefix(format!("blob {size}\0")))
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> [u8; 20] {
        self.0.finalize().into()
    }

    /// The digest of `content`.
    pub fn of(content: &[u8]) -> [u8; 20] {
        let mut digest = Self::new(content.len() as u64);
        digest.update(content);
        digest.finish()
    }
}

/// What the session recorded about a base directory.
enum RecordedDir {
    /// The directory had this number.
    Numbered(FileId),
    /// The directory did not exist.
    Absent,
    /// The session has no record.
    Unknown,
}

/// Whether a base file of `bytes` is small enough for its content to be kept.
pub(super) fn keeps_original_of(edit: &Edit<'_>, bytes: u64) -> bool {
    bytes <= edit.core.copy_up.original_bytes
}

/// Stores the original of a base object that the session is about to change. `content` is its
/// complete content or its link target, if that was read. An original that exists already stays
/// unless `replaces` is set: it is set where the client last saw the current base object.
pub(super) fn keep_original(
    edit: &mut Edit<'_>,
    path: &BasePath,
    attr: &BaseAttr,
    content: Option<&[u8]>,
    replaces: bool,
) -> Result<()> {
    let kept = match content {
        Some(content) if has_room_for(edit, content.len() as u64)? => Some(content),
        _ => None,
    };
    let original = Original {
        size: content.map_or(attr.size, |content| content.len() as u64),
        digest: content.map(BlobDigest::of),
        has_content: kept.is_some(),
        ..original_of(path, attr)
    };
    let mut is_stored = edit.txn.put_original(&original, kept)?;
    if !is_stored && replaces {
        forget_originals(edit, path)?;
        is_stored = edit.txn.put_original(&original, kept)?;
    }
    if let Some(kept) = kept.filter(|_| is_stored) {
        edit.core.originals.bytes.fetch_add(kept.len() as u64, Relaxed);
    }
    Ok(())
}

/// Stores an original in place of the one that its path has, with its content or link target.
pub(super) fn replace_original(
    edit: &mut Edit<'_>,
    mut original: Original,
    content: Option<&[u8]>,
) -> Result<()> {
    forget_originals(edit, &original.path)?;
    let kept = match content {
        Some(content) if has_room_for(edit, content.len() as u64)? => Some(content),
        _ => None,
    };
    original.has_content = kept.is_some();
    if let (true, Some(kept)) = (edit.txn.put_original(&original, kept)?, kept) {
        edit.core.originals.bytes.fetch_add(kept.len() as u64, Relaxed);
    }
    Ok(())
}

/// The complete content of a base file, for its original. `None` if the file is too large,
/// changed, or cannot be read; an error if the base is busy or does not answer.
pub(super) fn read_original(
    edit: &Edit<'_>,
    path: &BasePath,
    attr: &BaseAttr,
) -> Result<Option<Vec<u8>>> {
    if !keeps_original_of(edit, attr.size) {
        return Ok(None);
    }
    let mut content = vec![0; usize::try_from(attr.size).unwrap_or(usize::MAX)];
    match edit.core.base.read(path, attr.fileid, 0, &mut content) {
        Ok((got, now)) if got == content.len() && is_same_file(attr, &now) => Ok(Some(content)),
        Ok(_) => Ok(None),
        Err(error @ (BaseError::Unresponsive | BaseError::Busy)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

fn has_room_for(edit: &Edit<'_>, bytes: u64) -> Result<bool> {
    let (kept, limits) = (&edit.core.originals, &edit.core.copy_up);
    if bytes > limits.original_bytes {
        return Ok(false);
    }
    if !kept.is_counted.swap(true, Relaxed) {
        kept.bytes.store(edit.txn.original_bytes()?, Relaxed);
    }
    let has_room = kept.bytes.load(Relaxed).saturating_add(bytes) <= limits.originals_bytes;
    if !has_room && !kept.is_full_logged.swap(true, Relaxed) {
        tracing::warn!(
            bytes = limits.originals_bytes,
            hint = "applied and discarded changes free their originals",
            "originals of changed files fill their bound: what the base had is not kept of \
             further files, so that they cannot be merged if the base changes"
        );
    }
    Ok(has_room)
}

/// Stores the original of the base object at a name that was whited out at the second `since`,
/// and that now gets an object of the session.
pub(super) fn keep_hidden_original(
    edit: &mut Edit<'_>,
    dir: &DirPlace,
    name: &Name,
    since: i64,
) -> Result<()> {
    let Some(path) = dir.base.as_ref().map(|base| base.join(name)) else { return Ok(()) };
    let Some(attr) = edit.view().base_attr_at(&path)? else { return Ok(()) };
    let known = edit.txn.original(&path)?;
    // A base object that changed after the whiteout is not the one that the client removed.
    let is_late = match &known {
        Some(known) if known.has_content => return Ok(()),
        Some(known) => {
            let base = BaseObject { path: path.clone(), attr: attr.clone() };
            !is_as_original(&edit.view(), known, &base)?
        }
        None => attr.ctime.secs > since,
    };
    if is_late {
        return Ok(());
    }
    let content = match attr.kind {
        FileKind::Regular => match read_original(edit, &path, &attr)? {
            None if keeps_original_of(edit, attr.size) => return Ok(()),
            content => content,
        },
        FileKind::Symlink => Some(edit.core.base.read_link(&path)?),
        _ => return Ok(()),
    };
    keep_original(edit, &path, &attr, content.as_deref(), known.is_some())
}

/// Stores the original of one base path as that of `to` too, unless `to` has one.
pub(super) fn copy_original(edit: &mut Edit<'_>, path: &BasePath, to: &BasePath) -> Result<()> {
    let Some(mut original) = edit.txn.original(path)? else { return Ok(()) };
    let content = match original.has_content {
        true if has_room_for(edit, original.size)? => edit.txn.original_content(path)?,
        _ => None,
    };
    (original.path, original.has_content) = (to.clone(), content.is_some());
    if let (true, Some(content)) = (edit.txn.put_original(&original, content.as_deref())?, content)
    {
        edit.core.originals.bytes.fetch_add(content.len() as u64, Relaxed);
    }
    Ok(())
}

/// Gives the original of a base path another file number.
pub(super) fn renumber_original(
    edit: &mut Edit<'_>,
    path: &BasePath,
    fileid: FileId,
) -> Result<()> {
    let Some(original) = edit.txn.original(path)? else { return Ok(()) };
    if original.fileid == fileid {
        return Ok(());
    }
    let content = match original.has_content {
        true => edit.txn.original_content(path)?,
        false => None,
    };
    replace_original(edit, Original { fileid, ..original }, content.as_deref())
}

/// Deletes the originals of a base path and of all paths below it.
pub(super) fn forget_originals(edit: &mut Edit<'_>, path: &BasePath) -> Result<()> {
    let freed = edit.txn.remove_originals(path)?;
    edit.core.originals.forget(freed);
    Ok(())
}

/// Deletes the originals of the base path behind a merged path, and of all paths below it: the
/// base shows there again, or will once it has the directory again.
pub(super) fn forget_originals_at(edit: &mut Edit<'_>, path: &MergedPath) -> Result<()> {
    let Some(name) = path.name() else { return forget_originals(edit, &BasePath::root()) };
    let Some(place) = visible_dir(edit, &path.parent())? else { return Ok(()) };
    let base = match &place.base {
        Some(base) => Some(base.join(&name)),
        None => recorded_path(&edit.view(), &place, &name)?,
    };
    base.map_or(Ok(()), |base| forget_originals(edit, &base))
}

/// Whether a base object, at the original's path or another name of the same file, equals the
/// original in type, mode (except a symbolic link's), and content or target. Inode, ctime,
/// mtime and owner do not count. For a file without a digest, size and mtime decide. An object
/// that vanishes during the comparison, or cannot be opened, differs.
pub(super) fn is_as_original(
    view: &View<'_>,
    original: &Original,
    base: &BaseObject,
) -> Result<bool> {
    match compare_with_original(view, original, base) {
        Err(OpError::Base(
            BaseError::NotFound | BaseError::Changed | BaseError::WrongKind | BaseError::Denied,
        )) => Ok(false),
        is_same => is_same,
    }
}

/// The original of a base object, and whether the base object still equals it.
pub(super) fn kept_original_of(
    view: &View<'_>,
    base: &BaseObject,
) -> Result<Option<(Original, bool)>> {
    let Some(original) = original_at(view, &base.path)? else { return Ok(None) };
    let is_same = is_as_original(view, &original, base)?;
    Ok(Some((original, is_same)))
}

/// Whether the base changed an object after the session hid it at `since`: by its original, or
/// else by its ctime. Without an original, two cases need the object's directory:
///
/// - A directory that the host renamed to its place brings objects with old ctimes: a rename
///   changes no ctime below the renamed directory.
/// - A whiteout has no fraction of a second. An object whose ctime is in that second came later
///   if its directory has an original with another mtime.
pub(super) fn is_changed_since_hidden(
    view: &View<'_>,
    base: &BaseObject,
    since: Time,
) -> Result<bool> {
    if let Some((_, is_same)) = kept_original_of(view, base)? {
        return Ok(!is_same);
    }
    let has_come = base.attr.kind == FileKind::Directory
        && view.txn.redirected_to(&base.path)?.is_some()
        && now_of(view, &base.path)? != base.path;
    if has_come || is_in_unseen_dir(view, &base.path)? {
        return Ok(true);
    }
    let changed = base.attr.ctime;
    if changed > since || changed.secs < since.secs {
        return Ok(changed > since);
    }
    let Some((parent, _)) = base.path.split() else { return Ok(false) };
    let original = view.txn.original(&parent)?;
    let Some(original) = original.filter(|dir| dir.kind == FileKind::Directory) else {
        return Ok(false);
    };
    // A new entry changes the directory's mtime.
    let now = view.base_attr_at(&parent)?;
    Ok(now.is_none_or(|now| now.mtime != original.mtime))
}

/// Whether a base object is in a directory that came to its path after the session changed or
/// removed the object at that path. The closest ancestor that the session has a record of
/// decides; the root does not count.
fn is_in_unseen_dir(view: &View<'_>, path: &BasePath) -> Result<bool> {
    let mut path = path.clone();
    while let Some((dir, name)) = path.split().filter(|(dir, _)| !dir.is_root()) {
        match seen_dir(view, &dir, &name)? {
            RecordedDir::Numbered(id) => {
                return Ok(view.base_attr_at(&dir)?.is_none_or(|now| now.fileid != id));
            }
            RecordedDir::Absent => return Ok(true),
            RecordedDir::Unknown => path = dir,
        }
    }
    Ok(false)
}

/// What the base had at a directory's path when the session removed the directory or first
/// changed an entry of it. `name` is the entry that is to be judged.
fn seen_dir(view: &View<'_>, path: &BasePath, name: &Name) -> Result<RecordedDir> {
    let removed = view.txn.original(path)?;
    if let Some(removed) = removed.filter(|dir| dir.kind == FileKind::Directory) {
        return Ok(RecordedDir::Numbered(removed.fileid));
    }
    if let Some(moved) = view.txn.redirected_to(path)?
        && let Some(origin) = view.inode(moved)?.origin
        && now_of(view, path)? != *path
    {
        // The directory that the session moved from there is elsewhere.
        return Ok(RecordedDir::Numbered(origin.fileid));
    }
    let Some(place) = view.place_of_base(path)? else { return Ok(RecordedDir::Unknown) };
    let Some(ino) = place.ino else { return Ok(RecordedDir::Unknown) };
    let row = view.inode(ino)?;
    Ok(match &row.origin {
        Some(origin) if origin.path == *path => RecordedDir::Numbered(origin.fileid),
        // Over a base directory it would be opaque, or the name whited out.
        None if is_created_in_session(view, &row)?
            && !view.txn.is_whited_out(&place.merged.join(name))? =>
        {
            RecordedDir::Absent
        }
        _ => RecordedDir::Unknown,
    })
}

fn compare_with_original(view: &View<'_>, original: &Original, base: &BaseObject) -> Result<bool> {
    let BaseObject { path, attr: now } = base;
    if original.kind != now.kind {
        return Ok(false);
    }
    // This misses a later write through a mapping on the host (docs/SEMANTICS.md).
    let times = (original.fileid, original.size, original.mtime, original.ctime);
    if times == (now.fileid, now.size, now.mtime, now.ctime) {
        return Ok(true);
    }
    if now.kind == FileKind::Symlink {
        let target = view.core.base.read_link(path)?;
        return Ok(original.digest == Some(BlobDigest::of(&target)));
    }
    if original.mode != now.mode {
        return Ok(false);
    }
    // The entries of a directory are compared separately.
    if now.kind == FileKind::Directory {
        return Ok(true);
    }
    if original.size != now.size {
        return Ok(false);
    }
    match original.digest {
        Some(digest) => Ok(base_digest(view, path, now)? == Some(digest)),
        None => Ok(original.mtime == now.mtime),
    }
}

/// The digest of a base file's content; `None` if the file changed while it was read.
pub(super) fn base_digest(
    view: &View<'_>,
    path: &BasePath,
    attr: &BaseAttr,
) -> Result<Option<[u8; 20]>> {
    let mut digest = BlobDigest::new(attr.size);
    let mut buffer = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < attr.size {
        let (got, now) = view.core.base.read(path, attr.fileid, at, &mut buffer)?;
        if got == 0 || !is_same_file(attr, &now) {
            return Ok(None);
        }
        digest.update(&buffer[..got]);
        at += got as u64;
    }
    Ok((at == attr.size).then(|| digest.finish()))
}

/// Whether a base file is the same, and its content unchanged, by number, size and mtime.
pub(super) fn is_same_file(a: &BaseAttr, b: &BaseAttr) -> bool {
    (a.fileid, a.size, a.mtime) == (b.fileid, b.size, b.mtime)
}
