//! A sorted map from cookies to entries, in pieces that clones share.
//!
//! A change copies one piece, not the map. A listing that is read while its directory changes
//! therefore stays cheap.

use std::sync::Arc;

use crate::vfs::Cookie;

use super::snapshot::SnapshotEntry;

/// Number of entries in a piece; a piece is split at twice this number.
const PIECE_ENTRIES: usize = 256;

type EntryPiece = Vec<(Cookie, SnapshotEntry)>;

/// Entries sorted by cookie.
#[derive(Debug, Clone, Default)]
pub(super) struct Ordered {
    /// Invariant: no piece is empty, and cookies ascend across pieces.
    pieces: Vec<Arc<EntryPiece>>,
    len: usize,
    name_bytes: usize,
}

impl Ordered {
    /// Takes entries that are sorted by cookie, without duplicates.
    pub fn of(entries: Vec<(Cookie, SnapshotEntry)>) -> Self {
        let len = entries.len();
        let name_bytes = entries.iter().map(|(_, entry)| entry.name.as_bytes().len()).sum();
        let mut pieces = Vec::with_capacity(len.div_ceil(PIECE_ENTRIES));
        let mut entries = entries.into_iter();
        loop {
            let piece: EntryPiece = entries.by_ref().take(PIECE_ENTRIES).collect();
            if piece.is_empty() {
                return Self { pieces, len, name_bytes };
            }
            pieces.push(Arc::new(piece));
        }
    }

    /// Memory size in bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<(Cookie, SnapshotEntry)>() + self.name_bytes
    }

    /// Index of the first piece that may contain cookie `at` or a later one.
    fn piece_of(&self, at: Cookie) -> usize {
        self.pieces.partition_point(|piece| piece.last().is_none_or(|(last, _)| *last < at))
    }

    /// The entry at a cookie.
    pub fn get(&self, at: Cookie) -> Option<&SnapshotEntry> {
        let piece = self.pieces.get(self.piece_of(at))?;
        let found = piece.binary_search_by_key(&at, |(cookie, _)| *cookie).ok()?;
        Some(&piece[found].1)
    }

    /// The entry at a cookie, to modify it; its name must not change.
    pub fn get_mut(&mut self, at: Cookie) -> Option<&mut SnapshotEntry> {
        let number = self.piece_of(at);
        let piece = self.pieces.get_mut(number)?;
        let found = piece.binary_search_by_key(&at, |(cookie, _)| *cookie).ok()?;
        Some(&mut Arc::make_mut(piece)[found].1)
    }

    /// The entries after a cookie, in order.
    pub fn after(&self, at: Cookie) -> impl Iterator<Item = (Cookie, &SnapshotEntry)> {
        let pieces = self.pieces.iter().skip(self.piece_of(at));
        let entries = pieces.flat_map(|piece| piece.iter().map(|(at, entry)| (*at, entry)));
        entries.skip_while(move |(cookie, _)| *cookie <= at)
    }

    /// Adds an entry; the cookie must be free.
    pub fn insert(&mut self, at: Cookie, entry: SnapshotEntry) {
        self.len += 1;
        self.name_bytes += entry.name.as_bytes().len();
        let number = self.piece_of(at).min(self.pieces.len().saturating_sub(1));
        let Some(piece) = self.pieces.get_mut(number) else {
            self.pieces.push(Arc::new(vec![(at, entry)]));
            return;
        };
        let piece = Arc::make_mut(piece);
        let place = piece.partition_point(|(cookie, _)| *cookie < at);
        piece.insert(place, (at, entry));
        if piece.len() >= 2 * PIECE_ENTRIES {
            let rest = piece.split_off(PIECE_ENTRIES);
            self.pieces.insert(number + 1, Arc::new(rest));
        }
    }

    /// Removes the entry at a cookie, if there is one.
    pub fn remove(&mut self, at: Cookie) {
        let number = self.piece_of(at);
        let Some(piece) = self.pieces.get_mut(number) else { return };
        let Ok(found) = piece.binary_search_by_key(&at, |(cookie, _)| *cookie) else { return };
        let (_, gone) = Arc::make_mut(piece).remove(found);
        if piece.is_empty() {
            self.pieces.remove(number);
        }
        self.len -= 1;
        self.name_bytes -= gone.name.as_bytes().len();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::snapshot::EntrySource;
    use super::*;
    use crate::vfs::{FileId, Name};

    fn entry(number: u64) -> SnapshotEntry {
        let name = Name::new(number.to_string().as_bytes()).unwrap();
        SnapshotEntry { name, fileid: FileId(number), source: EntrySource::Base }
    }

    fn all(ordered: &Ordered, from: u64) -> Vec<(u64, u64)> {
        ordered.after(Cookie(from)).map(|(at, entry)| (at.0, entry.fileid.0)).collect()
    }

    #[test]
    fn it_is_a_map_that_shares_its_pieces_with_its_copies() {
        let sorted: Vec<_> = (0..2000).map(|n| (Cookie(n * 10), entry(n))).collect();
        let mut ordered = Ordered::of(sorted);
        let mut map: BTreeMap<u64, u64> = (0..2000).map(|n| (n * 10, n)).collect();
        let mut seed = 7u64;
        for _ in 0..6000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) % 21_000;
            if map.remove(&at).is_some() {
                ordered.remove(Cookie(at));
            } else {
                ordered.insert(Cookie(at), entry(at));
                map.insert(at, at);
            }
            assert_eq!(ordered.get(Cookie(at)).is_some(), map.contains_key(&at));
        }
        for from in [0, 1, 10_000, 30_000] {
            let expected: Vec<_> = map.range(from + 1..).map(|(at, id)| (*at, *id)).collect();
            assert_eq!(all(&ordered, from), expected);
        }
        assert_eq!(ordered.len, map.len());
        let names: usize = map.values().map(|id| id.to_string().len()).sum();
        assert_eq!(ordered.bytes(), map.len() * size_of::<(Cookie, SnapshotEntry)>() + names);
        let copy = ordered.clone();
        ordered.insert(Cookie(100_000), entry(1));
        let shared = copy.pieces.iter().filter(|piece| Arc::strong_count(piece) == 2).count();
        assert_eq!(shared, copy.pieces.len() - 1);
        assert!(copy.get(Cookie(100_000)).is_none());
    }

    #[test]
    fn an_empty_one_takes_its_first_entry() {
        let mut ordered = Ordered::default();
        ordered.remove(Cookie(1));
        ordered.insert(Cookie(5), entry(5));
        ordered.insert(Cookie(3), entry(3));
        assert_eq!(all(&ordered, 0), [(3, 3), (5, 5)]);
        ordered.get_mut(Cookie(5)).unwrap().source = EntrySource::Unknown;
        assert_eq!(ordered.get(Cookie(5)).unwrap().source, EntrySource::Unknown);
        ordered.remove(Cookie(3));
        ordered.remove(Cookie(5));
        assert_eq!((all(&ordered, 0), ordered.len, ordered.bytes()), (vec![], 0, 0));
    }
}
