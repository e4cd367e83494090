//! Closes the sessions of an exports file: all at the end, or those that no export uses any more.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::on_demand::ExportSource;
use super::open_sessions::SessionLease;
use super::{ServedExports, until_any_stuck};
use crate::delta::PendingCopies;
use crate::export::{Export, ExportEntry, Exports};
use crate::workspace::error::Result;
use crate::workspace::layers;
use crate::workspace::running::PendingAtEnd;

/// Time to publish drafts while a base hangs.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// Called at intervals while a session that is being closed copies pending content, with the
/// session's path and the rest.
pub type CopyProgress = Arc<dyn Fn(&Path, PendingCopies) + Send + Sync>;

/// Sessions that exports no longer use; those that no export uses are still open.
#[must_use]
pub struct DroppedSessions {
    pub(super) leases: Vec<SessionLease>,
    /// Files of sessions in memory that the replaced exports had.
    pub(super) memory: Vec<PathBuf>,
}

impl ServedExports {
    /// Stops serving and closes all sessions. Blocks.
    ///
    /// # Errors
    /// A session was not closed cleanly; the others were still closed.
    pub fn end(&mut self, pending: PendingAtEnd, progress: &CopyProgress) -> Result<()> {
        self.upkeep.drain(..).for_each(|task| task.abort());
        self.parts.give_up_silent();
        let loading = self.parts.loading.write();
        self.parts.save_uses();
        self.parts.keep_templates(Vec::new());
        let replaced = self.parts.exports.all();
        self.parts.exports.replace(Vec::new(), Vec::new(), None);
        let before = self.parts.replace_sources(Vec::new());
        drop(loading);
        let DroppedSessions { leases, .. } = self.retire(before, replaced);
        // Closes all concurrently: a base that hangs delays no other session.
        let ended = std::thread::scope(|scope| {
            let mut ending = Vec::new();
            for leases in split(leases, layers::network_threads()) {
                let parts = &self.parts;
                ending.push(scope.spawn(move || {
                    // Closes all before returning the first error.
                    let closed: Vec<_> = leases
                        .into_iter()
                        .map(|lease| parts.release_with(lease, pending, progress))
                        .collect();
                    closed.into_iter().collect::<Result<()>>()
                }));
            }
            let ended: Vec<_> = ending.into_iter().map(|thread| thread.join()).collect();
            ended.into_iter().filter_map(std::result::Result::ok).collect()
        });
        self.parts.forget_memory();
        self.parts.keep_registry(None);
        ended
    }

    /// Releases sessions, and closes those that no export uses. Copies their pending content: the
    /// next server may not have these sessions. Blocks.
    pub fn close(&self, gone: DroppedSessions) {
        let sources = self.parts.sources();
        let needed: HashSet<PathBuf> =
            sources.iter().flat_map(|source| source.memory_files()).collect();
        for lease in gone.leases {
            if let Err(error) = self.parts.release(lease) {
                tracing::error!(%error, "a session was not closed cleanly");
            }
        }
        for file in gone.memory.iter().filter(|file| !needed.contains(*file)) {
            self.parts.forget(file);
        }
    }

    /// Ends the use of exports that were replaced: publishes their drafts, or discards them.
    pub(super) fn retire(
        &self,
        sources: Vec<Arc<ExportSource>>,
        entries: Vec<Arc<ExportEntry>>,
    ) -> DroppedSessions {
        let (mut exports, mut leases, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for source in sources {
            memory.extend(source.memory_files());
            let (export, taken) = source.retire();
            exports.extend(export);
            leases.extend(taken);
        }
        // Until here they keep the exports of their sources open.
        drop(entries);
        self.settle(&exports);
        DroppedSessions { leases, memory }
    }

    /// Publishes or discards drafts; stops waiting if a base still hangs after [`SETTLE_TIMEOUT`].
    fn settle(&self, before: &[Arc<Export>]) {
        let layers = self.sessions();
        let overlays: Vec<_> = layers.iter().map(|layers| Arc::clone(&layers.overlay)).collect();
        let given_up = async {
            tokio::time::sleep(SETTLE_TIMEOUT).await;
            until_any_stuck(&overlays).await;
        };
        self.parts.runtime.block_on(async {
            tokio::select! {
                () = Exports::settle(before) => {}
                () = given_up => tracing::warn!("a base hangs; drafts over it are given up"),
            }
        });
    }
}

/// Divides leases into at most `most` parts of about the same size.
fn split(mut leases: Vec<SessionLease>, most: usize) -> Vec<Vec<SessionLease>> {
    let size = leases.len().div_ceil(most).max(1);
    let mut parts = Vec::new();
    while !leases.is_empty() {
        parts.push(leases.split_off(leases.len().saturating_sub(size)));
    }
    parts
}
