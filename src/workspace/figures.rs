//! What a server reports of its open sessions.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::exports::ServedExports;
use super::layers::SessionLayers;
use crate::base::HostDir;
use crate::delta::{PendingCopies, WalSize};
use crate::overlay::Overlay;

/// How long the sessions may take to tell what is to be copied.
const PENDING_TIMEOUT: Duration = Duration::from_millis(500);

/// Lists the open sessions of a server.
type ListSessions = dyn Fn() -> Vec<Arc<SessionLayers>> + Send + Sync;

/// The sessions and exports of a server, as figures show them.
#[derive(Clone)]
pub struct ShownSessions {
    sessions: Arc<ListSessions>,
    exports: Arc<dyn Fn() -> ExportCounts + Send + Sync>,
}

/// The exports of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportCounts {
    /// Those that are served, open or closed.
    pub served: usize,
    /// Those of them that are open.
    pub open: usize,
    /// Those that cannot be opened.
    pub unavailable: usize,
    /// Instances that were removed since the start because nothing used them.
    pub expired: u64,
}

struct OpenForFigures {
    overlay: Weak<Overlay>,
    host_dir: Option<Weak<HostDir>>,
    /// Whether it was opened to be read.
    read_only: bool,
}

/// The sum over all open sessions.
#[derive(Debug, Clone, Default)]
pub struct SessionsFigures {
    /// The exports.
    pub exports: ExportCounts,
    /// Open sessions.
    pub open: usize,
    /// Their state.
    pub health: SessionsHealth,
    /// Size of their WALs.
    pub wal: WalSize,
    /// Entries of their caches, by name.
    pub cache_entries: BTreeMap<&'static str, usize>,
    /// Content that is still to be copied; `None` if a session did not tell in time.
    pub pending: Option<PendingCopies>,
}

/// Sessions that do not work as they should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionsHealth {
    /// Those that became read-only after an error.
    pub failed: usize,
    /// Those whose writer has been in one operation for too long.
    pub stuck: usize,
    /// Those whose writer has ended.
    pub ended: usize,
}

impl ShownSessions {
    /// Shows what these functions return.
    pub fn new(
        sessions: impl Fn() -> Vec<Arc<SessionLayers>> + Send + Sync + 'static,
        exports: impl Fn() -> ExportCounts + Send + Sync + 'static,
    ) -> Self {
        Self { sessions: Arc::new(sessions), exports: Arc::new(exports) }
    }

    /// Sessions that do not work as they should. Waits for nothing.
    pub fn health(&self) -> SessionsHealth {
        self.look().health
    }

    /// The current figures.
    pub async fn figures(&self) -> SessionsFigures {
        let figures = self.look();
        let pending = tokio::time::timeout(PENDING_TIMEOUT, self.pending()).await;
        SessionsFigures { pending: pending.ok().flatten(), ..figures }
    }

    /// Content that is still to be copied, unless a session cannot be read.
    async fn pending(&self) -> Option<PendingCopies> {
        let mut sum = PendingCopies::default();
        for overlay in self.list().iter().filter_map(|open| open.overlay.upgrade()) {
            let pending = overlay.pending_copies().await.ok()?;
            sum.files += pending.files;
            sum.bytes += pending.bytes;
        }
        Some(sum)
    }

    /// All figures but those that have to be read from a session.
    fn look(&self) -> SessionsFigures {
        let exports = (self.exports)();
        let mut sum = SessionsFigures { exports, ..SessionsFigures::default() };
        for open in self.list() {
            let Some(overlay) = open.overlay.upgrade() else { continue };
            let session = overlay.figures();
            sum.open += 1;
            sum.health.failed += usize::from(session.is_read_only && !open.read_only);
            // Without its database, a writer waits.
            sum.health.stuck += usize::from(session.is_writer_stuck && overlay.has_lease());
            sum.health.ended += usize::from(session.has_writer_ended);
            sum.wal.file_bytes += session.wal.file_bytes;
            sum.wal.left_bytes += session.wal.left_bytes;
            let host_dir = open.host_dir.as_ref().and_then(Weak::upgrade);
            let of_base = host_dir.into_iter().flat_map(|host_dir| host_dir.cache_entries());
            for (cache, entries) in session.cache_entries.into_iter().chain(of_base) {
                *sum.cache_entries.entry(cache.name()).or_default() += entries;
            }
        }
        sum
    }

    /// The sessions, which may be closed from now on.
    fn list(&self) -> Vec<OpenForFigures> {
        (self.sessions)().iter().map(|layers| layers.for_figures()).collect()
    }
}

impl ServedExports {
    /// Its sessions and exports, for figures.
    pub fn shown_sessions(&self) -> ShownSessions {
        let (parts, exports) = (Arc::clone(&self.parts), self.exports().clone());
        let counted = Arc::clone(&parts);
        let counts = move || {
            let all = exports.all();
            let open = all.iter().filter(|entry| entry.current().is_some()).count();
            let failing = counted.sources().iter().filter(|source| source.is_failing()).count();
            let unavailable = exports.unavailable() + failing;
            let expired = counted.expiry.removed.load(Ordering::Relaxed);
            ExportCounts { served: all.len(), open, unavailable, expired }
        };
        ShownSessions::new(move || parts.sessions.all(), counts)
    }
}

impl SessionLayers {
    fn for_figures(&self) -> OpenForFigures {
        OpenForFigures {
            overlay: Arc::downgrade(&self.overlay),
            host_dir: self.host_dir.as_ref().map(Arc::downgrade),
            read_only: self.read_only,
        }
    }
}
