//! LINK: adds a hard link.

use crate::delta::AuditProcedure;
use crate::vfs::{Attr, FsError, Locator, Name, Outcome, Wcc};

use super::access::Want;
use super::edit::{Edit, Parent, moved_on};
use super::error::Result;
use super::limits::{MAX_LINKS, check_path};

impl Edit<'_> {
    /// LINK.
    pub fn link(
        &mut self,
        object: &Locator,
        dir: &Locator,
        name: &[u8],
    ) -> Outcome<(), (Option<Attr>, Wcc)> {
        let outcome =
            self.in_dir(dir, |edit, parent| edit.link_in(object, parent, &Name::new(name)?));
        let attr = self.view().attr_of(object).ok();
        Outcome { result: outcome.result, context: (attr, outcome.context) }
    }

    fn link_in(&mut self, object: &Locator, parent: &Parent, name: &Name) -> Result<()> {
        self.check_writable()?;
        if self.already_applied().is_some() {
            return Ok(());
        }
        let view = self.view();
        let node = view.node(object)?;
        if node.is_dir() {
            return Err(FsError::Invalid.into());
        }
        Want::SEARCH.check(self.caller, &parent.attr)?;
        if view.child(&parent.place, name)?.is_some() {
            return Err(FsError::Exists.into());
        }
        Want::CHANGE_ENTRIES.check(self.caller, &parent.attr)?;
        if view.attr(&node)?.nlink >= MAX_LINKS {
            return Err(FsError::TooManyLinks.into());
        }
        let path = parent.place.merged.join(name);
        check_path(&path)?;
        self.check_link(&node, &path)?;
        let mut row = self.copy_up(node)?;
        let old_path = self.path_of(&row)?;
        let parent_ino = self.ensure_dir(&parent.place)?;
        row.nlink += 1;
        row.ctime = moved_on(row.ctime, self.now);
        self.txn.put_inode(&row)?;
        self.add_entry(&parent.place, parent_ino, name, &row)?;
        self.entries_changed(parent_ino, 0)?;
        self.record(AuditProcedure::Link, row.fileid(), old_path, Some(path), (None, None))
    }
}
