//! Caches attributes for directory listings for a short time.
//!
//! A listing with attributes looks at every entry. Clients that list the same directory at the same
//! time, or one client that lists it again, would look at all entries again. So a listing may
//! return attributes that another one has seen, for [`SEEN_FOR`]; no other operation does.
//! Attributes seen by other operations are recorded here too, so that a listing never returns older
//! ones than another reply.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::base::BaseAttr;
use crate::vfs::FileId;

/// How long a listing may return cached attributes: a third of the time that a client trusts
/// attributes (acregmin, 3 s).
const SEEN_FOR: Duration = Duration::from_secs(1);

/// Capacity, about 200 bytes per object: what fits into a hash table of 16,384 slots. Further
/// objects are looked at each time.
const MAX_SEEN_OBJECTS: usize = 14_336;

/// Attributes by file number; `None` while no listing is running.
pub(super) struct RecentAttrs(Mutex<Option<AttrTable>>);

struct AttrTable {
    /// When the table was created; no entry is older.
    since: Instant,
    attrs: HashMap<FileId, BaseAttr>,
}

impl AttrTable {
    fn is_over(&self) -> bool {
        self.since.elapsed() >= SEEN_FOR
    }

    /// Records attributes, unless newer ones are recorded.
    fn note(&mut self, attr: &BaseAttr) {
        let has_room = self.attrs.len() < MAX_SEEN_OBJECTS;
        match self.attrs.get_mut(&attr.fileid) {
            Some(known) if known.ctime > attr.ctime => {}
            Some(known) => known.clone_from(attr),
            None if has_room => drop(self.attrs.insert(attr.fileid, attr.clone())),
            None => {}
        }
    }
}

impl RecentAttrs {
    pub(super) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Starts recording; call before anything is looked at for a listing.
    pub(super) fn begin(&self) {
        let mut table = self.lock();
        if table.as_ref().is_none_or(AttrTable::is_over) {
            *table = Some(AttrTable { since: Instant::now(), attrs: HashMap::new() });
        }
    }

    /// The recorded attributes of the object `id`. Call only after [`RecentAttrs::begin`]: this
    /// does not check the table's age.
    pub(super) fn get(&self, id: FileId) -> Option<BaseAttr> {
        self.lock().as_ref()?.attrs.get(&id).cloned()
    }

    /// Records an object's attributes, if a table exists.
    pub(super) fn note(&self, attr: &BaseAttr) {
        let mut table = self.lock();
        let Some(noted) = table.as_mut() else { return };
        if noted.is_over() {
            // Also frees the memory: most of the time no listing is running.
            *table = None;
        } else {
            noted.note(attr);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<AttrTable>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hash_fileid;
    use crate::vfs::{Device, FileKind, Time};

    fn attr(ino: u64, ctime: i64) -> BaseAttr {
        let at = Time { secs: ctime, nanos: 0 };
        BaseAttr {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: Device::default(),
            dev: 1,
            ino,
            fileid: hash_fileid(1, 1, ino),
            atime: at,
            mtime: at,
            ctime: at,
        }
    }

    #[test]
    fn notes_only_while_somebody_lists_and_only_what_is_not_older() {
        let seen = RecentAttrs::new();
        let ctime = |seen: &RecentAttrs| seen.get(FileId(7)).map(|attr| attr.ctime.secs);
        seen.note(&attr(7, 5));
        assert_eq!(ctime(&seen), None, "no listing runs");
        seen.begin();
        seen.note(&attr(7, 5));
        seen.note(&attr(7, 6));
        // Attributes from before, recorded afterwards.
        seen.note(&attr(7, 5));
        assert_eq!(ctime(&seen), Some(6));
        seen.begin();
        assert_eq!(ctime(&seen), Some(6), "still the same second");
    }

    #[test]
    fn holds_no_more_than_it_may() {
        let seen = RecentAttrs::new();
        seen.begin();
        for ino in 10..10 + 2 * MAX_SEEN_OBJECTS as u64 {
            seen.note(&attr(ino, 5));
        }
        assert_eq!(seen.lock().as_ref().unwrap().attrs.len(), MAX_SEEN_OBJECTS);
    }
}
