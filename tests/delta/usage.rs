//! What the writer counts of each operation, against what the rows say.

use acetate::delta::{Ino, Limits, Store, Usage, UsageDelta, WriteTxn, Writer};
use acetate::vfs::FileKind;

use super::{Place, change, inode, make};

fn grown(bytes: i128, files: i128) -> UsageDelta {
    UsageDelta { bytes, files }
}

/// Runs an operation; by how much it says that the usage has changed.
fn growth(writer: &mut dyn Writer, work: impl FnOnce(&mut dyn WriteTxn)) -> UsageDelta {
    change(writer, |txn| {
        work(txn);
        txn.growth()
    })
}

#[test]
fn each_operation_counts_its_own() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let first = change(&mut *writer, |txn| make(txn, Ino::ROOT, "first", FileKind::Regular));
    assert_eq!(growth(&mut *writer, |txn| txn.put_inode(&first).unwrap()), grown(0, 0));
    assert_eq!(writer.count_usage().unwrap(), grown(0, 1));

    let mut row = inode(Ino(0), FileKind::Regular);
    let made = growth(&mut *writer, |txn| row = make(txn, Ino::ROOT, "f", FileKind::Regular));
    assert_eq!(made, grown(0, 1));
    let written = growth(&mut *writer, |txn| {
        txn.write_data(&mut row, 4096, &[1; 100]).unwrap();
        assert_eq!(txn.growth(), grown(0, 0), "the row says what it takes");
        txn.put_inode(&row).unwrap();
    });
    assert_eq!(written, grown(4096, 0));
    // A directory and the root take no bytes, whatever their rows say.
    let other = growth(&mut *writer, |txn| {
        let mut dir = make(txn, Ino::ROOT, "dir", FileKind::Directory);
        dir.size = 4096;
        txn.put_inode(&dir).unwrap();
        let mut root = txn.inode(Ino::ROOT).unwrap().unwrap();
        root.size = 4096;
        txn.put_inode(&root).unwrap();
        root.size = 0;
        txn.put_inode(&root).unwrap();
    });
    assert_eq!(other, grown(0, 1));
    let deleted = growth(&mut *writer, |txn| {
        txn.delete_dentry(Ino::ROOT, &super::name("f")).unwrap();
        txn.delete_inode(row.ino).unwrap();
    });
    assert_eq!(deleted, grown(-4096, -1));
    assert_eq!(session.quota().unwrap(), (Usage { bytes: 0, files: 2 }, Limits::default()));
}

/// Rows that are not at hand are read: after a start, and when many others came between.
#[test]
fn rows_that_are_not_at_hand_are_counted_too() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let rows: Vec<_> = change(&mut *writer, |txn| {
        (0..1500).map(|i| make(txn, Ino::ROOT, &format!("f{i}"), FileKind::Regular)).collect()
    });
    writer.close().unwrap();
    drop(writer);
    let mut writer = session.writer().unwrap();
    assert_eq!(writer.count_usage().unwrap(), grown(0, 1500));
    let cut = growth(&mut *writer, |txn| {
        for row in &rows {
            let mut row = row.clone();
            txn.write_data(&mut row, 0, &[1; 10]).unwrap();
            txn.put_inode(&row).unwrap();
        }
    });
    assert_eq!(cut, grown(15_000, 0));
    let dropped = growth(&mut *writer, |txn| {
        txn.put_copy_up(rows[0].ino, None).unwrap();
        txn.put_inode(&rows[0]).unwrap();
        txn.delete_dentry(Ino::ROOT, &super::name("f1")).unwrap();
        txn.delete_inode(rows[1].ino).unwrap();
        txn.delete_inode(Ino(77)).unwrap();
    });
    assert_eq!(dropped, grown(-20, -1));
}

#[test]
fn what_is_rolled_back_is_not_counted() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    writer.count_usage().unwrap();
    writer.begin(false).unwrap();
    for keep in [true, false, true] {
        writer.savepoint().unwrap();
        assert_eq!(writer.txn().growth(), grown(0, 0));
        let row = inode(writer.txn().allocate_ino().unwrap(), FileKind::Fifo);
        writer.txn().put_inode(&row).unwrap();
        assert_eq!(writer.txn().growth(), grown(0, 1));
        if keep { writer.release().unwrap() } else { writer.roll_back().unwrap() }
    }
    writer.abort().unwrap();
    writer.begin(false).unwrap();
    assert_eq!(writer.txn().growth(), grown(0, 0));
    writer.abort().unwrap();
    assert_eq!(writer.count_usage().unwrap(), grown(0, 0));
}

#[test]
fn limits_stay_in_the_session() {
    let place = Place::new();
    let session = place.create();
    assert_eq!(session.limits(), Limits::default());
    let limits = Limits { bytes: Some(u64::MAX), files: Some(0), file_bytes: Some(5) };
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| txn.put_limits(limits).unwrap());
    writer.close().unwrap();
    drop((writer, session));
    let session = place.open();
    // As much as the column holds.
    let stored = Limits { bytes: Some(i64::MAX as u64), ..limits };
    assert_eq!(session.limits(), stored);
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| txn.put_limits(Limits { bytes: None, ..stored }).unwrap());
    assert_eq!(session.quota().unwrap().1, Limits { bytes: None, ..stored });
    assert_eq!(place.number("SELECT count(*) FROM acetate_meta WHERE key LIKE 'quota%'"), 1);
}
