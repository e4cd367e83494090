//! The mark of a replica is gone when its file has rows that the database may lack.

use acetate::delta::sqlite::{BatchMark, OpenMode, Session};
use acetate::delta::{Ino, Store};
use acetate::vfs::FileKind;

use super::{Kept, assert_alike, host, make_files};
use crate::delta::{Place, change, make};

const MARK: BatchMark = BatchMark { seq: 7, stamp: -9 };

/// A file with a mark, which was closed.
fn marked() -> Place {
    let place = Place::new();
    let options = Default::default();
    let mut session = Session::create(&place.path, &options, &host()).unwrap();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "file", FileKind::Regular));
    writer.close().unwrap();
    drop((writer, session));
    session = open(&place);
    session.record_mark(MARK).unwrap();
    drop(session);
    assert_eq!(mark(&place), Some(MARK));
    place
}

fn open(place: &Place) -> Session {
    Session::open(&place.path, OpenMode::Serve, &host()).unwrap()
}

fn mark(place: &Place) -> Option<BatchMark> {
    let session = Session::open(&place.path, OpenMode::Inspect, &host()).unwrap();
    session.replica_mark().unwrap()
}

/// A replica with rows of no batch is not used again.
#[test]
fn what_changes_without_a_batch_takes_the_mark_away() {
    let kept = Kept::new();
    let replica = kept.store.replica();
    assert_eq!(replica.replica_mark().unwrap(), Some(kept.row.mark));
    let mut writer = kept.store.writer().unwrap();
    writer.begin(true).unwrap();
    writer.abort().unwrap();
    let seq = "SELECT count(*) FROM acetate_meta WHERE key = 'replica_seq'";
    let marks = || {
        let conn = rusqlite::Connection::open(replica.path()).unwrap();
        conn.query_row(seq, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(marks(), 0, "the numbers that it reserved are in no batch");
    make_files(&mut *writer, &["f"]).unwrap();
    assert_eq!(marks(), 1);
    assert_alike(&kept.ours(), &kept.rows());
}

#[test]
fn a_change_that_is_not_noted_takes_the_mark_away() {
    let place = marked();
    let session = open(&place);
    let mut writer = session.writer().unwrap();
    writer.close().unwrap();
    drop((writer, session));
    assert_eq!(mark(&place), Some(MARK), "it was only opened");
    let session = open(&place);
    change(&mut *session.writer().unwrap(), |txn| make(txn, Ino::ROOT, "more", FileKind::Regular));
    assert_eq!(mark(&place), None);
}

#[test]
fn what_is_recorded_without_notes_takes_the_mark_away() {
    let place = marked();
    open(&place).record_base("/another/base".as_ref()).unwrap();
    assert_eq!(mark(&place), None);
}

#[test]
fn an_entry_of_another_program_takes_the_mark_away_when_the_file_is_opened() {
    let place = marked();
    let insert = "INSERT INTO fs_dentry (name, parent_ino, ino)
        SELECT 'other', parent_ino, ino FROM fs_dentry WHERE name = 'file'";
    assert_eq!(place.sql().execute(insert, []).unwrap(), 1);
    assert_eq!(mark(&place), Some(MARK));
    drop(open(&place));
    assert_eq!(mark(&place), None);
}

/// Compaction gives rows other ids.
#[test]
fn compaction_takes_the_mark_away() {
    let place = marked();
    Session::compact(&place.path, &mut |_, _| ()).unwrap();
    assert_eq!(mark(&place), None);
    let place = marked();
    let session = open(&place);
    session.writer().unwrap().compact().unwrap();
    assert_eq!(mark(&place), None);
}
