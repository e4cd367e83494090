//! Lists what a session changed, with contents compared: an object in the delta that equals its
//! base object is not a difference.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::content::{bytes_differ, is_made_in_base};
use super::error::{InspectError, Result};
use super::log::is_top_set;
use super::opened::OpenSession;
use super::selection::Selection;
use super::split;
use super::stop::StopFlag;
use crate::base::{BaseAttr, BaseError, BasePath};
use crate::delta::{MergedPath, Original};
use crate::overlay::{BaseObject, BlobDigest, Change, TreeObject, TreeView};
use crate::vfs::{Device, FileKind, FsError, Name};

/// Bytes of two files that are compared at a time.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Only the merged tree has the object.
    Added,
    /// Only the base has the object.
    Deleted,
    /// The object is still at its path.
    Modified,
    /// The object has another path.
    Renamed,
    /// The path has an object of another type.
    Retyped,
}

/// The properties in which an object differs from its earlier state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangedFields {
    /// The content of a file, the target of a symbolic link, or the number of a device.
    pub content: bool,
    /// The permission bits.
    pub mode: bool,
    /// Owner or group.
    pub owner: bool,
    /// The modification time.
    pub mtime: bool,
}

/// A difference between the base and the merged tree.
#[derive(Debug, Clone)]
pub struct Difference {
    /// The kind of the difference.
    pub kind: DifferenceKind,
    /// The properties that differ, if the object exists before and after.
    pub differs: ChangedFields,
    /// The earlier state: the base object, or the original where it is kept and the base object has
    /// drifted from it. `None` for what the session added.
    pub old: Option<BaseObject>,
    /// The current path, or the last one of a deleted object.
    pub path: MergedPath,
    /// The change of the session behind the difference.
    pub change: Change,
}

/// Options of [`diff`].
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// Only changes whose path, or path before a rename, is selected.
    pub selection: Selection,
    /// Include files that clients create for themselves: see [`is_dropping`].
    pub client_temp_files: bool,
    /// Include objects in which only the modification time differs.
    pub times: bool,
    /// Include what matters only to an exact copy: times of directories, and which names are hard
    /// links of one file.
    pub exact: bool,
    /// Ends the comparison between two objects.
    pub stop: StopFlag,
}

/// Calls `each` for every difference until it breaks; a directory comes before its entries.
///
/// Contents are read only of files that were copied up and still have the size of the base file.
///
/// # Errors
/// An error of `each`, or the session or the base cannot be read.
pub fn diff(
    opened: &OpenSession,
    options: &DiffOptions,
    each: &mut dyn FnMut(&TreeView<'_>, Difference) -> Result<ControlFlow<()>>,
) -> Result<()> {
    match diff_past_denied(opened, options, each)?.into_iter().next() {
        Some(path) => Err(InspectError::Path { path, source: FsError::Access }),
        None => Ok(()),
    }
}

/// As [`diff`], but continues after an object that the base denies access to. Returns the paths of
/// those that are selected.
///
/// # Errors
/// As [`diff`], for all other reasons.
pub fn diff_past_denied(
    opened: &OpenSession,
    options: &DiffOptions,
    each: &mut dyn FnMut(&TreeView<'_>, Difference) -> Result<ControlFlow<()>>,
) -> Result<Vec<MergedPath>> {
    opened.with_tree(|view| {
        let mut denied = Vec::new();
        if let Some(top) = top(opened, view, options)?
            && each(view, top)?.is_break()
        {
            return Ok(denied);
        }
        let mut failed = None;
        let mut compare = |change| match compare_parts(opened, view, options, change, each) {
            Ok(flow) => flow.is_continue(),
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        let done = view.changes_past_denied(&mut compare, &mut |change| {
            if options.selection.has(view, &change.path, true) {
                denied.push(change.path);
            }
        });
        match failed {
            Some(error) => Err(error),
            None => done.map(|_went_through| denied).map_err(InspectError::from),
        }
    })
}

/// What the session changed of the mode and owner of the top, which is in no directory and so no
/// [`Change`]. The session has them from its beginning: what it did not set is the base's.
pub(super) fn top(
    opened: &OpenSession,
    view: &TreeView<'_>,
    options: &DiffOptions,
) -> Result<Option<Difference>> {
    let (root, path) = (MergedPath::root(), BasePath::root());
    if opened.base_path().is_none() || !options.selection.has(view, &root, true) {
        return Ok(None);
    }
    let attr = opened.base().stat(&path).map_err(|source| base_error(opened, &path, source))?;
    let before = BaseObject { path, attr };
    let after = view.root().map_err(|source| at(&root, source))?;
    let differs =
        ChangedFields { mtime: false, ..attributes_differ(options, &before.attr, &after) };
    let is_changed = differs != ChangedFields::default() && is_top_set(opened)?;
    Ok(is_changed.then(|| of_top(before, after, differs)))
}

/// A difference of the top.
pub(super) fn of_top(before: BaseObject, after: TreeObject, differs: ChangedFields) -> Difference {
    let root = Change::at(MergedPath::root());
    let change = Change { before: Some(before), after: Some(after), ..root };
    let (kind, old) = (DifferenceKind::Modified, change.before.clone());
    Difference { kind, differs, path: MergedPath::root(), old, change }
}

/// Calls `each` for the difference that a change makes, or for its selected parts.
fn compare_parts(
    opened: &OpenSession,
    view: &TreeView<'_>,
    options: &DiffOptions,
    change: Change,
    each: &mut dyn FnMut(&TreeView<'_>, Difference) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
    options.stop.check()?;
    let parts = match options.selection.is_everything() {
        true => None,
        false => split::parts(opened, view, options, &change)?,
    };
    for change in parts.unwrap_or_else(|| vec![change]) {
        if let Some(difference) = compare(opened, view, options, change)?
            && each(view, difference)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Whether a name belongs to a file that a client creates for itself: a removed file that is still
/// open (`.nfs…`), macOS metadata (`._…`, `.DS_Store`), or an unfinished `write` or `cp`
/// (`.acetate-write-…`).
pub fn is_dropping(path: &MergedPath) -> bool {
    path.name().is_some_and(|name| {
        let name = name.as_bytes();
        let begins = [b"._", &b".nfs"[..], Name::STAGED.as_bytes()];
        name == b".DS_Store" || begins.iter().any(|begin| name.starts_with(begin))
    })
}

/// Whether only the time of a directory differs, which follows from its entries.
pub fn is_time_of_directory(difference: &Difference) -> bool {
    let change = &difference.change;
    let is_dir =
        change.after.as_ref().is_some_and(|after| after.attr().kind == FileKind::Directory);
    let stays = match difference.kind {
        DifferenceKind::Modified => true,
        DifferenceKind::Renamed => change.moved_with_parent,
        DifferenceKind::Added | DifferenceKind::Deleted | DifferenceKind::Retyped => false,
    };
    is_dir && stays && !difference.differs.mode && !difference.differs.owner
}

/// Whether the options include a change.
pub(super) fn is_chosen(options: &DiffOptions, view: &TreeView<'_>, change: &Change) -> bool {
    options.selection.has_change(view, change)
        && (options.client_temp_files || !name(change).as_ref().is_some_and(is_dropping))
}

/// The current path of a changed object, or the last one of a deleted object.
fn name(change: &Change) -> Option<MergedPath> {
    let before = change.before.as_ref().filter(|_| !change.is_link);
    match change.after {
        None if before.is_some() => before.map(|base| MergedPath::of_base(&base.path)),
        _ => Some(change.path.clone()),
    }
}

/// The difference that a change makes; `None` if nothing differs that the options include.
pub(super) fn compare(
    opened: &OpenSession,
    view: &TreeView<'_>,
    options: &DiffOptions,
    change: Change,
) -> Result<Option<Difference>> {
    if !is_chosen(options, view, &change) {
        return Ok(None);
    }
    if holds_no_change(opened, view, options.times, &change)? {
        return Ok(None);
    }
    let old = old_object(&change);
    let before = old.as_ref();
    let from = before.map(|base| MergedPath::of_base(&base.path));
    let path = match (&change.after, &from) {
        (Some(after), _) => after.path().clone(),
        (None, Some(from)) => from.clone(),
        (None, None) => change.path.clone(),
    };
    let mut differs = ChangedFields::default();
    let kind = match (before, &change.after) {
        (_, None) => DifferenceKind::Deleted,
        (None, Some(_)) => DifferenceKind::Added,
        (Some(base), Some(after)) if base.attr.kind != after.attr().kind => DifferenceKind::Retyped,
        (Some(base), Some(after)) => {
            let content = match drifted_original(&change) {
                Some(original) => differs_from_original(view, original, after)?,
                None => content_differs(opened, view, base, after)?,
            };
            differs = ChangedFields {
                content,
                ..attributes_differ(options, &began_as(&change, base), after)
            };
            if from.as_ref() == Some(&path) && !change.is_moved {
                DifferenceKind::Modified
            } else {
                DifferenceKind::Renamed
            }
        }
    };
    let is_other = match kind {
        DifferenceKind::Added | DifferenceKind::Deleted | DifferenceKind::Retyped => true,
        DifferenceKind::Renamed if !change.moved_with_parent => true,
        DifferenceKind::Renamed | DifferenceKind::Modified => {
            let seen = differs.content || differs.mode || differs.owner;
            let relinked = || {
                before.zip(change.after.as_ref()).is_some_and(|(old, new)| is_relinked(old, new))
            };
            match options.exact {
                true => seen || (options.times && differs.mtime) || relinked(),
                false => {
                    (seen || (options.times && differs.mtime))
                        && !is_made_in_base(opened, view, &change, differs)?
                }
            }
        }
    };
    Ok(is_other.then_some(Difference { kind, differs, path, old, change }))
}

/// Whether a change is a directory that the base removed since it was copied up, with nothing in
/// its place, and in which the session changed nothing; with `times`, no time either.
pub(super) fn holds_no_change(
    opened: &OpenSession,
    view: &TreeView<'_>,
    times: bool,
    change: &Change,
) -> Result<bool> {
    let is_lost_dir = |change: &Change| {
        let after = change.after.as_ref().filter(|_| change.before.is_none() && !change.is_moved);
        let row = after.and_then(TreeObject::row).filter(|row| row.kind == FileKind::Directory);
        // Its mtime is as late as its ctime if its entries changed last, and not its attributes.
        row.zip(row.and_then(|row| row.origin.as_ref()))
            .is_some_and(|(row, origin)| row.ctime == origin.ctime || row.ctime == row.mtime)
    };
    let origin = change.after.as_ref().and_then(TreeObject::origin).filter(|_| is_lost_dir(change));
    let Some(origin) = origin else { return Ok(false) };
    if view.is_replaced_above(&origin.path).map_err(|source| at(&change.path, source))? {
        return Ok(false);
    }
    let options = DiffOptions { client_temp_files: true, times, ..DiffOptions::default() };
    let mut found = Ok(None);
    let all = view.changes_in(&change.path, &mut |inner| {
        if !is_lost_dir(&inner) {
            found = compare(opened, view, &options, inner);
        }
        matches!(found, Ok(None))
    });
    found?;
    Ok(all?)
}

/// The original of a change, if its digest is known and the base object has drifted from it.
pub(super) fn drifted_original(change: &Change) -> Option<&Original> {
    change.original.as_ref().filter(|original| change.is_drifted && original.digest.is_some())
}

/// The attributes of the original if there is one, else those of the base object. The base may have
/// others now, by `chown` or `touch`, which is no drift.
fn began_as(change: &Change, base: &BaseObject) -> BaseAttr {
    match &change.original {
        Some(original) if original.kind == base.attr.kind => BaseAttr {
            mode: original.mode,
            uid: original.uid,
            gid: original.gid,
            mtime: original.mtime,
            ..base.attr.clone()
        },
        _ => base.attr.clone(),
    }
}

/// The earlier state that a change is compared with.
pub(super) fn old_object(change: &Change) -> Option<BaseObject> {
    if change.is_link {
        return None;
    }
    let Some(original) = drifted_original(change) else {
        let is_dir = |base: &BaseObject| base.attr.kind == FileKind::Directory;
        return change.before.clone().map(|base| match is_dir(&base) {
            true => BaseObject { attr: began_as(change, &base), ..base },
            false => base,
        });
    };
    let attr = BaseAttr {
        kind: original.kind,
        mode: original.mode,
        nlink: 1,
        uid: original.uid,
        gid: original.gid,
        size: original.size,
        used: original.size,
        rdev: Device::default(),
        dev: 0,
        ino: 0,
        fileid: original.fileid,
        atime: original.mtime,
        mtime: original.mtime,
        ctime: original.ctime,
    };
    // A further name of a base file has the original of the name that was copied up.
    let path = change.before.as_ref().map_or(&original.path, |base| &base.path).clone();
    Some(BaseObject { path, attr })
}

/// Whether a file's content, or a link's target, differs from that of an original of its type.
pub(super) fn differs_from_original(
    view: &TreeView<'_>,
    original: &Original,
    after: &TreeObject,
) -> Result<bool> {
    let failed = |source| at(after.path(), source);
    if after.attr().kind == FileKind::Symlink {
        let target = view.target(after).map_err(failed)?;
        return Ok(original.digest != Some(BlobDigest::of(&target)));
    }
    if after.attr().size != original.size {
        return Ok(true);
    }
    let mut digest = BlobDigest::new(original.size);
    let (mut buffer, mut offset) = (vec![0; PIECE_BYTES], 0);
    while offset < original.size {
        let got = view.read(after, offset, &mut buffer).map_err(failed)?;
        if got == 0 {
            break;
        }
        digest.update(&buffer[..got]);
        offset += got as u64;
    }
    Ok(original.digest != Some(digest.finish()))
}

/// Whether one file replaces another and either of them has more than one hard link.
fn is_relinked(base: &BaseObject, after: &TreeObject) -> bool {
    after.attr().kind != FileKind::Directory
        && !is_saved_anew(base, after)
        && base.attr.fileid != after.attr().fileid
        && (base.attr.nlink > 1 || after.attr().nlink > 1)
}

/// Whether the base has another file now at the path from which the session's was copied up.
pub(super) fn is_saved_anew(base: &BaseObject, after: &TreeObject) -> bool {
    base.attr.fileid != after.attr().fileid
        && after.origin().is_some_and(|origin| origin.path == base.path)
}

/// The properties in which two objects of one type differ.
pub(super) fn differences(
    opened: &OpenSession,
    view: &TreeView<'_>,
    options: &DiffOptions,
    base: &BaseObject,
    after: &TreeObject,
) -> Result<ChangedFields> {
    let content = content_differs(opened, view, base, after)?;
    Ok(ChangedFields { content, ..attributes_differ(options, &base.attr, after) })
}

/// Like [`differences`], without the content.
fn attributes_differ(options: &DiffOptions, old: &BaseAttr, after: &TreeObject) -> ChangedFields {
    let new = after.attr();
    let is_dir = new.kind == FileKind::Directory;
    ChangedFields {
        content: false,
        mode: new.kind != FileKind::Symlink && old.mode != new.mode,
        owner: (old.uid, old.gid) != (new.uid, new.gid),
        // The mtime of a directory follows from its entries.
        mtime: (!is_dir || options.exact) && old.mtime != new.mtime,
    }
}

/// Whether the contents of two objects of one type differ.
pub(super) fn content_differs(
    opened: &OpenSession,
    view: &TreeView<'_>,
    base: &BaseObject,
    after: &TreeObject,
) -> Result<bool> {
    let (old, new) = (&base.attr, after.attr());
    match new.kind {
        FileKind::Directory | FileKind::Fifo | FileKind::Socket => Ok(false),
        FileKind::Block | FileKind::Character => Ok(old.rdev != new.rdev),
        FileKind::Symlink => {
            let target = view.target(after).map_err(|source| at(after.path(), source))?;
            Ok(target != base_target(opened, &base.path)?)
        }
        FileKind::Regular if old.size != new.size => Ok(true),
        FileKind::Regular => match bytes_differ(opened, view, base, after) {
            // As for drift: what cannot be compared counts as changed.
            Err(InspectError::Base { source: BaseError::Denied, .. }) => Ok(true),
            differ => differ,
        },
    }
}

/// Reads from a file of the base; returns the number of bytes read.
///
/// # Errors
/// The file cannot be read, or is no longer the one that `attr` describes.
pub fn read_base(
    opened: &OpenSession,
    path: &BasePath,
    attr: &BaseAttr,
    offset: u64,
    buffer: &mut [u8],
) -> Result<usize> {
    let read = opened.base().read(path, attr.fileid, offset, buffer);
    Ok(read.map_err(|source| base_error(opened, path, source))?.0)
}

/// The target of a symbolic link of the base.
///
/// # Errors
/// The link cannot be read.
pub fn base_target(opened: &OpenSession, path: &BasePath) -> Result<Vec<u8>> {
    opened.base().read_link(path).map_err(|source| base_error(opened, path, source))
}

/// Turns a failure of the base at `path` into an error of a tool.
pub(super) fn base_error(opened: &OpenSession, path: &BasePath, source: BaseError) -> InspectError {
    let below = OsStr::from_bytes(path.as_bytes());
    let dir = opened.base_path().unwrap_or(Path::new(""));
    InspectError::Base { path: dir.join(below), is_recorded: false, source }
}

pub(super) fn at(path: &MergedPath, source: FsError) -> InspectError {
    InspectError::Path { path: path.clone(), source }
}
