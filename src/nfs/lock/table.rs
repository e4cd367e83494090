//! Who has which bytes of which file locked.
//!
//! A pure data structure: no clock, no I/O, nobody waits here. Locks are those of POSIX: an
//! owner's own locks never stand in its way; a new one replaces the old ones where they overlap,
//! and unlocking a part leaves the rest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;

use super::range::ByteRange;
use crate::vfs::LockKey;

/// Locks of all clients together.
pub const MAX_LOCKS: usize = 8192;

/// Locks of one client address.
pub const MAX_CLIENT_LOCKS: usize = 4096;

/// A machine that locks: its address, and its name for itself (several may share an address).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Client {
    /// The address that its calls come from.
    pub address: IpAddr,
    /// Its name for itself.
    pub name: Bytes,
    /// Whether it calls from privileged ports, as its kernel does: any program of the machine may
    /// call itself the same, but has no such port, and is another client.
    pub has_privileged_port: bool,
}

/// Who has a lock, or wants one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The machine.
    pub client: Client,
    /// Which process there.
    pub svid: i32,
    /// Who there, opaque.
    pub handle: Bytes,
}

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// By whom.
    pub owner: Arc<Owner>,
    /// Which bytes.
    pub range: ByteRange,
    /// Whether nobody else may have a lock there.
    pub exclusive: bool,
}

/// Why there is no lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody else's lock is in the way.
    Conflict(Held),
    /// [`MAX_LOCKS`] or [`MAX_CLIENT_LOCKS`] would be exceeded; nothing has changed.
    Full,
}

/// What is known of a client that has locks.
#[derive(Debug)]
struct Known {
    /// How many.
    locks: usize,
    /// Changes when the client restarts; none for one that is not monitored.
    state: Option<i32>,
}

/// All locks.
#[derive(Debug, Default)]
pub struct LockTable {
    /// Of files that have any.
    files: HashMap<LockKey, Vec<Held>>,
    /// Clients that have any.
    clients: HashMap<Client, Known>,
    /// Locks of each address that has any.
    addresses: HashMap<IpAddr, usize>,
    /// The number of locks.
    len: usize,
    /// How often locks were given up, or replaced by others.
    releases: u64,
}

impl LockTable {
    /// The number of locks; adjacent ones of one owner and kind count as one.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nobody has a lock.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Changes when somebody gave up a lock, so that others may have theirs.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// The lock of somebody else that is in the way of this one.
    pub fn conflict(
        &self,
        file: LockKey,
        owner: &Owner,
        range: ByteRange,
        exclusive: bool,
    ) -> Option<&Held> {
        self.files.get(&file)?.iter().find(|held| {
            *held.owner != *owner && (exclusive || held.exclusive) && held.range.overlaps(range)
        })
    }

    /// Locks `range`, in place of what `owner` has locked there.
    pub fn lock(
        &mut self,
        file: LockKey,
        owner: &Arc<Owner>,
        range: ByteRange,
        exclusive: bool,
    ) -> Result<(), Refusal> {
        if let Some(held) = self.conflict(file, owner, range, exclusive) {
            return Err(Refusal::Conflict(held.clone()));
        }
        self.replace(file, owner, range, Some(exclusive))
    }

    /// Gives up what `owner` has locked in `range`. This too can be [`Refusal::Full`], where it
    /// makes two locks of one.
    pub fn unlock(
        &mut self,
        file: LockKey,
        owner: &Arc<Owner>,
        range: ByteRange,
    ) -> Result<(), Refusal> {
        self.replace(file, owner, range, None)
    }

    /// Whether `client` had another state when it locked: then it has restarted since.
    pub fn has_restarted(&self, client: &Client, state: i32) -> bool {
        let known = self.clients.get(client).and_then(|known| known.state);
        known.is_some_and(|known| known != state)
    }

    /// Remembers the state of a client that has locks.
    pub fn set_state(&mut self, client: &Client, state: i32) {
        if let Some(known) = self.clients.get_mut(client) {
            known.state = Some(state);
        }
    }

    /// Gives up all locks of `client`.
    pub fn free(&mut self, client: &Client) {
        let Some(known) = self.clients.remove(client) else { return };
        self.len -= known.locks;
        self.releases += 1;
        self.count_address(client.address, known.locks, 0);
        self.files.retain(|_, locks| {
            locks.retain(|held| held.owner.client != *client);
            !locks.is_empty()
        });
    }

    /// Makes `range` of `owner` exclusive, shared, or (`None`) unlocked.
    fn replace(
        &mut self,
        file: LockKey,
        owner: &Arc<Owner>,
        range: ByteRange,
        kind: Option<bool>,
    ) -> Result<(), Refusal> {
        let held = self.files.get(&file).map(Vec::as_slice).unwrap_or_default();
        let own: Vec<&Held> = held.iter().filter(|held| *held.owner == **owner).collect();
        let before = own.len();
        let after = replaced(&own, owner, range, kind);
        if after.len() > before && !self.has_room(&owner.client, after.len() - before) {
            return Err(Refusal::Full);
        }
        self.count(&owner.client, before, after.len());
        self.releases += u64::from(before > 0);
        let locks = self.files.entry(file).or_default();
        locks.retain(|held| *held.owner != **owner);
        locks.extend(after);
        if locks.is_empty() {
            self.files.remove(&file);
        }
        Ok(())
    }

    fn has_room(&self, client: &Client, more: usize) -> bool {
        let here = self.addresses.get(&client.address).copied().unwrap_or_default();
        self.len + more <= MAX_LOCKS && here + more <= MAX_CLIENT_LOCKS
    }

    fn count(&mut self, client: &Client, before: usize, after: usize) {
        self.len = self.len - before + after;
        self.count_address(client.address, before, after);
        let had = self.clients.get(client).map_or(0, |known| known.locks);
        let has = had - before + after;
        if has == 0 {
            self.clients.remove(client);
        } else if let Some(known) = self.clients.get_mut(client) {
            known.locks = has;
        } else {
            self.clients.insert(client.clone(), Known { locks: has, state: None });
        }
    }

    fn count_address(&mut self, address: IpAddr, before: usize, after: usize) {
        let locks = self.addresses.entry(address).or_default();
        *locks = *locks - before + after;
        if *locks == 0 {
            self.addresses.remove(&address);
        }
    }
}

/// One owner's locks after `range` got this `kind`, in order, neighbours of one kind as one.
fn replaced(own: &[&Held], owner: &Arc<Owner>, range: ByteRange, kind: Option<bool>) -> Vec<Held> {
    let keep = |range, exclusive| Held { owner: Arc::clone(owner), range, exclusive };
    let mut pieces: Vec<Held> = own
        .iter()
        .flat_map(|held| {
            let left = held.range.without(range).into_iter().flatten();
            left.map(|range| keep(range, held.exclusive))
        })
        .chain(kind.map(|exclusive| keep(range, exclusive)))
        .collect();
    pieces.sort_unstable_by_key(|held| held.range.first);
    let mut merged: Vec<Held> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if let Some(last) = merged.last_mut()
            && last.exclusive == piece.exclusive
            && let Some(joined) = last.range.joined(piece.range)
        {
            last.range = joined;
        } else {
            merged.push(piece);
        }
    }
    merged
}
