//! A base that hangs: what goes to the worker's threads for its sake, and what is refused.

use crate::base::Watched;
use crate::vfs::{FsError, Locator};
use crate::worker::Weight;

use super::Overlay;

impl Overlay {
    /// What it takes to find an object: of a file with several names in the base that nobody
    /// looked up since the start, the whole base may have to be searched, and a base that is
    /// remote or slow may hang.
    pub(super) fn weight_of(&self, object: &Locator) -> Weight {
        match object {
            Locator::BaseLinked(_) => Weight::Heavy,
            Locator::Delta(_) | Locator::Base(..) if self.core.watched.is_slow() => Weight::Heavy,
            Locator::Delta(_) | Locator::Base(..) => Weight::Light,
        }
    }

    /// Fails where whoever writes is stuck in the base: nobody knows for how long.
    pub(super) fn check_writer(&self) -> Result<(), FsError> {
        if self.is_writer_stuck() { Err(FsError::TryLater) } else { Ok(()) }
    }

    /// Whether whoever writes is stuck in the base.
    pub fn is_writer_stuck(&self) -> bool {
        self.worker.is_writer_stuck() && self.core.watched.is_stuck()
    }

    /// Whether a call of the base is stuck.
    pub fn is_base_stuck(&self) -> bool {
        self.core.watched.is_stuck()
    }
}

/// What `f` comes to; `None` if the base refused a call, which `f` may have taken for an answer.
pub(super) fn unless_refused<T>(f: impl FnOnce() -> T) -> Option<T> {
    Watched::take_refused();
    let value = f();
    (!Watched::take_refused()).then_some(value)
}
