//! Finds the export that a client mounts, and opens it.

use std::sync::Arc;

use super::entry::{ExportEntry, OpenPurpose};
use super::tree::Export;
use super::{Exports, Refused};
use crate::vfs::{Caller, FsError};

/// How often the table is looked at for one mount, while reloads or a stop replace what is there.
const MAX_ATTEMPTS: usize = 4;

impl Exports {
    /// The export that a template has for a path which is not in the table.
    fn make(&self, path: &[u8]) -> Option<Arc<ExportEntry>> {
        let finder = self.table.read().finder.clone();
        finder?.find(path)
    }

    /// Opens the export with this path for a mount.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if there is none for this caller; [`FsError::Fault`] if it cannot be
    /// opened now, as MOUNT has no status for a later try (RFC 1813 §5.1.5).
    pub(super) async fn open_to_mount(
        &self,
        caller: &Caller,
        path: &[u8],
    ) -> Result<(Arc<ExportEntry>, Arc<Export>), FsError> {
        for _ in 0..MAX_ATTEMPTS {
            match self.open_found(caller, path).await {
                // A reload replaced it, or its sessions were replaced while it was closed: the
                // table has a new entry.
                Err(FsError::Stale) => {}
                Err(FsError::TryLater) => break,
                opened => return opened,
            }
        }
        Err(FsError::Fault)
    }

    async fn open_found(
        &self,
        caller: &Caller,
        path: &[u8],
    ) -> Result<(Arc<ExportEntry>, Arc<Export>), FsError> {
        let Some(entry) = self.find(path).or_else(|| self.make(path)) else {
            let table = self.table.read();
            let unavailable = table.unavailable.get(path).ok_or(FsError::NotFound)?;
            return match unavailable.admission.admit(caller) {
                Ok(()) | Err(Refused::Flavor) => Err(FsError::Fault),
                Err(_) => Err(FsError::NotFound),
            };
        };
        // Any flavor may mount: the reply lists the accepted flavors. Any other refusal looks like
        // a missing export.
        match entry.admission().admit(caller) {
            Ok(()) | Err(Refused::Flavor) => {}
            Err(refused) => {
                tracing::debug!(client = %caller.client, %refused, "a mount was refused");
                return Err(FsError::NotFound);
            }
        }
        entry.clients().note(caller.client.ip());
        let export = entry.open(OpenPurpose::Mount).await?;
        Ok((entry, export))
    }
}
