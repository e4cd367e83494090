//! Trees and sessions of very many files, all made without a server.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use acetate::delta::sqlite::{CreateOptions, Host, OpenMode, Session};
use acetate::delta::{
    AuditProcedure, AuditRow, AuditSet, CheckpointKind, Ino, InodeRow, MergedPath, NewCheckpoint,
    Store, StoreError, WriteTxn,
};
use acetate::vfs::{Device, FileKind, Name, Time};

use super::rpc::Result;

/// Files in each directory.
pub const PER_DIR: usize = 1000;
/// Bytes of a file in a session.
pub const FILE_BYTES: usize = 256;
/// Changes in one commit.
const BATCH: usize = 10_000;

/// The name of a directory.
pub fn dir_name(number: usize) -> String {
    format!("dir-{number:04}")
}

/// The name of a file in any of them.
pub fn file_name(number: usize) -> String {
    format!("file-{number:04}")
}

/// Makes `count` empty files in directories of [`PER_DIR`] in the directory `root`.
pub fn make_files(root: &Path, count: usize) -> Result<()> {
    for dir in 0..count / PER_DIR {
        let dir = root.join(dir_name(dir));
        fs::create_dir_all(&dir)?;
        for file in 0..PER_DIR {
            File::create(dir.join(file_name(file)))?;
        }
    }
    Ok(())
}

/// Makes a session without a base that holds `count` files of [`FILE_BYTES`] in directories of
/// [`PER_DIR`], with what a server would have written: CREATE and WRITE are in the audit log.
pub fn make_session(path: &Path, count: usize) -> Result<()> {
    let host = Host::current()?;
    let session = Session::create(path, &CreateOptions::default(), &host)?;
    let mut writer = session.writer()?;
    let mut maker = Maker { now: host.now, left: 0 };
    let dirs = count / PER_DIR;
    writer.begin(false)?;
    for dir in 0..dirs {
        if maker.left == 0 {
            writer.commit()?;
            writer.begin(false)?;
            maker.left = BATCH;
        }
        maker.directory(writer.txn(), dir)?;
        maker.left = maker.left.saturating_sub(PER_DIR);
    }
    let txn = writer.txn();
    let mut root = txn.inode(Ino::ROOT)?.ok_or("there is no root directory")?;
    root.subdirs = Some(dirs as u32);
    txn.put_inode(&root)?;
    writer.commit()?;
    writer.close()?;
    Ok(())
}

/// Makes a session of [`PER_DIR`] files, and `count` checkpoints in it, each before a SETATTR of one
/// of the files.
pub fn make_checkpoints(path: &Path, count: usize) -> Result<()> {
    make_session(path, PER_DIR)?;
    let host = Host::current()?;
    let session = Session::open(path, OpenMode::Serve, &host)?;
    let mut writer = session.writer()?;
    let maker = Maker { now: host.now, left: 0 };
    let dir = Name::new(dir_name(0).as_bytes())?;
    for first in (0..count).step_by(PER_DIR) {
        writer.begin(false)?;
        for file in 0..PER_DIR.min(count - first) {
            let name = Name::new(file_name(file).as_bytes())?;
            maker.checkpoint(writer.txn(), &MergedPath::root().join(&dir).join(&name))?;
        }
        writer.commit()?;
    }
    writer.close()?;
    Ok(())
}

struct Maker {
    now: Time,
    /// Changes that still fit into the open commit.
    left: usize,
}

impl Maker {
    fn directory(&self, txn: &mut dyn WriteTxn, number: usize) -> Result<()> {
        let name = Name::new(dir_name(number).as_bytes())?;
        let row = self.row(txn.allocate_ino()?, FileKind::Directory);
        txn.put_inode(&row)?;
        txn.insert_dentry(Ino::ROOT, &name, row.ino)?;
        let path = MergedPath::root().join(&name);
        txn.record(&self.audit(AuditProcedure::Mkdir, &path, &row))?;
        for file in 0..PER_DIR {
            let name = Name::new(file_name(file).as_bytes())?;
            self.file(txn, row.ino, &name, &path.join(&name))?;
        }
        Ok(())
    }

    fn file(
        &self,
        txn: &mut dyn WriteTxn,
        dir: Ino,
        name: &Name,
        path: &MergedPath,
    ) -> std::result::Result<(), StoreError> {
        let mut row = self.row(txn.allocate_ino()?, FileKind::Regular);
        txn.write_data(&mut row, 0, &[7; FILE_BYTES])?;
        txn.put_inode(&row)?;
        txn.insert_dentry(dir, name, row.ino)?;
        txn.record(&self.audit(AuditProcedure::Create, path, &row))?;
        let write = self.audit(AuditProcedure::Write, path, &row);
        txn.record(&AuditRow { offset: Some(0), length: Some(row.size), ..write })
    }

    /// Makes a checkpoint, and changes the mode of the file `path`, in a directory of the root.
    fn checkpoint(&self, txn: &mut dyn WriteTxn, path: &MergedPath) -> Result<()> {
        let new = NewCheckpoint {
            name: None,
            kind: CheckpointKind::Manual,
            labels: BTreeMap::new(),
            time: self.now,
            reuses: false,
            needed: None,
        };
        txn.create_checkpoint(&new)?;
        let mut ino = Ino::ROOT;
        for name in path.names() {
            ino = txn.dentry(ino, &name)?.ok_or("there is no such file")?;
        }
        let mut row = txn.inode(ino)?.ok_or("there is no such object")?;
        row.mode ^= 0o111;
        txn.put_inode(&row)?;
        Ok(txn.record(&self.audit(AuditProcedure::Setattr, path, &row))?)
    }

    fn row(&self, ino: Ino, kind: FileKind) -> InodeRow {
        let is_dir = kind == FileKind::Directory;
        InodeRow {
            ino,
            kind,
            mode: if is_dir { 0o755 } else { 0o644 },
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            rdev: Device::default(),
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            subdirs: is_dir.then_some(0),
            holes: 0,
            create_verifier: None,
            origin: None,
            copy_up: None,
        }
    }

    fn audit(&self, procedure: AuditProcedure, path: &MergedPath, row: &InodeRow) -> AuditRow {
        AuditRow {
            time: self.now,
            client: SocketAddr::from((Ipv4Addr::LOCALHOST, 700)),
            uid: 0,
            gid: 0,
            procedure,
            path: path.clone(),
            path2: None,
            fileid: row.fileid(),
            offset: None,
            length: None,
            call: None,
            export: None,
            note: None,
            set: AuditSet::default(),
        }
    }
}
