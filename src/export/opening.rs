//! Finds the export that a client mounts, and opens it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::entry::{ExportEntry, OpenPurpose};
use super::tree::Export;
use super::{Exports, Refused};
use crate::vfs::{Caller, FsError};

/// How often the table is looked at for one mount without a pause, if too many mounts wait.
const MAX_ATTEMPTS: usize = 4;

/// How long a mount waits, in all, while reloads or a stop replace its export, or it cannot be
/// opened. The last attempt may take as long as an opening.
const MOUNT_WAIT: Duration = Duration::from_secs(2);

/// Mounts that wait at once, of all clients; others are answered without a pause.
const MAX_WAITING_MOUNTS: usize = 64;

/// Pause before an export that was replaced is looked up again.
const REPLACED_PAUSE: Duration = Duration::from_millis(50);

/// Longest pause before an export that could not be opened is tried again. The first one is
/// [`REPLACED_PAUSE`], and it doubles with each attempt: each may read the session and its base.
const MAX_FAILED_PAUSE: Duration = Duration::from_millis(250);

/// The number of mounts that wait.
#[derive(Default)]
pub(super) struct WaitingMounts(AtomicUsize);

/// A mount that waits, if there are not too many.
struct WaitingMount<'a>(&'a WaitingMounts);

impl WaitingMounts {
    fn begin(&self) -> Option<WaitingMount<'_>> {
        let more = |count| (count < MAX_WAITING_MOUNTS).then_some(count + 1);
        let begun = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        begun.ok().map(|_| WaitingMount(self))
    }
}

impl Drop for WaitingMount<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Exports {
    /// The export that a template has for a path which is not in the table.
    fn make(&self, path: &[u8]) -> Option<Arc<ExportEntry>> {
        self.finder()?.find(path)
    }

    /// Opens the export with this path for a mount. If that fails for now, waits and tries again,
    /// for [`MOUNT_WAIT`] and without a thread.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if there is none for this caller; [`FsError::Fault`] if it cannot be
    /// opened now, as MOUNT has no status for a later try (RFC 1813 §5.1.5).
    pub(super) async fn open_to_mount(
        &self,
        caller: &Caller,
        path: &[u8],
    ) -> Result<(Arc<ExportEntry>, Arc<Export>), FsError> {
        let (began, mut failed_pause) = (Instant::now(), REPLACED_PAUSE);
        // Held until the last attempt ends.
        let mut waiting = None;
        for attempt in 1.. {
            let entry = self.find_to_mount(caller, path)?;
            let is_replaced = match entry.open(OpenPurpose::Mount).await {
                Ok(export) => return Ok((entry, export)),
                // A reload replaced it, or its sessions were replaced while it was closed: the
                // table has a new entry.
                Err(FsError::Stale) => true,
                // A reload or a command may have its session.
                Err(FsError::TryLater) => false,
                Err(error) => return Err(error),
            };
            waiting = waiting.or_else(|| self.waiting.begin());
            if waiting.is_none() {
                if is_replaced && attempt < MAX_ATTEMPTS {
                    continue;
                }
                break;
            }
            let pause = if is_replaced { REPLACED_PAUSE } else { failed_pause };
            if began.elapsed() + pause >= MOUNT_WAIT {
                break;
            }
            if !is_replaced {
                failed_pause = MAX_FAILED_PAUSE.min(pause * 2);
            }
            entry.pause(pause).await;
        }
        Err(FsError::Fault)
    }

    /// The export with this path, open or closed, if the caller may mount it.
    fn find_to_mount(&self, caller: &Caller, path: &[u8]) -> Result<Arc<ExportEntry>, FsError> {
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
        Ok(entry)
    }
}
