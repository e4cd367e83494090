//! Resolves handles to objects, and directories to their paths in delta, merged tree and base.
//!
//! With empty caches the cost is O(depth), never O(tree): the path digest in a handle locates a
//! base object that was not copied up; the file number locates a delta object.

use std::sync::Arc;

use crate::base::{BaseAttr, BaseError, BasePath, DELTA_IDS};
use crate::delta::{Ino, InodeRow, MergedPath, Origin, ReadTxn, StoreError};
use crate::vfs::{FileId, FileKind, FsError, Locator, Name, PathDigest};

use super::Core;
use super::cache::{DeltaChild, Invalidation};
use super::error::Result;
use super::followed;
use super::limits::MAX_DEPTH;
use super::memo::Memo;
use super::node::{DirPlace, Node, is_linked};
use super::scope::{Scope, is_in_scope};
use super::trail::{SearchedDirs, digest_of, follow, parent_digest};

/// The merged tree in one transaction.
pub(super) struct View<'a> {
    /// The transaction.
    pub txn: &'a dyn ReadTxn,
    /// Shared state of the overlay.
    pub core: &'a Core,
    /// What is remembered of this transaction's rows.
    pub memo: &'a dyn Memo,
    /// The part of the tree that the caller may see.
    pub scope: &'a Scope,
}

impl View<'_> {
    /// The object that a handle names. [`FsError::Stale`] if the object is not visible or outside
    /// the scope; [`FsError::TryLater`] if an unfinished apply may be moving it.
    pub fn node(&self, locator: &Locator) -> Result<Node> {
        let Some(node) = self.found(locator)? else {
            let may_come_back =
                !matches!(locator, Locator::Delta(_)) && self.may_have_moving_dirs()?;
            return Err(if may_come_back { FsError::TryLater } else { FsError::Stale }.into());
        };
        if is_in_scope(self, &node)? { Ok(node) } else { Err(FsError::Stale.into()) }
    }

    /// The object that a handle names, ignoring the scope.
    pub fn found(&self, locator: &Locator) -> Result<Option<Node>> {
        match locator {
            Locator::Delta(id) => self.delta_node(*id),
            Locator::Base(id, trail) => self.base_node(*id, trail),
            Locator::BaseLinked(id) => self.linked_node(*id),
        }
    }

    /// A directory and its place; [`FsError::NotDirectory`] for anything else.
    pub fn dir(&self, locator: &Locator) -> Result<(Node, Arc<DirPlace>)> {
        let node = self.node(locator)?;
        if !node.is_dir() {
            return Err(FsError::NotDirectory.into());
        }
        let place = self.place(&node)?;
        self.refuse_during_apply(&place)?;
        Ok((node, place))
    }

    /// [`FsError::TryLater`] if the base has the journal of an unfinished apply, and the base
    /// directory that shows through may be in transit between two paths.
    pub fn refuse_during_apply(&self, place: &DirPlace) -> Result<()> {
        match place.is_affected_by_apply() && self.core.base.has_unfinished_apply()? {
            true => Err(FsError::TryLater.into()),
            false => Ok(()),
        }
    }

    /// Whether an apply is unfinished and the session has redirects.
    fn may_have_moving_dirs(&self) -> Result<bool> {
        Ok(self.core.base.has_unfinished_apply()? && !self.txn.redirects()?.is_empty())
    }

    /// The paths of a directory.
    pub fn place(&self, dir: &Node) -> Result<Arc<DirPlace>> {
        match dir {
            Node::Delta(row) => self.place_of_inode(row.ino, row.fileid()),
            Node::Base { path, .. } => {
                let place = self.place_of_base(path)?.ok_or(FsError::Stale)?;
                if place.ino.is_some() || place.fileid == dir.fileid() {
                    return Ok(place);
                }
                // The host replaced the directory after its place was cached.
                let touch = Invalidation::Place(None, Some(path.clone()));
                self.memo.forget(&touch);
                self.core.caches.forget(&[touch]);
                Ok(self.place_of_base(path)?.ok_or(FsError::Stale)?)
            }
        }
    }

    /// The directory at a place.
    pub fn node_at(&self, place: &DirPlace) -> Result<Node> {
        if let Some(ino) = place.ino {
            return Ok(Node::Delta(Box::new(self.inode(ino)?)));
        }
        let path = place.base.clone().ok_or(FsError::Stale)?;
        let attr = Box::new(self.core.base.stat(&path)?);
        Ok(Node::Base { path, attr })
    }

    /// The parent directory; the root of the scope is its own parent.
    pub fn parent_of(&self, place: &DirPlace) -> Result<Node> {
        if place.fileid == self.scope.root_id() {
            return self.node_at(place);
        }
        if let Some(ino) = place.ino {
            let (parent, _) = self.txn.name_of(ino)?.ok_or(FsError::Stale)?;
            return Ok(Node::Delta(Box::new(self.inode(parent)?)));
        }
        let (parent, _) = place.base.as_ref().and_then(BasePath::split).ok_or(FsError::Stale)?;
        let parent = self.place_of_base(&parent)?.ok_or(FsError::Stale)?;
        self.node_at(&parent)
    }

    /// An inode row that must exist because another row refers to it.
    pub fn inode(&self, ino: Ino) -> Result<InodeRow> {
        let row = self.txn.inode(ino)?;
        Ok(row.ok_or_else(|| StoreError::corrupt(format!("no row for inode {}", ino.0)))?)
    }

    /// The file number that the export shows for an inode.
    pub fn shown(&self, ino: Ino) -> Result<FileId> {
        if let Some(id) = self.memo.shown(ino) {
            return Ok(id);
        }
        let id = self.inode(ino)?.fileid();
        self.memo.add_shown(ino, id);
        Ok(id)
    }

    fn delta_node(&self, id: FileId) -> Result<Option<Node>> {
        // Inode numbers of another implementation are shown shifted: see `Ino::fileid`.
        let moved_up = id.0.checked_sub(DELTA_IDS).map(Ino);
        for ino in [Some(Ino(id.0)), moved_up].into_iter().flatten() {
            if let Some(row) = self.txn.inode(ino)?
                && row.fileid() == id
                && row.origin.is_none()
            {
                return Ok(Some(Node::Delta(Box::new(row))));
            }
        }
        Ok(None)
    }

    fn base_node(&self, id: FileId, trail: &PathDigest) -> Result<Option<Node>> {
        if let Some(path) = self.memo.showing(id)
            && digest_of(&path) == *trail
            && let Some(attr) = self.base_object(&path, id)?
        {
            return Ok(Some(Node::Base { path, attr: Box::new(attr) }));
        }
        if let Some(row) = self.copy_of(id, |_, origin| digest_of(&origin.path) == *trail)? {
            return Ok(Some(Node::Delta(Box::new(row))));
        }
        let found = self.untouched_node(id, trail)?;
        if let Some(Node::Base { path, .. }) = &found {
            self.memo.add_showing(id, path);
        }
        Ok(found)
    }

    /// The delta copy of the base object `id` whose origin satisfies `is`. Several copies may have
    /// this number: the host may reuse the number of a removed object.
    pub fn copy_of(
        &self,
        id: FileId,
        is: impl Fn(&InodeRow, &Origin) -> bool,
    ) -> Result<Option<InodeRow>> {
        for ino in self.txn.copied_up(id)? {
            let row = self.inode(ino)?;
            if row.origin.as_ref().is_some_and(|origin| is(&row, origin)) {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Finds a base object that was not copied up.
    fn untouched_node(&self, id: FileId, trail: &PathDigest) -> Result<Option<Node>> {
        let remembered = self.core.caches.location(id).filter(|path| digest_of(path) == *trail);
        if let Some(path) = remembered {
            if let Some(attr) = self.base_object(&path, id)? {
                return self.if_visible(path, attr);
            }
            self.core.caches.forget_location(id);
        }
        let caches = &self.core.caches;
        if let Some(searched) = caches.absent(id, trail) {
            if searched.is_as_it_was(&*self.core.base) {
                return Ok(None);
            }
            caches.put_absent(id, trail, None);
        }
        if let Some(path) = self.in_listed(id, trail)
            && let Some(attr) = self.base_object(&path, id)?
        {
            self.core.caches.add_location(id, &path);
            return self.if_visible(path, attr);
        }
        let (began, mut searched) = ((self.core.clock)(), SearchedDirs::default());
        let Some(path) = follow(&*self.core.base, id, trail, &mut searched)? else {
            if searched.is_certain(began) {
                caches.put_absent(id, trail, Some(searched));
            }
            return Ok(None);
        };
        self.core.caches.add_location(id, &path);
        self.visible_at(&path, id)
    }

    /// Searches directories listed by READDIRPLUS for an object that was never looked up. Caches
    /// the locations of all its siblings: clients usually use their handles next.
    fn in_listed(&self, id: FileId, trail: &PathDigest) -> Option<BasePath> {
        let dirs = self.core.caches.listed(&parent_digest(trail)?);
        dirs.iter().find_map(|dir| {
            let listing = self.core.base.list(dir).ok()?;
            let entry = listing.entries.iter().find(|entry| entry.fileid == id)?;
            let path = dir.join(&entry.name);
            (digest_of(&path) == *trail).then(|| self.core.caches.add_locations(dir, &listing))?;
            Some(path)
        })
    }

    /// A hard-linked base file, through any of its names that is still visible.
    fn linked_node(&self, id: FileId) -> Result<Option<Node>> {
        if let Some(row) = self.copy_of(id, |row, origin| is_linked(row.kind, origin.nlink))? {
            return Ok(Some(Node::Delta(Box::new(row))));
        }
        if let Some(path) = self.core.caches.location(id)
            && let Some(node) = self.visible_at(&path, id)?
        {
            return Ok(Some(node));
        }
        let mut found = Ok(None);
        let path = self.core.base.find_linked(id, &mut |path| {
            found = self.visible_at(path, id);
            !matches!(found, Ok(None))
        })?;
        if let Some(path) = path {
            self.core.caches.add_location(id, &path);
        }
        found
    }

    /// Attributes of the base object at a path; `None` if the path is missing.
    pub fn base_attr_at(&self, path: &BasePath) -> Result<Option<BaseAttr>> {
        match self.core.base.stat(path) {
            Ok(attr) => Ok(Some(attr)),
            Err(BaseError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The base object at `path`, if it is the one with number `id`.
    fn base_object(&self, path: &BasePath, id: FileId) -> Result<Option<BaseAttr>> {
        Ok(self.base_attr_at(path)?.filter(|attr| attr.fileid == id))
    }

    /// The place and name at which a base path shows; `None` if a dentry or a whiteout covers it.
    pub fn shown_name(&self, path: &BasePath) -> Result<Option<(Arc<DirPlace>, Name)>> {
        let Some((parent, name)) = path.split() else { return Ok(None) };
        let Some(place) = self.place_of_base(&parent)? else { return Ok(None) };
        let through = self.delta_child(&place, &name)? == DeltaChild::Through;
        Ok(through.then_some((place, name)))
    }

    /// The base object at `path` as a node, if it is the one with number `id` and visible.
    fn visible_at(&self, path: &BasePath, id: FileId) -> Result<Option<Node>> {
        match self.base_object(path, id)? {
            Some(attr) => self.if_visible(path.clone(), attr),
            None => Ok(None),
        }
    }

    /// The base object as a node, unless the delta hides it.
    fn if_visible(&self, path: BasePath, attr: BaseAttr) -> Result<Option<Node>> {
        let Some((parent, name)) = path.split() else { return Ok(None) };
        let Some(parent) = self.place_of_base(&parent)? else { return Ok(None) };
        let visible = self.delta_child(&parent, &name)? == DeltaChild::Through;
        Ok(visible.then(|| Node::Base { path, attr: Box::new(attr) }))
    }

    /// What the delta alone records for a name.
    pub fn delta_child(&self, dir: &DirPlace, name: &Name) -> Result<DeltaChild> {
        if dir.untouched_by_delta {
            return Ok(DeltaChild::Through);
        }
        if let Some(child) = self.memo.child(dir.id(), name) {
            return Ok(child);
        }
        let entry = match dir.ino {
            Some(ino) => self.txn.dentry(ino, name)?,
            None => None,
        };
        let child = match entry {
            Some(ino) => DeltaChild::Entry(ino),
            None if dir.base.is_none() => DeltaChild::Through,
            None if self.txn.is_whited_out(&dir.merged.join(name))? => DeltaChild::WhitedOut,
            None => DeltaChild::Through,
        };
        if !dir.base_missing {
            self.memo.add_child(dir.id(), name, child);
        }
        Ok(child)
    }

    /// The place of the delta directory `ino`: climbs to the root, then builds the paths downwards.
    pub fn place_of_inode(&self, ino: Ino, fileid: FileId) -> Result<Arc<DirPlace>> {
        let mut below: Vec<(Ino, FileId, Name)> = Vec::new();
        let (mut at, mut at_id) = (ino, fileid);
        let mut place = loop {
            if let Some(known) = self.memo.place(at) {
                break known;
            }
            if at == Ino::ROOT {
                break Arc::new(DirPlace {
                    fileid: FileId::ROOT,
                    ino: Some(Ino::ROOT),
                    merged: MergedPath::root(),
                    base: self.base_dir_at(BasePath::root())?,
                    untouched_by_delta: false,
                    base_missing: false,
                });
            }
            if below.len() >= MAX_DEPTH {
                // Rows of another program may make a directory its own ancestor (invariant S8).
                let is_loop = below.iter().any(|(ino, ..)| *ino == at);
                return Err(if is_loop { FsError::Loop } else { FsError::NameTooLong }.into());
            }
            let (parent, name) = self.txn.name_of(at)?.ok_or(FsError::Stale)?;
            below.push((at, at_id, name));
            at = parent;
            at_id = self.shown(parent)?;
        };
        while let Some((ino, fileid, name)) = below.pop() {
            let (base, base_missing) = self.base_below(ino, &place, &name)?;
            place = Arc::new(DirPlace {
                fileid,
                ino: Some(ino),
                merged: place.merged.join(&name),
                base,
                untouched_by_delta: false,
                base_missing,
            });
            if !base_missing {
                self.memo.add_place(ino, &place);
            }
        }
        Ok(place)
    }

    /// The base directory that shows through the delta directory `ino`, `name` in `parent`, and
    /// whether the base should have one and does not.
    fn base_below(
        &self,
        ino: Ino,
        parent: &DirPlace,
        name: &Name,
    ) -> Result<(Option<BasePath>, bool)> {
        if let Some(redirect) = self.txn.redirect(ino)? {
            let target = followed::shown_base_dir(self, ino, redirect, parent, name)?;
            return Ok((target.base, target.is_missing));
        }
        let Some(base) = &parent.base else { return Ok((None, parent.base_missing)) };
        match self.base_dir_at(base.join(name))? {
            Some(base) if !self.is_opaque(ino)? => Ok((Some(base), false)),
            _ => Ok((None, self.inode(ino)?.origin.is_some())),
        }
    }

    /// Whether the delta directory `ino` is marked opaque.
    pub fn is_opaque(&self, ino: Ino) -> Result<bool> {
        Ok(self.txn.opaque_since(ino)?.is_some())
    }

    /// `path`, if the base has a directory there.
    pub fn base_dir_at(&self, path: BasePath) -> Result<Option<BasePath>> {
        match self.core.base.stat(&path) {
            Ok(attr) if attr.kind == FileKind::Directory => Ok(Some(path)),
            Ok(_) | Err(BaseError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The place at which a base directory shows; `None` if it is hidden.
    pub fn place_of_base(&self, path: &BasePath) -> Result<Option<Arc<DirPlace>>> {
        if let Some(place) = self.memo.base_place(path) {
            return Ok(Some(place));
        }
        let Some(mut place) = followed::find_base_place(self, path)? else { return Ok(None) };
        if place.ino.is_none() && self.memo.is_current() {
            let untouched_by_delta = self.txn.whiteouts_in(&place.merged)?.is_empty();
            Arc::make_mut(&mut place).untouched_by_delta = untouched_by_delta;
        }
        self.memo.add_base_place(path, &place);
        Ok(Some(place))
    }

    /// The place of the base directory `base`, `name` in `dir`, unless the delta hides it.
    pub fn step_down(
        &self,
        dir: &DirPlace,
        name: &Name,
        base: &BasePath,
    ) -> Result<Option<DirPlace>> {
        let (fileid, ino) = match self.delta_child(dir, name)? {
            DeltaChild::WhitedOut => return Ok(None),
            DeltaChild::Entry(ino) => {
                let row = self.inode(ino)?;
                let is_dir = row.kind == FileKind::Directory;
                if !is_dir || !followed::shows_at_own_path(self, &row, base)? {
                    return Ok(None);
                }
                (row.fileid(), Some(ino))
            }
            DeltaChild::Through => match self.core.base.stat(base) {
                Ok(attr) if attr.kind == FileKind::Directory => (attr.fileid, None),
                Ok(_) | Err(BaseError::NotFound) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
        };
        let merged = dir.merged.join(name);
        let base = Some(base.clone());
        Ok(Some(DirPlace {
            fileid,
            ino,
            merged,
            base,
            untouched_by_delta: false,
            base_missing: false,
        }))
    }
}
