//! The table of byte-range locks.
//!
//! A pure data structure without a clock or I/O; nothing waits here. Locks follow POSIX: an owner's
//! own locks never conflict. A new lock replaces the owner's old ones where they overlap. Unlocking
//! a part leaves the rest locked.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;

use super::range::ByteRange;
use crate::vfs::LockKey;

/// Locks of all clients together. Each export may have at most its [share](EXPORT_SHARE), and each
/// client address at most its own.
pub const MAX_LOCKS: usize = 32_768;

/// Divisor of an export's share: its locks may be at most a quarter of those that others leave. The
/// first export has at most 8,192; the tenth still has more than a hundred if all before it use up
/// their shares.
pub const EXPORT_SHARE: usize = 4;

/// Divisor of a client address's share: its locks may be at most half of those that others leave to
/// the export.
pub const CLIENT_SHARE: usize = 2;

/// A client machine: its address and its name for itself (several may share an address).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LockClient {
    /// The source address of its calls.
    pub address: IpAddr,
    /// The name in its calls.
    pub name: Bytes,
    /// Whether it calls from privileged ports, as a kernel does. A user program on the machine can
    /// use any name but no such port, so it counts as another client.
    pub has_privileged_port: bool,
}

/// The owner of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LockOwner {
    /// The client machine.
    pub client: LockClient,
    /// The process on the client.
    pub svid: i32,
    /// The owner on the client, opaque.
    pub handle: Bytes,
}

/// A lock that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// The owner.
    pub owner: Arc<LockOwner>,
    /// The locked bytes.
    pub range: ByteRange,
    /// Whether the lock excludes all locks of other owners.
    pub exclusive: bool,
    /// The export whose share the lock counts against.
    pub export: NonZeroU64,
}

/// Why a lock is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockRefusal {
    /// Another owner's lock conflicts.
    Conflict(HeldLock),
    /// The lock exceeds the share of the export or of the client's address; nothing has changed.
    Full,
}

/// The state of a client that has locks.
#[derive(Debug)]
struct LockClientState {
    /// The number of its locks.
    locks: usize,
    /// Changes when the client restarts; `None` for an unmonitored client.
    state: Option<i32>,
}

/// Lock counts of an export.
#[derive(Debug, Default)]
struct ExportLocks {
    len: usize,
    addresses: HashMap<IpAddr, usize>,
}

/// All locks.
#[derive(Debug, Default)]
pub struct LockTable {
    /// The locks of each file that has any.
    files: HashMap<LockKey, Vec<HeldLock>>,
    /// The clients that have locks.
    clients: HashMap<LockClient, LockClientState>,
    /// Lock counts of each export that has any, and there of each address.
    exports: HashMap<NonZeroU64, ExportLocks>,
    /// The total number of locks.
    len: usize,
    /// How often locks were released or replaced.
    releases: u64,
}

impl LockTable {
    /// The number of locks; adjacent ones of one owner, kind and export count as one.
    #[cfg(feature = "internals")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no locks.
    #[cfg(feature = "internals")]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Changes when a lock is released, so that a waiting LOCK may succeed.
    pub fn releases(&self) -> u64 {
        self.releases
    }

    /// The first lock of another owner that conflicts.
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

    /// Locks `range` of a file in `export`, and replaces locks of `owner` there.
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

    /// Releases the locks of `owner` in `range`. Fails with [`LockRefusal::Full`] if it would split
    /// a lock in two beyond the share.
    pub fn unlock(
        &mut self,
        export: NonZeroU64,
        file: LockKey,
        owner: &Arc<LockOwner>,
        range: ByteRange,
    ) -> Result<(), LockRefusal> {
        self.replace(export, file, owner, range, None)
    }

    /// Whether `client` locked with another state, so that it has restarted since.
    pub fn has_restarted(&self, client: &LockClient, state: i32) -> bool {
        let known = self.clients.get(client).and_then(|known| known.state);
        known.is_some_and(|known| known != state)
    }

    /// Stores the state of a client that has locks.
    pub fn set_state(&mut self, client: &LockClient, state: i32) {
        if let Some(known) = self.clients.get_mut(client) {
            known.state = Some(state);
        }
    }

    /// Releases all locks of `client`.
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
            // A split lock counts against the export where it was taken.
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

    /// Whether `client` may have `more` further locks in `export`.
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

/// One owner's locks after `range` is set to `kind`, in order. Adjacent locks of one kind and
/// export are merged.
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
