//! The open sessions of a server. Exports that need the same session share it; the last one that
//! releases it closes it.
//!
//! Opening and closing block, and hold the lock of that session alone: other sessions wait for
//! neither.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::workspace::error::Result;
use crate::workspace::layers::SessionLayers;
use crate::workspace::running::RunningSession;

/// The open sessions, by their files.
#[derive(Default)]
pub(in crate::workspace) struct OpenSessions {
    slots: Mutex<HashMap<PathBuf, Arc<SessionSlot>>>,
}

/// A session that is open, is being opened, or is being closed.
struct SessionSlot {
    file: PathBuf,
    state: Mutex<SlotState>,
    /// The layers while it is open, readable while `state` is locked.
    layers: RwLock<Option<Arc<SessionLayers>>>,
}

#[derive(Default)]
struct SlotState {
    running: Option<RunningSession>,
    /// The number of leases.
    users: usize,
    /// The slot was removed from the table.
    is_removed: bool,
}

/// The use of an open session by an export. It must be released.
#[must_use]
pub(super) struct SessionLease {
    slot: Arc<SessionSlot>,
    /// The session.
    pub(super) layers: Arc<SessionLayers>,
}

impl SessionLease {
    /// Whether other exports use the session too, or may.
    pub(super) fn is_shared(&self) -> bool {
        self.slot.state.try_lock().is_none_or(|state| state.users > 1)
    }
}

impl OpenSessions {
    /// The session `file`, which `open` opens if it is closed; otherwise `check` must accept how it
    /// is open. Blocks while another thread opens or closes it.
    pub(super) fn acquire(
        &self,
        file: &Path,
        open: impl FnOnce() -> Result<RunningSession>,
        check: impl FnOnce(&SessionLayers) -> Result<()>,
    ) -> Result<SessionLease> {
        loop {
            let slot = self.slot(file);
            let mut state = slot.state.lock();
            if state.is_removed {
                // It was closed while this thread waited for it.
                continue;
            }
            let layers = match &state.running {
                Some(running) => {
                    check(&running.layers)?;
                    Arc::clone(&running.layers)
                }
                None => {
                    let opened = open().inspect_err(|_| self.remove(&slot, &mut state))?;
                    let layers = Arc::clone(&opened.layers);
                    *slot.layers.write() = Some(Arc::clone(&layers));
                    state.running = Some(opened);
                    layers
                }
            };
            state.users += 1;
            drop(state);
            return Ok(SessionLease { slot, layers });
        }
    }

    /// Ends a use; `close` closes the session if it was the last one. Blocks until it is closed.
    pub(super) fn release(
        &self,
        lease: SessionLease,
        close: impl FnOnce(RunningSession) -> Result<()>,
    ) -> Result<()> {
        let SessionLease { slot, layers } = lease;
        drop(layers);
        let mut state = slot.state.lock();
        state.users -= 1;
        if state.users > 0 {
            return Ok(());
        }
        *slot.layers.write() = None;
        let closed = state.running.take().map_or(Ok(()), close);
        self.remove(&slot, &mut state);
        closed
    }

    /// The sessions that are open now.
    pub(in crate::workspace) fn all(&self) -> Vec<Arc<SessionLayers>> {
        let slots: Vec<_> = self.slots.lock().values().cloned().collect();
        slots.iter().filter_map(|slot| slot.layers.read().clone()).collect()
    }

    /// The number of sessions that are open, being opened or being closed.
    pub(super) fn count(&self) -> usize {
        self.slots.lock().len()
    }

    /// Whether this session is open, being opened or being closed.
    pub(super) fn has(&self, file: &Path) -> bool {
        self.slots.lock().contains_key(file)
    }

    /// Whether this session is open.
    pub(super) fn is_open(&self, file: &Path) -> bool {
        let slot = self.slots.lock().get(file).cloned();
        slot.is_some_and(|slot| slot.layers.read().is_some())
    }

    /// Whether this session is open for changes.
    pub(super) fn is_open_to_change(&self, file: &Path) -> bool {
        let slot = self.slots.lock().get(file).cloned();
        let layers = slot.and_then(|slot| slot.layers.read().clone());
        layers.is_some_and(|layers| !layers.read_only)
    }

    fn slot(&self, file: &Path) -> Arc<SessionSlot> {
        let new = || {
            let (state, layers) = (Mutex::default(), RwLock::default());
            Arc::new(SessionSlot { file: file.to_owned(), state, layers })
        };
        Arc::clone(self.slots.lock().entry(file.to_owned()).or_insert_with(new))
    }

    fn remove(&self, slot: &SessionSlot, state: &mut SlotState) {
        state.is_removed = true;
        self.slots.lock().remove(&slot.file);
    }
}
