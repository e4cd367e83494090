//! What a session changed, with contents compared: what is in it and yet as in the base does not
//! come up.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::{InspectError, Result};
use super::opened::Opened;
use super::selection::Selection;
use super::split;
use crate::base::{BaseAttr, BaseError, BasePath};
use crate::delta::{MergedPath, Original};
use crate::overlay::{BaseObject, BlobDigest, Change, TreeObject, TreeView};
use crate::vfs::{Device, FileKind, FsError, Name};

/// How much of two files is compared at a time, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// It is new.
    Added,
    /// It is gone.
    Deleted,
    /// It is still at its path.
    Modified,
    /// It has another path.
    Renamed,
    /// Something of another type is at its path.
    Retyped,
}

/// In what an object differs from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Differs {
    /// A file's content, a link's target, a device's number.
    pub content: bool,
    /// Permission bits.
    pub mode: bool,
    /// Owner or group.
    pub owner: bool,
    /// The time of the last change of content.
    pub mtime: bool,
}

/// A difference between the base and the merged tree.
#[derive(Debug, Clone)]
pub struct Difference {
    /// What happened.
    pub kind: DifferenceKind,
    /// In what the object differs, where there is one before and after.
    pub differs: Differs,
    /// What it is compared with: the base object, or the original where that is kept and the base
    /// object is not that any more. `None` for what the session added.
    pub old: Option<BaseObject>,
    /// Where it is, or was if it is gone.
    pub path: MergedPath,
    /// What the change is made of.
    pub change: Change,
}

/// What is compared.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// Only what is at, below, or came from what is chosen.
    pub selection: Selection,
    /// Also what clients leave behind for themselves: see [`is_dropping`].
    pub droppings: bool,
    /// Also where nothing but the time of the last change of content differs.
    pub times: bool,
    /// Also what only shows in an exact copy: times of directories, and whether two names lead
    /// to one file.
    pub exact: bool,
}

/// Calls `each` for every difference until it breaks off, directories before what is in them.
///
/// Contents are read only where a file of the base was copied up and has the same size.
///
/// # Errors
/// Those of `each`, and that the session or the base cannot be read.
pub fn diff(
    opened: &Opened,
    options: &DiffOptions,
    each: &mut dyn FnMut(&TreeView<'_>, Difference) -> Result<ControlFlow<()>>,
) -> Result<()> {
    opened.look(|view| {
        let mut failed = None;
        let done =
            view.changes(&mut |change| match compare_parts(opened, view, options, change, each) {
                Ok(flow) => flow.is_continue(),
                Err(error) => {
                    failed = Some(error);
                    false
                }
            });
        match failed {
            Some(error) => Err(error),
            None => done.map(|_went_through| ()).map_err(InspectError::from),
        }
    })
}

/// Calls `each` for what a change makes different, or those parts of it that are chosen.
fn compare_parts(
    opened: &Opened,
    view: &TreeView<'_>,
    options: &DiffOptions,
    change: Change,
    each: &mut dyn FnMut(&TreeView<'_>, Difference) -> Result<ControlFlow<()>>,
) -> Result<ControlFlow<()>> {
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

/// Whether a name is of a file that a client makes for itself: a removed file that is still open
/// (`.nfs…`), what macOS puts beside files of other filesystems (`._…`, `.DS_Store`), or content
/// that `write` or `cp` has not written to its end (`.acetate-write-…`).
pub fn is_dropping(path: &MergedPath) -> bool {
    path.name().is_some_and(|name| {
        let name = name.as_bytes();
        let begins = [b"._", &b".nfs"[..], Name::STAGED.as_bytes()];
        name == b".DS_Store" || begins.iter().any(|begin| name.starts_with(begin))
    })
}

/// Whether a change is one of those that are asked for.
pub(super) fn is_chosen(options: &DiffOptions, view: &TreeView<'_>, change: &Change) -> bool {
    options.selection.has_change(view, change)
        && (options.droppings || !name(change).as_ref().is_some_and(is_dropping))
}

/// Where an object of a change is, or was if it is gone.
fn name(change: &Change) -> Option<MergedPath> {
    let before = change.before.as_ref().filter(|_| !change.is_link);
    match change.after {
        None if before.is_some() => before.map(|base| MergedPath::of_base(&base.path)),
        _ => Some(change.path.clone()),
    }
}

/// What a change makes different, if anything.
pub(super) fn compare(
    opened: &Opened,
    view: &TreeView<'_>,
    options: &DiffOptions,
    change: Change,
) -> Result<Option<Difference>> {
    if !is_chosen(options, view, &change) {
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
    let mut differs = Differs::default();
    let kind = match (before, &change.after) {
        (_, None) => DifferenceKind::Deleted,
        (None, Some(_)) => DifferenceKind::Added,
        (Some(base), Some(after)) if base.attr.kind != after.attr().kind => DifferenceKind::Retyped,
        (Some(base), Some(after)) => {
            let content = match started_from(&change) {
                Some(original) => differs_from_original(view, original, after)?,
                None => content_differs(opened, view, base, after)?,
            };
            differs =
                Differs { content, ..attributes_differ(options, &began_as(&change, base), after) };
            if from.as_ref() == Some(&path) && !change.is_moved {
                DifferenceKind::Modified
            } else {
                DifferenceKind::Renamed
            }
        }
    };
    let is_other = match kind {
        DifferenceKind::Added | DifferenceKind::Deleted | DifferenceKind::Retyped => true,
        DifferenceKind::Renamed if !change.is_carried => true,
        DifferenceKind::Renamed | DifferenceKind::Modified => {
            let seen = differs.content || differs.mode || differs.owner;
            let relinked = || {
                before.zip(change.after.as_ref()).is_some_and(|(old, new)| is_relinked(old, new))
            };
            seen || (options.times && differs.mtime) || (options.exact && relinked())
        }
    };
    Ok(is_other.then_some(Difference { kind, differs, path, old, change }))
}

/// The original of a change, if its content is known and the base has another object now.
pub(super) fn started_from(change: &Change) -> Option<&Original> {
    change.original.as_ref().filter(|original| change.is_drifted && original.digest.is_some())
}

/// The attributes that an object began with: those of the original, where that is known. What the
/// base has now may be a person's `chown` or `touch`, which is no drift.
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

/// What a change is compared with.
fn old_object(change: &Change) -> Option<BaseObject> {
    if change.is_link {
        return None;
    }
    let Some(original) = started_from(change) else { return change.before.clone() };
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
    Some(BaseObject { path: original.path.clone(), attr })
}

/// Whether a file's content, or a link's target, is not that of an original of its type.
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

/// Whether a file takes the place of another, and one of them has further names.
fn is_relinked(base: &BaseObject, after: &TreeObject) -> bool {
    after.attr().kind != FileKind::Directory
        && base.attr.fileid != after.attr().fileid
        && (base.attr.nlink > 1 || after.attr().nlink > 1)
}

/// In what two objects of one type differ.
pub(super) fn differences(
    opened: &Opened,
    view: &TreeView<'_>,
    options: &DiffOptions,
    base: &BaseObject,
    after: &TreeObject,
) -> Result<Differs> {
    let content = content_differs(opened, view, base, after)?;
    Ok(Differs { content, ..attributes_differ(options, &base.attr, after) })
}

/// The same without their content.
fn attributes_differ(options: &DiffOptions, old: &BaseAttr, after: &TreeObject) -> Differs {
    let new = after.attr();
    let is_dir = new.kind == FileKind::Directory;
    Differs {
        content: false,
        mode: new.kind != FileKind::Symlink && old.mode != new.mode,
        owner: (old.uid, old.gid) != (new.uid, new.gid),
        // A directory's mtime follows its entries.
        mtime: (!is_dir || options.exact) && old.mtime != new.mtime,
    }
}

/// Whether two objects of one type have another content.
pub(super) fn content_differs(
    opened: &Opened,
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
        FileKind::Regular => bytes_differ(opened, view, base, after),
    }
}

fn bytes_differ(
    opened: &Opened,
    view: &TreeView<'_>,
    base: &BaseObject,
    after: &TreeObject,
) -> Result<bool> {
    let (mut old, mut new) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut offset = 0;
    // What is a hole in both is alike.
    while let Some(start) = next_data(opened, view, base, after, offset)? {
        let got = view.read(after, start, &mut new).map_err(|source| at(after.path(), source))?;
        let there = read_base(opened, &base.path, &base.attr, start, &mut old)?;
        if got == 0 || old[..there] != new[..got] {
            return Ok(true);
        }
        offset = start + got as u64;
    }
    Ok(false)
}

/// Where one of two files of one size has data next, at or after byte `offset`.
fn next_data(
    opened: &Opened,
    view: &TreeView<'_>,
    base: &BaseObject,
    after: &TreeObject,
    offset: u64,
) -> Result<Option<u64>> {
    let new = view.next_data(after, offset).map_err(|source| at(after.path(), source))?;
    let old = opened.base().next_data(&base.path, base.attr.fileid, offset);
    let old = old.map_err(|source| base_error(opened, &base.path, source))?;
    let starts = [new.map(|data| data.start), old.map(|(start, _)| start.max(offset))];
    Ok(starts.into_iter().flatten().min().filter(|start| *start < after.attr().size))
}

/// Reads a file of the base; returns how many bytes there were.
///
/// # Errors
/// It cannot be read, or is not the one of `attr` any more.
pub fn read_base(
    opened: &Opened,
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
/// It cannot be read.
pub fn base_target(opened: &Opened, path: &BasePath) -> Result<Vec<u8>> {
    opened.base().read_link(path).map_err(|source| base_error(opened, path, source))
}

/// A failure of the base at a path in it.
pub(super) fn base_error(opened: &Opened, path: &BasePath, source: BaseError) -> InspectError {
    let below = OsStr::from_bytes(path.as_bytes());
    let dir = opened.base_path().unwrap_or(Path::new(""));
    InspectError::Base { path: dir.join(below), is_recorded: false, source }
}

pub(super) fn at(path: &MergedPath, source: FsError) -> InspectError {
    InspectError::Path { path: path.clone(), source }
}
