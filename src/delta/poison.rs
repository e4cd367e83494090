//! [`Poison`]: whether committed data may be lost.

use std::sync::{Arc, OnceLock};

use super::{Result, StoreError};

/// Why data that was committed may be lost: a sync, or a write that no later sync repeats, failed.
/// It can be set and never cleared: the session takes no change any more. The writer, its
/// background threads and the worker share one.
#[derive(Debug, Clone, Default)]
pub struct Poison(Arc<OnceLock<StoreError>>);

impl Poison {
    /// Sets it; the first error stays.
    pub fn set(&self, error: &StoreError) {
        let _ = self.0.set(error.clone());
    }

    /// Sets it where `done` is an error, and returns `done`.
    ///
    /// # Errors
    /// That of `done`.
    pub fn keep<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| self.set(error))
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Fails where it is set.
    ///
    /// # Errors
    /// The first error that it was set with.
    pub fn check(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
