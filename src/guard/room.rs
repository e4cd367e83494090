//! How much the drafts of a server may take together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::limits::RoomLimits;

/// What a permit to check stands for, in bytes.
const UNIT_BYTES: u64 = 1024;

/// How much the drafts of a server may take together.
#[derive(Debug)]
pub struct Room {
    pub(super) limits: RoomLimits,
    used: Mutex<Used>,
    checks: Semaphore,
    programs: Semaphore,
}

#[derive(Debug, Default)]
struct Used {
    drafts: usize,
    bytes: u64,
}

/// What one draft takes of it, given back when it goes.
#[derive(Debug)]
pub(super) struct Share {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    /// Room within these limits.
    pub fn new(limits: RoomLimits) -> Arc<Self> {
        let units = usize::try_from(limits.checked_bytes / UNIT_BYTES).unwrap_or(usize::MAX);
        Arc::new(Self {
            limits,
            used: Mutex::default(),
            checks: Semaphore::new(units.clamp(1, Semaphore::MAX_PERMITS)),
            programs: Semaphore::new(limits.programs.max(1)),
        })
    }

    /// Room for one more draft of `bytes`; `None` where there is none.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<Share> {
        let mut used = self.used();
        if used.drafts >= self.limits.drafts || used.bytes + bytes > self.limits.bytes {
            return None;
        }
        used.drafts += 1;
        used.bytes += bytes;
        Some(Share { room: Arc::clone(self), bytes })
    }

    /// Waits for the turn to check a content of `bytes`.
    pub(super) async fn check(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let most = (self.limits.checked_bytes / UNIT_BYTES).max(1);
        let units = (bytes as u64).div_ceil(UNIT_BYTES).clamp(1, most);
        self.checks.acquire_many(u32::try_from(units).unwrap_or(u32::MAX)).await.ok()
    }

    /// Waits for the turn to run a program.
    pub(super) async fn program(&self) -> Option<SemaphorePermit<'_>> {
        self.programs.acquire().await.ok()
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Takes as much as a draft of `bytes` needs; whether there is that much.
    pub(super) fn resize(&mut self, bytes: u64) -> bool {
        let mut used = self.room.used();
        let others = used.bytes - self.bytes;
        if bytes > self.bytes && others + bytes > self.room.limits.bytes {
            return false;
        }
        used.bytes = others + bytes;
        self.bytes = bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut used = self.room.used();
        used.drafts -= 1;
        used.bytes -= self.bytes;
    }
}
