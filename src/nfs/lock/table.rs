//! Who has which bytes of which file locked.
//!
//! A pure data structure: no clock, no I/O, nobody waits here. Locks are those of POSIX: an
//! owner's own locks never stand in its way; a new one replaces the old ones where they overlap,
//! and unlocking a part leaves the rest.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;

use super::range::ByteRange;
use crate::vfs::LockKey;

/// Locks of all clients together. No export has more than its [share](EXPORT_SHARE), and no client
/// address more than its own.
pub const MAX_LOCKS: usize = 32_768;

/// The part of what others leave that the locks of an export may be: a quarter, so that the first
/// one has 8,192 at most, and the tenth still more than a hundred where all before it take theirs.
pub const EXPORT_SHARE: usize = 4;

/// The part of what others leave to an export that the locks of a client address may be: a half.
pub const CLIENT_SHARE: usize = 2;

/// A machine that locks: its address, and its name for itself (several may share an address).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LockClient {
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
pub struct LockOwner {
    /// The machine.
    pub client: LockClient,
    /// Which process there.
    pub svid: i32,
    /// Who there, opaque.
    pub handle: Bytes,
}

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// By whom.
    pub owner: Arc<LockOwner>,
    /// Which bytes.
    pub range: ByteRange,
    /// Whether nobody else may have a lock there.
    pub exclusive: bool,
    /// The export whose share of the locks it counts in.
    pub export: NonZeroU64,
}

/// Why there is no lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockRefusal {
    /// Somebody else's lock is in the way.
    Conflict(HeldLock),
    /// The share of the export or of the client's address would be exceeded; nothing has changed.
    Full,
}

/// What is known of a client that has locks.
#[derive(Debug)]
struct LockClientState {
    /// How many.
    locks: usize,
    /// Changes when the client restarts; none for one that is not monitored.
    state: Option<i32>,
}

/// The locks of an export.
#[derive(Debug, Default)]
struct OfExport {
    len: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// All locks.
#[derive(Debug, Default)]
pub struct LockTable {
    /// Of files that have any.
    files: HashMap<LockKey, Vec<HeldLock>>,
    /// Clients that have any.
    clients: HashMap<LockClient, LockClientState>,
    /// Locks of each export that has any, and in it of each address.
    exports: HashMap<NonZeroU64, OfExport>,
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
        owner: &LockOwner,
        range: ByteRange,
        exclusive: bool,
    ) -> Option<&HeldLock> {
        self.files.get(&file)?.iter().find(|held| {
            *held.owner != *owner && (exclusive || held.exclusive) && held.range.overlaps(range)
        })
    }

    /// Locks `range` of a file in `export`, in place of what `owner` has locked there.
    pub fn lock(
        &mut self,
        export: NonZeroU64,
        file: LockKey,
        owner: &Arc<LockOwner>,
        range: ByteRange,
        exclusive: bool,
    ) -> Result<(), LockRefusal> {
        if let Some(held) = self.conflict(file, owner, range, exclusive) {
            return Err(LockRefusal::Conflict(held.clone()));
        }
        self.replace(export, file, owner, range, Some(exclusive))
    }

    /// Gives up what `owner` has locked in `range`. This too can be [`LockRefusal::Full`], where it
    /// makes two locks of one.
    pub fn unlock(
        &mut self,
        export: NonZeroU64,
        file: LockKey,
        owner: &Arc<LockOwner>,
        range: ByteRange,
    ) -> Result<(), LockRefusal> {
        self.replace(export, file, owner, range, None)
    }

    /// Whether `client` had another state when it locked: then it has restarted since.
    pub fn has_restarted(&self, client: &LockClient, state: i32) -> bool {
        let known = self.clients.get(client).and_then(|known| known.state);
        known.is_some_and(|known| known != state)
    }

    /// Remembers the state of a client that has locks.
    pub fn set_state(&mut self, client: &LockClient, state: i32) {
        if let Some(known) = self.clients.get_mut(client) {
            known.state = Some(state);
        }
    }

    /// Gives up all locks of `client`.
    pub fn free(&mut self, client: &LockClient) {
        if self.clients.remove(client).is_none() {
            return;
        }
        self.releases += 1;
        let mut freed = Vec::new();
        self.files.retain(|_, locks| {
            let gone = locks.extract_if(.., |held| held.owner.client == *client);
            freed.extend(gone.map(|held| held.export));
            !locks.is_empty()
        });
        for export in freed {
            self.count_share(export, client.address, 1, 0);
        }
    }

    /// Makes `range` of `owner` exclusive, shared, or (`None`) unlocked.
    fn replace(
        &mut self,
        export: NonZeroU64,
        file: LockKey,
        owner: &Arc<LockOwner>,
        range: ByteRange,
        kind: Option<bool>,
    ) -> Result<(), LockRefusal> {
        let held = self.files.get(&file).map(Vec::as_slice).unwrap_or_default();
        let own: Vec<&HeldLock> = held.iter().filter(|held| *held.owner == **owner).collect();
        let after = replaced(&own, owner, range, kind.map(|exclusive| (exclusive, export)));
        let before: Vec<NonZeroU64> = own.iter().map(|held| held.export).collect();
        if after.len() > before.len() {
            let more = after.len() - before.len();
            // What is cut in two is counted where it was taken.
            let export = before.first().copied().filter(|_| kind.is_none()).unwrap_or(export);
            if !self.has_room(export, &owner.client, more) {
                return Err(LockRefusal::Full);
            }
        }
        self.releases += u64::from(!before.is_empty());
        self.count_client(&owner.client, before.len(), after.len());
        for export in before {
            self.count_share(export, owner.client.address, 1, 0);
        }
        for held in &after {
            self.count_share(held.export, owner.client.address, 0, 1);
        }
        let locks = self.files.entry(file).or_default();
        locks.retain(|held| *held.owner != **owner);
        locks.extend(after);
        if locks.is_empty() {
            self.files.remove(&file);
        }
        Ok(())
    }

    /// Whether `client` may have so many more in `export`.
    fn has_room(&self, export: NonZeroU64, client: &LockClient, more: usize) -> bool {
        let here = self.exports.get(&export);
        let of_export = here.map_or(0, |here| here.len);
        let of_client = here.and_then(|here| here.addresses.get(&client.address)).copied();
        let of_client = of_client.unwrap_or_default();
        let share = (MAX_LOCKS - (self.len - of_export)) / EXPORT_SHARE;
        let left = share.saturating_sub(of_export - of_client);
        of_export + more <= share && of_client + more <= left / CLIENT_SHARE
    }

    fn count_client(&mut self, client: &LockClient, before: usize, after: usize) {
        let had = self.clients.get(client).map_or(0, |known| known.locks);
        let has = had - before + after;
        if has == 0 {
            self.clients.remove(client);
        } else if let Some(known) = self.clients.get_mut(client) {
            known.locks = has;
        } else {
            self.clients.insert(client.clone(), LockClientState { locks: has, state: None });
        }
    }

    fn count_share(&mut self, export: NonZeroU64, address: IpAddr, before: usize, after: usize) {
        self.len = self.len - before + after;
        let here = self.exports.entry(export).or_default();
        here.len = here.len - before + after;
        let locks = here.addresses.entry(address).or_default();
        *locks = *locks - before + after;
        if *locks == 0 {
            here.addresses.remove(&address);
        }
        if here.len == 0 {
            self.exports.remove(&export);
        }
    }
}

/// One owner's locks after `range` got this `kind` in an export, in order, neighbours of one kind
/// and export as one.
fn replaced(
    own: &[&HeldLock],
    owner: &Arc<LockOwner>,
    range: ByteRange,
    kind: Option<(bool, NonZeroU64)>,
) -> Vec<HeldLock> {
    let keep =
        |range, exclusive, export| HeldLock { owner: Arc::clone(owner), range, exclusive, export };
    let mut pieces: Vec<HeldLock> = own
        .iter()
        .flat_map(|held| {
            let left = held.range.without(range).into_iter().flatten();
            left.map(|range| keep(range, held.exclusive, held.export))
        })
        .chain(kind.map(|(exclusive, export)| keep(range, exclusive, export)))
        .collect();
    pieces.sort_unstable_by_key(|held| held.range.first);
    let mut merged: Vec<HeldLock> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if let Some(last) = merged.last_mut()
            && last.exclusive == piece.exclusive
            && last.export == piece.export
            && let Some(joined) = last.range.joined(piece.range)
        {
            last.range = joined;
        } else {
            merged.push(piece);
        }
    }
    merged
}
