//! LOCKs without a reply yet: their file is being looked up, or a lock conflicts.
//!
//! A LOCK is registered on arrival, so that a CANCEL or UNLOCK can withdraw it during the file
//! lookup. A lock granted after that would never be released.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::range::ByteRange;
use super::table::{LockClient, LockOwner, LockRefusal, LockTable};
use crate::nfs::encode;
use crate::vfs::LockKey;
use crate::wire::nlm4::{NlmReply, NlmStatus};
use crate::wire::xdr::Encoder;

/// LOCKs that wait at once; further ones are refused at once, and the client retries.
pub const MAX_WAITING: usize = 128;

/// Waiting LOCKs of one export; also at most half of the places that other exports leave.
pub const MAX_EXPORT_WAITING: usize = 64;

/// Waiting LOCKs of one client address in an export; also at most half of the export's share.
///
/// Fewer than one connection's requests in flight, so that an UNLOCK is not blocked.
pub const MAX_CLIENT_WAITING: usize = 32;

/// A requested lock.
#[derive(Debug, Clone)]
pub(super) struct LockRequest {
    /// The export whose share the lock counts against.
    pub(super) export: NonZeroU64,
    pub(super) file: LockKey,
    pub(super) owner: Arc<LockOwner>,
    pub(super) range: ByteRange,
    pub(super) exclusive: bool,
    /// The client's state, if it is monitored.
    pub(super) state: Option<i32>,
}

/// A LOCK without a reply yet.
#[derive(Debug)]
struct PendingLock {
    wanted: LockRequest,
    /// Whether a lock of another owner conflicts and this one waits.
    waits: bool,
}

/// The lock table, and the LOCKs without a reply.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) table: LockTable,
    /// The LOCKs without a reply, by id; bounded by the requests in flight.
    asked: HashMap<u64, PendingLock>,
    last_id: u64,
    /// How often LOCKs were withdrawn.
    cancelled: u64,
}

impl Locks {
    /// Takes a lock; [`NlmStatus::Denied`] if another one conflicts.
    pub(super) fn take(&mut self, wanted: &LockRequest) -> NlmStatus {
        let LockRequest { export, file, owner, range, exclusive, state } = wanted;
        if let Some(state) = *state
            && self.table.has_restarted(&owner.client, state)
        {
            tracing::debug!(client = %owner.client.address, "restarted; its locks are given up");
            self.table.free(&owner.client);
        }
        match self.table.lock(*export, *file, owner, *range, *exclusive) {
            Ok(()) => {
                if let Some(state) = *state {
                    self.table.set_state(&owner.client, state);
                }
                NlmStatus::Granted
            }
            Err(LockRefusal::Conflict(_)) => NlmStatus::Denied,
            Err(LockRefusal::Full) => NlmStatus::DeniedNoLocks,
        }
    }

    /// Changes when a waiting LOCK may have a reply.
    pub(super) fn changes(&self) -> u64 {
        self.table.releases() + self.cancelled
    }

    /// Withdraws LOCKs of `owner` in `range`; returns whether there was any.
    pub(super) fn cancel(&mut self, file: LockKey, owner: &LockOwner, range: ByteRange) -> bool {
        let before = self.asked.len();
        self.asked.retain(|_, PendingLock { wanted, .. }| {
            wanted.file != file || *wanted.owner != *owner || !wanted.range.overlaps(range)
        });
        let found = self.asked.len() < before;
        self.cancelled += u64::from(found);
        found
    }

    /// Releases all locks of `client` and withdraws its LOCKs.
    pub(super) fn free(&mut self, client: &LockClient) {
        self.table.free(client);
        self.cancelled += 1;
        self.asked.retain(|_, asked| asked.wanted.owner.client != *client);
    }

    /// Lets a LOCK wait if there is a place. A LOCK withdrawn before gets its reply at the first
    /// retry.
    fn may_wait(&mut self, id: u64, wanted: &LockRequest) -> bool {
        let (mut all, mut of_export, mut of_client) = (0, 0, 0);
        for other in self.asked.values().filter(|asked| asked.waits).map(|asked| &asked.wanted) {
            let is_of_export = other.export == wanted.export;
            let is_of_client = other.owner.client.address == wanted.owner.client.address;
            all += 1;
            of_export += usize::from(is_of_export);
            of_client += usize::from(is_of_export && is_of_client);
        }
        // Half of the places that others leave, so that a few exports cannot take all.
        let of_others = all - of_export;
        let share = MAX_EXPORT_WAITING.min((MAX_WAITING - of_others) / 2);
        if of_export >= share || of_client >= MAX_CLIENT_WAITING.min(share.div_ceil(2)) {
            return false;
        }
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.waits = true;
        }
        true
    }
}

/// The shared [`Locks`].
#[derive(Debug, Clone, Default)]
pub(super) struct SharedLocks(Arc<Mutex<Locks>>);

impl SharedLocks {
    pub(super) fn locks(&self) -> MutexGuard<'_, Locks> {
        // No code under this lock panics between two related changes.
        self.0.lock()
    }

    /// Registers a LOCK on arrival, before its file is looked up.
    pub(super) fn ask(&self, cookie: Bytes, wanted: LockRequest) -> LockWait {
        let mut locks = self.locks();
        locks.last_id += 1;
        let id = locks.last_id;
        locks.asked.insert(id, PendingLock { wanted: wanted.clone(), waits: false });
        drop(locks);
        LockWait { shared: self.clone(), id, cookie, wanted }
    }
}

/// A LOCK without a reply yet. Dropping it withdraws it.
#[derive(Debug)]
pub struct LockWait {
    shared: SharedLocks,
    id: u64,
    cookie: Bytes,
    wanted: LockRequest,
}

impl LockWait {
    /// Whether there is a place for the LOCK to wait.
    pub(super) fn may_wait(&self) -> bool {
        self.shared.locks().may_wait(self.id, &self.wanted)
    }

    /// Tries to take the lock; returns the encoded reply, or `None` while another lock conflicts.
    pub fn retry(&self) -> Option<Encoder> {
        let mut locks = self.shared.locks();
        if !locks.asked.contains_key(&self.id) {
            // Withdrawn by the client: a granted lock would never be released.
            return Some(self.reply(NlmStatus::Denied));
        }
        match locks.take(&self.wanted) {
            NlmStatus::Denied => None,
            status => {
                locks.asked.remove(&self.id);
                Some(self.reply(status))
            }
        }
    }

    /// The encoded reply that makes the client retry after a pause.
    ///
    /// Linux pauses 5 seconds after DENIED_GRACE_PERIOD, but 30 after BLOCKED, which promises a
    /// callback.
    pub fn give_up(self) -> Encoder {
        self.reply(NlmStatus::DeniedGracePeriod)
    }

    /// The encoded reply with this status.
    pub(super) fn reply(&self, status: NlmStatus) -> Encoder {
        encode(&NlmReply { cookie: self.cookie.clone(), status })
    }
}

impl Drop for LockWait {
    fn drop(&mut self) {
        self.shared.locks().asked.remove(&self.id);
    }
}
