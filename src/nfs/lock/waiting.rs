//! LOCKs that are not answered yet: their file is looked for, or they wait for somebody else's
//! UNLOCK.
//!
//! They are known from their arrival on: what takes one back may come while its file is looked
//! for, and a lock that is granted then would stay for ever.

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

/// LOCKs that wait at the same time; further ones are sent away at once, to ask again.
pub const MAX_WAITING: usize = 128;

/// The same for LOCKs of one export, and half of what other exports leave.
pub const MAX_EXPORT_WAITING: usize = 64;

/// The same for LOCKs of one client address in an export, and half of what that may have.
///
/// Fewer than the requests that one connection may have in flight: an UNLOCK must get through.
pub const MAX_CLIENT_WAITING: usize = 32;

/// A lock that is asked for.
#[derive(Debug, Clone)]
pub(super) struct LockRequest {
    /// The export whose share of the locks it counts in.
    pub(super) export: NonZeroU64,
    pub(super) file: LockKey,
    pub(super) owner: Arc<LockOwner>,
    pub(super) range: ByteRange,
    pub(super) exclusive: bool,
    /// The client's state, if it is monitored.
    pub(super) state: Option<i32>,
}

/// A LOCK that is not answered yet.
#[derive(Debug)]
struct PendingLock {
    wanted: LockRequest,
    /// Whether somebody else's lock is in the way.
    waits: bool,
}

/// The locks, and who asks for one.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) table: LockTable,
    /// As many as there are LOCKs in flight.
    asked: HashMap<u64, PendingLock>,
    last_id: u64,
    /// How often somebody who asked was told not to.
    cancelled: u64,
}

impl Locks {
    /// Takes a lock; [`NlmStatus::Denied`] if another one is in the way.
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

    /// Changes when one that waits may have an answer.
    pub(super) fn changes(&self) -> u64 {
        self.table.releases() + self.cancelled
    }

    /// Takes back what `owner` is asking for in `range`; whether there was something.
    pub(super) fn cancel(&mut self, file: LockKey, owner: &LockOwner, range: ByteRange) -> bool {
        let before = self.asked.len();
        self.asked.retain(|_, PendingLock { wanted, .. }| {
            wanted.file != file || *wanted.owner != *owner || !wanted.range.overlaps(range)
        });
        let found = self.asked.len() < before;
        self.cancelled += u64::from(found);
        found
    }

    /// Gives up all that `client` has, and takes back all that it is asking for.
    pub(super) fn free(&mut self, client: &LockClient) {
        self.table.free(client);
        self.cancelled += 1;
        self.asked.retain(|_, asked| asked.wanted.owner.client != *client);
    }

    /// Lets a LOCK wait, if there is room. One that was taken back meanwhile hears of it at once.
    fn may_wait(&mut self, id: u64, wanted: &LockRequest) -> bool {
        let (mut all, mut of_export, mut of_client) = (0, 0, 0);
        for other in self.asked.values().filter(|asked| asked.waits).map(|asked| &asked.wanted) {
            let is_of_export = other.export == wanted.export;
            let is_of_client = other.owner.client.address == wanted.owner.client.address;
            all += 1;
            of_export += usize::from(is_of_export);
            of_client += usize::from(is_of_export && is_of_client);
        }
        // Half of what others leave: a few exports cannot take all places.
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

/// The [`Locks`], for all who need them.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedLocks(Arc<Mutex<Locks>>);

impl SharedLocks {
    pub(super) fn locks(&self) -> MutexGuard<'_, Locks> {
        // Nothing in there panics between two changes that belong together.
        self.0.lock()
    }

    /// Takes note of a LOCK that has arrived, before its file is looked for.
    pub(super) fn ask(&self, cookie: Bytes, wanted: LockRequest) -> LockWait {
        let mut locks = self.locks();
        locks.last_id += 1;
        let id = locks.last_id;
        locks.asked.insert(id, PendingLock { wanted: wanted.clone(), waits: false });
        drop(locks);
        LockWait { shared: self.clone(), id, cookie, wanted }
    }
}

/// A LOCK that has not been answered yet. Dropped, it is not asked for any more.
#[derive(Debug)]
pub struct LockWait {
    shared: SharedLocks,
    id: u64,
    cookie: Bytes,
    wanted: LockRequest,
}

impl LockWait {
    /// Whether it may wait: there is room.
    pub(super) fn may_wait(&self) -> bool {
        self.shared.locks().may_wait(self.id, &self.wanted)
    }

    /// Tries to take the lock; the encoded reply, or `None` while somebody else's is in the way.
    pub fn retry(&self) -> Option<Encoder> {
        let mut locks = self.shared.locks();
        if !locks.asked.contains_key(&self.id) {
            // The client does not want it any more: granted, it would stay for ever.
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

    /// The encoded reply that makes the client ask again after a pause.
    ///
    /// Linux waits 5 seconds after DENIED_GRACE_PERIOD, but 30 after BLOCKED, which promises a
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
