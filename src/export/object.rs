//! Objects of an export: as handles identify them, and in the open export.

use std::fmt;
use std::sync::Arc;

use super::entry::{ExportEntry, IdentityOfMount, OpenPurpose};
use super::tree::{Export, Mount};
use crate::vfs::{Attr, FileId, FileKind, FsError, Locator, Wcc};

/// An object of an export, which need not be open, with its mount.
#[derive(Clone)]
pub struct MountedObject {
    entry: Arc<ExportEntry>,
    mount: usize,
    identity: IdentityOfMount,
    /// The object in the mount's overlay.
    pub(super) at: Locator,
}

/// An object of an open export. The export stays open as long as this exists.
#[derive(Clone)]
pub(super) struct OpenObject {
    export: Arc<Export>,
    object: MountedObject,
}

impl MountedObject {
    pub(super) fn new(
        entry: &Arc<ExportEntry>,
        (mount, identity): (usize, IdentityOfMount),
        at: Locator,
    ) -> Self {
        Self { entry: Arc::clone(entry), mount, identity, at }
    }

    pub(super) fn entry(&self) -> &Arc<ExportEntry> {
        &self.entry
    }

    /// What identifies the object's mount.
    pub(super) fn identity(&self) -> &IdentityOfMount {
        &self.identity
    }

    /// Opens the export, if it is closed.
    pub(super) async fn open(&self) -> Result<OpenObject, FsError> {
        let export = self.entry.open(OpenPurpose::Call).await?;
        export.await_leases().await?;
        Ok(OpenObject { export, object: self.clone() })
    }
}

impl OpenObject {
    /// The export's root directory.
    pub(super) fn root(entry: &Arc<ExportEntry>, export: Arc<Export>) -> Self {
        let mount = export.root();
        let at = export.mounts()[mount].root.clone();
        let identity = export.identity().mounts()[mount];
        Self { export, object: MountedObject::new(entry, (mount, identity), at) }
    }

    pub(super) fn export(&self) -> &Arc<Export> {
        &self.export
    }

    pub(super) fn mount(&self) -> &Mount {
        &self.export.mounts()[self.object.mount]
    }

    /// The object in the mount's overlay.
    pub(super) fn at(&self) -> &Locator {
        &self.object.at
    }

    /// The object without its open export.
    pub(super) fn object(&self) -> MountedObject {
        self.object.clone()
    }

    /// Whether both objects are in the same mount of the same export. Also true if the exports were
    /// reloaded in between.
    pub(super) fn is_in_mount_of(&self, other: &Self) -> bool {
        self.object.entry.path() == other.object.entry.path()
            && self.object.identity.codec == other.object.identity.codec
    }

    /// Another object of this mount.
    pub(super) fn sibling(&self, at: Locator) -> MountedObject {
        let MountedObject { entry, mount, identity, .. } = &self.object;
        MountedObject::new(entry, (*mount, *identity), at)
    }

    /// An object of another mount of this export.
    fn elsewhere(&self, mount: usize, at: Locator) -> Self {
        let identity = self.export.identity().mounts()[mount];
        let object = MountedObject::new(&self.object.entry, (mount, identity), at);
        Self { export: Arc::clone(&self.export), object }
    }

    /// The root directory of a mount of this export.
    pub(super) fn root_of(&self, mount: usize) -> Self {
        self.elsewhere(mount, self.export.mounts()[mount].root.clone())
    }

    /// The root of the mount at a name of this directory.
    pub(super) fn mounted_at(&self, name: &[u8]) -> Option<Self> {
        let mut points = self.mount().points_in(self.at()).iter();
        let point = points.find(|point| point.name.as_bytes() == name)?;
        Some(self.root_of(point.mount))
    }

    /// The parent of a mount's root; `None` for any other object.
    pub(super) fn above_mount(&self) -> Option<Self> {
        let mount = self.mount();
        let (outer, dir) = mount.above.as_ref().filter(|_| *self.at() == mount.root)?;
        Some(self.elsewhere(*outer, dir.clone()))
    }

    /// Attributes as the export shows them: owners, file number, fsid, and mount points in `nlink`.
    pub(super) fn show(&self, attr: Attr) -> Attr {
        let mount = self.mount();
        let mut attr = self.export.squash.show(attr);
        if attr.kind == FileKind::Directory && !mount.points.is_empty() {
            let points = mount.points.get(&attr.fileid).into_iter().flatten();
            let added = points.filter(|point| !point.covers_dir).count();
            attr.nlink = attr.nlink.saturating_add(u32::try_from(added).unwrap_or(u32::MAX));
        }
        Attr { fsid: self.export.identity().fsid(), fileid: self.show_id(attr.fileid), ..attr }
    }

    /// The file number that the export shows.
    pub(super) fn show_id(&self, id: FileId) -> FileId {
        self.mount().numbers.show(id)
    }

    /// As [`Self::show`], for wcc data.
    pub(super) fn show_wcc(&self, wcc: Wcc) -> Wcc {
        Wcc { before: wcc.before, after: wcc.after.map(|attr| self.show(attr)) }
    }
}

impl fmt::Debug for MountedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountedObject").field("mount", &self.mount).field("at", &self.at).finish()
    }
}
