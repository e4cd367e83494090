//! A base file that the disk does not read: the caller hears of it, nothing is half done, and a
//! later try works.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use acetate::base::BaseError;
use acetate::delta::sqlite::{ChunkSize, CreateOptions, Host, Session};
use acetate::overlay::{AutomaticCheckpoints, CopyLimits};
use acetate::vfs::{FsError, Vfs};
use tempfile::TempDir;

use crate::support::check::violations;
use crate::support::client::Client;
use crate::support::fixture;
use crate::support::hooked_base::{BaseCall, Hook, HookedBase};
use crate::support::served::{Served, Serving, runtime};
use crate::support::tree::{assert_same, read_tree};
use crate::support::world::START_SECS;

/// A block of most filesystems: less is no hole there.
const CHUNK: usize = 4096;

/// Two pieces of two chunks, and a bit.
const SMALL_BYTES: usize = 4 * CHUNK + 100;

/// More than is copied at once.
const LARGE_BYTES: usize = 10 * CHUNK;

const COPY_LIMITS: CopyLimits =
    CopyLimits { original_bytes: 0, ..CopyLimits::of(8 * CHUNK as u64, 2 * CHUNK as u64) };

/// Where the data of a file with a hole begins, in bytes.
const SPARSE_AT: u64 = 4 * CHUNK as u64;

/// EIO.
const EIO: i32 = 5;

/// A base that does not read, or not find, content when it is told so.
#[derive(Default)]
struct Broken {
    /// The how-manieth of these calls from now on fails, counted from 1; 0 for none.
    reads: AtomicU32,
    looks: AtomicU32,
}

/// Counts one call.
fn call(left: &AtomicU32) -> Result<(), BaseError> {
    let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if before == Ok(1) { Err(io::Error::from_raw_os_error(EIO).into()) } else { Ok(()) }
}

impl Hook for Broken {
    fn before(&self, kind: BaseCall) -> Result<(), BaseError> {
        match kind {
            BaseCall::Read => call(&self.reads),
            BaseCall::NextData => call(&self.looks),
            _ => Ok(()),
        }
    }
}

/// A session over a broken base.
struct Place {
    dir: TempDir,
    base: Arc<HookedBase<Broken>>,
    served: Served,
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| b'a' + (at / CHUNK) as u8).collect()
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (below, session) = (dir.path().join("base"), dir.path().join("session.db"));
        std::fs::create_dir(&below).unwrap();
        fixture::build(&below, "dir/\n");
        for (name, count) in [("small", SMALL_BYTES), ("large", LARGE_BYTES)] {
            std::fs::write(below.join("dir").join(name), bytes(count)).unwrap();
        }
        let sparse = std::fs::File::create(below.join("dir/sparse")).unwrap();
        sparse.write_all_at(b"end", SPARSE_AT).unwrap();
        let chunk_size = ChunkSize::new(CHUNK as u64).unwrap();
        let options =
            CreateOptions { chunk_size, base_path: Some(below.clone()), ..Default::default() };
        let session = Session::create(&session, &options, &Host::current().unwrap()).unwrap();
        let base = HookedBase::over(&below, Broken::default());
        let how = Serving {
            clock: Arc::new(AtomicI64::new(START_SECS)),
            runtime: runtime(),
            strict: false,
            read_only: false,
            copy_up: COPY_LIMITS,
            group: None,
            checkpoints: AutomaticCheckpoints::default(),
        };
        let served = Served::start(Arc::new(session), base.clone(), how);
        Self { dir, base, served }
    }

    fn session(&self) -> PathBuf {
        self.dir.path().join("session.db")
    }

    /// How many rows the session has of whatever a copy-up brings.
    fn rows(&self) -> i64 {
        const TABLES: [&str; 7] = [
            "fs_inode",
            "fs_dentry",
            "fs_data",
            "fs_origin",
            "acetate_origin",
            "acetate_copy_up",
            "acetate_op",
        ];
        let conn = rusqlite::Connection::open(self.session()).unwrap();
        let counts = TABLES.map(|table| format!("(SELECT count(*) FROM {table})")).join(" + ");
        conn.query_row(&format!("SELECT {counts}"), [], |row| row.get(0)).unwrap()
    }

    /// Tries it while one call of `which` after the other fails, until it makes no more of them:
    /// then it is done. Returns how many it makes.
    fn fail_in_turn(&self, which: &AtomicU32, (what, operation): Operation) -> u32 {
        let client = &self.served.root;
        let (tree, rows) = (read_tree(client), self.rows());
        for nth in 1.. {
            which.store(nth, Ordering::SeqCst);
            let outcome = operation(client);
            if which.swap(0, Ordering::SeqCst) > 0 {
                assert_eq!(outcome, Ok(()), "{what}");
                return nth - 1;
            }
            let shown = format!("{what}, {nth}");
            assert_eq!(outcome, Err(FsError::Io), "{shown}");
            assert_same(&read_tree(client), &tree, &shown);
            assert_eq!(self.rows(), rows, "{shown}");
            assert_eq!(violations(&self.session()), Vec::<String>::new(), "{shown}");
        }
        unreachable!()
    }

    /// Closes the session, which must be sound.
    fn stop(self) {
        let session = self.session();
        self.served.stop().unwrap();
        assert_eq!(violations(&session), Vec::<String>::new());
    }
}

type Operation = (&'static str, fn(&Client) -> Result<(), FsError>);

#[test]
fn a_read_says_so_and_the_next_one_works() {
    let place = Place::new();
    let client = &place.served.root;
    let file = client.at("dir/small");
    let before = client.getattr(&file).unwrap();
    place.base.hook.reads.store(1, Ordering::SeqCst);
    let read = client.wait(client.overlay.read(&client.caller, &file, 0, 10));
    assert_eq!(read.result.err(), Some(FsError::Io));
    assert_eq!(read.context, Some(before), "the attributes can be had all the same");
    assert!(client.read("dir/small").unwrap() == bytes(SMALL_BYTES));
    place.stop();
}

#[test]
fn a_copy_up_that_meets_it_leaves_nothing() {
    let operations: [(u32, Operation); 5] = [
        (3, ("write in pieces", |client| client.write("dir/small", 7, b"!"))),
        (3, ("chmod", |client| client.chmod("dir/small", 0o600))),
        (1, ("cut", |client| client.truncate("dir/small", 10))),
        (3, ("rename", |client| client.rename("dir/small", "moved"))),
        (1, ("write what is large", |client| client.write("dir/large", 0, &[b'!'; CHUNK]))),
    ];
    for (reads, operation) in operations {
        let place = Place::new();
        assert_eq!(place.fail_in_turn(&place.base.hook.reads, operation), reads, "{}", operation.0);
        place.stop();
    }
    let place = Place::new();
    let chmod: Operation = ("chmod", |client| client.chmod("dir/sparse", 0o600));
    assert_eq!(place.fail_in_turn(&place.base.hook.looks, chmod), 1);
    place.stop();
}

/// What is not copied yet is read, and copied, once the disk reads it again.
#[test]
fn a_copy_that_is_not_finished_goes_on_later() {
    let place = Place::new();
    let client = &place.served.root;
    client.chmod("dir/large", 0o600).unwrap();
    let rows = place.rows();
    let fail = || place.base.hook.reads.store(1, Ordering::SeqCst);
    fail();
    assert_eq!(client.read("dir/large").err(), Some(FsError::Io));
    let write: Operation = ("write", |client| client.write("dir/large", 7, b"!"));
    assert_eq!(place.fail_in_turn(&place.base.hook.reads, write), 1);
    fail();
    let left = client.wait(client.overlay.finish_copies(|_| {})).unwrap();
    assert_eq!(left.files, 1, "it is left alone");
    assert!(place.rows() > rows);
    assert_eq!(violations(&place.session()), Vec::<String>::new());

    let mut expected = bytes(LARGE_BYTES);
    expected[7] = b'!';
    assert!(client.read("dir/large").unwrap() == expected);
    assert_eq!(client.wait(client.overlay.finish_copies(|_| {})).unwrap().files, 0);
    assert!(client.read("dir/large").unwrap() == expected);
    place.stop();
}
