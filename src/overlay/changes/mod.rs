//! What the session makes different from the base: each object that is in the session, and each
//! name of the base that it hides.
//!
//! Only the session's directories are gone through, for nothing gets into the session without
//! its directory: the cost is that of the changes, not of the tree. Contents are not compared,
//! so an object may come up that is in the session and differs in nothing.

mod below;
mod gone;

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::{BaseAttr, BasePath};
use crate::delta::{Ino, InodeRow, MergedPath, Origin, Original};
use crate::vfs::{Attr, FileKind, FsError, Name};

use super::error::{OpError, Result};
use super::lineage::Lineage;
use super::node::{DirPlace, Node, is_linked};
use super::resolve::View;
use super::tree::{TreeObject, TreeView};

/// An object of the base.
#[derive(Debug, Clone)]
pub struct BaseObject {
    /// Where it is in the base.
    pub path: BasePath,
    /// What it is there now.
    pub attr: BaseAttr,
}

/// An object that may differ from what the base has.
#[derive(Debug, Clone)]
pub struct Change {
    /// What the base has of it: at the same path, or where it came from. `None` for what was
    /// made in the session, and for what is gone where the base is not known.
    pub before: Option<BaseObject>,
    /// What it is now; `None` if it is gone, and with a directory all that was in it but for
    /// what moved away.
    pub after: Option<TreeObject>,
    /// Where it is in the merged tree, or would be if it were not gone.
    pub path: MergedPath,
    /// What the base has at its path, and was replaced by it, where that is not `before`.
    pub replaced: Option<BaseObject>,
    /// It was taken from where the base has it; it may be back at its path, and yet in another
    /// directory than before.
    pub is_moved: bool,
    /// It has another path than in the base only because a directory above it moved.
    pub is_carried: bool,
    /// It is one more name of what is still at its own name in the base too.
    pub is_link: bool,
    /// What the base had when the session first changed or hid it, where that is kept.
    pub original: Option<Original>,
    /// The base object is not what it was then.
    pub is_drifted: bool,
    /// `replaced` is not what it was when the session replaced it.
    pub is_replaced_drifted: bool,
}

/// Why not all changes can be told.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct ChangesError {
    /// Where in the merged tree the search ended.
    pub path: MergedPath,
    /// What is wrong there.
    pub source: FsError,
}

impl TreeView<'_> {
    /// Calls `each` for every change, a directory before what is in it, until it says `false`;
    /// whether it never did.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn changes(
        &self,
        each: &mut dyn FnMut(Change) -> bool,
    ) -> std::result::Result<bool, ChangesError> {
        let at = MergedPath::root();
        let mut search = ChangeSearch { tree: self, each, visited: HashSet::new(), at };
        let found = search.all();
        found.map_err(|error| ChangesError { path: search.at, source: error.into_fs() })
    }

    /// Whether a base object that is not at its own name any more is somewhere else in the merged
    /// tree.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn is_moved_away(&self, object: &BaseObject) -> std::result::Result<bool, FsError> {
        let at = MergedPath::root();
        let search = ChangeSearch { tree: self, each: &mut |_| true, visited: HashSet::new(), at };
        search.moved_away(object).map_err(|error| error.into_fs())
    }
}

/// One run through the session.
struct ChangeSearch<'a> {
    tree: &'a TreeView<'a>,
    each: &'a mut dyn FnMut(Change) -> bool,
    /// Directories whose whiteouts were seen to.
    visited: HashSet<MergedPath>,
    /// The path that is looked at.
    at: MergedPath,
}

/// A directory of the session.
struct SessionDir {
    place: Arc<DirPlace>,
    ino: Ino,
    lineage: Lineage,
    /// The base directory that shows through it, unless that shows elsewhere.
    base: Option<BasePath>,
    /// It has another path than the base directory.
    is_moved: bool,
    /// Nothing of the base directory shows through it: what has no entry is gone. Sealing does
    /// that to a directory that came from there, and a mark to one that was made in its place.
    shows_none: bool,
    /// It is opaque, or in a directory that is.
    is_masked: bool,
}

impl ChangeSearch<'_> {
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

    /// A directory, `name` in the directory `above`.
    ///
    /// # Errors
    /// It is among its own parents ([`FsError::Loop`]).
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
        let origin = row.origin.map(|origin| origin.path);
        let is_sealed = ino != Ino::ROOT && origin.is_some() && place.base != origin;
        let masked = match (&place.base, above) {
            (None, Some((above, name))) if !is_sealed => self.masked(ino, above, name)?,
            _ => None,
        };
        let is_masked = masked.is_some();
        let base = match &place.base {
            _ if is_sealed => origin,
            _ if is_masked => masked,
            // A directory that was made where one moved away shows nothing of that.
            Some(base) => {
                let shown = self.view().place_of_base(base)?;
                shown.filter(|shown| shown.merged == place.merged).map(|_| base.clone())
            }
            None => None,
        };
        let is_moved =
            base.as_ref().is_some_and(|base| base.as_bytes() != &place.merged.as_bytes()[1..]);
        let shows_none = is_sealed || is_masked;
        Ok(SessionDir { place, ino, lineage, base, is_moved, shows_none, is_masked })
    }

    /// The base directory that would show through a directory if that were not opaque, and not in
    /// one that is.
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

    /// The entries of a directory; those that are directories are added to `below`.
    fn entries(&mut self, dir: &SessionDir, below: &mut Vec<SessionDir>) -> Result<bool> {
        let mut entries = Vec::new();
        self.at = dir.place.merged.clone();
        self.view().txn.dentries(dir.ino, &mut |name, ino, _, _| entries.push((name, ino)))?;
        entries.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        for (name, ino) in entries {
            // Rows of another program may point nowhere.
            let Some(row) = self.view().txn.inode(ino)? else { continue };
            let is_dir = row.kind == FileKind::Directory;
            self.at = dir.place.merged.join(&name);
            let change = self.entry(dir, &name, row)?;
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
        // A directory that was made anew says by a redirect what shows through it.
        let from = match &origin {
            Some(origin) => Some(origin.path.clone()),
            None => self.view().txn.redirect(row.ino)?,
        };
        let node = Node::Delta(Box::new(row));
        let path = dir.place.merged.join(name);
        let after = self.tree.object(node, path.clone())?;
        let same = here.as_ref().is_some_and(|here| here.attr.fileid == id);
        let left = match &here {
            Some(here) if !same => self.moved_away(here)?,
            _ => false,
        };
        let mut change = Change { after: Some(after), ..Change::at(path) };
        let own = dir.base.as_ref().map(|base| base.join(name));
        let is_here = same || from.is_some() && own == from;
        let gone = own.filter(|_| here.is_none());
        match from {
            _ if same => change.before = here,
            Some(from) => {
                change.before = self.base_object(from)?;
                change.is_link = match &origin {
                    // What the host saved by a rename has another number at the same path.
                    Some(origin) if !is_here && self.tree.knows_base => self.still_shows(origin)?,
                    _ => false,
                };
                change.is_moved = !is_here;
                change.replaced = here.filter(|_| !left && !is_here);
            }
            None => change.before = here.filter(|_| !left),
        }
        change.is_carried = dir.is_moved && (same || origin.is_none() && is_here);
        if self.tree.knows_base {
            self.compare_with_original(&mut change, gone.as_ref())?;
        }
        Ok(change)
    }

    /// Looks for the original of a change, and whether the base still has it. `gone` is the path in
    /// the base of an entry where the base has nothing: a file that the session replaced there has
    /// its original still.
    fn compare_with_original(&self, change: &mut Change, gone: Option<&BasePath>) -> Result<()> {
        let origin = change.after.as_ref().and_then(TreeObject::origin);
        let before = change.before.as_ref();
        let path = origin.map(|origin| &origin.path).or(before.map(|base| &base.path)).or(gone);
        let Some(path) = path else { return Ok(()) };
        let is_dir = change.after.as_ref().is_some_and(|a| a.attr().kind == FileKind::Directory)
            && before.is_some_and(|base| base.attr.kind == FileKind::Directory);
        let mut original = if is_dir { None } else { self.view().txn.original(path)? };
        if let (None, None, Some(moved)) = (origin, before, &original)
            && !self.view().txn.copied_up(moved.fileid)?.is_empty()
        {
            // It is the original of a file that the session has at another name now.
            original = None;
        }
        // Of a directory that is gone, what is in it is compared too.
        change.original = original.filter(|original| original.kind != FileKind::Directory);
        change.is_drifted = match (&change.original, before, origin) {
            (Some(original), Some(base), _) => {
                !self.view().is_as_original(original, base)?
                    && !self.tree.has_same(change.after.as_ref(), base, Some(original))?
            }
            // A further name does not need the first one.
            (Some(_), None, _) => !change.is_link,
            (None, Some(base), Some(origin)) => {
                change.after.as_ref().is_some_and(|after| drifted(origin, base, after.attr()))
                    && !self.tree.has_same(change.after.as_ref(), base, None)?
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

    /// What has no entry in a directory of the session: whiteouts that another program left in
    /// directories of the base, and further names in the base of what was copied up.
    fn strays(&mut self) -> Result<bool> {
        for parent in self.view().txn.whiteout_parents()? {
            self.at = parent.clone();
            if self.visited.contains(&parent) {
                continue;
            }
            if !self.tree.knows_base {
                if !self.names_alone(&parent, None)? {
                    return Ok(false);
                }
                continue;
            }
            let found = self.tree.find(&parent).ok().flatten();
            let Some(found) = found.filter(|found| found.base_path().is_some()) else { continue };
            let place = self.view().place(&found.node)?;
            let base = place.base.clone();
            let (is_moved, shows_none, is_masked) = (false, false, false);
            let lineage = Lineage::default();
            let dir =
                SessionDir { base, place, ino: Ino(0), lineage, is_moved, shows_none, is_masked };
            if !self.whiteouts(&dir)? {
                return Ok(false);
            }
        }
        self.further_names()
    }

    fn further_names(&mut self) -> Result<bool> {
        for ino in self.view().txn.copied_links()? {
            let Some(row) = self.view().txn.inode(ino)? else { continue };
            let Some(origin) = row.origin.clone() else { continue };
            self.at = MergedPath::of_base(&origin.path);
            let mut paths = Vec::new();
            self.view().core.base.find_linked(origin.fileid, &mut |path| {
                paths.push(path.clone());
                false
            })?;
            for path in paths {
                let Some((place, name)) = self.view().shown_name(&path)? else { continue };
                let node = Node::Delta(Box::new(row.clone()));
                self.at = place.merged.join(&name);
                let Some(before) = self.base_object(path)? else { continue };
                let is_alone = !is_linked(before.attr.kind, before.attr.nlink);
                let path = self.at.clone();
                let after = Some(self.tree.object(node, path.clone())?);
                let is_carried = before.path.as_bytes() != &path.as_bytes()[1..];
                let before = Some(before);
                let mut change = Change { before, after, is_carried, ..Change::at(path) };
                self.compare_with_original(&mut change, None)?;
                // A file of one name and other content may be a new one that got the number of the
                // old one; clients see the base's.
                if is_alone && change.original.is_some() && change.is_drifted {
                    continue;
                }
                if !(self.each)(change) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Whether an object that is not at its own name in the base any more is somewhere else.
    fn moved_away(&self, object: &BaseObject) -> Result<bool> {
        if object.attr.kind == FileKind::Directory
            && self.view().txn.redirected_to(&object.path)?.is_some()
        {
            return Ok(true);
        }
        let is_it = |_: &InodeRow, origin: &Origin| origin.path == object.path;
        let Some(row) = self.view().copy_of(object.attr.fileid, is_it)? else {
            // What the host saved by a rename has another number than what moved away.
            let original = self.view().txn.original(&object.path)?;
            let Some(original) = original.filter(|o| o.fileid != object.attr.fileid) else {
                return Ok(false);
            };
            return Ok(self.view().copy_of(original.fileid, is_it)?.is_some());
        };
        // Where one of several names went, it moved if it has one that the base does not know.
        let is_linked = is_linked(object.attr.kind, object.attr.nlink);
        Ok(!is_linked || self.has_new_name(row.ino, object)?)
    }

    fn has_new_name(&self, ino: Ino, object: &BaseObject) -> Result<bool> {
        let view = self.view();
        let Some((parent, name)) = view.txn.name_of(ino)? else { return Ok(false) };
        let place = view.place_of_inode(parent, view.shown(parent)?)?;
        let Some(base) = &place.base else { return Ok(true) };
        let known = self.base_object(base.join(&name))?;
        Ok(known.is_none_or(|known| known.attr.fileid != object.attr.fileid))
    }

    /// Whether a copied-up object still is at its own name in the base too.
    fn still_shows(&self, origin: &Origin) -> Result<bool> {
        let Some((parent, name)) = origin.path.split() else { return Ok(false) };
        if let Some(place) = self.view().place_of_base(&parent)?
            && let Some(child) = self.view().child(&place, &name)?
            && child.node.fileid() == origin.fileid
        {
            return Ok(true);
        }
        // Its directory may be one that shows nothing of the base any more.
        let Some(dir) = self.base_object(parent)? else { return Ok(false) };
        let is_dir = |row: &InodeRow, _: &Origin| row.kind == FileKind::Directory;
        let Some(dir) = self.view().copy_of(dir.attr.fileid, is_dir)? else { return Ok(false) };
        let Some(ino) = self.view().txn.dentry(dir.ino, &name)? else { return Ok(false) };
        Ok(self.view().shown(ino)? == origin.fileid)
    }

    fn base_object(&self, path: BasePath) -> Result<Option<BaseObject>> {
        let attr = self.view().base_attr_at(&path)?;
        Ok(attr.map(|attr| BaseObject { path, attr }))
    }
}

impl Change {
    /// Whether the base has something else than the session saw.
    pub fn has_drifted(&self) -> bool {
        self.is_drifted || self.is_replaced_drifted
    }

    /// What the base has is gone from `path`.
    pub fn gone(before: BaseObject, path: MergedPath) -> Self {
        Self { before: Some(before), ..Self::at(path) }
    }

    /// Neither the base nor the session has a known object at `path`.
    pub fn at(path: MergedPath) -> Self {
        Self {
            before: None,
            after: None,
            path,
            replaced: None,
            is_moved: false,
            is_carried: false,
            is_link: false,
            original: None,
            is_drifted: false,
            is_replaced_drifted: false,
        }
    }
}

/// Whether a base object without an original is not what it was when it was copied up; it is
/// `here` now.
fn drifted(origin: &Origin, base: &BaseObject, here: &Attr) -> bool {
    let attr = &base.attr;
    let is_same = (origin.fileid, origin.ctime) == (attr.fileid, attr.ctime);
    if attr.kind == FileKind::Directory {
        // Its times and size follow its entries. Whose its mode and owner are is not known then.
        let is_alike = (attr.mode, attr.uid, attr.gid) == (here.mode, here.uid, here.gid);
        return !(is_alike || is_same);
    }
    !(is_same && (origin.size, origin.mtime) == (attr.size, attr.mtime))
}
