//! Batches, savepoints, snapshots and the audit log.

use acetate::delta::{AuditProcedure, AuditRow, AuditSet, Ino, MergedPath, Store, StoreErrorKind};
use acetate::vfs::{FileId, FileKind};

use super::{Place, change, look, make, name, time};
use crate::support::check::assert_consistent;

fn merged(text: &str) -> MergedPath {
    MergedPath::from_bytes(text.as_bytes()).unwrap()
}

fn write_op(offset: u64, length: u64) -> AuditRow {
    AuditRow {
        time: time(1),
        client: "[::1]:700".parse().unwrap(),
        uid: 1,
        gid: 2,
        procedure: AuditProcedure::Write,
        path: merged("/f"),
        path2: None,
        fileid: FileId(5),
        offset: Some(offset),
        length: Some(length),
        call: None,
        export: None,
        note: None,
        set: AuditSet::default(),
    }
}

#[test]
fn contiguous_writes_share_an_audit_row() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    writer.begin(false).unwrap();
    let mut operation = |row: &AuditRow, keep: bool| {
        writer.savepoint().unwrap();
        writer.txn().record(row).unwrap();
        if keep { writer.release().unwrap() } else { writer.roll_back().unwrap() }
    };
    operation(&write_op(0, 10), true);
    operation(&write_op(10, 5), true);
    operation(&write_op(15, 5), false);
    operation(&write_op(15, 7), true);
    operation(&write_op(100, 1), true);
    operation(&AuditRow { uid: 9, ..write_op(101, 1) }, true);
    let rename = AuditRow {
        procedure: AuditProcedure::Rename,
        path2: Some(MergedPath::from_bytes(b"/\xff").unwrap()),
        offset: None,
        length: None,
        ..write_op(0, 0)
    };
    operation(&rename, true);
    operation(&rename, true);
    writer.commit().unwrap();
    // Not across batches.
    change(&mut *writer, |txn| txn.record(&write_op(102, 1)).unwrap());

    let sql = place.sql();
    let mut statement = sql
        .prepare("SELECT procedure, offset, length, client FROM acetate_op ORDER BY id")
        .unwrap();
    let rows: Vec<(String, Option<i64>, Option<i64>, String)> = statement
        .query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let client = || "[::1]:700".to_owned();
    let write = |offset, length| ("WRITE".to_owned(), Some(offset), Some(length), client());
    let rename = ("RENAME".to_owned(), None, None, client());
    let expected =
        [write(0, 22), write(100, 1), write(101, 1), rename.clone(), rename, write(102, 1)];
    assert_eq!(rows, expected);
}

#[test]
fn a_rolled_back_operation_leaves_its_batch_alone() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    writer.begin(false).unwrap();
    writer.savepoint().unwrap();
    let kept = make(writer.txn(), Ino::ROOT, "kept", FileKind::Regular).ino;
    writer.release().unwrap();
    writer.savepoint().unwrap();
    let mut file = make(writer.txn(), Ino::ROOT, "gone", FileKind::Regular);
    writer.txn().write_data(&mut file, 0, &[1; 9000]).unwrap();
    writer.txn().delete_dentry(Ino::ROOT, &name("kept")).unwrap();
    writer.roll_back().unwrap();
    writer.commit().unwrap();
    look(&session, |txn| {
        assert_eq!(txn.dentry(Ino::ROOT, &name("kept")).unwrap(), Some(kept));
        assert_eq!(txn.dentry(Ino::ROOT, &name("gone")).unwrap(), None);
    });
    assert_eq!(place.number("SELECT count(*) FROM fs_data"), 0);
    assert_consistent(&place.path);

    writer.begin(false).unwrap();
    writer.savepoint().unwrap();
    make(writer.txn(), Ino::ROOT, "aborted", FileKind::Regular);
    writer.abort().unwrap();
    assert_eq!(look(&session, |txn| txn.dentry(Ino::ROOT, &name("aborted")).unwrap()), None);
}

#[test]
fn a_reader_sees_one_snapshot() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let mut reader = session.reader().unwrap();
    reader
        .read(&mut |txn| {
            txn.hold().unwrap();
            change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
            assert_eq!(txn.dentry(Ino::ROOT, &name("f")).unwrap(), None);
        })
        .unwrap();
    reader.read(&mut |txn| assert!(txn.dentry(Ino::ROOT, &name("f")).unwrap().is_some())).unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = reader.read(&mut |_| panic!("in a reading"));
    }));
    assert!(panicked.is_err());
    reader.read(&mut |txn| assert!(txn.dentry(Ino::ROOT, &name("f")).unwrap().is_some())).unwrap();
}

#[test]
fn there_is_one_writer() {
    let place = Place::new();
    let session = place.create();
    let writer = session.writer().unwrap();
    assert!(matches!(session.writer().err(), Some(error) if error.kind == StoreErrorKind::Busy));
    drop(writer);
    session.writer().unwrap();
}

#[test]
fn rows_at_hand_are_those_of_the_transaction() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let row = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    let changed = acetate::delta::InodeRow { mode: 0o111, holes: 3, ..row.clone() };
    let kept = acetate::delta::InodeRow { uid: 7, ..row.clone() };

    writer.begin(false).unwrap();
    writer.savepoint().unwrap();
    writer.txn().put_inode(&changed).unwrap();
    assert_eq!(writer.txn().inode(row.ino).unwrap().unwrap(), changed);
    writer.roll_back().unwrap();
    assert_eq!(writer.txn().inode(row.ino).unwrap().unwrap(), row);
    writer.savepoint().unwrap();
    writer.txn().delete_inode(row.ino).unwrap();
    assert_eq!(writer.txn().inode(row.ino).unwrap(), None);
    let born = make(writer.txn(), Ino::ROOT, "g", FileKind::Regular);
    assert_eq!(writer.txn().inode(born.ino).unwrap().unwrap(), born);
    writer.abort().unwrap();

    change(&mut *writer, |txn| {
        assert_eq!(txn.inode(row.ino).unwrap().unwrap(), row);
        assert_eq!(txn.inode(born.ino).unwrap(), None);
        txn.put_inode(&changed).unwrap();
        txn.put_inode(&kept).unwrap();
    });
    // What is left alone was the same.
    look(&session, |txn| assert_eq!(txn.inode(row.ino).unwrap().unwrap(), kept));
    assert_eq!(place.number("SELECT count(*) FROM acetate_inode WHERE holes > 0"), 0);
}
