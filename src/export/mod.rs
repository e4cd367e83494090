//! Exports: several trees on one port, each put together of mounts, for those who may come.
//!
//! [`Exports`] is a [`Vfs`](crate::vfs::Vfs) over the overlays of all sessions that are served.
//! What it adds to each call, in this order:
//! - `credentials`: whether the caller may come at all, and who it is here
//! - `tree`: which mount the object is in, where one mount ends and another begins
//! - the call itself, on the mount's overlay, which shows its [`Scope`](crate::overlay::Scope)
//! - `guarded`: drafts, where the content of a file is guarded
//! - `numbers` and owners as this export shows them
//!
//! A handle is a capability: it carries a code that is bound to the export and the mount it was
//! given out by, and works nowhere else.

mod credentials;
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
pub use guarding::Guarding;
pub use tree::{Export, ExportParts, MountError, MountParts, MountedObject};

/// All exports of a server. A copy is the same exports.
#[derive(Clone, Default)]
pub struct Exports {
    table: Arc<RwLock<Arc<ExportTable>>>,
}

/// The exports of one moment.
#[derive(Default)]
struct ExportTable {
    by_path: HashMap<Bytes, Arc<Export>>,
    /// Where handles with this tag may be from: export and number of the mount in it.
    by_tag: HashMap<u16, Vec<(Arc<Export>, usize)>>,
    unavailable: HashMap<Bytes, Unavailable>,
}

/// An export that cannot be served at the moment.
#[derive(Debug, Clone)]
pub struct Unavailable {
    /// What clients mount.
    pub path: Bytes,
    /// Not to be listed: its path is a secret.
    pub is_secret: bool,
    /// Who may come.
    pub admission: Admission,
}

impl Exports {
    /// Serves `exports` from now on, and no others. What clients have of exports that stay goes
    /// on working; handles of those that go are stale.
    pub fn replace(&self, exports: Vec<Arc<Export>>) {
        self.replace_with(exports, Vec::new());
    }

    /// The same, where some cannot be served: mounting these fails as the server's fault, and a
    /// handle that no export knows may be of one of them, so that it is to be tried again.
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

    /// The exports of this moment, in no particular order.
    pub fn all(&self) -> Vec<Arc<Export>> {
        self.table().by_path.values().cloned().collect()
    }

    /// Publishes what the drafts of guarded files hold, where that is valid and whole, and gives
    /// up the rest: clients will send it again.
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
    /// Paths can be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exports").field("count", &self.table().by_path.len()).finish()
    }
}
