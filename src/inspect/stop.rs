//! A way to end a long look at a session from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{InspectError, Result};

/// A flag that ends a search or a comparison; its clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Ends what looks at the flag.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`StopFlag::stop`] was called.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`InspectError::Stopped`] if the flag is set.
    pub fn check(&self) -> Result<()> {
        if self.is_set() { Err(InspectError::Stopped) } else { Ok(()) }
    }
}
