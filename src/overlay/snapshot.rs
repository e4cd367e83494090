//! A directory's entries at one moment, in the order of their cookies.
//!
//! The snapshot that readers share is moved on by each change of the directory, entry by entry,
//! so that a directory that is listed and changed at the same time is not collected anew for
//! each listing.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::delta::Ino;
use crate::vfs::{Cookie, FileId, Name, Time};

use super::ordered::Ordered;

/// The least cookie of a name; smaller ones are those of `.` and `..`, and free.
pub const FIRST_NAME_COOKIE: u64 = 1 << 8;

/// Cookies that names with the same 55-bit hash share between them.
const COOKIE_STEP: u64 = 1 << 8;

/// What tells whether a directory's entries changed: its ctime in the delta (which every change
/// moves), and number, mtime and ctime of the base directory that shows through. (The number that
/// is shown does not tell: the host may have given it to another directory too.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirState {
    pub delta: Option<Time>,
    pub base: Option<(FileId, Time, Time)>,
}

impl DirState {
    /// Whether the directory's ctime is `ctime`: in the delta, or in the base before copy-up.
    fn is_at(&self, ctime: Time) -> bool {
        match (self.delta, self.base) {
            (Some(delta), _) => delta == ctime,
            (None, base) => base.is_some_and(|(_, _, base)| base == ctime),
        }
    }
}

/// A change of a directory's entries by one operation.
#[derive(Debug, Clone)]
pub(super) struct DirChange {
    /// The directory's ctime before.
    pub before: Time,
    /// The directory's ctime after.
    pub after: Time,
    /// Names in order of their change: the delta entry that each is now, or that it is gone.
    pub names: Vec<Renamed>,
}

/// A name, and the delta entry that it is now; `None` if it is gone.
pub(super) type Renamed = (Name, Option<(FileId, Ino)>);

/// Where an entry's object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntrySource {
    /// In the base, in the directory that shows through.
    Base,
    /// It is this inode of the delta.
    Delta(Ino),
    /// It has to be looked up.
    Unknown,
}

/// An entry.
#[derive(Debug, Clone)]
pub(super) struct SnapshotEntry {
    pub name: Name,
    pub fileid: FileId,
    pub source: EntrySource,
}

/// The entries of a directory.
#[derive(Debug, Clone)]
pub(super) struct DirSnapshot {
    state: DirState,
    /// Keys the cookies.
    key: u64,
    entries: Ordered,
    /// Whether the entries' sources are what the delta's rows say, as of the directory's state
    /// and the version that whoever asks the caches is at.
    pub is_settled: bool,
    /// Whether the base's directory would show another time if it had changed since.
    pub is_certain: bool,
}

impl DirSnapshot {
    /// A directory with these entries.
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

    /// The state of the directory that the entries belong to.
    pub fn state(&self) -> DirState {
        self.state
    }

    /// What it takes in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.bytes()
    }

    /// The entries after a cookie, in order.
    pub fn after(&self, cookie: Cookie) -> impl Iterator<Item = (Cookie, &SnapshotEntry)> {
        self.entries.after(cookie)
    }

    /// Adds an entry that is not there yet.
    fn insert(&mut self, entry: SnapshotEntry) {
        let mut at = self.hash(&entry.name);
        while self.entries.get(at).is_some() {
            at.0 += 1;
        }
        self.entries.insert(at, entry);
    }

    /// Whether it is known where the object of `name` is.
    pub fn knows(&self, name: &Name) -> bool {
        let found = self.find(name).and_then(|at| self.entries.get(at));
        found.is_some_and(|entry| entry.source != EntrySource::Unknown)
    }

    /// Notes that the object of `name` may be elsewhere now.
    pub fn doubt(&mut self, name: &Name) {
        if let Some(entry) = self.find(name).and_then(|at| self.entries.get_mut(at)) {
            entry.source = EntrySource::Unknown;
        }
    }

    /// Whether it is of the moment before a change.
    pub fn precedes(&self, change: &DirChange) -> bool {
        self.state.is_at(change.before)
    }

    /// Moves the snapshot on by a change that it precedes.
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

    /// The cookie of a name, before names with the same hash are told apart.
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
