//! Divides a difference into pieces.

use super::id::HunkId;
use super::text::TextHunks;
use crate::base::BaseAttr;
use crate::inspect::content::{MAX_TEXT_BYTES, content, read_base};
use crate::inspect::diff::{Difference, DifferenceKind, at, base_error, drifted_original};
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::inspect::patch::has_nul;
use crate::overlay::{BaseObject, TreeObject, TreeView};
use crate::vfs::FileKind;

/// The pieces of a difference.
#[derive(Debug)]
pub enum DiffPieces {
    /// The difference is one piece.
    Whole(HunkId),
    /// A text with hunks.
    File(Box<FileHunks>),
}

/// The pieces of a changed text.
#[derive(Debug)]
pub struct FileHunks {
    /// The changed lines.
    pub text: TextHunks,
    /// The change of permission bits and owner, if any.
    pub attributes: Option<Attributes>,
}

/// A change of permission bits, owner or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The id of this piece.
    pub id: HunkId,
    /// Mode, owner and group before.
    pub old: [u32; 3],
    /// Mode, owner and group after.
    pub new: [u32; 3],
}

impl FileHunks {
    /// The ids of all pieces.
    pub fn ids(&self) -> impl Iterator<Item = HunkId> + '_ {
        let attributes = self.attributes.iter().map(|attributes| attributes.id);
        attributes.chain(self.text.hunks.iter().map(|hunk| hunk.id))
    }
}

/// Divides a difference into pieces. A file is divided only if it is text before and after, is at
/// its old path, has one link and at most 8 MiB, and its earlier content is known.
///
/// # Errors
/// The session or the base cannot be read.
pub fn pieces(
    opened: &OpenSession,
    view: &TreeView<'_>,
    difference: &Difference,
) -> Result<DiffPieces> {
    let whole = || Ok(DiffPieces::Whole(whole_id(difference)));
    let change = &difference.change;
    let (Some(old), Some(base), Some(after)) = (&difference.old, &change.before, &change.after)
    else {
        return whole();
    };
    let is_divisible = difference.kind == DifferenceKind::Modified
        && difference.differs.content
        && !change.is_link
        && change.replaced.is_none()
        && is_single_file(&base.attr)
        && after.attr().kind == FileKind::Regular
        && after.attr().nlink == 1
        && after.attr().size.max(old.attr.size) <= MAX_TEXT_BYTES;
    if !is_divisible {
        return whole();
    }
    let before = match drifted_original(change) {
        Some(original) => view.original_content(original).map_err(|s| at(after.path(), s))?,
        None if change.is_drifted => None,
        None => read_base(opened.base(), base)
            .map_err(|source| base_error(opened, &base.path, source))?,
    };
    let Some(before) = before else { return whole() };
    let now = content(view, after)?;
    if has_nul(&before) || has_nul(&now) {
        return whole();
    }
    let Some(text) = TextHunks::of(&change.path, before, now) else { return whole() };
    let new = after.attr();
    let attributes = [old_attributes(difference, old), [new.mode, new.uid, new.gid]];
    let attributes = (attributes[0] != attributes[1]).then(|| {
        let numbers: Vec<u8> = attributes.iter().flatten().flat_map(|n| n.to_be_bytes()).collect();
        let id = HunkId::of("attributes", &[change.path.as_bytes(), &numbers]);
        Attributes { id, old: attributes[0], new: attributes[1] }
    });
    Ok(DiffPieces::File(Box::new(FileHunks { text, attributes })))
}

/// Mode, owner and group from which the session's differ: the original's. If the base changed the
/// owner alone, the file has not drifted, and that owner is no change of the session.
pub(super) fn old_attributes(difference: &Difference, old: &BaseObject) -> [u32; 3] {
    match &difference.change.original {
        Some(original) if original.kind == old.attr.kind => {
            [original.mode, original.uid, original.gid]
        }
        _ => [old.attr.mode, old.attr.uid, old.attr.gid],
    }
}

/// The current content of a base file that drifted; `None` if it did not drift or is too large to
/// be merged.
///
/// # Errors
/// The base cannot be read.
pub fn base_now(opened: &OpenSession, difference: &Difference) -> Result<Option<Vec<u8>>> {
    let change = &difference.change;
    match change.before.as_ref().filter(|_| change.is_drifted) {
        Some(base) => {
            read_base(opened.base(), base).map_err(|source| base_error(opened, &base.path, source))
        }
        None => Ok(None),
    }
}

fn is_single_file(attr: &BaseAttr) -> bool {
    attr.kind == FileKind::Regular && attr.nlink == 1
}

/// The id of a difference as one piece. It changes with the object's ctime; for a directory, only
/// with its mode and owner.
pub fn whole_id(difference: &Difference) -> HunkId {
    let change = &difference.change;
    let kind = format!("{:?}", difference.kind);
    let from = difference.old.as_ref().map_or(&b""[..], |old| old.path.as_bytes());
    let object: Vec<u8> = match change.after.as_ref().map(TreeObject::attr) {
        Some(attr) if attr.kind == FileKind::Directory => {
            [attr.mode, attr.uid, attr.gid].iter().flat_map(|n| n.to_be_bytes()).collect()
        }
        Some(attr) => {
            let (id, time) = (attr.fileid.0, attr.ctime);
            let time = [&time.secs.to_be_bytes()[..], &time.nanos.to_be_bytes()].concat();
            [&id.to_be_bytes()[..], &time].concat()
        }
        None => Vec::new(),
    };
    HunkId::of("whole", &[change.path.as_bytes(), kind.as_bytes(), from, &object])
}
