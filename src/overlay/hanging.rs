//! What changes while the base hangs: which operations go to the worker's threads, and which fail.

use crate::base::WatchedBase;
use crate::vfs::{FsError, Locator};
use crate::worker::Cost;

use super::Overlay;

impl Overlay {
    /// Cost of finding an object: a file with several base names may need a search of the whole
    /// base; a slow base may hang.
    pub(super) fn cost_of(&self, object: &Locator) -> Cost {
        match object {
            Locator::BaseLinked(_) => Cost::Offload,
            Locator::Delta(_) | Locator::Base(..) if self.core.watched.is_slow() => Cost::Offload,
            Locator::Delta(_) | Locator::Base(..) => Cost::Inline,
        }
    }

    /// JUKEBOX while the writer is stuck in the base.
    pub(super) fn check_writer(&self) -> Result<(), FsError> {
        if self.is_writer_stuck() { Err(FsError::TryLater) } else { Ok(()) }
    }

    /// Whether the writer is stuck in the base.
    pub fn is_writer_stuck(&self) -> bool {
        self.worker.is_writer_stuck() && self.core.watched.is_stuck()
    }

    /// Whether the writer is stuck, and not in the base: another server may do better.
    pub fn is_writer_hung(&self) -> bool {
        self.worker.is_writer_stuck() && !self.core.watched.is_stuck()
    }

    /// Whether a call of the base is stuck.
    pub fn is_base_stuck(&self) -> bool {
        self.core.watched.is_stuck()
    }
}

/// Runs `f`; `None` if the base refused a call on this thread, because `f` may have taken the
/// refusal for absence.
pub(super) fn reject_if_refused<T>(f: impl FnOnce() -> T) -> Option<T> {
    WatchedBase::take_refused();
    let value = f();
    (!WatchedBase::take_refused()).then_some(value)
}
