//! The table of locks against a model that has one entry for each byte.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use acetate::nfs::lock::{
    ByteRange, Client, LockTable, MAX_CLIENT_LOCKS, MAX_LOCKS, Owner, Refusal,
};
use acetate::vfs::{FileId, LockKey};
use bytes::Bytes;
use proptest::prelude::*;

const FILE: LockKey = LockKey { fsid: 1, fileid: FileId(7) };

fn file_key(file: u64) -> LockKey {
    LockKey { fsid: 1, fileid: FileId(file) }
}
/// Bytes that the model looks at, and one that stands for all behind them.
const BYTES: u64 = 40;
/// Offsets and lengths that are tried: both together stay below [`BYTES`].
const OFFSETS: u64 = 24;

fn owner_at(address: &str, name: &'static str, svid: i32) -> Arc<Owner> {
    let address: IpAddr = address.parse().unwrap();
    let name = Bytes::from_static(name.as_bytes());
    let client = Client { address, name, has_privileged_port: true };
    Arc::new(Owner { client, svid, handle: Bytes::from_static(b"handle") })
}

fn owner(svid: i32) -> Arc<Owner> {
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
                    let locked = table.lock(file_key(file), owner, range, exclusive);
                    prop_assert_eq!(locked, in_the_way.map(Refusal::Conflict).map_or(Ok(()), Err));
                    if free {
                        model.set(file, svid, range, Some(exclusive));
                    }
                }
                Op::Unlock => {
                    prop_assert_eq!(table.unlock(file_key(file), owner, range), Ok(()));
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
    table.lock(FILE, &first, range(0, 0), true).unwrap();
    let mut handle = Owner::clone(&first);
    handle.handle = Bytes::from_static(b"other");
    let others = [
        owner(2),
        owner_at("192.0.2.2", "client", 1),
        owner_at("192.0.2.1", "other", 1),
        Arc::new(handle),
    ];
    for other in others {
        let refused = table.lock(FILE, &other, range(9, 1), false);
        assert!(matches!(refused, Err(Refusal::Conflict(_))), "{other:?}");
    }
    table.lock(FILE, &owner(1), range(9, 1), true).unwrap();
}

#[test]
fn a_client_has_so_many_locks_and_not_more() {
    let mut table = LockTable::default();
    let everything = range(0, 0);
    table.lock(FILE, &owner(1), everything, true).unwrap();
    for hole in 1..MAX_CLIENT_LOCKS as u64 {
        table.unlock(FILE, &owner(1), range(hole * 2, 1)).unwrap();
    }
    assert_eq!(table.len(), MAX_CLIENT_LOCKS);
    let hole = range(1_000_000, 1);
    assert_eq!(table.unlock(FILE, &owner(1), hole), Err(Refusal::Full));
    let other = owner_at("192.0.2.2", "client", 1);
    assert!(table.conflict(FILE, &other, hole, false).is_some(), "nothing has changed");
    let neighbour = owner_at("192.0.2.1", "neighbour", 1);
    assert_eq!(table.lock(file_key(8), &neighbour, range(0, 1), true), Err(Refusal::Full));
    table.lock(file_key(8), &other, range(0, 1), true).unwrap();
    table.unlock(FILE, &owner(1), everything).unwrap();
    assert_eq!(table.len(), 1);
    table.lock(file_key(9), &neighbour, range(0, 1), true).unwrap();
}

#[test]
fn all_clients_together_have_so_many_locks_and_not_more() {
    let mut table = LockTable::default();
    for index in 0..MAX_LOCKS {
        let client = owner_at(["192.0.2.1", "192.0.2.2", "192.0.2.3"][index % 3], "client", 1);
        table.lock(file_key(index as u64), &client, range(0, 1), true).unwrap();
    }
    let last = owner_at("192.0.2.4", "client", 1);
    assert_eq!(table.lock(FILE, &last, range(5, 1), true), Err(Refusal::Full));
    table.free(&owner(1).client);
    table.lock(FILE, &last, range(5, 1), true).unwrap();
}

#[test]
fn a_new_state_is_a_restart() {
    let mut table = LockTable::default();
    let client = &owner(1).client;
    assert!(!table.has_restarted(client, 3), "nothing is known of it");
    table.lock(FILE, &owner(1), range(0, 1), true).unwrap();
    assert!(!table.has_restarted(client, 3), "it has not said its state");
    table.set_state(client, 3);
    assert!(!table.has_restarted(client, 3));
    assert!(table.has_restarted(client, 5));
    table.free(client);
    assert!(table.is_empty() && !table.has_restarted(client, 5));
}
