//! Lists the changes of a session: each object in the session, and each base name that it hides.
//!
//! Only the session's directories are walked, because an object's directory is copied up before
//! the object: the cost is proportional to the changes, not to the tree. Contents are not compared,
//! so a listed object may be identical to its base object.

mod below;
mod denied;
mod drift;
mod entries;
mod gone;
mod links;
mod moved;
mod stat_ahead;

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::base::{BaseAttr, BaseError, BasePath};
use crate::delta::{Ino, MergedPath, Original};
use crate::vfs::{FileKind, FsError, Name};

use super::lineage::Lineage;
use super::tree::{TreeObject, TreeView};
use crate::overlay::error::Result;
use crate::overlay::followed::{now_of, original_at};
use crate::overlay::node::DirPlace;
use crate::overlay::original::is_as_original;
use crate::overlay::resolve::View;
pub use denied::DeniedChange;
use denied::NoteDenied;
pub use drift::original_of_dir;
use drift::{both_changed_attributes, drifted};

/// An object of the base.
#[derive(Debug, Clone)]
pub struct BaseObject {
    /// The path in the base.
    pub path: BasePath,
    /// The current attributes.
    pub attr: BaseAttr,
}

/// An object that may differ between session and base.
#[derive(Debug, Clone)]
pub struct Change {
    /// The base object, at the same path or at the origin. `None` if the base has none, or is
    /// missing.
    pub before: Option<BaseObject>,
    /// The object in the merged tree. `None` if it is deleted: a directory with its whole content,
    /// except objects that were moved out of it.
    pub after: Option<TreeObject>,
    /// The path in the merged tree, or the one that a deleted object would have.
    pub path: MergedPath,
    /// The base object at the path that the object replaced, if that is not `before`.
    pub replaced: Option<BaseObject>,
    /// Where the base had a moved object, if it has nothing there now.
    pub missing: Option<BasePath>,
    /// The object has another directory or name than its origin. Its path may equal the base path
    /// nevertheless, if directories were renamed.
    pub is_moved: bool,
    /// The path differs from the base path only because a directory above was renamed.
    pub moved_with_parent: bool,
    /// The object is a further hard link of a file that still shows at its own base name.
    pub is_link: bool,
    /// The original of a file or symbolic link, if one is stored; of a directory, what is recorded
    /// of its mode and owner at the copy-up.
    pub original: Option<Original>,
    /// The base object changed after the session first changed or hid it.
    pub is_drifted: bool,
    /// `replaced` changed after the session replaced it.
    pub is_replaced_drifted: bool,
}

/// An error that ended the listing of changes.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct ChangesError {
    /// The merged path at which the search ended.
    pub path: MergedPath,
    /// The cause.
    pub source: FsError,
}

impl TreeView<'_> {
    /// Calls `each` for every change, a directory before its entries, until `each` returns `false`.
    /// Returns whether the listing is complete.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn changes(
        &self,
        each: &mut dyn FnMut(Change) -> bool,
    ) -> std::result::Result<bool, ChangesError> {
        let mut search = ChangeSearch::new(self, each);
        let found = search.all();
        found.map_err(|error| ChangesError { path: search.at, source: error.into_fs() })
    }

    /// Whether a base object that does not show at its own path shows elsewhere.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn is_moved_away(&self, object: &BaseObject) -> std::result::Result<bool, FsError> {
        let each = &mut |_| true;
        let search = ChangeSearch::new(self, each);
        search.moved_away(object).map_err(|error| error.into_fs())
    }
}

/// One walk through the session.
struct ChangeSearch<'a> {
    tree: &'a TreeView<'a>,
    each: &'a mut dyn FnMut(Change) -> bool,
    /// Directories whose whiteouts are done.
    visited: HashSet<MergedPath>,
    /// Copied-up files whose base file got its first further hard link after the copy-up.
    newly_linked: BTreeSet<Ino>,
    /// The base paths of copied-up directories, once read.
    copied_up_dirs: OnceCell<HashSet<BasePath>>,
    /// The current path, for errors.
    at: MergedPath,
    /// Called for each object that cannot be compared; `None` if that ends the search.
    denied: Option<NoteDenied<'a>>,
}

/// A directory of the session.
struct SessionDir {
    place: Arc<DirPlace>,
    ino: Ino,
    lineage: Lineage,
    /// The base directory with which this directory is compared: the one that shows through, or, if
    /// `hides_base_entries`, the one that would. `None` if that one shows elsewhere.
    base: Option<BasePath>,
    /// The merged path differs from the path of `base`.
    is_moved: bool,
    /// No entry of `base` shows through: each name without a dentry is deleted. Either the
    /// directory was renamed and sealed, or it is masked.
    hides_base_entries: bool,
    /// The directory is opaque or below an opaque directory, in place of a base directory.
    is_masked: bool,
}

impl<'a> ChangeSearch<'a> {
    fn new(tree: &'a TreeView<'a>, each: &'a mut dyn FnMut(Change) -> bool) -> Self {
        let (visited, newly_linked) = (HashSet::new(), BTreeSet::new());
        let (copied_up_dirs, at) = (OnceCell::new(), MergedPath::root());
        Self { tree, each, visited, newly_linked, copied_up_dirs, at, denied: None }
    }

    fn view(&self) -> &View<'_> {
        &self.tree.view
    }

    fn all(&mut self) -> Result<bool> {
        let root = self.view().place_of_inode(Ino::ROOT, crate::vfs::FileId::ROOT)?;
        let root = self.dir(root, Ino::ROOT, None)?;
        Ok(self.all_in(root)? && self.strays()?)
    }

    fn all_in(&mut self, dir: SessionDir) -> Result<bool> {
        let mut open = vec![dir];
        while let Some(dir) = open.pop() {
            let mut below = Vec::new();
            if !self.entries(&dir, &mut below)? || !self.whiteouts(&dir)? {
                return Ok(false);
            }
            open.extend(below.into_iter().rev());
        }
        Ok(true)
    }

    /// The session directory `ino`, which is the entry `name` of the directory `above`.
    ///
    /// # Errors
    /// [`FsError::Loop`] if the directory is its own ancestor.
    fn dir(
        &self,
        place: Arc<DirPlace>,
        ino: Ino,
        above: Option<(&SessionDir, &Name)>,
    ) -> Result<SessionDir> {
        let lineage = match above {
            Some((above, _)) => above.lineage.enter(ino)?,
            None => Lineage::default().enter(ino)?,
        };
        let row = self.view().inode(ino)?;
        let origin = match row.origin {
            Some(origin) if place.base.as_ref() != Some(&origin.path) => {
                Some(now_of(self.view(), &origin.path)?)
            }
            origin => origin.map(|origin| origin.path),
        };
        let is_lost = place.base.is_none() && self.view().txn.redirect(ino)?.is_some();
        let is_sealed = ino != Ino::ROOT && origin.is_some() && place.base != origin && !is_lost;
        let masked = match (&place.base, above) {
            (None, Some((above, name))) if !is_sealed => self.masked(ino, above, name)?,
            _ => None,
        };
        let is_masked = masked.is_some();
        let base = match &place.base {
            _ if is_sealed => origin,
            _ if is_masked => masked,
            // A renamed base directory shows at its new path only.
            Some(base) => {
                let shown = self.view().place_of_base(base)?;
                shown.filter(|shown| shown.merged == place.merged).map(|_| base.clone())
            }
            None => None,
        };
        let is_moved =
            base.as_ref().is_some_and(|base| base.as_bytes() != &place.merged.as_bytes()[1..]);
        let hides_base_entries = is_sealed || is_masked;
        Ok(SessionDir { place, ino, lineage, base, is_moved, hides_base_entries, is_masked })
    }

    /// The base directory that would show through a directory without opaque marks at the directory
    /// and above. `None` if no mark hides a base directory there, or a redirect shows it elsewhere.
    fn masked(&self, ino: Ino, above: &SessionDir, name: &Name) -> Result<Option<BasePath>> {
        let view = self.view();
        let is_masked = above.is_masked || view.is_opaque(ino)?;
        let base = match &above.base {
            Some(base) if is_masked => view.base_dir_at(base.join(name))?,
            _ => None,
        };
        match base {
            Some(base) if view.txn.redirected_to(&base)?.is_none() => Ok(Some(base)),
            _ => Ok(None),
        }
    }

    /// Sets the original of a change, and whether the base drifted. `gone` is the base path of an
    /// entry if the base has no object there: a file that the session replaced, and the base then
    /// removed, still has its original.
    fn compare_with_original(&self, change: &mut Change, gone: Option<&BasePath>) -> Result<()> {
        let origin = change.after.as_ref().and_then(TreeObject::origin);
        let before = change.before.as_ref();
        let path = origin.map(|origin| &origin.path).or(before.map(|base| &base.path)).or(gone);
        let Some(path) = path else { return Ok(()) };
        let is_dir = change.after.as_ref().is_some_and(|a| a.attr().kind == FileKind::Directory)
            && before.is_some_and(|base| base.attr.kind == FileKind::Directory);
        let mut original = match before.zip(origin).filter(|_| is_dir) {
            Some((base, origin)) => original_of_dir(origin, base),
            None if is_dir => None,
            None => original_at(self.view(), path)?,
        };
        if let (None, None, Some(moved)) = (origin, before, &original)
            && !self.view().txn.copied_up(moved.fileid)?.is_empty()
        {
            // The original belongs to a file that the session moved to another name.
            original = None;
        }
        // A removed directory is compared with its content instead: see `changed_since`.
        change.original = original.filter(|kept| is_dir || kept.kind != FileKind::Directory);
        change.is_drifted = match (&change.original, before, origin) {
            (Some(original), Some(base), _) if is_dir => change
                .after
                .as_ref()
                .is_some_and(|after| both_changed_attributes(original, base, after.attr())),
            (Some(original), Some(base), _) => {
                !is_as_original(self.view(), original, base)?
                    && !self.tree.has_base_content(change.after.as_ref(), base, Some(original))?
            }
            // A further hard link does not depend on the base name.
            (Some(_), None, _) => !change.is_link,
            (None, Some(base), Some(origin)) => {
                change.after.as_ref().is_some_and(|after| drifted(origin, base, after.attr()))
                    && !self.tree.has_base_content(change.after.as_ref(), base, None)?
            }
            (None, None, origin) => origin.is_some() && !change.is_link,
            (None, Some(base), None) => match &change.after {
                Some(after) if !is_dir => self.changed_since(base, after.attr().ctime)?,
                _ => false,
            },
        };
        if let (Some(replaced), Some(after)) = (&change.replaced, &change.after) {
            change.is_replaced_drifted = self.changed_since(replaced, after.attr().ctime)?;
        }
        Ok(())
    }

    /// Reports the changes without a directory in the session: whiteouts that another program left
    /// in base directories, and hard links in the base of copied-up files.
    fn strays(&mut self) -> Result<bool> {
        for parent in self.view().txn.whiteout_parents()? {
            self.at = parent.clone();
            if self.visited.contains(&parent) {
                continue;
            }
            if !self.tree.knows_base {
                if !self.whiteouts_without_base(&parent, None)? {
                    return Ok(false);
                }
                continue;
            }
            let found = self.tree.find(&parent).ok().flatten();
            // A person may have put a file in the place of such a directory.
            let is_base_dir = |found: &TreeObject| {
                found.base_path().is_some() && found.attr().kind == FileKind::Directory
            };
            let Some(found) = found.filter(is_base_dir) else { continue };
            let place = self.view().place(&found.node)?;
            let base = place.base.clone();
            let (is_moved, hides_base_entries, is_masked) = (false, false, false);
            let lineage = Lineage::default();
            let dir = SessionDir {
                base,
                place,
                ino: Ino(0),
                lineage,
                is_moved,
                hides_base_entries,
                is_masked,
            };
            if !self.whiteouts(&dir)? {
                return Ok(false);
            }
        }
        match self.further_names() {
            Err(error) => self.pass_by(error, None).map(|()| true),
            through => through,
        }
    }

    fn base_object(&self, path: BasePath) -> Result<Option<BaseObject>> {
        found(self.view().core.base.stat(&path), path)
    }
}

/// The base object at `path`, which has these attributes; `None` if it is missing.
fn found(
    attr: std::result::Result<BaseAttr, BaseError>,
    path: BasePath,
) -> Result<Option<BaseObject>> {
    match attr {
        Ok(attr) => Ok(Some(BaseObject { path, attr })),
        Err(BaseError::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Change {
    /// Whether the base changed what the session changed, hid or replaced.
    pub fn has_drifted(&self) -> bool {
        self.is_drifted || self.is_replaced_drifted
    }

    /// The path in the base of the object, also of a moved one that the base has lost.
    pub fn base_path(&self) -> Option<&BasePath> {
        self.before.as_ref().map(|before| &before.path).or(self.missing.as_ref())
    }

    /// The deletion of a base object from `path`.
    pub fn gone(before: BaseObject, path: MergedPath) -> Self {
        Self { before: Some(before), ..Self::at(path) }
    }

    /// A change at `path` without a known object in base or session.
    pub fn at(path: MergedPath) -> Self {
        Self {
            before: None,
            after: None,
            path,
            replaced: None,
            missing: None,
            is_moved: false,
            moved_with_parent: false,
            is_link: false,
            original: None,
            is_drifted: false,
            is_replaced_drifted: false,
        }
    }
}
