//! Sums up disk usage in the merged tree, and the session's share of it.

use std::collections::HashSet;

use super::error::Result;
use super::walk::{WalkControl, walk_past_denied};
use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileId, FileKind};

/// The usage of an object and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskUsage {
    /// The number of objects, including directories.
    pub objects: u64,
    /// The sum of the files' sizes, in bytes.
    pub size: u64,
    /// Allocated bytes, in the session or the base.
    pub used: u64,
    /// Allocated bytes of objects in the session.
    pub session: u64,
}

impl DiskUsage {
    fn of(object: &TreeObject) -> Self {
        let attr = object.attr();
        // The size of a directory is not about content.
        let is_dir = attr.kind == FileKind::Directory;
        let (size, used) = if is_dir { (0, 0) } else { (attr.size, attr.used) };
        let session = if object.row().is_some() { used } else { 0 };
        Self { objects: 1, size, used, session }
    }

    fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.size = self.size.saturating_add(other.size);
        self.used = self.used.saturating_add(other.used);
        self.session = self.session.saturating_add(other.session);
    }
}

/// Sums up `from` and everything below it. Calls `each` for each directory with its sum, after its
/// subdirectories. A file with several hard links counts once. Adds the directories that cannot be
/// listed because access is denied to `denied`.
///
/// # Errors
/// The session or the base cannot be read, for another reason.
pub fn usage(
    view: &TreeView<'_>,
    from: &TreeObject,
    denied: &mut Vec<MergedPath>,
    each: &mut dyn FnMut(&TreeObject, usize, DiskUsage),
) -> Result<DiskUsage> {
    let mut seen: HashSet<FileId> = HashSet::new();
    // The directories on the path to the current object, with the sum of each so far.
    let mut open: Vec<(TreeObject, DiskUsage)> = Vec::new();
    let mut alone = DiskUsage::default();
    walk_past_denied(view, from, &|_| true, denied, &mut |_, object, standing| {
        while open.len() > standing.depth {
            close(&mut open, each);
        }
        let is_first = object.attr().nlink < 2
            || object.attr().kind == FileKind::Directory
            || seen.insert(object.attr().fileid);
        let own = if is_first { DiskUsage::of(object) } else { DiskUsage::default() };
        if object.attr().kind == FileKind::Directory {
            open.push((object.clone(), own));
        } else if let Some((_, sum)) = open.last_mut() {
            sum.add(own);
        } else {
            alone = own;
        }
        Ok(WalkControl::Deeper)
    })?;
    let mut total = alone;
    while let Some(sum) = close(&mut open, each) {
        total = sum;
    }
    Ok(total)
}

/// Ends the innermost directory and adds its sum to its parent's.
fn close(
    open: &mut Vec<(TreeObject, DiskUsage)>,
    each: &mut dyn FnMut(&TreeObject, usize, DiskUsage),
) -> Option<DiskUsage> {
    let (dir, sum) = open.pop()?;
    each(&dir, open.len(), sum);
    if let Some((_, outer)) = open.last_mut() {
        outer.add(sum);
    }
    Some(sum)
}
