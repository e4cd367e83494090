//! The entries of a directory at one moment, ordered by cookie.
//!
//! Each change of the directory is applied to the cached snapshot. A directory that is listed while
//! it changes is therefore not collected again for each listing.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::delta::Ino;
use crate::vfs::{Cookie, FileId, Name, Time};

use super::ordered::Ordered;

/// Lowest cookie of a name; lower ones are `.`, `..` and, in an export, mount points.
pub const FIRST_NAME_COOKIE: u64 = 1 << 8;

/// Number of cookies for names with the same 55-bit hash.
const COOKIE_STEP: u64 = 1 << 8;

/// Changes whenever the directory's entries change: the ctime in the delta, and number, mtime and
/// ctime of the base directory that shows through. The number that the export shows is not enough:
/// the host may reuse it for another directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirState {
    pub delta: Option<Time>,
    pub base: Option<(FileId, Time, Time)>,
}

impl DirState {
    /// Whether `ctime` is the directory's ctime: in the delta, or in the base before copy-up.
    fn is_at(&self, ctime: Time) -> bool {
        match (self.delta, self.base) {
            (Some(delta), _) => delta == ctime,
            (None, base) => base.is_some_and(|(_, _, base)| base == ctime),
        }
    }
}

/// A change of one directory's entries by one operation.
#[derive(Debug, Clone)]
pub(super) struct DirChange {
    /// The directory's ctime before.
    pub before: Time,
    /// The directory's ctime after.
    pub after: Time,
    /// The changed names, in order.
    pub names: Vec<Renamed>,
}

/// A name and the delta entry that it has now; `None` if the name was removed.
pub(super) type Renamed = (Name, Option<(FileId, Ino)>);

/// The layer in which an entry's object is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntrySource {
    /// The base directory that shows through.
    Base,
    /// This inode of the delta.
    Delta(Ino),
    /// A lookup by name is needed.
    Unknown,
}

/// A name with its file number and source.
#[derive(Debug, Clone)]
pub(super) struct SnapshotEntry {
    pub name: Name,
    pub fileid: FileId,
    pub source: EntrySource,
}

/// The entries of a directory, sorted by cookie.
#[derive(Debug, Clone)]
pub(super) struct DirSnapshot {
    state: DirState,
    /// Key of the cookies' hash.
    key: u64,
    entries: Ordered,
    /// Whether the sources match the delta's rows, as of this directory state and the current
    /// version of the caches.
    pub is_settled: bool,
    /// Whether any later change of the base directory would show in its times.
    pub is_certain: bool,
}

impl DirSnapshot {
    /// Sorts the entries of a directory. Equal hashes get consecutive cookies.
    pub fn new(state: DirState, key: u64, entries: Vec<SnapshotEntry>) -> Self {
        let none = Ordered::default();
        let mut snapshot = Self { state, key, entries: none, is_settled: true, is_certain: true };
        let mut entries: Vec<_> =
            entries.into_iter().map(|entry| (snapshot.hash(&entry.name), entry)).collect();
        entries.sort_unstable_by(|(a, x), (b, y)| (a, &x.name).cmp(&(b, &y.name)));
        let mut last = Cookie(0);
        for (at, _) in &mut entries {
            *at = (*at).max(Cookie(last.0 + 1));
            last = *at;
        }
        snapshot.entries = Ordered::of(entries);
        snapshot
    }

    /// The directory state that the entries belong to.
    pub fn state(&self) -> DirState {
        self.state
    }

    /// Memory size in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.bytes()
    }

    /// The entries after a cookie, in order.
    pub fn after(&self, cookie: Cookie) -> impl Iterator<Item = (Cookie, &SnapshotEntry)> {
        self.entries.after(cookie)
    }

    /// Adds an entry whose name is not present.
    fn insert(&mut self, entry: SnapshotEntry) {
        let mut at = self.hash(&entry.name);
        while self.entries.get(at).is_some() {
            at.0 += 1;
        }
        self.entries.insert(at, entry);
    }

    /// Whether the source of `name` is known.
    pub fn knows(&self, name: &Name) -> bool {
        let found = self.find(name).and_then(|at| self.entries.get(at));
        found.is_some_and(|entry| entry.source != EntrySource::Unknown)
    }

    /// Marks the source of `name` as unknown.
    pub fn doubt(&mut self, name: &Name) {
        if let Some(entry) = self.find(name).and_then(|at| self.entries.get_mut(at)) {
            entry.source = EntrySource::Unknown;
        }
    }

    /// Whether this is the state right before the change.
    pub fn precedes(&self, change: &DirChange) -> bool {
        self.state.is_at(change.before)
    }

    /// Applies a change that this snapshot precedes.
    pub fn apply(&mut self, change: &DirChange) {
        for (name, leads_to) in &change.names {
            if let Some(at) = self.find(name) {
                self.entries.remove(at);
            }
            if let Some((fileid, ino)) = *leads_to {
                self.insert(SnapshotEntry {
                    name: name.clone(),
                    fileid,
                    source: EntrySource::Delta(ino),
                });
            }
        }
        self.state.delta = Some(change.after);
    }

    fn find(&self, name: &Name) -> Option<Cookie> {
        let mut at = self.hash(name);
        while self.entries.get(at)?.name != *name {
            at.0 += 1;
        }
        Some(at)
    }

    /// The hash of a name as a cookie, before collisions are resolved.
    fn hash(&self, name: &Name) -> Cookie {
        let mut hasher = SipHasher13::new_with_keys(self.key, 0);
        hasher.write(name.as_bytes());
        Cookie(((hasher.finish() >> 9) * COOKIE_STEP).max(FIRST_NAME_COOKIE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u32) -> Time {
        Time { secs: 1, nanos }
    }

    fn name(name: &str) -> Name {
        Name::new(name.as_bytes()).unwrap()
    }

    fn listed(snapshot: &DirSnapshot) -> Vec<(Name, u64)> {
        let mut all: Vec<_> =
            snapshot.after(Cookie(0)).map(|(_, e)| (e.name.clone(), e.fileid.0)).collect();
        all.sort();
        all
    }

    #[test]
    fn a_change_moves_the_snapshot_of_the_moment_before_it() {
        let entry = |text, id| SnapshotEntry {
            name: name(text),
            fileid: FileId(id),
            source: EntrySource::Base,
        };
        let entries = vec![entry("a", 10), entry("b", 11)];
        let mut snapshot =
            DirSnapshot::new(DirState { delta: Some(at(1)), base: None }, 7, entries);
        let names = vec![(name("a"), None), (name("b"), Some((FileId(12), Ino(12))))];
        let change = DirChange { before: at(1), after: at(2), names };
        assert!(snapshot.precedes(&change));
        snapshot.apply(&change);
        assert_eq!(listed(&snapshot), [(name("b"), 12)]);
        assert_eq!(snapshot.state(), DirState { delta: Some(at(2)), base: None });
        assert!(!snapshot.precedes(&change), "it has moved on since");
        assert_eq!(listed(&snapshot).len(), 1);
        assert!(snapshot.knows(&name("b")) && !snapshot.knows(&name("a")));
        snapshot.doubt(&name("b"));
        assert!(!snapshot.knows(&name("b")));
    }

    #[test]
    fn the_first_change_of_a_base_directory_follows_its_copy_up() {
        let base = Some((FileId(4), at(5), at(6)));
        let mut snapshot = DirSnapshot::new(DirState { delta: None, base }, 7, Vec::new());
        let names = vec![(name("new"), Some((FileId(3), Ino(3))))];
        let change = DirChange { before: at(6), after: at(9), names };
        assert!(snapshot.precedes(&change));
        snapshot.apply(&change);
        assert_eq!(snapshot.state(), DirState { delta: Some(at(9)), base });
    }
}
