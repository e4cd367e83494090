//! Handles of base objects that the host removed: the search for one is not made again as long as
//! nothing changed where it looked.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use acetate::base::BaseError;
use acetate::delta::sqlite::{CreateOptions, Host, Session};
use acetate::overlay::{AutomaticCheckpoints, CopyLimits};
use acetate::vfs::FsError;
use tempfile::TempDir;

use crate::support::fixture;
use crate::support::hooked_base::{BaseCall, Hook, HookedBase};
use crate::support::served::{Served, Serving, runtime};
use crate::support::world::START_SECS;

/// Longer than a path of the base is believed to lead where it did (decision 0011).
const MOVED: Duration = Duration::from_millis(60);

/// Counts how often directories are listed, and lists none while it is told not to.
#[derive(Default)]
struct Counting {
    lists: AtomicU32,
    refuses: AtomicBool,
}

impl Hook for Counting {
    fn before(&self, call: BaseCall) -> Result<(), BaseError> {
        if call != BaseCall::List {
            return Ok(());
        }
        self.lists.fetch_add(1, Ordering::SeqCst);
        match self.refuses.load(Ordering::SeqCst) {
            true => Err(BaseError::Unresponsive),
            false => Ok(()),
        }
    }
}

/// A session over a base whose listings are counted; the directory, the base, the server.
fn place() -> (TempDir, PathBuf, Arc<HookedBase<Counting>>, Served) {
    let dir = tempfile::tempdir().unwrap();
    let (below, session) = (dir.path().join("base"), dir.path().join("session.db"));
    fs::create_dir(&below).unwrap();
    fixture::build(&below, "dir/sub/one \"1\"\ndir/two \"2\"\nother/x \"x\"\n");
    let options = CreateOptions { base_path: Some(below.clone()), ..Default::default() };
    let session = Session::create(&session, &options, &Host::current().unwrap()).unwrap();
    let base = HookedBase::over(&below, Counting::default());
    let how = Serving {
        clock: Arc::new(AtomicI64::new(START_SECS)),
        runtime: runtime(),
        strict: false,
        read_only: false,
        copy_up: CopyLimits::default(),
        group: None,
        checkpoints: AutomaticCheckpoints::default(),
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
    let after_first = base.hook.lists.load(Ordering::SeqCst);
    for _ in 0..5 {
        assert_eq!(client.getattr(&one), Err(FsError::Stale));
    }
    assert_eq!(base.hook.lists.load(Ordering::SeqCst), after_first, "no directory is listed again");

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
    base.hook.refuses.store(true, Ordering::SeqCst);
    assert_eq!(client.getattr(&one), Err(FsError::TryLater));
    base.hook.refuses.store(false, Ordering::SeqCst);
    assert_eq!(client.getattr(&one), Err(FsError::Stale));
    base.hook.refuses.store(true, Ordering::SeqCst);
    fs::rename(below.join("../sub"), below.join("dir/sub")).unwrap();
    std::thread::sleep(MOVED);
    base.hook.refuses.store(false, Ordering::SeqCst);
    assert_eq!(client.getattr(&one).map(|attr| attr.size), Ok(1), "it is there");
    served.stop().unwrap();
}
