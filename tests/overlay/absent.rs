//! Handles of base objects that the host removed: the search for one is not made again as long as
//! nothing changed where it looked.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use acetate::base::{
    Base, BaseAttr, BaseError, BasePath, Entries, HostDir, HostDirOptions, Listing,
};
use acetate::delta::sqlite::{CreateOptions, Host, Session};
use acetate::overlay::CopyLimits;
use acetate::vfs::{FileId, FsError};
use tempfile::TempDir;

use crate::support::fixture;
use crate::support::served::{Served, Serving, runtime};
use crate::support::world::START_SECS;

/// Longer than a path of the base is believed to lead where it did (decision 0011).
const MOVED: Duration = Duration::from_millis(60);

/// Counts how often directories are listed, and lists none while it is told not to.
struct Counting {
    inner: HostDir,
    lists: AtomicU32,
    refuses: AtomicBool,
}

impl Base for Counting {
    fn look_anew(&self) {
        self.inner.look_anew();
    }

    fn stat(&self, path: &BasePath) -> Result<BaseAttr, BaseError> {
        self.inner.stat(path)
    }

    fn list(&self, path: &BasePath) -> Result<Arc<Listing>, BaseError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        match self.refuses.load(Ordering::SeqCst) {
            true => Err(BaseError::Unresponsive),
            false => self.inner.list(path),
        }
    }

    fn entries<'a>(&'a self, path: &BasePath) -> Result<Box<dyn Entries + 'a>, BaseError> {
        self.inner.entries(path)
    }

    fn read_link(&self, path: &BasePath) -> Result<Vec<u8>, BaseError> {
        self.inner.read_link(path)
    }

    fn read(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(usize, BaseAttr), BaseError> {
        self.inner.read(path, id, offset, buffer)
    }

    fn next_data(
        &self,
        path: &BasePath,
        id: FileId,
        offset: u64,
    ) -> Result<Option<(u64, u64)>, BaseError> {
        self.inner.next_data(path, id, offset)
    }

    fn find_linked(
        &self,
        id: FileId,
        wanted: &mut dyn FnMut(&BasePath) -> bool,
    ) -> Result<Option<BasePath>, BaseError> {
        self.inner.find_linked(id, wanted)
    }
}

/// A session over a base whose listings are counted; the directory, the base, the server.
fn place() -> (TempDir, PathBuf, Arc<Counting>, Served) {
    let dir = tempfile::tempdir().unwrap();
    let (below, session) = (dir.path().join("base"), dir.path().join("session.db"));
    fs::create_dir(&below).unwrap();
    fixture::build(&below, "dir/sub/one \"1\"\ndir/two \"2\"\nother/x \"x\"\n");
    let options = CreateOptions { base_path: Some(below.clone()), ..Default::default() };
    let session = Session::create(&session, &options, &Host::current().unwrap()).unwrap();
    let inner = HostDir::open(&below, HostDirOptions::default()).unwrap();
    let base =
        Arc::new(Counting { inner, lists: AtomicU32::new(0), refuses: AtomicBool::new(false) });
    let how = Serving {
        clock: Arc::new(AtomicI64::new(START_SECS)),
        runtime: runtime(),
        strict: false,
        read_only: false,
        copy_up: CopyLimits::default(),
        group: None,
    };
    let served = Served::start(Arc::new(session), base.clone(), how);
    (dir, below, base, served)
}

#[test]
fn a_handle_of_what_is_gone_is_searched_for_once_until_something_changes() {
    let (_dir, below, base, served) = place();
    let client = &served.root;
    let one = client.at("dir/sub/one");
    fs::rename(below.join("dir/sub/one"), below.join("../kept")).unwrap();
    assert_eq!(client.getattr(&one), Err(FsError::Stale));
    let after_first = base.lists.load(Ordering::SeqCst);
    for _ in 0..5 {
        assert_eq!(client.getattr(&one), Err(FsError::Stale));
    }
    assert_eq!(base.lists.load(Ordering::SeqCst), after_first, "no directory is listed again");

    fs::rename(below.join("../kept"), below.join("dir/sub/one")).unwrap();
    assert_eq!(client.getattr(&one).map(|attr| attr.size), Ok(1), "it is there again");
    // Gone with its directory, which comes back in the place of another one.
    fs::rename(below.join("dir/sub"), below.join("../sub")).unwrap();
    std::thread::sleep(MOVED);
    assert_eq!(client.getattr(&one), Err(FsError::Stale));
    assert_eq!(client.getattr(&one), Err(FsError::Stale));
    fs::create_dir(below.join("dir/sub")).unwrap();
    assert_eq!(client.getattr(&one), Err(FsError::Stale));
    fs::remove_dir(below.join("dir/sub")).unwrap();
    fs::rename(below.join("../sub"), below.join("dir/sub")).unwrap();
    std::thread::sleep(MOVED);
    assert_eq!(client.getattr(&one).map(|attr| attr.size), Ok(1), "and once more");
    served.stop().unwrap();
}

#[test]
fn a_search_that_the_base_refuses_does_not_say_that_the_object_is_gone() {
    let (_dir, below, base, served) = place();
    let client = &served.root;
    let one = client.at("dir/sub/one");
    // Elsewhere, so that it has to be searched for.
    fs::rename(below.join("dir/sub"), below.join("../sub")).unwrap();
    std::thread::sleep(MOVED);
    base.refuses.store(true, Ordering::SeqCst);
    assert_eq!(client.getattr(&one), Err(FsError::TryLater));
    base.refuses.store(false, Ordering::SeqCst);
    assert_eq!(client.getattr(&one), Err(FsError::Stale));
    base.refuses.store(true, Ordering::SeqCst);
    fs::rename(below.join("../sub"), below.join("dir/sub")).unwrap();
    std::thread::sleep(MOVED);
    base.refuses.store(false, Ordering::SeqCst);
    assert_eq!(client.getattr(&one).map(|attr| attr.size), Ok(1), "it is there");
    served.stop().unwrap();
}
