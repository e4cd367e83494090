//! Finds a file by its number, by searching the whole tree.
//!
//! The search is breadth-first, opens only directories, stops at the first match and continues from
//! there the next time. It keeps an index of file numbers and directories. Names are not in the
//! index: they are read again, and checked, when a result is needed.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::HostDir;
use super::attr::{base_attr, path_error};
use super::listing::ListingRead;
use super::walk::Reached;
use crate::base::{Base, BaseError, BasePath, ListedEntry};
use crate::vfs::{FileId, FileKind, Name};

/// Maximum number of directories visited, about 32 bytes each; files in others are not found.
const MAX_INDEXED_DIRECTORIES: usize = 1 << 20;

/// Maximum number of files in the index, 16 bytes each. Directories whose files do not fit are read
/// again by each search.
const MAX_INDEXED_FILES: usize = 1 << 20;

/// After a complete search without a match, the tree is not searched again before this time.
const REPEAT_AFTER: Duration = Duration::from_secs(10);

/// Decides whether a path is a match.
type LinkFilter<'a> = &'a mut dyn FnMut(&BasePath) -> bool;

/// The shared state of searches.
pub(super) struct Links(Mutex<LinkSearch>);

impl Links {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LinkSearch::new(MAX_INDEXED_FILES)))
    }
}

/// The progress of the search.
struct LinkSearch {
    directories: Directories,
    /// The number of the next directory to read.
    next: usize,
    /// The files in the directories before `indexed`: file number and directory number, sorted.
    files: Vec<(FileId, u32)>,
    indexed: usize,
    room: usize,
    /// When the search last read a new directory.
    rested: Instant,
    /// The number of directories that were read, again or for the first time.
    read: usize,
}

impl LinkSearch {
    fn new(room: usize) -> Self {
        let (directories, files) = (Directories::new(), Vec::new());
        Self { directories, next: 0, files, indexed: 0, room, rested: Instant::now(), read: 0 }
    }

    /// Whether the index may be outdated. Measured from the end of the search, so that a long
    /// search is not repeated at once.
    fn is_old(&self) -> bool {
        self.next > 0 && self.rested.elapsed() >= REPEAT_AFTER
    }

    /// The directories that contained `id` when they were read.
    fn known(&self, id: FileId) -> &[(FileId, u32)] {
        let start = self.files.partition_point(|f| f.0 < id);
        let length = self.files[start..].partition_point(|f| f.0 == id);
        &self.files[start..start + length]
    }

    /// Adds the entries of the directory number `at`; returns whether `id` is among them.
    fn add_entries(&mut self, at: usize, entries: &[ListedEntry], id: FileId) -> bool {
        let is_new = at == self.next;
        let is_file = |e: &&ListedEntry| e.kind != Some(FileKind::Directory);
        if is_new {
            self.next += 1;
            for entry in entries {
                if matches!(entry.kind, None | Some(FileKind::Directory)) {
                    self.directories.push(at, &entry.name);
                }
            }
        }
        if at == self.indexed {
            let files = entries.iter().filter(is_file).map(|e| (e.fileid, at as u32));
            let before = self.files.len();
            self.files.extend(files);
            if self.files.len() <= self.room {
                self.indexed += 1;
            } else {
                self.files.truncate(before);
            }
        }
        entries.iter().filter(is_file).any(|e| e.fileid == id)
    }
}

impl HostDir {
    /// A path of the file `id` that is `wanted`, as [`Base::find_linked`].
    pub(super) fn search(
        &self,
        id: FileId,
        wanted: LinkFilter<'_>,
    ) -> Result<Option<BasePath>, BaseError> {
        let mut search = self.links.0.lock();
        let is_old = search.is_old();
        // A path that was refused must not be offered again by the second search: callers count
        // names.
        let mut refused = HashSet::new();
        let wanted: LinkFilter<'_> = &mut |path| {
            if refused.contains(path) {
                return false;
            }
            let is_wanted = wanted(path);
            if !is_wanted && is_old {
                refused.insert(path.clone());
            }
            is_wanted
        };
        let known: BTreeSet<u32> = search.known(id).iter().map(|f| f.1).collect();
        for at in known {
            let dir = search.directories.path(at as usize);
            if let Some(path) = self.find_in(&dir, id, wanted)? {
                return Ok(Some(path));
            }
        }
        let found = self.search_on(&mut search, id, wanted)?;
        if found.is_some() || !is_old {
            return Ok(found);
        }
        // The tree may have changed since its first part was read: search again from the start.
        *search = LinkSearch::new(search.room);
        self.search_on(&mut search, id, wanted)
    }

    /// Reads the directories that the index does not cover, until `id` is found.
    fn search_on(
        &self,
        search: &mut LinkSearch,
        id: FileId,
        wanted: LinkFilter<'_>,
    ) -> Result<Option<BasePath>, BaseError> {
        let (next, read) = (search.next, search.read);
        let found = self.read_on(search, id, wanted);
        tracing::debug!(?id, directories = search.read - read, "searched the base for a file");
        // Also after a failed read, as earlier directories were added to the index.
        search.files.sort_unstable();
        // Repeated searches for a missing number must not keep the index from expiring.
        if search.next > next {
            search.rested = Instant::now();
        }
        found
    }

    fn read_on(
        &self,
        search: &mut LinkSearch,
        id: FileId,
        wanted: LinkFilter<'_>,
    ) -> Result<Option<BasePath>, BaseError> {
        let mut found = None;
        let mut at = search.indexed;
        while found.is_none() && at < search.directories.len() {
            let dir = search.directories.path(at);
            let entries = self.read_anew(&dir)?;
            search.read += 1;
            if search.add_entries(at, &entries, id) {
                found = self.find_in(&dir, id, wanted)?;
            }
            at += 1;
        }
        Ok(found)
    }

    /// The entries of a directory, read without the listing cache, which a search would flush. A
    /// directory that is gone, unreadable or a mount point has none.
    fn read_anew(&self, dir: &BasePath) -> Result<Vec<ListedEntry>, BaseError> {
        let entries = match self.walker.open_listing(dir) {
            Ok(Reached::Object(fd)) => self.read_entries(dir, fd),
            Ok(Reached::MountPoint) => return Ok(Vec::new()),
            Err(error) => Err(path_error(error)),
        };
        match entries {
            Ok(ListingRead::Whole(entries)) => Ok(entries.listing.entries),
            Ok(ListingRead::Known(listing)) => Ok(listing.entries.clone()),
            Err(BaseError::NotFound | BaseError::Denied) => Ok(Vec::new()),
            Err(BaseError::Busy) => Err(BaseError::Busy),
            Err(BaseError::Io(error)) if is_exhaustion(&error) => Err(BaseError::Io(error)),
            Err(error) => {
                tracing::warn!(dir = ?dir, %error, "cannot search this base directory");
                Ok(Vec::new())
            }
        }
    }

    /// A name of `id` in `dir` that is wanted, checked by `stat`.
    fn find_in(
        &self,
        dir: &BasePath,
        id: FileId,
        wanted: LinkFilter<'_>,
    ) -> Result<Option<BasePath>, BaseError> {
        let listing = match self.list(dir) {
            Ok(listing) => listing,
            Err(BaseError::Busy) => return Err(BaseError::Busy),
            Err(_) => return Ok(None),
        };
        Ok(listing.entries.iter().filter(|e| e.fileid == id).find_map(|entry| {
            let path = dir.join(&entry.name);
            let Ok(Reached::Object(stat)) = self.walker.stat(&path) else { return None };
            let attr = base_attr(self.root_dev, &stat).ok()?;
            let found = attr.kind != FileKind::Directory && attr.fileid == id;
            (found && wanted(&path)).then_some(path)
        }))
    }
}

/// Whether the process has run out of resources. The search must then stop, because it would treat
/// unread directories as empty.
fn is_exhaustion(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let code = Errno::from_io_error(error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// A compact table of directories: each has its parent's number and its name. Number 0 is the root.
struct Directories {
    rows: Vec<LinksRow>,
    names: Vec<u8>,
}

#[derive(Clone, Copy)]
struct LinksRow {
    parent: u32,
    name_at: u32,
    name_bytes: u8,
}

impl Directories {
    fn new() -> Self {
        Self { rows: vec![LinksRow { parent: 0, name_at: 0, name_bytes: 0 }], names: Vec::new() }
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    /// Adds a directory, unless the table is full.
    fn push(&mut self, parent: usize, name: &Name) {
        let name = name.as_bytes();
        // The table's limit keeps all three within their types (2^20 names of 255 bytes).
        let (Ok(parent), Ok(name_at), Ok(name_bytes)) =
            (parent.try_into(), self.names.len().try_into(), name.len().try_into())
        else {
            return;
        };
        if self.rows.len() < MAX_INDEXED_DIRECTORIES {
            self.rows.push(LinksRow { parent, name_at, name_bytes });
            self.names.extend_from_slice(name);
        }
    }

    /// The path of directory number `at`.
    fn path(&self, mut at: usize) -> BasePath {
        let mut names = Vec::new();
        while at != 0 {
            let row = self.rows[at];
            let start = row.name_at as usize;
            names.push(&self.names[start..start + usize::from(row.name_bytes)]);
            at = row.parent as usize;
        }
        names.reverse();
        BasePath::from_bytes(&names.join(&b'/')).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::HostDirOptions;

    fn entry(name: &str, id: u64, kind: FileKind) -> ListedEntry {
        let name = Name::new(name.as_bytes()).unwrap();
        ListedEntry { name, fileid: FileId(id), kind: Some(kind) }
    }

    #[test]
    fn a_directory_is_found_again_by_its_number() {
        let mut table = Directories::new();
        table.push(0, &Name::new(b"a").unwrap());
        table.push(1, &Name::new(b"bc").unwrap());
        assert_eq!(table.path(0), BasePath::root());
        assert_eq!(table.path(1).as_bytes(), b"a");
        assert_eq!(table.path(2).as_bytes(), b"a/bc");
    }

    #[test]
    fn what_is_missed_again_and_again_does_not_keep_the_index_young() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("x")).unwrap();
        std::fs::write(dir.path().join("x/a"), "").unwrap();
        let base = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
        let [before, after] = ["x/a", "y/a"].map(|path| BasePath::from_bytes(path.as_bytes()));
        let id = base.stat(&before.unwrap()).unwrap().fileid;
        let nothing = FileId(3);
        assert_eq!(base.search(nothing, &mut |_| true).unwrap(), None);
        std::fs::rename(dir.path().join("x"), dir.path().join("y")).unwrap();
        for _ in 0..3 {
            let age = |search: &mut LinkSearch| search.rested -= REPEAT_AFTER / 3;
            age(&mut base.links.0.lock());
            assert_eq!(base.search(nothing, &mut |_| true).unwrap(), None);
        }
        assert_eq!(base.search(id, &mut |_| true).unwrap(), after);
    }

    #[test]
    fn a_second_search_reads_nothing_again() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..200 {
            std::fs::create_dir(dir.path().join(format!("d{n}"))).unwrap();
            std::fs::write(dir.path().join(format!("d{n}/f")), "").unwrap();
        }
        let base = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
        assert_eq!(base.search(FileId(3), &mut |_| true).unwrap(), None);
        for n in 0..200 {
            let path = BasePath::from_bytes(format!("d{n}/f").as_bytes()).unwrap();
            let id = base.stat(&path).unwrap().fileid;
            assert_eq!(base.search(id, &mut |_| true).unwrap(), Some(path));
        }
        assert_eq!(base.links.0.lock().read, 201, "each directory once");
    }

    #[test]
    fn each_name_is_offered_once_also_where_the_index_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["1", "2", "3"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::write(at("1/x"), "").unwrap();
        std::fs::hard_link(at("1/x"), at("2/y")).unwrap();
        let base = HostDir::open(dir.path(), HostDirOptions::default()).unwrap();
        let id = base.stat(&BasePath::from_bytes(b"1/x").unwrap()).unwrap().fileid;
        let names = || {
            let mut names = Vec::new();
            let mut collect = |path: &BasePath| {
                names.push(path.as_bytes().to_vec());
                false
            };
            assert_eq!(base.search(id, &mut collect).unwrap(), None);
            names.sort();
            names
        };
        assert_eq!(names(), [b"1/x", b"2/y"]);
        base.links.0.lock().rested -= REPEAT_AFTER;
        std::fs::hard_link(at("1/x"), at("3/z")).unwrap();
        assert_eq!(names(), [b"1/x", b"2/y", b"3/z"], "by a second search");
        assert_eq!(names(), [b"1/x", b"2/y", b"3/z"]);
    }

    #[test]
    fn an_index_that_is_full_leaves_the_rest_to_be_read_again() {
        let mut search = LinkSearch::new(2);
        let (file, dir) = (FileKind::Regular, FileKind::Directory);
        let root = [entry("d", 5, dir), entry("x", 6, file), entry("y", 7, file)];
        assert!(!search.add_entries(0, &root, FileId(5)), "a directory is not a file");
        assert_eq!((search.next, search.indexed, search.directories.len()), (1, 1, 2));
        assert!(search.add_entries(1, &[entry("z", 9, file)], FileId(9)));
        assert_eq!((search.next, search.indexed), (2, 1));
        assert!(search.add_entries(1, &[entry("z", 9, file)], FileId(9)), "and once more");
        assert_eq!((search.next, search.indexed, search.files.len()), (2, 1, 2));
        assert_eq!(search.known(FileId(7)), [(FileId(7), 0)]);
        assert!(search.known(FileId(9)).is_empty());
    }
}
