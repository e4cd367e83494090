//! The table of locks against a model that has one entry for each byte.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use acetate::nfs::lock::{
    ByteRange, CLIENT_SHARE, EXPORT_SHARE, LockClient, LockOwner, LockRefusal, LockTable, MAX_LOCKS,
};
use acetate::vfs::{FileId, LockKey};
use bytes::Bytes;
use proptest::prelude::*;

const EXPORT: NonZeroU64 = NonZeroU64::MIN;

/// Locks of an export where others have none, and of the first of its clients.
const MAX_EXPORT_LOCKS: usize = MAX_LOCKS / EXPORT_SHARE;
const MAX_CLIENT_LOCKS: usize = MAX_EXPORT_LOCKS / CLIENT_SHARE;

const FILE: LockKey = LockKey { fsid: 1, fileid: FileId(7) };

fn file_key(file: u64) -> LockKey {
    LockKey { fsid: 1, fileid: FileId(file) }
}
/// Bytes that the model looks at, and one that stands for all behind them.
const BYTES: u64 = 40;
/// Offsets and lengths that are tried: both together stay below [`BYTES`].
const OFFSETS: u64 = 24;

fn owner_at(address: &str, name: &'static str, svid: i32) -> Arc<LockOwner> {
    let address: IpAddr = address.parse().unwrap();
    let name = Bytes::from_static(name.as_bytes());
    let client = LockClient { address, name, has_privileged_port: true };
    Arc::new(LockOwner { client, svid, handle: Bytes::from_static(b"handle") })
}

fn owner(svid: i32) -> Arc<LockOwner> {
    owner_at("192.0.2.1", "client", svid)
}

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length).unwrap()
}

/// For each file and byte: who has it, and whether alone.
#[derive(Default)]
struct Model(BTreeMap<(u64, u64), BTreeMap<i32, bool>>);

impl Model {
    fn bytes(range: ByteRange) -> impl Iterator<Item = u64> {
        range.first..=range.last.min(BYTES)
    }

    fn is_free(&self, file: u64, svid: i32, range: ByteRange, exclusive: bool) -> bool {
        Self::bytes(range).all(|byte| {
            let holders = self.0.get(&(file, byte)).into_iter().flatten();
            holders.filter(|(other, _)| **other != svid).all(|(_, theirs)| !exclusive && !theirs)
        })
    }

    fn set(&mut self, file: u64, svid: i32, range: ByteRange, exclusive: Option<bool>) {
        for byte in Self::bytes(range) {
            let holders = self.0.entry((file, byte)).or_default();
            match exclusive {
                Some(exclusive) => holders.insert(svid, exclusive),
                None => holders.remove(&svid),
            };
        }
    }

    /// How many runs of bytes there are that one owner has in one way.
    fn runs(&self) -> usize {
        let starts = |(&(file, byte), holders): (&(u64, u64), &BTreeMap<i32, bool>)| {
            let before = byte.checked_sub(1).and_then(|byte| self.0.get(&(file, byte)));
            let goes_on = |(svid, kind): (&i32, &bool)| {
                before.is_some_and(|before| before.get(svid) == Some(kind))
            };
            holders.iter().filter(|held| !goes_on(*held)).count()
        };
        self.0.iter().map(starts).sum()
    }
}

#[derive(Debug, Clone)]
enum Op {
    Lock { exclusive: bool },
    Unlock,
    Free,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => any::<bool>().prop_map(|exclusive| Op::Lock { exclusive }),
        4 => Just(Op::Unlock),
        1 => Just(Op::Free),
    ]
}

proptest! {
    #[test]
    fn the_table_does_what_a_map_of_bytes_does(
        ops in prop::collection::vec((op(), 0..2_u64, 0..3_i32, 0..OFFSETS, 0..10_u64), 1..60),
    ) {
        let (mut table, mut model) = (LockTable::default(), Model::default());
        // Every process is a client of its own, so that one can be freed alone.
        let owners = ["a", "b", "c"].map(|name| owner_at("192.0.2.1", name, 0));
        for (op, file, svid, offset, length) in ops {
            let (owner, range) = (&owners[svid as usize], range(offset, length));
            match op {
                Op::Lock { exclusive } => {
                    let free = model.is_free(file, svid, range, exclusive);
                    let conflict = table.conflict(file_key(file), owner, range, exclusive);
                    let in_the_way = conflict.cloned();
                    prop_assert_eq!(in_the_way.is_none(), free);
                    let locked = table.lock(EXPORT, file_key(file), owner, range, exclusive);
                    let expected = in_the_way.map(LockRefusal::Conflict).map_or(Ok(()), Err);
                    prop_assert_eq!(locked, expected);
                    if free {
                        model.set(file, svid, range, Some(exclusive));
                    }
                }
                Op::Unlock => {
                    prop_assert_eq!(table.unlock(EXPORT, file_key(file), owner, range), Ok(()));
                    model.set(file, svid, range, None);
                }
                Op::Free => {
                    table.free(&owner.client);
                    for file in 0..2 {
                        model.set(file, svid, ByteRange::new(0, 0).unwrap(), None);
                    }
                }
            }
            prop_assert_eq!(table.len(), model.runs());
            for byte in 0..=BYTES {
                for (svid, owner) in (0..).zip(&owners) {
                    for (file, exclusive) in [(0, false), (0, true), (1, false), (1, true)] {
                        let one = ByteRange::new(byte, 1).unwrap();
                        let conflict = table.conflict(file_key(file), owner, one, exclusive);
                        let free = model.is_free(file, svid, one, exclusive);
                        prop_assert_eq!(conflict.is_none(), free, "byte {} of {}", byte, file);
                    }
                }
            }
        }
    }
}

#[test]
fn owners_differ_in_every_part() {
    let mut table = LockTable::default();
    let first = owner(1);
    table.lock(EXPORT, FILE, &first, range(0, 0), true).unwrap();
    let mut handle = LockOwner::clone(&first);
    handle.handle = Bytes::from_static(b"other");
    let others = [
        owner(2),
        owner_at("192.0.2.2", "client", 1),
        owner_at("192.0.2.1", "other", 1),
        Arc::new(handle),
    ];
    for other in others {
        let refused = table.lock(EXPORT, FILE, &other, range(9, 1), false);
        assert!(matches!(refused, Err(LockRefusal::Conflict(_))), "{other:?}");
    }
    table.lock(EXPORT, FILE, &owner(1), range(9, 1), true).unwrap();
}

#[test]
fn a_client_has_so_many_locks_and_not_more() {
    let mut table = LockTable::default();
    let everything = range(0, 0);
    table.lock(EXPORT, FILE, &owner(1), everything, true).unwrap();
    for hole in 1..MAX_CLIENT_LOCKS as u64 {
        table.unlock(EXPORT, FILE, &owner(1), range(hole * 2, 1)).unwrap();
    }
    assert_eq!(table.len(), MAX_CLIENT_LOCKS);
    let hole = range(1_000_000, 1);
    assert_eq!(table.unlock(EXPORT, FILE, &owner(1), hole), Err(LockRefusal::Full));
    let other = owner_at("192.0.2.2", "client", 1);
    assert!(table.conflict(FILE, &other, hole, false).is_some(), "nothing has changed");
    let neighbour = owner_at("192.0.2.1", "neighbour", 1);
    assert_eq!(
        table.lock(EXPORT, file_key(8), &neighbour, range(0, 1), true),
        Err(LockRefusal::Full)
    );
    table.lock(EXPORT, file_key(8), &other, range(0, 1), true).unwrap();
    table.unlock(EXPORT, FILE, &owner(1), everything).unwrap();
    assert_eq!(table.len(), 1);
    table.lock(EXPORT, file_key(9), &neighbour, range(0, 1), true).unwrap();
}

/// Takes locks in an export, a file for each, until there are no more; returns how many.
fn fill(table: &mut LockTable, export: u64, owner: &Arc<LockOwner>, files: &mut u64) -> usize {
    let export = NonZeroU64::new(export).unwrap();
    let mut taken = 0;
    loop {
        *files += 1;
        match table.lock(export, file_key(*files), owner, range(0, 1), true) {
            Ok(()) => taken += 1,
            Err(refusal) => {
                assert_eq!(refusal, LockRefusal::Full);
                return taken;
            }
        }
    }
}

#[test]
fn an_export_leaves_locks_to_others_however_many_clients_it_has() {
    let (mut table, mut files) = (LockTable::default(), 100);
    let greedy: Vec<_> = (1..200).map(|at| owner_at(&format!("192.0.2.{at}"), "c", 1)).collect();
    let taken: usize = greedy.iter().map(|one| fill(&mut table, 1, one, &mut files)).sum();
    // Halves of what is left end before the last one.
    assert!((MAX_EXPORT_LOCKS - 1..=MAX_EXPORT_LOCKS).contains(&taken), "{taken}");
    // At one of the addresses, in another export.
    let other = fill(&mut table, 2, &greedy[0], &mut files);
    assert_eq!(other, (MAX_LOCKS - taken) / EXPORT_SHARE / CLIENT_SHARE);
}

#[test]
fn a_client_leaves_locks_to_others_of_its_export() {
    let (mut table, mut files) = (LockTable::default(), 100);
    assert_eq!(fill(&mut table, 1, &owner(1), &mut files), MAX_CLIENT_LOCKS);
    let other = owner_at("192.0.2.2", "client", 1);
    assert_eq!(fill(&mut table, 1, &other, &mut files), MAX_CLIENT_LOCKS / CLIENT_SHARE);
}

#[test]
fn ten_greedy_exports_leave_locks_to_the_next() {
    let (mut table, mut files) = (LockTable::default(), 100);
    for export in 1..=10 {
        for at in 1..20 {
            let client = owner_at(&format!("192.0.2.{at}"), "client", 1);
            fill(&mut table, export, &client, &mut files);
        }
    }
    let other = fill(&mut table, 11, &owner(1), &mut files);
    assert!(other > 100, "{other}");
    table.free(&owner(1).client);
    assert!(table.len() <= MAX_LOCKS);
    assert!(fill(&mut table, 12, &owner(1), &mut files) > other, "what is given up is there again");
}

#[test]
fn a_lock_counts_in_the_export_that_it_was_taken_through() {
    let (mut table, mut files) = (LockTable::default(), 100);
    let second = NonZeroU64::new(2).unwrap();
    // The same file by two exports: neighbours, and each counts where it was taken.
    table.lock(EXPORT, FILE, &owner(1), range(10, 10), true).unwrap();
    table.lock(second, FILE, &owner(1), range(0, 10), true).unwrap();
    fill(&mut table, 2, &owner(1), &mut files);
    assert_eq!(table.unlock(EXPORT, FILE, &owner(1), range(5, 1)), Err(LockRefusal::Full));
    table.unlock(EXPORT, FILE, &owner(1), range(0, 10)).unwrap();
    assert_eq!(fill(&mut table, 2, &owner(1), &mut files), 1);
}

#[test]
fn a_new_state_is_a_restart() {
    let mut table = LockTable::default();
    let client = &owner(1).client;
    assert!(!table.has_restarted(client, 3), "nothing is known of it");
    table.lock(EXPORT, FILE, &owner(1), range(0, 1), true).unwrap();
    assert!(!table.has_restarted(client, 3), "it has not said its state");
    table.set_state(client, 3);
    assert!(!table.has_restarted(client, 3));
    assert!(table.has_restarted(client, 5));
    table.free(client);
    assert!(table.is_empty() && !table.has_restarted(client, 5));
}
