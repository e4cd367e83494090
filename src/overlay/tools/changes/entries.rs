//! The changes of a directory's entries: objects that the session has rows for.

use std::sync::Arc;

use super::stat_ahead::{LookUp, stat_ahead};
use super::{BaseObject, Change, ChangeSearch, SessionDir, found, links};
use crate::base::BasePath;
use crate::delta::{Ino, InodeRow};
use crate::overlay::error::{OpError, Result};
use crate::overlay::followed::now_of;
use crate::overlay::node::Node;
use crate::vfs::{FileKind, FsError, Name};

impl ChangeSearch<'_> {
    /// Reports the entries of a directory, and adds its subdirectories to `below`.
    pub(super) fn entries(
        &mut self,
        dir: &SessionDir,
        below: &mut Vec<SessionDir>,
    ) -> Result<bool> {
        let mut entries = Vec::new();
        self.at = dir.place.merged.clone();
        self.view().txn.dentries(dir.ino, &mut |name, ino, _, _| entries.push((name, ino)))?;
        entries.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        let at = dir.base.as_ref();
        let paths = at.iter().flat_map(|at| entries.iter().map(|(name, _)| at.join(name)));
        let (base, paths) = (Arc::clone(&self.view().core.base), paths.collect());
        stat_ahead(&*base, paths, |stat| self.all_entries(dir, entries, stat, below))
    }

    fn all_entries(
        &mut self,
        dir: &SessionDir,
        entries: Vec<(Name, Ino)>,
        stat: &mut LookUp<'_>,
        below: &mut Vec<SessionDir>,
    ) -> Result<bool> {
        for (name, ino) in entries {
            let own = dir.base.as_ref().map(|base| base.join(&name));
            let here = own.map(|path| (stat(&path), path));
            // Another program may have left a dentry without an inode.
            let Some(row) = self.view().txn.inode(ino)? else { continue };
            let is_dir = row.kind == FileKind::Directory;
            self.at = dir.place.merged.join(&name);
            let here = here.map(|(attr, path)| found(attr, path)).transpose();
            let change = match here.and_then(|here| self.entry(dir, &name, row, here.flatten())) {
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

    /// The change of an entry; `here` is the base object at its path.
    fn entry(
        &self,
        dir: &SessionDir,
        name: &Name,
        row: InodeRow,
        here: Option<BaseObject>,
    ) -> Result<Change> {
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
                // The base may have another directory of the session at that path.
                if redirected.is_none_or(|place| place.base.is_some()) {
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
}
