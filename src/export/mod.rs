//! Exports: several trees on one port, each assembled from mounts, with its own access rules.
//!
//! [`Exports`] is a [`Vfs`](crate::vfs::Vfs) over the overlays of all served sessions. Each call
//! passes through, in this order:
//! - `credentials`: checks the caller's address, port and flavor, and squashes its ids
//! - `tree`: finds the object's mount, and crosses mount points
//! - `validating_overlay`: drafts, if the file is guarded
//! - the mount's overlay, restricted to its [`Scope`](crate::overlay::Scope)
//! - `numbers` and `credentials`: file numbers and owners as this export shows them
//!
//! A handle is a capability: its MAC is bound to one export and mount, and no other accepts it.

mod credentials;
mod guard_checks;
mod guarding;
mod handles;
mod listing;
mod numbers;
mod service;
mod tree;
mod validating_overlay;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

pub use credentials::{Admission, Refused, Squash};
pub use guard_checks::GuardedView;
pub use guarding::Guarding;
pub use tree::{AssemblyError, Export, ExportParts, MountParts, MountedObject};

/// All exports of a server. Clones share the table.
#[derive(Clone, Default)]
pub struct Exports {
    table: Arc<RwLock<Arc<ExportTable>>>,
}

/// A snapshot of the exports.
#[derive(Default)]
struct ExportTable {
    by_path: HashMap<Bytes, Arc<Export>>,
    /// Candidates for a handle's tag: the export, and the index of the mount in it.
    by_tag: HashMap<u16, Vec<(Arc<Export>, usize)>>,
    unavailable: HashMap<Bytes, Unavailable>,
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

impl Exports {
    /// Replaces all exports. Handles of exports that stay remain valid; handles of removed exports
    /// become stale.
    pub fn replace(&self, exports: Vec<Arc<Export>>) {
        self.replace_with(exports, Vec::new());
    }

    /// As [`Self::replace`], with exports that cannot be served. Mounting one of these fails with a
    /// server fault. An unknown handle may belong to one of them, so the client is told to retry.
    pub fn replace_with(&self, exports: Vec<Arc<Export>>, unavailable: Vec<Unavailable>) {
        let unavailable = unavailable.into_iter().map(|it| (it.path.clone(), it)).collect();
        let mut table = ExportTable { unavailable, ..ExportTable::default() };
        for export in exports {
            for (index, mount) in export.mounts().iter().enumerate() {
                let tagged = table.by_tag.entry(mount.tag()).or_default();
                tagged.push((Arc::clone(&export), index));
            }
            table.by_path.insert(export.path().clone(), export);
        }
        *self.table.write() = Arc::new(table);
    }

    /// The current exports, unordered.
    pub fn all(&self) -> Vec<Arc<Export>> {
        self.table().by_path.values().cloned().collect()
    }

    /// Publishes truncated or extended drafts with valid content, and discards all other drafts:
    /// clients send their pieces again.
    pub async fn settle(exports: &[Arc<Export>]) {
        for mount in exports.iter().flat_map(|export| export.mounts()) {
            mount.overlay.close().await;
        }
    }

    fn table(&self) -> Arc<ExportTable> {
        Arc::clone(&self.table.read())
    }
}

impl fmt::Debug for Exports {
    /// Omits paths: they can be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exports").field("count", &self.table().by_path.len()).finish()
    }
}
