//! Hard links of base files: which names exist, and how many the session hides.

use crate::base::{BaseAttr, BasePath};
use crate::delta::{InodeRow, MergedPath};
use crate::vfs::FileId;

use super::cache::Invalidation;
use super::edit::Edit;
use super::error::Result;
use super::node::is_linked;

impl Edit<'_> {
    /// Updates a copied-up file whose base file had one name at copy-up and has several now:
    /// records the new link count and counts the hidden names. Returns whether it did.
    ///
    /// Does nothing if several copies claim the same base file (invariant O2).
    pub fn detect_new_links(&mut self, row: &mut InodeRow) -> Result<bool> {
        let kind = row.kind;
        let Some(origin) = row.origin.as_mut().filter(|o| !is_linked(kind, o.nlink)) else {
            return Ok(false);
        };
        let there = self.view().base_attr_at(&origin.path)?;
        let Some(attr) = there.filter(|attr| {
            attr.fileid == origin.fileid && attr.kind == kind && is_linked(kind, attr.nlink)
        }) else {
            return Ok(false);
        };
        if self.txn.copied_up(origin.fileid)?.len() > 1 {
            return Ok(false);
        }
        origin.nlink = attr.nlink;
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
            if !is_fit(&place.merged.join(&name)) {
                continue;
            }
            let parent = self.ensure_dir(&place)?;
            self.txn.insert_dentry(parent, &name, row.ino)?;
            self.touch_child(place.id(), &name);
            self.txn.hide_link(origin.fileid, row.ctime)?;
            row.nlink = row.nlink.saturating_add(1);
            added.push(path);
        }
        self.txn.put_inode(row)?;
        self.invalidate(Invalidation::All);
        Ok(added)
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
