//! What survives whom.

use std::path::Path;

use acetate::delta::{Ino, Store, StoreErrorKind};
use acetate::vfs::FileKind;

use super::{Place, change, content, look, make, name};
use crate::support::check::assert_consistent;

/// What a process that dies at this moment leaves behind.
fn dead_copy(of: &Path) -> Place {
    let copy = Place::new();
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", of.display());
        if Path::new(&from).exists() {
            std::fs::copy(from, format!("{}{suffix}", copy.path.display())).unwrap();
        }
    }
    copy
}

#[test]
fn a_commit_survives_the_process() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let ino = change(&mut *writer, |txn| {
        let mut row = make(txn, Ino::ROOT, "f", FileKind::Regular);
        txn.write_data(&mut row, 0, &[5; 10_000]).unwrap();
        txn.put_inode(&row).unwrap();
        row.ino
    });
    writer.begin(false).unwrap();
    make(writer.txn(), Ino::ROOT, "open", FileKind::Regular);
    let copy = dead_copy(&place.path);
    writer.abort().unwrap();

    let session = copy.open();
    look(&session, |txn| {
        assert_eq!(content(txn, ino), vec![5; 10_000]);
        assert_eq!(txn.dentry(Ino::ROOT, &name("open")).unwrap(), None);
    });
    // No number comes back, though the dead process had given some out.
    let mut writer = session.writer().unwrap();
    let next = change(&mut *writer, |txn| make(txn, Ino::ROOT, "g", FileKind::Regular).ino);
    assert!(next > Ino(ino.0 + 1));
    assert_consistent(&copy.path);
}

#[test]
fn a_death_in_the_middle_of_many_batches_keeps_the_tree_whole() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    for i in 0..40u32 {
        change(&mut *writer, |txn| {
            let mut row = make(txn, Ino::ROOT, &format!("f{i}"), FileKind::Regular);
            txn.write_data(&mut row, u64::from(i) * 100, &vec![i as u8; 5000]).unwrap();
            txn.put_inode(&row).unwrap();
        });
        if i % 10 == 7 {
            let copy = dead_copy(&place.path);
            let session = copy.open();
            let count = look(&session, |txn| {
                let mut count = 0;
                txn.dentries(Ino::ROOT, &mut |_, _, _, _| count += 1).unwrap();
                count
            });
            assert_eq!(count, i + 1);
            assert_consistent(&copy.path);
        }
    }
}

#[test]
fn the_epoch_moves_only_when_a_machine_dies() {
    let place = Place::new();
    let session = place.create();
    let first = session.epoch();
    drop(session);
    // Nothing was written: nothing can be lost.
    assert_eq!(place.open_in("next").epoch(), first);

    let session = place.open_in("next");
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |_| ());
    drop((writer, session));
    // The process died, the machine did not.
    assert_eq!(place.open_in("next").epoch(), first);
    // The machine died, once; that is found out once.
    assert_eq!(place.open_in("third").epoch(), first + 1);
    assert_eq!(place.open_in("third").epoch(), first + 1);

    let session = place.open_in("third");
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |_| ());
    writer.close().unwrap();
    drop((writer, session));
    // It was closed cleanly.
    assert_eq!(place.open_in("fourth").epoch(), first + 1);
}

#[test]
fn the_mark_of_an_unclean_session_is_in_the_file_before_the_first_change() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    writer.begin(false).unwrap();
    // Not in this batch: before it, where it is synced.
    writer.abort().unwrap();
    assert_eq!(place.number("SELECT value FROM acetate_meta WHERE key = 'clean'"), 0);
    let next = place.number("SELECT value FROM acetate_meta WHERE key = 'next_ino'");
    writer.begin(false).unwrap();
    assert!((writer.txn().allocate_ino().unwrap().0 as i64) < next);
    writer.abort().unwrap();
}

/// What is allocated must lie below a mark that no power loss takes back: one of a transaction
/// before, which was synced.
#[test]
fn numbers_are_reserved_before_they_are_given_out() {
    let place = Place::new();
    let session = place.create();
    let mark = || place.number("SELECT value FROM acetate_meta WHERE key = 'next_ino'");
    drop({
        let mut writer = session.writer().unwrap();
        change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
        writer
    });
    drop(session);
    // Neither after a death, where the session is marked as being written already ...
    let session = place.open();
    let mut writer = session.writer().unwrap();
    for _ in 0..3 {
        // ... nor where the reserve runs out.
        writer.begin(false).unwrap();
        let reserved = mark();
        for _ in 0..30_000 {
            assert!((writer.txn().allocate_ino().unwrap().0 as i64) < reserved);
        }
        let used_up = (0..40_000).find_map(|_| writer.txn().allocate_ino().err());
        assert!(
            matches!(&used_up, Some(error) if error.kind == StoreErrorKind::Busy),
            "{used_up:?}"
        );
        writer.commit().unwrap();
    }
}

#[test]
fn a_lost_sync_moves_the_epoch_for_good() {
    let place = Place::new();
    let session = place.create();
    let first = session.epoch();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |_| ());
    assert_eq!(writer.advance_epoch(), first + 1);
    assert_eq!(session.epoch(), first + 1);
    drop((writer, session));
    assert_eq!(place.open().epoch(), first + 1);
}

#[test]
fn a_sync_writes_only_if_something_is_unsynced() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let syncs = "SELECT ifnull(max(value), 0) FROM acetate_meta WHERE key = 'syncs'";
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    assert_eq!(place.number(syncs), 0);
    writer.sync().unwrap();
    writer.sync().unwrap();
    assert_eq!(place.number(syncs), 1);
    // A durable batch that changes nothing syncs what was before it.
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "g", FileKind::Regular));
    writer.begin(true).unwrap();
    writer.commit().unwrap();
    assert_eq!(place.number(syncs), 2);
    writer.sync().unwrap();
    writer.begin(true).unwrap();
    make(writer.txn(), Ino::ROOT, "h", FileKind::Regular);
    writer.commit().unwrap();
    assert_eq!(place.number(syncs), 2);
    drop((writer, session));
    // What a dead process left unsynced is synced by the first that is asked to.
    let session = place.open();
    let mut writer = session.writer().unwrap();
    writer.sync().unwrap();
    assert_eq!(place.number(syncs), 3);
}

#[test]
fn what_a_sync_has_to_write_is_known() {
    let place = Place::new();
    let session = place.create_with(65536);
    let mut writer = session.writer().unwrap();
    let mut row = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    let small = writer.unsynced_bytes();
    assert!((1..1 << 20).contains(&small), "{small}");
    writer.sync().unwrap();
    assert_eq!(writer.unsynced_bytes(), 0);
    // The log starts over meanwhile, when all of it was copied and synced.
    let (mut last, mut restarts) = (0, 0);
    for i in 0..60u64 {
        change(&mut *writer, |txn| {
            txn.write_data(&mut row, i << 20, &vec![7; 1 << 20]).unwrap();
            txn.put_inode(&row).unwrap();
        });
        let unsynced = writer.unsynced_bytes();
        assert!(unsynced >= 1 << 20, "{unsynced} bytes after {i} MiB");
        restarts += u32::from(unsynced < last);
        last = unsynced;
    }
    assert!(restarts > 0);
    drop((writer, session));
    // Nobody knows what a process that died has left.
    let session = place.open();
    let mut writer = session.writer().unwrap();
    assert_eq!(writer.unsynced_bytes(), u64::MAX);
    writer.sync().unwrap();
    assert_eq!(writer.unsynced_bytes(), 0);
}

#[test]
fn the_log_stays_bounded() {
    let place = Place::new();
    let session = place.create_with(65536);
    let mut writer = session.writer().unwrap();
    let log = session.files()[1].clone();
    let data = vec![7; 1 << 20];
    let mut row = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    for i in 0..120u64 {
        change(&mut *writer, |txn| {
            txn.write_data(&mut row, i % 60 * data.len() as u64, &data).unwrap();
            txn.put_inode(&row).unwrap();
        });
        let length = std::fs::metadata(&log).unwrap().len();
        // 40 MiB at which the writer waits, and the batch that goes beyond.
        assert!(length < 42 << 20, "{length} bytes after {i} MiB");
    }
    writer.close().unwrap();
    assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
}
