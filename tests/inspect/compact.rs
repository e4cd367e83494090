//! Compacting gives space back, and changes nothing else.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use acetate::delta::sqlite::OpenError;
use acetate::delta::{Ino, Store, StoreErrorKind};
use acetate::inspect::maintenance::compact;
use acetate::vfs::FileKind;

use super::all_rows;
use crate::delta::{Place, change, content, look, make, name};
use crate::support::check::assert_consistent;

const FILES: usize = 40;
const FILE_BYTES: usize = 100_000;

/// A session with files of which every second one was removed, cleanly closed. The rest hold
/// what [`data`] says.
pub fn half_empty(place: &Place, files: usize) {
    let session = place.create_with(65536);
    let mut writer = session.writer().unwrap();
    for number in 0..files {
        change(&mut *writer, |txn| {
            let mut row = make(txn, Ino::ROOT, &format!("f{number}"), FileKind::Regular);
            txn.write_data(&mut row, 0, &data(number)).unwrap();
            txn.put_inode(&row).unwrap();
        });
    }
    for number in (0..files).step_by(2) {
        change(&mut *writer, |txn| {
            let name = name(&format!("f{number}"));
            let ino = txn.dentry(Ino::ROOT, &name).unwrap().unwrap();
            txn.delete_dentry(Ino::ROOT, &name).unwrap();
            txn.delete_inode(ino).unwrap();
        });
    }
    writer.close().unwrap();
}

/// The content of a file.
fn data(number: usize) -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at * 31 + number * 7) as u8).collect()
}

fn byte_len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

#[test]
fn what_was_removed_is_given_back_and_the_rest_stays() {
    let place = Place::new();
    half_empty(&place, FILES);
    let (before, rows) = (byte_len(&place.path), all_rows(&place.path));
    let pragmas = |place: &Place| {
        ["page_size", "application_id", "auto_vacuum"].map(|p| place.number(&format!("PRAGMA {p}")))
    };
    let kept = pragmas(&place);
    let compacted = compact(&place.path, &mut |_, _| ()).unwrap();
    assert_eq!(place.names(), ["session.db"], "nothing is left beside it");
    let after = byte_len(&place.path);
    assert_eq!((compacted.before_bytes, compacted.after_bytes), (before, after));
    assert!(!compacted.is_delayed);
    assert!(after < before * 6 / 10, "{before} to {after}");
    assert_eq!(place.number("PRAGMA freelist_count"), 0);
    let sql = place.sql();
    let mode: String = sql.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    drop(sql);
    assert_eq!(pragmas(&place), kept);
    assert!(all_rows(&place.path) == rows, "a row changed");
    assert_consistent(&place.path);
    let session = place.open();
    look(&session, |txn| {
        let ino = txn.dentry(Ino::ROOT, &name("f1")).unwrap().unwrap();
        assert!(content(txn, ino) == data(1));
    });
    // And it goes on as before: with a number that was never used.
    let mut writer = session.writer().unwrap();
    let row = change(&mut *writer, |txn| make(txn, Ino::ROOT, "new", FileKind::Regular));
    assert!(row.ino.0 as i64 > place.number("SELECT max(ino) FROM fs_inode") - 1);
    writer.close().unwrap();
    assert_consistent(&place.path);
}

#[test]
fn a_session_that_is_served_is_refused() {
    let place = Place::new();
    let session = place.create();
    let refused = compact(&place.path, &mut |_, _| ()).unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    drop(session);
    assert!(compact(&place.path, &mut |_, _| ()).is_ok());
}

#[test]
fn what_a_killed_compaction_left_goes_and_the_log_is_part_of_the_session() {
    let place = Place::new();
    half_empty(&place, FILES);
    let copy = place.path.with_file_name("session.db-compact");
    let journal = place.path.with_file_name("session.db-compact-journal");
    fs::write(&copy, "half of a copy").unwrap();
    fs::write(&journal, "its journal").unwrap();
    // A server that was killed: what it wrote is in the log alone.
    let session = place.open();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "in-the-log", FileKind::Regular));
    let log = place.path.with_file_name("session.db-wal");
    let (file, frames) = (fs::read(&place.path).unwrap(), fs::read(&log).unwrap());
    drop((writer, session));
    fs::write(&place.path, file).unwrap();
    fs::write(&log, frames).unwrap();
    let rows = all_rows(&place.path);
    assert!(rows.iter().any(|row| row.contains("in-the-log")));
    compact(&place.path, &mut |_, _| ()).unwrap();
    assert!(all_rows(&place.path) == rows, "a row changed");
    assert!(!copy.exists() && !journal.exists());
}

#[test]
fn another_program_that_reads_keeps_what_it_sees_and_delays_the_space() {
    let place = Place::new();
    half_empty(&place, FILES);
    let before = byte_len(&place.path);
    let other = place.sql();
    let count = "SELECT count(*) FROM fs_inode";
    let ask = || other.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap();
    other.execute_batch("BEGIN").unwrap();
    let seen = ask();
    let compacted = compact(&place.path, &mut |_, _| ()).unwrap();
    assert!(compacted.is_delayed);
    assert_eq!(ask(), seen);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(ask(), seen);
    drop(other);
    let compacted = compact(&place.path, &mut |_, _| ()).unwrap();
    assert!(!compacted.is_delayed && compacted.after_bytes < before * 6 / 10);
    assert_consistent(&place.path);
}

#[test]
fn progress_goes_up_to_all() {
    let place = Place::new();
    half_empty(&place, FILES);
    let mut told = Vec::new();
    compact(&place.path, &mut |done, all| told.push((done, all))).unwrap();
    let (done, all) = *told.last().unwrap();
    assert_eq!(done, all);
    assert!(told.iter().all(|(done, all)| done <= all));
}

#[test]
fn what_another_program_writes_meanwhile_is_kept() {
    let place = Place::new();
    half_empty(&place, FILES);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            let other = place.sql();
            let mut written = 0;
            while !is_done.load(Ordering::Relaxed) {
                let set = "INSERT INTO kv_store (key, value) VALUES (?1, '1')";
                other.execute(set, [written]).unwrap();
                written += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            written
        });
        for _ in 0..20 {
            match compact(&place.path, &mut |_, _| ()) {
                // It gives up where the other one never pauses for long enough.
                Ok(_) => {}
                Err(OpenError::Store { source, .. }) if source.kind == StoreErrorKind::Busy => {}
                Err(error) => panic!("{error}"),
            }
        }
        is_done.store(true, Ordering::Relaxed);
        let written = written.join().unwrap();
        assert_eq!(place.number("SELECT count(*) FROM kv_store"), written);
    });
    compact(&place.path, &mut |_, _| ()).unwrap();
    assert_consistent(&place.path);
}
