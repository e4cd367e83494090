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

mod clients;
mod credentials;
mod entry;
mod guard_checks;
mod guarding;
mod handles;
mod listing;
mod numbers;
mod object;
mod opening;
mod service;
mod tree;
mod validating_overlay;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

pub use clients::ExportClients;
pub use credentials::{Admission, Refused, Squash};
use entry::IdentityOfMount;
pub use entry::{
    ExportEntry, ExportIdentity, FindExport, MountKeys, OpenExport, OpenFuture, OpenPurpose,
    PauseFuture,
};
pub use guard_checks::GuardedView;
pub use guarding::Guarding;
pub use object::MountedObject;
use opening::WaitingMounts;
pub use tree::{AssemblyError, Export, ExportParts, MountParts};

/// All exports of a server. Clones share the table.
#[derive(Clone, Default)]
pub struct Exports {
    table: Arc<RwLock<ExportTable>>,
    waiting: Arc<WaitingMounts>,
}

/// The exports by their paths and by the tags of their handles.
#[derive(Default)]
struct ExportTable {
    by_path: HashMap<Bytes, TaggedExport>,
    /// Candidates for a handle's tag.
    by_tag: HashMap<u16, Vec<TaggedMount>>,
    unavailable: HashMap<Bytes, Unavailable>,
    /// The exports that are [awaited](ExportEntry::is_awaited).
    awaited: HashSet<Bytes>,
    /// Makes exports that are not here.
    finder: Option<Arc<dyn FindExport>>,
}

/// An export of the table.
struct TaggedExport {
    entry: Arc<ExportEntry>,
    /// The tags under which it is, which need not be those of its present identity.
    tags: Vec<u16>,
}

/// A mount that handles with its tag may be of.
struct TaggedMount {
    entry: Arc<ExportEntry>,
    /// Index of the mount in the export.
    index: usize,
    identity: IdentityOfMount,
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
    fn entries(&self) -> impl Iterator<Item = &Arc<ExportEntry>> {
        self.by_path.values().map(|listed| &listed.entry)
    }

    /// Adds an export, with its tags if its identity is known.
    fn add(&mut self, entry: &Arc<ExportEntry>) {
        let (identity, mut tags) = (entry.identity(), Vec::new());
        let mounts = identity.iter().flat_map(|identity| identity.mounts()).enumerate();
        for (index, identity) in mounts {
            let tagged = self.by_tag.entry(identity.tag).or_default();
            tags.push(identity.tag);
            let (entry, identity) = (Arc::clone(entry), *identity);
            tagged.push(TaggedMount { entry, index, identity });
        }
        match entry.is_awaited() {
            true => self.awaited.insert(entry.path().clone()),
            false => self.awaited.remove(entry.path()),
        };
        let listed = TaggedExport { entry: Arc::clone(entry), tags };
        self.by_path.insert(entry.path().clone(), listed);
    }

    /// Removes an export and its tags.
    fn remove(&mut self, path: &[u8]) {
        let Some(listed) = self.by_path.remove(path) else { return };
        self.awaited.remove(path);
        self.untag(&listed, |_| true);
    }

    /// Removes the tags of an export's mounts with these indexes.
    fn untag(&mut self, listed: &TaggedExport, is_gone: impl Fn(usize) -> bool) {
        let is_it = |tagged: &TaggedMount| {
            Arc::ptr_eq(&tagged.entry, &listed.entry) && is_gone(tagged.index)
        };
        for tag in &listed.tags {
            let Some(tagged) = self.by_tag.get_mut(tag) else { continue };
            tagged.retain(|tagged| !is_it(tagged));
            if tagged.is_empty() {
                self.by_tag.remove(tag);
            }
        }
    }
}

impl Exports {
    /// Replaces all exports. Handles of exports that stay remain valid; handles of removed exports
    /// become stale. Mounting an unavailable export fails with a server fault; while there is one,
    /// or one that is [awaited](ExportEntry::is_awaited), an unknown handle may be its, so the
    /// client gets JUKEBOX.
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
        exports.iter().for_each(|export| table.add(export));
        let before = std::mem::replace(&mut *self.table.write(), table);
        drop(before);
    }

    /// What makes the exports that are not in the table.
    pub fn finder(&self) -> Option<Arc<dyn FindExport>> {
        self.table.read().finder.clone()
    }

    /// Adds an export, or replaces the one at its path.
    pub fn put(&self, export: Arc<ExportEntry>) {
        let mut table = self.table.write();
        table.remove(export.path());
        table.unavailable.remove(export.path());
        table.add(&export);
    }

    /// Removes an export from the table, if it is there.
    pub fn remove(&self, export: &Arc<ExportEntry>) {
        let mut table = self.table.write();
        if table.by_path.get(export.path()).is_some_and(|known| Arc::ptr_eq(&known.entry, export)) {
            table.remove(export.path());
        }
    }

    /// Accepts the handles of an export whose identity became known, or which is no longer awaited;
    /// with `was_known`, those of an earlier identity no more.
    pub fn identify(&self, export: &Arc<ExportEntry>, was_known: bool) {
        let mut table = self.table.write();
        // Another reload may have replaced it.
        if table.by_path.get(export.path()).is_some_and(|known| Arc::ptr_eq(&known.entry, export)) {
            if was_known {
                table.remove(export.path());
            }
            table.add(export);
        }
    }

    /// Handles of these mounts of an export are stale from now on, until it is opened again.
    pub fn forget_mounts(&self, export: &Arc<ExportEntry>, mounts: &[usize]) {
        let mut table = self.table.write();
        let Some(listed) = table.by_path.remove(export.path()) else { return };
        if Arc::ptr_eq(&listed.entry, export) {
            table.untag(&listed, |index| mounts.contains(&index));
        }
        table.by_path.insert(export.path().clone(), listed);
    }

    /// All exports, open and closed, unordered.
    pub fn all(&self) -> Vec<Arc<ExportEntry>> {
        self.table.read().entries().cloned().collect()
    }

    /// A client has unmounted the export with this path, or all.
    fn forget_client(&self, client: IpAddr, path: Option<&[u8]>) {
        let entries = path.map_or_else(|| self.all(), |path| self.find(path).into_iter().collect());
        entries.iter().for_each(|entry| entry.clients().forget(client));
    }

    /// The number of exports that are [awaited](ExportEntry::is_awaited).
    pub fn awaited(&self) -> usize {
        self.table.read().awaited.len()
    }

    /// The number of exports that cannot be served now.
    pub fn unavailable(&self) -> usize {
        self.table.read().unavailable.len()
    }

    /// The export with this path.
    pub fn find(&self, path: &[u8]) -> Option<Arc<ExportEntry>> {
        self.table.read().by_path.get(path).map(|it| Arc::clone(&it.entry))
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
