//! LINK: adds a hard link.

use crate::delta::AuditProcedure;
use crate::vfs::{Attr, FsError, Locator, Name, Outcome, Wcc};

use super::access::Want;
use super::copy_up::{copy_up, ensure_dir};
use super::edit::{Edit, Parent, moved_on};
use super::error::Result;
use super::guarded::check_link;
use super::limits::{MAX_LINKS, check_path};

/// LINK.
pub(super) fn link(
    edit: &mut Edit<'_>,
    object: &Locator,
    dir: &Locator,
    name: &[u8],
) -> Outcome<(), (Option<Attr>, Wcc)> {
    let outcome = edit.in_dir(dir, |edit, parent| link_in(edit, object, parent, &Name::new(name)?));
    let attr = edit.view().attr_of(object).ok();
    Outcome { result: outcome.result, context: (attr, outcome.context) }
}

fn link_in(edit: &mut Edit<'_>, object: &Locator, parent: &Parent, name: &Name) -> Result<()> {
    edit.check_writable()?;
    if edit.already_applied().is_some() {
        return Ok(());
    }
    let view = edit.view();
    let node = view.node(object)?;
    if node.is_dir() {
        return Err(FsError::Invalid.into());
    }
    Want::SEARCH.check(edit.caller, &parent.attr)?;
    if view.child(&parent.place, name)?.is_some() {
        return Err(FsError::Exists.into());
    }
    Want::CHANGE_ENTRIES.check(edit.caller, &parent.attr)?;
    if view.attr(&node)?.nlink >= MAX_LINKS {
        return Err(FsError::TooManyLinks.into());
    }
    let path = parent.place.merged.join(name);
    check_path(&path)?;
    check_link(edit, &node, &path)?;
    let mut row = copy_up(edit, node)?;
    let old_path = edit.path_of(&row)?;
    let parent_ino = ensure_dir(edit, &parent.place)?;
    row.nlink += 1;
    row.ctime = moved_on(row.ctime, edit.now);
    edit.txn.put_inode(&row)?;
    edit.add_entry(&parent.place, parent_ino, name, &row)?;
    edit.entries_changed(parent_ino, 0)?;
    edit.record(AuditProcedure::Link, row.fileid(), old_path, Some(path), (None, None))
}
