//! Hides the paths of a base that match patterns.

use std::fmt;
use std::sync::Arc;

use super::{Base, BaseAttr, BaseError, BasePath, Entries, Listing};
use crate::pattern::PatternSet;
use crate::vfs::{FileId, FileKind, Name};

/// `nlink` of a directory whose filesystem does not count subdirectories, as on btrfs.
const UNCOUNTED: u32 = 1;

/// Hides the paths of another base that match the patterns, and everything below them.
///
/// A hidden object is still visible indirectly: its directory's times and size are the host's, and
/// a hard link to it may be elsewhere.
pub struct Hiding {
    inner: Arc<dyn Base>,
    hidden: Arc<PatternSet>,
}

impl Hiding {
    /// Shows `inner` without the paths `hidden`.
    pub fn new(inner: Arc<dyn Base>, hidden: Arc<PatternSet>) -> Self {
        Self { inner, hidden }
    }

    /// Like [`Hiding::new`], but returns `inner` itself if `hidden` is empty.
    pub fn over(inner: Arc<dyn Base>, hidden: &Arc<PatternSet>) -> Arc<dyn Base> {
        if hidden.is_empty() { inner } else { Arc::new(Self::new(inner, Arc::clone(hidden))) }
    }

    /// Fails if `path` is hidden.
    fn check(&self, path: &BasePath) -> Result<(), BaseError> {
        if self.hidden.covers(path.as_bytes()) { Err(BaseError::NotFound) } else { Ok(()) }
    }
}

/// Clears a directory's link count, because the host's count includes hidden subdirectories.
fn shown(mut attr: BaseAttr) -> BaseAttr {
    if attr.kind == FileKind::Directory {
        attr.nlink = UNCOUNTED;
    }
    attr
}

impl Base for Hiding {
    fn invalidate(&self) {
        self.inner.invalidate();
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn must_stay_open(&self) -> bool {
        self.inner.must_stay_open()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn has_unfinished_apply(&self) -> Result<bool, BaseError> {
        self.inner.has_unfinished_apply()
    }

    fn stat(&self, path: &BasePath) -> Result<BaseAttr, BaseError> {
        self.check(path)?;
        self.inner.stat(path).map(shown)
    }

    fn list(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        self.check(path)?;
        let listing = self.inner.list(path)?;
        let is_hidden = |name: &Name| self.hidden.matches(path.join(name).as_bytes());
        if !listing.entries.iter().any(|entry| is_hidden(&entry.name)) {
            return Ok(listing);
        }
        let shown = listing.entries.iter().filter(|entry| !is_hidden(&entry.name));
        let turn = listing.turn.clone();
        Ok(Arc::new(Listing { entries: shown.cloned().collect(), turn }))
    }

    fn entries<'a>(&'a self, path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError> {
        self.check(path)?;
        let inner = self.inner.entries(path)?;
        Ok(Box::new(ShownEntries { inner, dir: path.clone(), hidden: &self.hidden }))
    }

    fn read_link(&self, path: &BasePath) -> Result<Vec<u8>, BaseError> {
        self.check(path)?;
        self.inner.read_link(path)
    }

    fn read(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        self.check(path)?;
        self.inner.read(path, id, offset, buffer)
    }

    fn next_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        self.check(path)?;
        self.inner.next_data(path, id, offset)
    }

    fn find_linked(
        &self,
        id: FileId,
        wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError> {
        let hidden = &self.hidden;
        self.inner.find_linked(id, &mut |path| !hidden.covers(path.as_bytes()) && wanted(path))
    }
}

/// The entries of a directory that is not hidden, without hidden ones.
struct ShownEntries<'a> {
    inner: Box<dyn Entries + 'a>,
    dir: BasePath,
    hidden: &'a PatternSet,
}

impl Entries for ShownEntries<'_> {
    fn stat(&self, name: &Name, id: FileId) -> Result<BaseAttr, BaseError> {
        if self.hidden.matches(self.dir.join(name).as_bytes()) {
            return Err(BaseError::NotFound);
        }
        self.inner.stat(name, id).map(shown)
    }
}

impl fmt::Debug for Hiding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hiding").field("hidden", &self.hidden).finish_non_exhaustive()
    }
}
