//! Exports: several trees on one port, each assembled from mounts, with its own access rules.
//!
//! [`Exports`] is a [`Vfs`](crate::vfs::Vfs) over the overlays of all served sessions. Each call
//! passes through, in this order:
//! - `entry`: finds the export, and opens it if it is closed
//! - `credentials`: checks the caller's address, port and flavor, and squashes its ids
//! - `tree`: finds the object's mount, and crosses mount points
//! - `validating_overlay`: drafts, if the file is guarded
//! - the mount's overlay, restricted to its [`Scope`](crate::overlay::Scope)
//! - `numbers` and `credentials`: file numbers and owners as this export shows them
//!
//! A handle is a capability: its MAC is bound to one export and mount, and no other accepts it.

mod credentials;
mod entry;
mod guard_checks;
mod guarding;
mod handles;
mod listing;
mod numbers;
mod object;
mod service;
mod tree;
mod validating_overlay;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

pub use credentials::{Admission, Refused, Squash};
pub use entry::{
    ExportEntry, ExportIdentity, FindExport, MountKeys, OpenExport, OpenFuture, OpenPurpose,
};
pub use guard_checks::GuardedView;
pub use guarding::Guarding;
pub use object::MountedObject;
pub use tree::{AssemblyError, Export, ExportParts, MountParts};

/// All exports of a server. Clones share the table.
#[derive(Clone, Default)]
pub struct Exports {
    table: Arc<RwLock<ExportTable>>,
}

/// The exports by their paths and by the tags of their handles.
#[derive(Default)]
struct ExportTable {
    by_path: HashMap<Bytes, Arc<ExportEntry>>,
    /// Candidates for a handle's tag: the export, and the index of the mount in it.
    by_tag: HashMap<u16, Vec<(Arc<ExportEntry>, usize)>>,
    unavailable: HashMap<Bytes, Unavailable>,
    /// Makes exports that are not here.
    finder: Option<Arc<dyn FindExport>>,
}

/// A configured export that cannot be served now.
#[derive(Debug, Clone)]
pub struct Unavailable {
    /// The path that clients mount.
    pub path: Bytes,
    /// The path is a secret and is not listed.
    pub is_secret: bool,
    /// Which callers it accepts.
    pub admission: Admission,
}

impl ExportTable {
    /// Adds the tags of an export whose identity is known; those that are there already are kept.
    fn index(&mut self, entry: &Arc<ExportEntry>) {
        let mounts = entry.identity().map(ExportIdentity::mounts).unwrap_or_default();
        for (index, mount) in mounts.iter().enumerate() {
            let tagged = self.by_tag.entry(mount.tag).or_default();
            let is_there =
                |it: &(Arc<ExportEntry>, usize)| it.1 == index && Arc::ptr_eq(&it.0, entry);
            if !tagged.iter().any(is_there) {
                tagged.push((Arc::clone(entry), index));
            }
        }
    }

    /// Removes an export and its tags.
    fn remove(&mut self, path: &[u8]) {
        let Some(entry) = self.by_path.remove(path) else { return };
        for mount in entry.identity().map(ExportIdentity::mounts).unwrap_or_default() {
            if let Some(tagged) = self.by_tag.get_mut(&mount.tag) {
                tagged.retain(|(tagged, _)| !Arc::ptr_eq(tagged, &entry));
            }
        }
    }
}

impl Exports {
    /// Replaces all exports. Handles of exports that stay remain valid; handles of removed exports
    /// become stale. Mounting an unavailable export fails with a server fault; while there is one,
    /// an unknown handle may be its, so the client gets JUKEBOX.
    ///
    /// `finder` makes the others.
    pub fn replace(
        &self,
        exports: Vec<Arc<ExportEntry>>,
        unavailable: Vec<Unavailable>,
        finder: Option<Arc<dyn FindExport>>,
    ) {
        let unavailable = unavailable.into_iter().map(|it| (it.path.clone(), it)).collect();
        let mut table = ExportTable { unavailable, finder, ..ExportTable::default() };
        for export in exports {
            table.index(&export);
            table.by_path.insert(export.path().clone(), export);
        }
        let before = std::mem::replace(&mut *self.table.write(), table);
        drop(before);
    }

    /// Adds an export, or replaces the one at its path.
    pub fn put(&self, export: Arc<ExportEntry>) {
        let mut table = self.table.write();
        table.remove(export.path());
        table.unavailable.remove(export.path());
        table.index(&export);
        table.by_path.insert(export.path().clone(), export);
    }

    /// Removes an export from the table, if it is there.
    pub fn remove(&self, export: &Arc<ExportEntry>) {
        let mut table = self.table.write();
        if table.by_path.get(export.path()).is_some_and(|known| Arc::ptr_eq(known, export)) {
            table.remove(export.path());
        }
    }

    /// Accepts the handles of an export whose identity became known.
    pub fn identify(&self, export: &Arc<ExportEntry>) {
        let mut table = self.table.write();
        // Another reload may have replaced it.
        if table.by_path.get(export.path()).is_some_and(|known| Arc::ptr_eq(known, export)) {
            table.index(export);
        }
    }

    /// All exports, open and closed, unordered.
    pub fn all(&self) -> Vec<Arc<ExportEntry>> {
        self.table.read().by_path.values().cloned().collect()
    }

    /// The export with this path.
    pub fn find(&self, path: &[u8]) -> Option<Arc<ExportEntry>> {
        self.table.read().by_path.get(path).cloned()
    }

    /// Publishes truncated or extended drafts with valid content, and discards all other drafts:
    /// clients send their pieces again.
    pub async fn settle(exports: &[Arc<Export>]) {
        for mount in exports.iter().flat_map(|export| export.mounts()) {
            mount.overlay.close().await;
        }
    }
}

impl fmt::Debug for Exports {
    /// Omits paths: they can be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exports").field("count", &self.table.read().by_path.len()).finish()
    }
}
