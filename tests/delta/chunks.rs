//! File content against a model: a vector of bytes.

use acetate::delta::{Ino, InodeRow, Store, StoreErrorKind};
use acetate::vfs::FileKind;
use proptest::prelude::*;

use super::{Place, change, content, look, make};
use crate::support::check::assert_consistent;

#[derive(Debug, Clone)]
enum Step {
    Write { offset: u64, length: usize, byte: u8 },
    Truncate(u64),
    Read { offset: u64, length: usize },
    RollBackWrite { offset: u64, length: usize },
    Reopen,
}

/// Offsets that love the edges of chunks of 512 bytes.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..6000u64,
        (0..12u64, -2..3i64).prop_map(|(chunk, off)| (chunk * 512).saturating_add_signed(off)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![0..10usize, 500..530usize, 0..2500usize];
    prop_oneof![
        6 => (offset(), length.clone(), any::<u8>())
            .prop_map(|(offset, length, byte)| Step::Write { offset, length, byte }),
        3 => offset().prop_map(Step::Truncate),
        3 => (offset(), length.clone()).prop_map(|(offset, length)| Step::Read { offset, length }),
        1 => (offset(), length)
            .prop_map(|(offset, length)| Step::RollBackWrite { offset, length }),
        1 => Just(Step::Reopen),
    ]
}

/// No two neighbouring bytes are equal, so that no shift goes unseen.
fn pattern(length: usize, byte: u8) -> Vec<u8> {
    (0..length).map(|i| byte.wrapping_add((i % 251) as u8)).collect()
}

fn put(model: &mut Vec<u8>, offset: u64, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let end = offset as usize + data.len();
    if model.len() < end {
        model.resize(end, 0);
    }
    model[offset as usize..end].copy_from_slice(data);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn content_is_as_written(steps in prop::collection::vec(step(), 1..30)) {
        let place = Place::new();
        let mut session = place.create_with(512);
        let mut writer = session.writer().unwrap();
        let mut model = Vec::new();
        let ino = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular).ino);
        for step in &steps {
            match step {
                Step::Write { offset, length, byte } => {
                    let data = pattern(*length, *byte);
                    change(&mut *writer, |txn| {
                        let mut row = txn.inode(ino).unwrap().unwrap();
                        txn.write_data(&mut row, *offset, &data).unwrap();
                        txn.put_inode(&row).unwrap();
                    });
                    put(&mut model, *offset, &data);
                }
                Step::Truncate(size) => {
                    change(&mut *writer, |txn| {
                        let mut row = txn.inode(ino).unwrap().unwrap();
                        txn.truncate(&mut row, *size).unwrap();
                        txn.put_inode(&row).unwrap();
                    });
                    model.resize(*size as usize, 0);
                }
                Step::Read { offset, length } => {
                    let from = (*offset as usize).min(model.len());
                    let to = (from + length).min(model.len());
                    let mut buffer = vec![0xAA; to - from];
                    look(&session, |txn| {
                        let row = txn.inode(ino).unwrap().unwrap();
                        txn.read_data(&row, from as u64, &mut buffer).unwrap();
                    });
                    prop_assert_eq!(&buffer, &model[from..to]);
                }
                Step::RollBackWrite { offset, length } => {
                    writer.begin(false).unwrap();
                    writer.savepoint().unwrap();
                    let mut row = writer.txn().inode(ino).unwrap().unwrap();
                    writer.txn().write_data(&mut row, *offset, &pattern(*length, 99)).unwrap();
                    writer.txn().put_inode(&row).unwrap();
                    writer.roll_back().unwrap();
                    writer.commit().unwrap();
                }
                Step::Reopen => {
                    drop(writer);
                    drop(session);
                    session = place.open();
                    writer = session.writer().unwrap();
                }
            }
            let got = look(&session, |txn| content(txn, ino));
            prop_assert_eq!(&got, &model, "after {:?}", step);
        }
        // Chunk lengths, sizes and holes, by SQL.
        assert_consistent(&place.path);
    }
}

#[test]
fn a_hole_is_not_stored() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let row = change(&mut *writer, |txn| {
        let mut row = make(txn, Ino::ROOT, "f", FileKind::Regular);
        txn.write_data(&mut row, 1 << 40, b"end").unwrap();
        txn.put_inode(&row).unwrap();
        row
    });
    assert_eq!((row.size, row.holes), ((1 << 40) + 3, (1 << 40) / 4096));
    assert_eq!(place.number("SELECT count(*) FROM fs_data"), 1);
    let row = change(&mut *writer, |txn| {
        let mut row = txn.inode(row.ino).unwrap().unwrap();
        // Zeros are data where they are written.
        txn.write_data(&mut row, 4096, &[0; 4096]).unwrap();
        txn.put_inode(&row).unwrap();
        row
    });
    assert_eq!(row.holes, (1 << 40) / 4096 - 1);
    assert_consistent(&place.path);
}

#[test]
fn a_file_ends_where_the_column_does() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| {
        let mut row = make(txn, Ino::ROOT, "f", FileKind::Regular);
        let before = row.clone();
        for offset in [u64::MAX, i64::MAX as u64] {
            let refused = txn.write_data(&mut row, offset, b"x");
            assert!(
                matches!(&refused, Err(error) if error.kind == StoreErrorKind::Full),
                "{refused:?}"
            );
        }
        assert!(txn.truncate(&mut row, u64::MAX).is_err());
        assert_eq!(row, before);
    });
}

/// What other implementations leave: read as well as can be, mended where written.
#[test]
fn odd_chunks_are_read_and_mended() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let ino = change(&mut *writer, |txn| {
        let mut row = make(txn, Ino::ROOT, "f", FileKind::Regular);
        row.size = 3 * 4096 + 10;
        txn.put_inode(&row).unwrap();
        row.ino
    });
    // What others store of a file, they store before it is served.
    drop(writer);
    let put = |index: i64, data: rusqlite::types::Value| {
        let sql = "INSERT INTO fs_data (ino, chunk_index, data) VALUES (?1, ?2, ?3)";
        place.sql().execute(sql, (ino.0 as i64, index, data)).unwrap();
    };
    put(0, rusqlite::types::Value::Blob(vec![1; 5]));
    put(1, rusqlite::types::Value::Text("two".to_owned()));
    put(3, rusqlite::types::Value::Blob(vec![3; 5000]));
    put(9, rusqlite::types::Value::Blob(vec![9; 4096]));
    put(-1, rusqlite::types::Value::Blob(vec![8; 4096]));

    let mut model = vec![0; 3 * 4096 + 10];
    model[..5].fill(1);
    model[4096..4099].copy_from_slice(b"two");
    model[3 * 4096..].fill(3);
    assert_eq!(look(&session, |txn| content(txn, ino)), model);

    let mut writer = session.writer().unwrap();
    let write = |writer: &mut dyn acetate::delta::Writer, offset: u64, data: &[u8]| {
        change(writer, |txn| {
            let mut row: InodeRow = txn.inode(ino).unwrap().unwrap();
            txn.write_data(&mut row, offset, data).unwrap();
            txn.put_inode(&row).unwrap();
        });
    };
    write(&mut *writer, 100, b"in a short chunk");
    write(&mut *writer, 4200, b"in a text");
    write(&mut *writer, 10 * 4096, b"behind stale bytes");
    model.resize(10 * 4096 + 18, 0);
    model[100..116].copy_from_slice(b"in a short chunk");
    model[4200..4209].copy_from_slice(b"in a text");
    model[10 * 4096..].copy_from_slice(b"behind stale bytes");
    assert_eq!(look(&session, |txn| content(txn, ino)), model);
    let wrong = "SELECT count(*) FROM fs_data WHERE chunk_index >= 0 AND typeof(data) <> 'blob'
        OR length(data) NOT IN (4096, 18)";
    assert_eq!(place.number(wrong), 0);
}
