//! What is committed is in the database, and only the holder of the lease commits.

use std::sync::Arc;

use acetate::delta::{Store, StoreErrorKind};

use super::{Kept, assert_alike, make_files, names};
use crate::delta::{change, checkpoints, look};
use crate::support::database::rows::differences;

#[test]
fn what_is_committed_is_in_the_database_and_a_second_replica_equals_the_first() {
    let kept = Kept::new();
    let mut writer = kept.store.writer().unwrap();
    let made: Vec<_> = (0..20).map(|number| format!("f{number:02}")).collect();
    for name in &made {
        make_files(&mut *writer, &[name]).unwrap();
        assert!(names(&kept.rows()).contains(name), "kept before it is answered");
    }
    assert_eq!(kept.row().mark.seq, kept.row.mark.seq + 20);
    assert_alike(&kept.ours(), &kept.rows());
    assert_alike(&kept.ours(), &kept.second());
    writer.close().unwrap();
    assert_alike(&kept.ours(), &kept.rows());
    assert_eq!(names(&kept.rows()), made);
}

#[test]
fn a_batch_of_another_epoch_changes_nothing_and_loses_the_lease() {
    let kept = Kept::new();
    let mut writer = kept.store.writer().unwrap();
    make_files(&mut *writer, &["before"]).unwrap();
    let (ours, theirs) = (kept.ours(), kept.rows());
    kept.take_away();
    let mark = kept.row().mark;
    let error = make_files(&mut *writer, &["late"]).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Lost, "{error}");
    assert!(kept.lease.is_lost());
    assert_alike(&theirs, &kept.rows());
    assert_alike(&ours, &kept.ours());
    assert_eq!(kept.row().mark, mark);
    let error = writer.begin(true).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Lost, "nothing begins: {error}");
    let mut reader = kept.store.reader().unwrap();
    let error = reader.read(&mut |_| ()).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Lost, "nothing is read: {error}");
}

#[test]
fn an_operation_that_is_undone_leaves_no_row_there() {
    let kept = Kept::new();
    let mut writer = kept.store.writer().unwrap();
    writer.begin(true).unwrap();
    writer.savepoint().unwrap();
    crate::delta::make(
        writer.txn(),
        acetate::delta::Ino::ROOT,
        "undone",
        acetate::vfs::FileKind::Regular,
    );
    writer.roll_back().unwrap();
    writer.prepare().unwrap();
    writer.commit().unwrap();
    make_files(&mut *writer, &["done"]).unwrap();
    assert_eq!(names(&kept.rows()), ["done"]);
    assert_alike(&kept.ours(), &kept.rows());
}

#[test]
fn one_writer_follows_another() {
    let kept = Kept::new();
    let mut writer = kept.store.writer().unwrap();
    assert!(kept.store.writer().is_err(), "there is one");
    make_files(&mut *writer, &["first"]).unwrap();
    drop(writer);
    make_files(&mut *kept.store.writer().unwrap(), &["second"]).unwrap();
    assert_eq!(names(&kept.rows()), ["first", "second"]);
    assert_alike(&kept.ours(), &kept.rows());
    let root = acetate::delta::Ino::ROOT;
    assert!(look(&kept.store, |txn| txn.has_dentries(root).unwrap()));
    assert_eq!(Arc::strong_count(&kept.lease), 3, "the store, its shipper, and this test");
}

#[test]
fn what_is_recorded_before_the_writer_is_open_is_kept_when_it_opens() {
    let base = std::path::Path::new("/another/base");
    let kept = Kept::changed_early(|session| session.record_base(base).unwrap());
    let before = kept.rows();
    assert!(!differences(&kept.ours(), &before, &Default::default()).is_empty());
    let mut writer = kept.store.writer().unwrap();
    assert_alike(&kept.ours(), &kept.rows());
    make_files(&mut *writer, &["f"]).unwrap();
    writer.close().unwrap();
    assert_alike(&kept.ours(), &kept.second());
}

#[test]
fn a_batch_without_a_change_takes_no_number() {
    let kept = Kept::new();
    let mut writer = kept.store.writer().unwrap();
    make_files(&mut *writer, &["f"]).unwrap();
    let mark = kept.row().mark;
    writer.begin(true).unwrap();
    writer.prepare().unwrap();
    writer.commit().unwrap();
    assert_eq!(kept.row().mark, mark);
    make_files(&mut *writer, &["g"]).unwrap();
    assert_eq!(kept.row().mark.seq, mark.seq + 1);
    assert_alike(&kept.ours(), &kept.rows());
}

/// Its tables are gone with it, and the notes of their rows are not.
#[test]
fn a_first_checkpoint_that_is_undone_is_in_no_batch() {
    let kept = Kept::new();
    let mut writer = kept.store.writer().unwrap();
    writer.begin(true).unwrap();
    writer.savepoint().unwrap();
    writer.txn().create_checkpoint(&checkpoints::new(None)).unwrap();
    writer.roll_back().unwrap();
    writer.prepare().unwrap();
    writer.commit().unwrap();
    assert_alike(&kept.ours(), &kept.rows());
    change(&mut *writer, |txn| txn.create_checkpoint(&checkpoints::new(None)).unwrap());
    assert!(kept.ours().keys().any(|(table, _)| table == "acetate_checkpoint"));
    make_files(&mut *writer, &["f"]).unwrap();
    assert_alike(&kept.ours(), &kept.rows());
}
