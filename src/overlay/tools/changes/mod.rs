//! Lists the changes of a session: each object in the session, and each base name that it hides.
//!
//! Only the session's directories are walked, because an object's directory is copied up before
//! the object: the cost is proportional to the changes, not to the tree. Contents are not compared,
//! so a listed object may be identical to its base object.

mod below;
mod denied;
mod drift;
mod gone;
mod links;
mod moved;

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use crate::base::{BaseAttr, BasePath};
use crate::delta::{Ino, InodeRow, MergedPath, Original};
use crate::vfs::{FileKind, FsError, Name};

use super::lineage::Lineage;
use super::tree::{TreeObject, TreeView};
use crate::overlay::error::{OpError, Result};
use crate::overlay::followed::{now_of, original_at};
use crate::overlay::node::{DirPlace, Node};
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

    /// Reports the entries of a directory, and adds its subdirectories to `below`.
    fn entries(&mut self, dir: &SessionDir, below: &mut Vec<SessionDir>) -> Result<bool> {
        let mut entries = Vec::new();
        self.at = dir.place.merged.clone();
        self.view().txn.dentries(dir.ino, &mut |name, ino, _, _| entries.push((name, ino)))?;
        entries.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        for (name, ino) in entries {
            // Another program may have left a dentry without an inode.
            let Some(row) = self.view().txn.inode(ino)? else { continue };
            let is_dir = row.kind == FileKind::Directory;
            self.at = dir.place.merged.join(&name);
            let change = match self.entry(dir, &name, row) {
                Ok(change) => change,
                Err(error) => {
                    self.pass_by(error, Some(ino))?;
                    continue;
                }
            };
            if links::is_newly_linked(&change) {
                self.newly_linked.insert(ino);
            }
            if !(self.each)(change) {
                return Ok(false);
            }
            if is_dir {
                let fileid = self.view().shown(ino)?;
                let place = self.view().place_of_inode(ino, fileid);
                let entered = place.and_then(|place| self.dir(place, ino, Some((dir, &name))));
                below.push(entered.inspect_err(|error| {
                    if let OpError::Fs(FsError::Loop) = error {
                        let path = dir.place.merged.join(&name);
                        tracing::error!(?path, "the directory is among its own parents");
                    }
                })?);
            }
        }
        Ok(true)
    }

    fn entry(&self, dir: &SessionDir, name: &Name, row: InodeRow) -> Result<Change> {
        let here = match &dir.base {
            Some(base) => self.base_object(base.join(name))?,
            None => None,
        };
        let id = row.fileid();
        let origin = row.origin.clone();
        // A directory that was created in the session may show a base directory by a redirect.
        let from = match &origin {
            Some(origin) => Some(origin.path.clone()),
            None => self.view().txn.redirect(row.ino)?,
        };
        let own = dir.base.as_ref().map(|base| base.join(name));
        let from = match from {
            Some(from) if own.as_ref() != Some(&from) => Some(now_of(self.view(), &from)?),
            from => from,
        };
        let kind = row.kind;
        let redirected = match self.view().txn.redirect(row.ino)? {
            Some(_) if kind == FileKind::Directory => {
                Some(self.view().place_of_inode(row.ino, id)?)
            }
            _ => None,
        };
        let node = Node::Delta(Box::new(row));
        let path = dir.place.merged.join(name);
        let after = self.tree.object(node, path.clone())?;
        // The base may reuse the number of a removed object for one of another type.
        let same = here.as_ref().is_some_and(|h| h.attr.fileid == id && h.attr.kind == kind)
            && redirected.as_ref().is_none_or(|place| place.base == own);
        let left = match &here {
            Some(here) if !same => self.moved_away(here)?,
            _ => false,
        };
        let mut change = Change { after: Some(after), ..Change::at(path) };
        let from = match from {
            Some(from) if !left && self.is_moved_alike(&from, here.as_ref(), kind)? => own.clone(),
            from => from,
        };
        let is_here = same || from.is_some() && own == from;
        let is_made = from.is_none();
        let gone = own.filter(|_| here.is_none());
        match from {
            _ if same => change.before = here,
            Some(from) => {
                if redirected.is_none_or(|place| !place.base_missing) {
                    change.before = self.base_object(from.clone())?;
                }
                // At its own path it is no link: an editor's save by rename changes the number.
                let may_be_link = !is_here && kind != FileKind::Directory && self.tree.knows_base;
                change.is_link = match &origin {
                    Some(origin) if may_be_link => self.still_shows(origin)?,
                    _ => false,
                };
                change.is_moved = !is_here;
                change.missing = Some(from).filter(|_| !is_here && change.before.is_none());
                change.replaced = here.filter(|_| !left && !is_here);
            }
            None => change.before = here.filter(|_| !left),
        }
        let is_made_here = is_made && change.before.is_some();
        // A copied base, or a save by a rename, has another object there.
        let is_renewed = change.before.as_ref().is_some_and(|before| before.attr.kind == kind);
        let stays = same || is_made_here || is_here && (origin.is_none() || is_renewed);
        change.moved_with_parent = dir.is_moved && stays;
        if self.tree.knows_base {
            self.compare_with_original(&mut change, gone.as_ref())?;
        }
        Ok(change)
    }

    /// Whether session and base moved an object alike, and the base then saved it by a rename: it
    /// has nothing at the object's path any more, and an object of that type at the session's. Not
    /// if the session's move replaced that one.
    fn is_moved_alike(
        &self,
        from: &BasePath,
        here: Option<&BaseObject>,
        kind: FileKind,
    ) -> Result<bool> {
        let is_alike = here.is_some_and(|here| here.path != *from && here.attr.kind == kind);
        let is_known = is_alike && self.tree.knows_base && kind != FileKind::Directory;
        let Some(here) = here.filter(|_| is_known) else { return Ok(false) };
        let replaced = self.view().txn.original(&here.path)?;
        Ok(replaced.is_none_or(|replaced| replaced.fileid != here.attr.fileid)
            && self.base_object(from.clone())?.is_none())
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
        let attr = self.view().base_attr_at(&path)?;
        Ok(attr.map(|attr| BaseObject { path, attr }))
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
