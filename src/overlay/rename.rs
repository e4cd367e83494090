//! RENAME: a file moves with its dentry, a directory with everything that shows through it.
//!
//! A base directory moves in O(1): its new delta inode gets a redirect to the base directory, and
//! the old path a whiteout. Whiteouts are keyed by merged path, so whiteouts below the directory
//! are rewritten.

use crate::base::BasePath;
use crate::delta::{AuditProcedure, Ino, InodeRow, MAX_PATH_BYTES, MergedPath};
use crate::vfs::{FileKind, FsError, Locator, Name, Outcome, Wcc};

use super::access::{Want, check_sticky};
use super::cache::Invalidation;
use super::edit::{Edit, Parent, moved_on};
use super::error::Result;
use super::guarded::Arrival;
use super::limits::{MAX_MOVED_WHITEOUT_BYTES, MAX_MOVED_WHITEOUTS, check_moved_path};
use super::node::{Child, DirPlace, Node};
use super::resolve::View;

impl Edit<'_> {
    /// RENAME; `validated` lists files whose content guards have accepted for their new paths.
    pub fn rename(
        &mut self,
        from: (&Locator, &[u8]),
        to: (&Locator, &[u8]),
        validated: &[Arrival],
    ) -> Outcome<(), (Wcc, Wcc)> {
        let (source, target) = match (self.parent(from.0), self.parent(to.0)) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(error), _) | (_, Err(error)) => {
                let context = (self.unchanged(from.0), self.unchanged(to.0));
                return Outcome::err(error.into_fs(), context);
            }
        };
        let names = Name::new(from.1).and_then(|name| Ok((name, Name::new(to.1)?)));
        let result = match names {
            Ok((old, new)) => self.rename_in(&source, &old, &target, &new, validated),
            Err(error) => Err(error.into()),
        };
        let result = result.map_err(|error| error.into_fs());
        let changed = result.is_ok();
        let context =
            (self.wcc(from.0, source.attr, changed), self.wcc(to.0, target.attr, changed));
        Outcome { result, context }
    }

    fn rename_in(
        &mut self,
        source: &Parent,
        old: &Name,
        target: &Parent,
        new: &Name,
        validated: &[Arrival],
    ) -> Result<()> {
        self.check_writable()?;
        if self.already_applied().is_some() {
            return Ok(());
        }
        let child = self.removable(source, old)?;
        Want::CHANGE_ENTRIES.check(self.caller, &target.attr)?;
        let replaced = self.view().child(&target.place, new)?;
        if let Some(replaced) = &replaced
            && replaced.node.locator() == child.node.locator()
        {
            // Hard links of one file: POSIX requires no effect. Compares locators, because file
            // numbers alone are ambiguous.
            return Ok(());
        }
        self.check_move(source, target, &child, replaced.as_ref())?;
        let old_path = source.place.merged.join(old);
        let new_path = target.place.merged.join(new);
        check_moved_path(&old_path, &new_path)?;
        self.check_arrivals(&child.node, &new_path, validated)?;

        let is_dir = child.node.is_dir();
        let source_ino = self.ensure_dir(&source.place)?;
        let target_ino = self.ensure_dir(&target.place)?;
        let replaces = replaced.is_some();
        match replaced {
            Some(replaced) if is_dir => self.unlink_dir(&target.place, new, &replaced)?,
            Some(replaced) => self.unlink(&target.place, new, replaced)?,
            None => {}
        }
        let row = if is_dir {
            self.move_dir(source, old, target, target_ino, new, child)?
        } else {
            self.move_file(source, source_ino, old, target, target_ino, new, child)?
        };
        let leaves = -i32::from(is_dir);
        let arrives = i32::from(is_dir && !replaces);
        if source_ino == target_ino {
            self.entries_changed(source_ino, leaves + arrives)?;
        } else {
            self.entries_changed(source_ino, leaves)?;
            self.entries_changed(target_ino, arrives)?;
        }
        self.record(AuditProcedure::Rename, row.fileid(), old_path, Some(new_path), (None, None))
    }

    /// Checks whether the entry may move and replace the existing target (rename(2)).
    fn check_move(
        &self,
        source: &Parent,
        target: &Parent,
        child: &Child,
        replaced: Option<&Child>,
    ) -> Result<()> {
        let view = self.view();
        self.check_unpinned(&child.node)?;
        if child.node.is_dir() && source.place.id() != target.place.id() {
            // Its `..` entry changes.
            Want::WRITE.check(self.caller, &view.attr(&child.node)?)?;
            let moved = view.place(&child.node)?.merged.clone();
            if target.place.merged.is_within(&moved) {
                return Err(FsError::Invalid.into());
            }
        }
        let Some(replaced) = replaced else { return Ok(()) };
        self.check_unpinned(&replaced.node)?;
        check_sticky(self.caller, &target.attr, &view.attr(&replaced.node)?)?;
        match (child.node.is_dir(), replaced.node.is_dir()) {
            (true, false) => Err(FsError::NotDirectory.into()),
            (false, true) => Err(FsError::IsDirectory.into()),
            (true, true) if view.has_entries(&*view.place(&replaced.node)?)? => {
                Err(FsError::NotEmpty.into())
            }
            _ => Ok(()),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "two directories with their inodes and names")]
    fn move_file(
        &mut self,
        source: &Parent,
        source_ino: Ino,
        old: &Name,
        target: &Parent,
        target_ino: Ino,
        new: &Name,
        child: Child,
    ) -> Result<InodeRow> {
        let in_base = matches!(child.node, Node::Base { .. });
        let mut row = *self.copy_up(child.node)?;
        row.ctime = moved_on(row.ctime, self.now);
        if in_base || child.has_dentry {
            // Copy-up gave the base file a dentry at its base name, which is `old`.
            let (from, to) = (&*source.place, &*target.place);
            self.move_entry((from, source_ino, old), (to, target_ino, new), &row)?;
        } else {
            self.drop_entry(&source.place, None, old)?;
            if let Some(origin) = &row.origin {
                self.txn.hide_link(origin.fileid, self.now)?;
            }
            row.nlink += 1;
            self.add_entry(&target.place, target_ino, new, &row)?;
        }
        self.txn.put_inode(&row)?;
        Ok(row)
    }

    fn move_dir(
        &mut self,
        source: &Parent,
        old: &Name,
        target: &Parent,
        target_ino: Ino,
        new: &Name,
        child: Child,
    ) -> Result<InodeRow> {
        let (mut row, shown) = match child.node {
            Node::Delta(mut row) => {
                let shown = self.shown_by(&mut row)?;
                (*row, shown)
            }
            Node::Base { path, .. } => (self.dir_from_base(&path)?, Some(path)),
        };
        let old_path = source.place.merged.join(old);
        let new_path = target.place.merged.join(new);
        // Whiteouts inside a directory created in the delta refer to the base at the old path, so
        // they do not move. Earlier versions wrote them where opaque marks are used now.
        if self.view().is_created_in_session(&row)? {
            for name in self.txn.whiteouts_in(&old_path)? {
                self.txn.remove_whiteout(&old_path.join(&name))?;
            }
        }
        let (from, to) = (&*source.place, &*target.place);
        if let Some(source_ino) = from.ino.filter(|_| child.has_dentry) {
            self.move_entry((from, source_ino, old), (to, target_ino, new), &row)?;
        } else {
            self.drop_entry(from, None, old)?;
            self.add_entry(to, target_ino, new, &row)?;
        }
        self.move_whiteouts(&old_path, &new_path)?;
        row.ctime = moved_on(row.ctime, self.now);
        self.txn.put_inode(&row)?;
        self.show_through(&row, shown.as_ref(), (target, target_ino), new)?;
        self.invalidate(Invalidation::AllPlaces);
        Ok(row)
    }

    /// Moves the whiteouts below a directory; [`FsError::CrossDevice`] if there are too many.
    fn move_whiteouts(&mut self, from: &MergedPath, to: &MergedPath) -> Result<()> {
        let below = self.txn.whiteouts_below(from, MAX_MOVED_WHITEOUTS + 1)?;
        if below.rows == 0 {
            return Ok(());
        }
        if below.rows > MAX_MOVED_WHITEOUTS.into() || below.bytes > MAX_MOVED_WHITEOUT_BYTES {
            // The client then moves the entries one by one.
            return Err(FsError::CrossDevice.into());
        }
        let (from_bytes, to_bytes) = (from.as_bytes().len(), to.as_bytes().len());
        let longest = below.longest.saturating_add(to_bytes as u64);
        if to_bytes > from_bytes
            && longest.saturating_sub(from_bytes as u64) > MAX_PATH_BYTES as u64
        {
            return Err(FsError::NameTooLong.into());
        }
        Ok(self.txn.move_whiteouts_below(from, to)?)
    }

    /// The base directory that a delta directory shows after the move. A directory of another
    /// implementation that shows none counts as created in the delta from now on.
    fn shown_by(&mut self, row: &mut InodeRow) -> Result<Option<BasePath>> {
        if self.view().is_created_in_session(row)? {
            self.keep_shown(row.ino)?;
            return Ok(self.txn.redirect(row.ino)?);
        }
        let place = self.view().place_of_inode(row.ino, row.fileid())?;
        if let Some(base) = &place.base
            && self.shows(row.ino, base)?
        {
            return Ok(Some(base.clone()));
        }
        if row.subdirs.is_none() {
            let alone = DirPlace { base: None, ..(*place).clone() };
            row.subdirs = Some(self.view().count_subdirs(&alone)?);
        }
        Ok(None)
    }

    /// Before a directory created in the delta moves: adds redirects to it, or to directories
    /// below, where a base directory shows only because of their path. Such base directories are
    /// left by discard or apply, or appeared in the base later.
    fn keep_shown(&mut self, dir: Ino) -> Result<()> {
        let mut open = vec![dir];
        while let Some(ino) = open.pop() {
            let row = self.view().inode(ino)?;
            if row.kind != FileKind::Directory || self.txn.redirect(ino)?.is_some() {
                continue;
            }
            let place = self.view().place_of_inode(ino, row.fileid())?;
            let Some(base) = &place.base else { continue };
            if self.shows(ino, base)? && (row.origin.is_some() || self.shows_entries(&place)?) {
                self.txn.put_redirect(ino, base)?;
            } else {
                self.txn.dentries(ino, &mut |_, child, _, _| open.push(child))?;
            }
        }
        Ok(())
    }

    /// Whether any base entry shows through a directory.
    fn shows_entries(&self, dir: &DirPlace) -> Result<bool> {
        let mut shows = false;
        self.view().each_entry(dir, &mut |entry| shows |= entry.ino.is_none())?;
        Ok(shows)
    }

    /// Makes exactly `shown` show through a directory at its new path.
    fn show_through(
        &mut self,
        row: &InodeRow,
        shown: Option<&BasePath>,
        (target, target_ino): (&Parent, Ino),
        name: &Name,
    ) -> Result<()> {
        let implied = match &target.place.base {
            Some(base) => self.view().base_dir_at(base.join(name))?,
            None => None,
        };
        match (shown, implied) {
            // The path alone implies no base directory for an inode without an origin, nor below a
            // directory created in the delta, which may move again.
            (Some(shown), Some(implied))
                if *shown == implied
                    && row.origin.is_some()
                    && !self.view().is_created_in_session(&self.view().inode(target_ino)?)? =>
            {
                Ok(self.txn.remove_redirect(row.ino)?)
            }
            (Some(shown), _) => Ok(self.txn.put_redirect(row.ino, shown)?),
            (None, Some(_)) => self.make_opaque(row),
            (None, None) if self.view().is_opaque(row.ino)? => {
                Ok(self.txn.remove_opaque(row.ino)?)
            }
            (None, None) => Ok(()),
        }
    }
}

impl View<'_> {
    /// Whether a directory was created in the delta and never moved with base entries: only the
    /// base directory at its current path can show through. (Directories of another implementation
    /// may show base entries until their first change.)
    pub fn is_created_in_session(&self, row: &InodeRow) -> Result<bool> {
        let ours = row.ino != Ino::ROOT && row.origin.is_none() && row.subdirs.is_some();
        Ok(ours && self.txn.redirect(row.ino)?.is_none())
    }
}
