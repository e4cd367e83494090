//! The guards of an export, translated for each mount: guards match paths of the export, a mount
//! knows its own paths.

use std::sync::Arc;

use bytes::Bytes;

use super::validating_overlay::ValidatingOverlay;
use crate::overlay::{GuardedPaths, Overlay};
use crate::validation::{
    DraftTable, DraftTableParts, ExportResources, Guards, MAX_DRAFT_BYTES, Periods, Published,
    Violation,
};
use crate::vfs::{
    Caller, FsError, GuardedFile, Locator, Outcome, PublishPreconditions, Wcc, WriteVerifier,
};

/// The guards of an export, and its part of the server's shared resources.
#[derive(Clone)]
pub struct Guarding {
    /// Path patterns with their validators.
    pub guards: Guards,
    /// The export's part of the shared resources.
    pub resources: Arc<ExportResources>,
    /// A random number of this process, used for nothing else.
    pub boot: u64,
    /// Timeouts of idle drafts.
    pub periods: Periods,
}

/// A mount point as a path prefix: empty for `/`, otherwise `/a/b`.
#[derive(Debug, Clone)]
pub(super) struct MountPrefix(Bytes);

/// The export's guards, for paths of one mount.
struct InMount {
    guards: Guards,
    at: MountPrefix,
}

/// A mount, as the tree below a draft table.
pub(super) struct GuardedMount {
    overlay: Overlay,
    at: MountPrefix,
}

impl Guarding {
    /// The guards for the scope of the mount at `at`; `None` if the export has none.
    pub(super) fn paths(&self, at: &str) -> Option<Arc<dyn GuardedPaths>> {
        let (guards, at) = (self.guards.clone(), MountPrefix::new(at));
        (!guards.is_empty()).then(|| Arc::new(InMount { guards, at }) as Arc<dyn GuardedPaths>)
    }

    /// The overlay of the mount at `at`, with drafts if the export has guards.
    pub(super) fn guarded_overlay(&self, overlay: Overlay, at: &str) -> ValidatingOverlay {
        let at = MountPrefix::new(at);
        let drafts = (!self.guards.is_empty()).then(|| {
            DraftTable::new(DraftTableParts {
                tree: GuardedMount { overlay: overlay.clone(), at: at.clone() },
                guards: self.guards.clone(),
                resources: Arc::clone(&self.resources),
                clock: overlay.clock(),
                boot: self.boot,
                periods: self.periods,
            })
        });
        ValidatingOverlay { overlay, drafts, at }
    }
}

impl MountPrefix {
    fn new(at: &str) -> Self {
        Self(Bytes::copy_from_slice(at.trim_end_matches('/').as_bytes()))
    }

    /// A path of the mount as a path of the export.
    pub(super) fn join(&self, path: &[u8]) -> Vec<u8> {
        [&self.0, path].concat()
    }
}

impl GuardedPaths for InMount {
    fn is_guarded(&self, path: &[u8]) -> bool {
        self.guards.is_guarded(&self.at.join(path))
    }

    fn may_guard_below(&self, dir: &[u8]) -> bool {
        self.guards.may_guard_below(&self.at.join(dir))
    }

    fn bars_links(&self, path: &[u8]) -> bool {
        self.guards.bars_links(&self.at.join(path))
    }
}

impl GuardedMount {
    /// Translates a file's guarded paths into paths of the export.
    fn in_export(&self, file: GuardedFile) -> GuardedFile {
        let paths = file.paths.iter().map(|path| self.at.join(path)).collect();
        GuardedFile { paths, ..file }
    }
}

impl Published for GuardedMount {
    async fn look(&self, file: &Locator) -> Result<GuardedFile, FsError> {
        Ok(self.in_export(self.overlay.guarded_file(file).await?))
    }

    async fn read(&self, file: &Locator) -> Result<(GuardedFile, Vec<u8>), FsError> {
        let (file, content) = self.overlay.guarded_content(file, MAX_DRAFT_BYTES).await?;
        Ok((self.in_export(file), content))
    }

    async fn publish(
        &self,
        caller: &Caller,
        file: &Locator,
        content: Bytes,
        expected: PublishPreconditions,
    ) -> Outcome<WriteVerifier, Wcc> {
        let here = |path: &Vec<u8>| path.get(self.at.0.len()..).unwrap_or_default().to_vec();
        let paths = expected.paths.iter().map(here).collect();
        self.overlay
            .publish(caller, file, content, PublishPreconditions { paths, ..expected })
            .await
    }

    fn tree_changes(&self) -> u64 {
        self.overlay.tree_changes()
    }

    fn verifier(&self) -> WriteVerifier {
        self.overlay.verifier()
    }

    async fn note_refusal(&self, caller: &Caller, file: &Locator, violation: &Violation) {
        if let Err(error) = self.overlay.note_refusal(caller, file, violation.to_string()).await {
            tracing::warn!(%error, "cannot write a refusal to the audit log");
        }
    }
}
