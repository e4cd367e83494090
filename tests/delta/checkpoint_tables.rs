//! Checkpoints: their tables and indexes.

use acetate::delta::{CheckpointId, Ino, MadeCheckpoint, Store, Writer};
use acetate::vfs::FileKind;

use super::checkpoints::{at, checkpoint, made, new};
use super::{Place, change, look, make, name};
use crate::support::check::assert_consistent;

/// What the file calls a column runs no SQL.
#[test]
fn a_column_with_an_odd_name_is_no_statement() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| drop(make(txn, Ino::ROOT, "f", FileKind::Regular)));
    checkpoint(&mut *writer);
    writer.close().unwrap();
    drop((writer, session));
    let odd = "ALTER TABLE fs_inode ADD COLUMN \"x); END; DELETE FROM acetate_checkpoint; --\"";
    place.sql().execute_batch(odd).unwrap();
    let session = place.open();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| drop(make(txn, Ino::ROOT, "g", FileKind::Regular)));
    let made = session.checkpoints().unwrap();
    let shown = look(&at(&place, &made[0]), |txn| {
        ["f", "g"].map(|one| txn.dentry(Ino::ROOT, &name(one)).unwrap().is_some())
    });
    assert_eq!(shown, [true, false]);
}

/// Without a checkpoint, a session has none of these tables.
#[test]
fn the_first_checkpoint_makes_the_tables() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let tables = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'acetate_old%'
                  OR name = 'acetate_checkpoint'";
    change(&mut *writer, |txn| drop(make(txn, Ino::ROOT, "f", FileKind::Regular)));
    assert_eq!(place.number(tables), 0);
    assert!(!change(&mut *writer, |txn| txn.remove_checkpoint(CheckpointId(1)).unwrap()));
    // Undone with its transaction.
    writer.begin(false).unwrap();
    writer.txn().create_checkpoint(&new(None)).unwrap();
    writer.abort().unwrap();
    assert_eq!(place.number(tables), 0);
    change(&mut *writer, |txn| drop(make(txn, Ino::ROOT, "g", FileKind::Regular)));
    let one = change(&mut *writer, |txn| made(txn.create_checkpoint(&new(Some("one"))).unwrap()));
    let listed = session.checkpoints().unwrap();
    assert_eq!(listed, [one]);
    // A name is used once.
    let again = change(&mut *writer, |txn| txn.create_checkpoint(&new(Some("one"))).unwrap());
    assert_eq!(again, MadeCheckpoint::NameTaken);
    drop(writer);
    assert_consistent(&place.path);
}

/// A session of the version before has two indexes for each table, and works with them too.
#[test]
fn earlier_indexes_are_replaced_with_the_next_checkpoint() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let ino = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular).ino);
    let set_owner = |writer: &mut dyn Writer, uid: u32| {
        change(writer, |txn| {
            let mut row = txn.inode(ino).unwrap().unwrap();
            row.uid = uid;
            txn.put_inode(&row).unwrap();
        });
    };
    let first = checkpoint(&mut *writer);
    set_owner(&mut *writer, 1);
    let second = checkpoint(&mut *writer);
    writer.close().unwrap();
    drop((writer, session));
    let earlier = "DROP INDEX acetate_old_fs_inode_at; DROP INDEX acetate_old_piece_at;
        CREATE UNIQUE INDEX acetate_old_fs_inode_key ON acetate_old_fs_inode (ino, checkpoint);
        CREATE INDEX acetate_old_fs_inode_checkpoint ON acetate_old_fs_inode (checkpoint);
        CREATE UNIQUE INDEX acetate_old_piece_key
          ON acetate_old_piece (ino, chunk_index, piece, checkpoint);
        CREATE INDEX acetate_old_piece_checkpoint ON acetate_old_piece (checkpoint)";
    place.sql().execute_batch(earlier).unwrap();
    let session = place.open();
    let mut writer = session.writer().unwrap();
    set_owner(&mut *writer, 2);
    set_owner(&mut *writer, 3);
    let owners = || {
        [&first, &second]
            .map(|one| look(&at(&place, one), |txn| txn.inode(ino).unwrap().map(|row| row.uid)))
    };
    assert_eq!(owners(), [Some(1000), Some(1)]);
    checkpoint(&mut *writer);
    set_owner(&mut *writer, 4);
    assert_eq!(owners(), [Some(1000), Some(1)]);
    let indexes = "SELECT group_concat(name) FROM (SELECT name FROM sqlite_master
        WHERE type = 'index' AND tbl_name IN ('acetate_old_fs_inode', 'acetate_old_piece')
        ORDER BY name)";
    let indexes: String = place.sql().query_row(indexes, [], |row| row.get(0)).unwrap();
    assert_eq!(indexes, "acetate_old_fs_inode_at,acetate_old_piece_at");
    drop(writer);
    assert_consistent(&place.path);
}
