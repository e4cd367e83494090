//! Hard links of base files: which names exist, and how many the session hides.
//!
//! A base name without an entry shows the copied-up file while the base file has several names. The
//! last of these names shows the base file. So a copied-up file that lost its entries needs one
//! entry, because every inode needs one (specification 0.4, filesystem rule 8):
//! [`Edit::adopt_base_name`]. It needs an entry at each name if it parts from its base file, or if
//! `apply` replaced one of the names: [`Edit::add_entries_at_base_names`].

use std::sync::Arc;

use crate::base::{BaseAttr, BasePath};
use crate::delta::{Ino, InodeRow, MergedPath};
use crate::vfs::{FileId, Name, Time};

use super::cache::Invalidation;
use super::edit::Edit;
use super::error::Result;
use super::node::{Child, DirPlace, is_linked};
use super::resolve::View;

impl View<'_> {
    /// The base file of a copied-up file, if it had one name at copy-up and has several now. These
    /// show the copied-up file, and its row does not count them.
    pub fn newly_linked(&self, row: &InodeRow) -> Result<Option<BaseAttr>> {
        let single = row.origin.as_ref().filter(|origin| !is_linked(row.kind, origin.nlink));
        let Some(origin) = single else { return Ok(None) };
        let is_it = |attr: &BaseAttr| attr.fileid == origin.fileid && attr.kind == row.kind;
        let there = self.base_attr_at(&origin.path)?.filter(is_it);
        Ok(there.filter(|attr| is_linked(attr.kind, attr.nlink)))
    }

    /// The directory of a base path, if the path shows the copied-up file `ino` without an entry.
    fn place_showing(
        &self,
        path: &BasePath,
        ino: Ino,
        is_fit: &dyn Fn(&MergedPath) -> bool,
    ) -> Result<Option<Arc<DirPlace>>> {
        let Some((above, name)) = path.split() else { return Ok(None) };
        let Some(place) = self.place_of_base(&above)? else { return Ok(None) };
        if !is_fit(&place.merged.join(&name)) {
            return Ok(None);
        }
        let shows = self.child(&place, &name)?;
        let is_it = |c: &Child| !c.has_dentry && c.node.row().is_some_and(|row| row.ino == ino);
        Ok(shows.filter(is_it).map(|_| place))
    }

    /// The copied-up files that [`View::newly_linked`] tells of. Looks at the base file of each
    /// copied-up file that had one name.
    pub fn newly_linked_copies(&self) -> Result<Vec<Ino>> {
        let mut linked = Vec::new();
        for ino in self.txn.copied_single_names()? {
            if self.newly_linked(&self.inode(ino)?)?.is_some() {
                linked.push(ino);
            }
        }
        Ok(linked)
    }
}

impl Edit<'_> {
    /// Updates a copied-up file whose base file had one name at copy-up and has several now:
    /// records the new link count and counts the hidden names. Returns whether it did.
    ///
    /// Does nothing if several copies claim the same base file (invariant O2).
    pub fn detect_new_links(&mut self, row: &mut InodeRow) -> Result<bool> {
        let Some(attr) = self.view().newly_linked(row)? else { return Ok(false) };
        if self.txn.copied_up(attr.fileid)?.len() > 1 {
            return Ok(false);
        }
        if let Some(origin) = row.origin.as_mut() {
            origin.nlink = attr.nlink;
        }
        self.txn.hide_link(attr.fileid, row.ctime)?;
        self.count_hidden_links_of(attr.fileid)?;
        Ok(true)
    }

    /// Updates the origin's ctime after the base file got another name, if its content is
    /// unchanged.
    pub fn refresh_origin_ctime(&self, row: &mut InodeRow, attr: &BaseAttr) {
        if let Some(origin) = row.origin.as_mut()
            && (origin.size, origin.mtime) == (attr.size, attr.mtime)
        {
            origin.ctime = attr.ctime;
        }
    }

    /// Whether a file, all in the session, has names besides `path` and the one that it was copied
    /// up from, which `keeps` accepts.
    pub fn has_other_names(
        &self,
        row: &InodeRow,
        path: &MergedPath,
        keeps: &dyn Fn(&MergedPath) -> bool,
    ) -> Result<bool> {
        if row.nlink < 2 || row.copy_up.is_some() {
            return Ok(false);
        }
        for (dir, name) in self.txn.names_of(row.ino)? {
            let place = self.view().place_of_inode(dir, self.view().shown(dir)?)?;
            let lost = match place.base_missing {
                true => self.view().inode(dir)?.origin.map(|origin| origin.path),
                false => None,
            };
            let base = place.base.as_ref().or(lost.as_ref()).map(|base| base.join(&name));
            let other = place.merged.join(&name);
            let is_own = base.is_some() && row.origin.as_ref().map(|o| &o.path) == base.as_ref();
            if other != *path && !is_own && keeps(&other) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The current names of a base object. A file with several names needs a search of the base.
    pub fn names_in_base(&self, id: FileId, nlink: u32, path: &BasePath) -> Result<Vec<BasePath>> {
        if nlink <= 1 {
            let there = self.view().base_attr_at(path)?.filter(|attr| attr.fileid == id);
            return Ok(there.map(|_| path.clone()).into_iter().collect());
        }
        let mut names = Vec::new();
        self.core.base.find_linked(id, &mut |path| {
            names.push(path.clone());
            false
        })?;
        Ok(names)
    }

    /// The merged path at which a base name shows, if the session does not cover it.
    pub fn shown_at(&self, path: &BasePath) -> Result<Option<MergedPath>> {
        let shown = self.view().shown_name(path)?;
        Ok(shown.map(|(place, name)| place.merged.join(&name)))
    }

    /// Gives a copied-up file without entries one at the first base name that shows it and that
    /// `is_fit` accepts; returns whether it did. The caller stores the row.
    ///
    /// Searches the whole base. Happens only for a hard-linked base file that was changed through
    /// one name and then lost that name.
    pub fn adopt_base_name(
        &mut self,
        row: &mut InodeRow,
        is_fit: &dyn Fn(&MergedPath) -> bool,
    ) -> Result<bool> {
        if self.view().base_links_left(row)? == 0 {
            return Ok(false);
        }
        let Some(origin) = row.origin.clone() else { return Ok(false) };
        let base = self.core.base.clone();
        let mut shown_in = Ok(None);
        let path = base.find_linked(origin.fileid, &mut |path| {
            shown_in = self.view().place_showing(path, row.ino, is_fit);
            !matches!(shown_in, Ok(None))
        })?;
        let (Some(place), Some((_, name))) = (shown_in?, path.and_then(|path| path.split())) else {
            return Ok(false);
        };
        self.add_entry_at_base_name(row, (&place, &name), row.ctime)?;
        Ok(true)
    }

    /// Gives a copied-up file an entry at each base name at which its base file shows and that
    /// `is_fit` accepts. Returns these names. The row must be stored; searches the whole base.
    pub fn add_entries_at_base_names(
        &mut self,
        row: &mut InodeRow,
        is_fit: &dyn Fn(&MergedPath) -> bool,
    ) -> Result<Vec<BasePath>> {
        let Some(origin) = row.origin.clone() else { return Ok(Vec::new()) };
        let mut added = Vec::new();
        for path in self.names_in_base(origin.fileid, origin.nlink, &origin.path)? {
            let Some((place, name)) = self.view().shown_name(&path)? else { continue };
            if is_fit(&place.merged.join(&name)) {
                self.add_entry_at_base_name(row, (&place, &name), row.ctime)?;
                added.push(path);
            }
        }
        self.txn.put_inode(row)?;
        self.invalidate(Invalidation::All);
        Ok(added)
    }

    /// Gives a copied-up file an entry at a base name. `since` becomes the ctime of the names that
    /// only the base has. The caller stores the row.
    pub fn add_entry_at_base_name(
        &mut self,
        row: &mut InodeRow,
        (place, name): (&DirPlace, &Name),
        since: Time,
    ) -> Result<()> {
        let parent = self.ensure_dir(place)?;
        self.txn.insert_dentry(parent, name, row.ino)?;
        self.touch_child(place.id(), name);
        if let Some(origin) = &row.origin {
            self.txn.hide_link(origin.fileid, since)?;
        }
        row.nlink = row.nlink.saturating_add(1);
        Ok(())
    }

    /// Recounts the hidden names of all base files (invariant L1).
    pub fn count_hidden_links(&mut self) -> Result<()> {
        for base in self.txn.hidden_files()? {
            self.count_hidden_links_of(base)?;
        }
        Ok(())
    }

    /// Recounts the hidden names of one base file.
    fn count_hidden_links_of(&mut self, base: FileId) -> Result<()> {
        let mut hidden = 0;
        for path in self.names_in_base(base, u32::MAX, &BasePath::root())? {
            hidden += u32::from(self.shown_at(&path)?.is_none());
        }
        Ok(self.txn.count_hidden(base, hidden)?)
    }
}
