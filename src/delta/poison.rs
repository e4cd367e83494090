//! [`Poison`]: a sticky flag that committed data may be lost.

use std::sync::{Arc, OnceLock};

use super::{Result, StoreError};

/// The first failure after which committed data may be lost: of an fsync, or of a write that no
/// later sync repeats. It can be set and never cleared; the session then refuses every change. The
/// writer, its background tasks and the worker share one.
#[derive(Debug, Clone, Default)]
pub struct Poison(Arc<OnceLock<StoreError>>);

impl Poison {
    /// Sets the failure; the first one stays.
    pub fn set(&self, error: &StoreError) {
        let _ = self.0.set(error.clone());
    }

    /// Sets the failure if `done` is an error, and returns `done`.
    ///
    /// # Errors
    /// The error of `done`.
    pub fn keep<T>(&self, done: Result<T>) -> Result<T> {
        done.inspect_err(|error| self.set(error))
    }

    /// Whether a failure is set.
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Fails if a failure is set.
    ///
    /// # Errors
    /// The first error that was set.
    pub fn check(&self) -> Result<()> {
        self.0.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
