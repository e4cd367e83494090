//! LOCKs that are waiting for somebody else's UNLOCK.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::range::ByteRange;
use super::table::{Client, LockTable, Owner, Refusal};
use crate::nfs::encode;
use crate::vfs::LockKey;
use crate::wire::nlm4::{Reply, Status};
use crate::wire::xdr::Encoder;

/// LOCKs that wait at the same time; further ones are sent away at once, to ask again.
///
/// Fewer than the requests that one connection may have in flight: an UNLOCK must get through.
pub const MAX_WAITING: usize = 64;

/// The same for LOCKs of one client address.
pub const MAX_CLIENT_WAITING: usize = 32;

/// A lock that is asked for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) file: LockKey,
    pub(super) owner: Arc<Owner>,
    pub(super) range: ByteRange,
    pub(super) exclusive: bool,
    /// The client's state, if it is monitored.
    pub(super) state: Option<i32>,
}

/// The locks, and who waits for one.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pub(super) table: LockTable,
    waiting: HashMap<u64, Wanted>,
    last_id: u64,
    /// How often somebody who waited was told not to.
    cancelled: u64,
}

impl Locks {
    /// Takes a lock; [`Status::Denied`] if another one is in the way.
    pub(super) fn take(&mut self, wanted: &Wanted) -> Status {
        let Wanted { file, owner, range, exclusive, state } = wanted;
        if let Some(state) = *state
            && self.table.has_restarted(&owner.client, state)
        {
            tracing::debug!(client = %owner.client.address, "restarted; its locks are given up");
            self.table.free(&owner.client);
        }
        match self.table.lock(*file, owner, *range, *exclusive) {
            Ok(()) => {
                if let Some(state) = *state {
                    self.table.set_state(&owner.client, state);
                }
                Status::Granted
            }
            Err(Refusal::Conflict(_)) => Status::Denied,
            Err(Refusal::Full) => Status::DeniedNoLocks,
        }
    }

    /// Changes when one that waits may have an answer.
    pub(super) fn changes(&self) -> u64 {
        self.table.releases() + self.cancelled
    }

    /// Takes back what `owner` is waiting for in `range`; whether there was something.
    pub(super) fn cancel(&mut self, file: LockKey, owner: &Owner, range: ByteRange) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|_, wanted| {
            wanted.file != file || *wanted.owner != *owner || !wanted.range.overlaps(range)
        });
        let found = self.waiting.len() < before;
        self.cancelled += u64::from(found);
        found
    }

    /// Gives up all that `client` has, and takes back all that it is waiting for.
    pub(super) fn free(&mut self, client: &Client) {
        self.table.free(client);
        self.cancelled += 1;
        self.waiting.retain(|_, wanted| wanted.owner.client != *client);
    }
}

/// The [`Locks`], for all who need them.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<Locks>>);

impl Shared {
    pub(super) fn locks(&self) -> MutexGuard<'_, Locks> {
        // Nothing in there panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a LOCK wait, if there is room.
    pub(super) fn wait(&self, cookie: Bytes, wanted: Wanted) -> Option<Waiting> {
        let mut locks = self.locks();
        let address = wanted.owner.client.address;
        let same = locks.waiting.values().filter(|other| other.owner.client.address == address);
        if locks.waiting.len() >= MAX_WAITING || same.count() >= MAX_CLIENT_WAITING {
            return None;
        }
        locks.last_id += 1;
        let id = locks.last_id;
        locks.waiting.insert(id, wanted.clone());
        drop(locks);
        Some(Waiting { shared: self.clone(), id, cookie, wanted })
    }
}

/// A LOCK that has not been answered yet. Dropped, it does not wait any more.
#[derive(Debug)]
pub struct Waiting {
    shared: Shared,
    id: u64,
    cookie: Bytes,
    wanted: Wanted,
}

impl Waiting {
    /// Tries again; the encoded reply, or `None` if the lock is still not to be had.
    pub fn retry(&self) -> Option<Encoder> {
        let mut locks = self.shared.locks();
        if !locks.waiting.contains_key(&self.id) {
            // The client does not want it any more: granted, it would stay for ever.
            return Some(self.reply(Status::Denied));
        }
        match locks.take(&self.wanted) {
            Status::Denied => None,
            status => {
                locks.waiting.remove(&self.id);
                Some(self.reply(status))
            }
        }
    }

    /// The encoded reply that makes the client ask again after a pause.
    ///
    /// Linux waits 5 seconds after DENIED_GRACE_PERIOD, but 30 after BLOCKED, which promises a
    /// callback.
    pub fn give_up(self) -> Encoder {
        self.reply(Status::DeniedGracePeriod)
    }

    fn reply(&self, status: Status) -> Encoder {
        encode(&Reply { cookie: self.cookie.clone(), status })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.locks().waiting.remove(&self.id);
    }
}
