//! [`WriterToken`]: a session has one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::delta::{Result, StoreError};

/// Exclusive right to be the session's writer.
pub struct WriterToken(Arc<AtomicBool>);

impl WriterToken {
    /// Takes the token; fails if another writer holds it.
    pub fn take(writing: &Arc<AtomicBool>) -> Result<Self> {
        if writing.swap(true, Ordering::AcqRel) {
            return Err(StoreError::busy("its writer is open already"));
        }
        Ok(Self(Arc::clone(writing)))
    }
}

impl Drop for WriterToken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
