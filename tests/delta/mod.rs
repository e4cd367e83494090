//! The store: rows in SQLite files.

mod adopt;
mod at_hand;
mod audit;
mod audit_bound;
mod batches;
mod checkpoint_tables;
mod checkpoints;
mod chunks;
mod durability;
mod errors;
mod faulty;
mod identity;
mod memory;
mod overlay_rows;
mod postgres;
mod refusals;
mod resting;
mod rows;
mod schema;
mod shared;
mod usage;
mod wal;

pub use adopt::FOREIGN;

use std::path::{Path, PathBuf};

use acetate::delta::sqlite::{CreateOptions, Host, Session};
use acetate::delta::{Ino, InodeRow, ReadTxn, Store, WriteTxn, Writer};
use acetate::vfs::{Device, FileKind, Name, Time};

use crate::support::database::session::{TestSession, watched};

/// A machine in boot `boot`.
pub fn host(boot: &str) -> Host {
    let boot_id = Some(boot.to_owned());
    Host { now: Time { secs: 1_700_000_000, nanos: 5 }, seed: [7; 32], boot_id }
}

/// A directory with the path of a session in it.
pub struct Place {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("session.db");
        Self { _dir: dir, path }
    }

    pub fn create(&self) -> TestSession {
        self.create_with(4096)
    }

    pub fn create_with(&self, chunk_bytes: u64) -> TestSession {
        let chunk_size = acetate::delta::sqlite::ChunkSize::new(chunk_bytes).unwrap();
        let options = CreateOptions { chunk_size, ..Default::default() };
        let session = Session::create(&self.path, &options, &host("boot")).unwrap();
        TestSession::created(session)
    }

    pub fn open(&self) -> TestSession {
        self.open_in("boot")
    }

    pub fn open_in(&self, boot: &str) -> TestSession {
        TestSession::opened(&self.path, &host(boot)).unwrap()
    }

    pub fn sql(&self) -> rusqlite::Connection {
        watched(&self.path)
    }

    /// A number out of the file.
    pub fn number(&self, sql: &str) -> i64 {
        self.sql().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// The paths in the directory that the session did not have before it was made.
    pub fn names(&self) -> Vec<String> {
        let entries = self.path.parent().unwrap().read_dir().unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Runs `work` as one operation in a batch of its own, and the maintenance that is due then.
pub fn change<T>(writer: &mut dyn Writer, work: impl FnOnce(&mut dyn WriteTxn) -> T) -> T {
    writer.begin(false).unwrap();
    writer.savepoint().unwrap();
    let value = work(writer.txn());
    writer.release().unwrap();
    writer.commit().unwrap();
    if writer.wants_maintenance() {
        writer.maintenance();
    }
    value
}

/// Runs `work` on a snapshot.
pub fn look<T>(store: &dyn Store, mut work: impl FnMut(&dyn ReadTxn) -> T) -> T {
    let mut value = None;
    store.reader().unwrap().read(&mut |txn| value = Some(work(txn))).unwrap();
    value.unwrap()
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn time(secs: i64) -> Time {
    Time { secs, nanos: 999_999_999 }
}

/// A new inode with nothing in it.
pub fn inode(ino: Ino, kind: FileKind) -> InodeRow {
    InodeRow {
        ino,
        kind,
        mode: 0o640,
        nlink: 1,
        uid: 1000,
        gid: u32::MAX,
        size: 0,
        rdev: Device::default(),
        atime: time(1),
        mtime: time(-2),
        ctime: time(3),
        subdirs: (kind == FileKind::Directory).then_some(0),
        holes: 0,
        create_verifier: None,
        copy_up: None,
        origin: None,
    }
}

/// Makes an object in `parent`, and puts it there under `at`.
pub fn make(txn: &mut dyn WriteTxn, parent: Ino, at: &str, kind: FileKind) -> InodeRow {
    let row = inode(txn.allocate_ino().unwrap(), kind);
    txn.put_inode(&row).unwrap();
    txn.insert_dentry(parent, &name(at), row.ino).unwrap();
    row
}

/// All bytes of a file's content.
pub fn content(txn: &dyn ReadTxn, ino: Ino) -> Vec<u8> {
    let row = txn.inode(ino).unwrap().unwrap();
    let mut buffer = vec![0xAA; row.size as usize];
    txn.read_data(&row, 0, &mut buffer).unwrap();
    buffer
}

/// The bytes of a file of the host.
pub fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}
