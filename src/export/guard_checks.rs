//! Checks of content by the guards of the exports that show a session, for changes of the whole
//! tree that no mount makes.

use std::sync::Arc;

use bytes::Bytes;

use crate::overlay::Overlay;
use crate::validation::NotAccepted;
use crate::vfs::FsError;

use super::Exports;
use super::entry::OpenPurpose;
use super::tree::Export;

/// A mount with guards that shows a session.
pub struct GuardedView {
    export: Arc<Export>,
    /// Index of the mount.
    mount: usize,
    /// The session's directory that is the root of the mount.
    root: Vec<u8>,
}

impl Exports {
    /// The mounts with guards that show the session of an overlay. Opens the exports that show it
    /// and are closed.
    ///
    /// # Errors
    /// An export cannot be opened, or the root of a mount cannot be found.
    pub async fn guarded_views(&self, session: &Overlay) -> Result<Vec<GuardedView>, FsError> {
        let mut views = Vec::new();
        for entry in self.all() {
            let identity = entry.identity();
            let mut mounts = identity.iter().flat_map(|identity| identity.mounts());
            if !mounts.any(|mount| mount.session_fsid == session.fsid()) {
                continue;
            }
            let export = entry.open(OpenPurpose::Call).await?;
            for (mount, found) in export.mounts().iter().enumerate() {
                if found.overlay.drafts.is_some() && found.overlay.is_of_same_session(session) {
                    let root = found.overlay.root_path().await?.as_bytes().to_vec();
                    views.push(GuardedView { export: Arc::clone(&export), mount, root });
                }
            }
        }
        Ok(views)
    }
}

impl GuardedView {
    /// Name of the export.
    pub fn export(&self) -> &str {
        self.export.name()
    }

    /// Whether a file at a path of the session is guarded.
    pub fn is_guarded(&self, path: &[u8]) -> bool {
        let overlay = &self.export.mounts()[self.mount].overlay;
        let path = self.in_export(path);
        path.zip(overlay.drafts.as_ref()).is_some_and(|(path, drafts)| drafts.is_guarded(&path))
    }

    /// Checks the content for a path of the session.
    ///
    /// # Errors
    /// The first violation, or no permit was free in time.
    pub async fn check(&self, path: &[u8], content: &Bytes) -> Result<(), NotAccepted> {
        let overlay = &self.export.mounts()[self.mount].overlay;
        match self.in_export(path).zip(overlay.drafts.as_ref()) {
            Some((path, drafts)) => drafts.validate(&path, content).await,
            None => Ok(()),
        }
    }

    fn in_export(&self, path: &[u8]) -> Option<Vec<u8>> {
        let root = if self.root == b"/" { &[][..] } else { &self.root };
        let below = path.strip_prefix(root)?;
        let overlay = &self.export.mounts()[self.mount].overlay;
        below.starts_with(b"/").then(|| overlay.at.join(below))
    }
}
