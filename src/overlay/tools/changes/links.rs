//! Changes at the further names of hard-linked base files.

use super::{Change, ChangeSearch};
use crate::delta::MergedPath;
use crate::overlay::error::Result;
use crate::overlay::node::{Node, is_linked};
use crate::overlay::tools::tree::TreeObject;

impl ChangeSearch<'_> {
    /// Reports the base names, without an entry, of copied-up files.
    pub(super) fn further_names(&mut self) -> Result<bool> {
        let mut linked = std::mem::take(&mut self.newly_linked);
        linked.extend(self.view().txn.copied_links()?);
        for ino in linked {
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
                // A file with a single name may be a new file that got the old number: clients see
                // the base file.
                if !is_linked(before.attr.kind, before.attr.nlink) {
                    continue;
                }
                let path = self.at.clone();
                let after = Some(self.tree.object(node, path.clone())?);
                let is_carried = before.path.as_bytes() != &path.as_bytes()[1..];
                let before = Some(before);
                let mut change =
                    Change { before, after, moved_with_parent: is_carried, ..Change::at(path) };
                self.compare_with_original(&mut change, None)?;
                if !(self.each)(change) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Whether the base file of a copied-up file had a single name at copy-up and has several now.
pub(super) fn is_newly_linked(change: &Change) -> bool {
    let origin = change.after.as_ref().and_then(TreeObject::origin);
    change.before.as_ref().zip(origin).is_some_and(|(base, origin)| {
        let kind = base.attr.kind;
        base.attr.fileid == origin.fileid
            && is_linked(kind, base.attr.nlink)
            && !is_linked(kind, origin.nlink)
    })
}
