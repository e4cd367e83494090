//! Finds files that `git apply` cannot place: it removes files and links, but neither special files
//! nor the empty directories of what a file replaces.

use std::collections::{BTreeMap, BTreeSet};

use super::blob::has_blob;
use super::pairs::Pairs;
use crate::base::{BaseError, BasePath};
use crate::delta::MergedPath;
use crate::inspect::diff::base_error;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::overlay::TreeView;
use crate::vfs::FileKind;

impl Pairs {
    /// Leaves out the files that `git apply` cannot place, because it would stop halfway there.
    /// What such a file replaces is not removed either.
    pub fn leave_out_blocked(&mut self, opened: &OpenSession, view: &TreeView<'_>) -> Result<()> {
        loop {
            let mut found = BTreeMap::new();
            for path in &self.new {
                if let Some(obstacle) = self.obstacle(opened, view, path)? {
                    found.insert(path.clone(), obstacle);
                }
            }
            if found.is_empty() {
                return Ok(());
            }
            for path in found.keys() {
                self.new.remove(path);
                if let Some(from) = self.moved.remove(path) {
                    self.old.remove(&from);
                }
            }
            let sources: BTreeSet<_> = self.moved.values().collect();
            let is_replaced = |old: &MergedPath| old.above().any(|dir| found.contains_key(&dir));
            self.old.retain(|old| sources.contains(old) || !is_replaced(old));
            // A file that stays, because its rename is left out, may block another one.
            self.left_out.blocked.append(&mut found);
        }
    }

    /// What the base has at the path of a new file, or below, that the patch does not remove.
    fn obstacle(
        &self,
        opened: &OpenSession,
        view: &TreeView<'_>,
        path: &MergedPath,
    ) -> Result<Option<MergedPath>> {
        // What the base has there since it drifted, git finds before it changes anything.
        if self.originals.contains_key(path) {
            return Ok(None);
        }
        let Some(top) = BasePath::from_bytes(&path.as_bytes()[1..]) else { return Ok(None) };
        let base = opened.whole_base();
        let mut open = vec![top.clone()];
        while let Some(at) = open.pop() {
            let kind = match base.stat(&at) {
                Ok(attr) => attr.kind,
                Err(BaseError::NotFound) => continue,
                Err(source) => return Err(base_error(opened, &at, source)),
            };
            let shown = MergedPath::of_base(&at);
            if has_blob(kind) {
                if at != top && !self.is_removed(opened, view, &shown)? {
                    return Ok(Some(shown));
                }
                continue;
            }
            if kind != FileKind::Directory {
                return Ok(Some(shown));
            }
            let listing = base.list(&at).map_err(|source| base_error(opened, &at, source))?;
            if listing.entries.is_empty() && at != top {
                return Ok(Some(shown));
            }
            open.extend(listing.entries.iter().map(|entry| at.join(&entry.name)));
        }
        Ok(None)
    }

    /// Whether the patch removes a file of the base.
    fn is_removed(
        &self,
        opened: &OpenSession,
        view: &TreeView<'_>,
        path: &MergedPath,
    ) -> Result<bool> {
        if !self.old.contains(path) {
            return Ok(false);
        }
        let old = self.old_blob(opened, view, path)?;
        Ok(old.is_some_and(|old| old.is_none_or(|old| old.size() <= self.largest)))
    }
}
