//! Drift of copied-up objects that have no row of `acetate_original`.

use super::BaseObject;
use crate::delta::{Origin, Original};
use crate::overlay::original::original_of;
use crate::vfs::{Attr, FileKind};

/// The original of a copied-up directory, if its origin has the attributes. The times are the
/// base's present ones: changes of entries set them.
pub fn original_of_dir(origin: &Origin, base: &BaseObject) -> Option<Original> {
    let [mode, uid, gid] = origin.attributes?;
    let now = original_of(&base.path, &base.attr);
    Some(Original { mode, uid, gid, ..now })
}

/// Whether base and session have changed the mode, the owner or the group of a directory to
/// different values.
pub(super) fn both_changed_attributes(original: &Original, base: &BaseObject, here: &Attr) -> bool {
    let differ = |a, b, c| a != b && b != c && c != a;
    let base = &base.attr;
    differ(original.mode, base.mode, here.mode)
        || differ(original.uid, base.uid, here.uid)
        || differ(original.gid, base.gid, here.gid)
}

/// Whether a base object without an original changed after the copy-up that made `origin`; `here`
/// are the attributes of its copy.
pub(super) fn drifted(origin: &Origin, base: &BaseObject, here: &Attr) -> bool {
    let attr = &base.attr;
    let is_same = (origin.fileid, origin.ctime) == (attr.fileid, attr.ctime);
    if attr.kind == FileKind::Directory {
        // Changes of entries update size and times: drift needs another mode or owner as well.
        let is_alike = (attr.mode, attr.uid, attr.gid) == (here.mode, here.uid, here.gid);
        return !(is_alike || is_same);
    }
    !(is_same && (origin.size, origin.mtime) == (attr.size, attr.mtime))
}
