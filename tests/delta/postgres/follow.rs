//! A replica that lacks some batches gets these, and is made again if it cannot.

use std::path::{Path, PathBuf};

use acetate::delta::Store;
use acetate::delta::postgres::{Followed, catch_up, hydrate};
use acetate::delta::sqlite::{BatchMark, OpenMode, Session};

use super::{Kept, assert_alike, host, make_files};
use crate::delta::{change, checkpoints, name};
use crate::support::database::rows::{AllRows, rows_of_file};

/// A second replica that has all rows of now.
struct Second {
    path: PathBuf,
    mark: BatchMark,
}

impl Second {
    fn of(kept: &Kept) -> Self {
        let path = kept.dir.path().join("following.db");
        let of = (&kept.url, kept.row.id);
        let mark = kept.database.with(|client, runtime| {
            runtime.block_on(hydrate(client, of, (&path, &host()))).unwrap().1
        });
        Self { path, mark }
    }

    fn catch_up(&self, kept: &Kept) -> Followed {
        let of = (&kept.url.schema, kept.row.id);
        kept.database.with(|client, runtime| {
            runtime.block_on(catch_up(client, of, (&self.path, &host()))).unwrap()
        })
    }

    fn rows(&self) -> AllRows {
        rows_of_file(&Session::open(&self.path, OpenMode::Inspect, &host()).unwrap()).unwrap()
    }
}

/// Values of `acetate_meta` in a file.
fn meta(path: &Path, keys: &[&str]) -> Vec<Option<String>> {
    let conn = rusqlite::Connection::open(path).unwrap();
    let text = "SELECT hex(value) FROM acetate_meta WHERE key = ?1";
    keys.iter().map(|key| conn.query_row(text, [key], |row| row.get(0)).ok()).collect()
}

#[test]
fn batches_that_exchange_delete_and_add_rows_are_applied() {
    let kept = Kept::new();
    let mut writer = kept.store.writer().unwrap();
    make_files(&mut *writer, &["a", "b", "gone"]).unwrap();
    let second = Second::of(&kept);
    assert_eq!(second.catch_up(&kept), Followed::UpTo(second.mark), "it lacks nothing");
    let root = acetate::delta::Ino::ROOT;
    let mut ino =
        |entry: &str| change(&mut *writer, |txn| txn.dentry(root, &name(entry)).unwrap().unwrap());
    let (a, b, gone) = (ino("a"), ino("b"), ino("gone"));
    // Two names are exchanged in one batch, and one is freed and taken again.
    writer.begin(true).unwrap();
    let txn = writer.txn();
    txn.move_dentry((root, &name("a")), (root, &name("t")), a).unwrap();
    txn.move_dentry((root, &name("b")), (root, &name("a")), b).unwrap();
    txn.move_dentry((root, &name("t")), (root, &name("b")), a).unwrap();
    txn.delete_dentry(root, &name("gone")).unwrap();
    txn.delete_inode(gone).unwrap();
    writer.prepare().unwrap();
    writer.commit().unwrap();
    make_files(&mut *writer, &["gone", "new"]).unwrap();
    // Tables that a session gets with its first checkpoint.
    writer.begin(true).unwrap();
    writer.txn().create_checkpoint(&checkpoints::new(None)).unwrap();
    writer.prepare().unwrap();
    writer.commit().unwrap();
    make_files(&mut *writer, &["after"]).unwrap();
    assert_eq!(second.catch_up(&kept), Followed::UpTo(kept.row().mark));
    assert_alike(&second.rows(), &kept.rows());
    assert_eq!(second.catch_up(&kept), Followed::UpTo(kept.row().mark), "and keeps that");
    writer.close().unwrap();
    assert_eq!(second.catch_up(&kept), Followed::UpTo(kept.row().mark));
    assert_alike(&second.rows(), &kept.rows());
}

#[test]
fn what_is_about_the_file_alone_stays() {
    let local = ["handle_key", "replica_of", "boot_id", "boot_epoch"];
    let kept = Kept::new();
    let second = Second::of(&kept);
    let before = meta(&second.path, &local);
    assert!(before.iter().all(Option::is_some), "{before:?}");
    // A server writes a row of the session where this file has one of its own.
    let conn = rusqlite::Connection::open(&second.path).unwrap();
    let text = "SELECT rowid FROM acetate_meta WHERE key = 'handle_key'";
    let row: i64 = conn.query_row(text, [], |row| row.get(0)).unwrap();
    drop(conn);
    let mut writer = kept.store.writer().unwrap();
    make_files(&mut *writer, &["f"]).unwrap();
    let (schema, id, seq) = (&kept.url.schema, kept.row.id, kept.row().mark.seq);
    kept.database.run(&format!(
        "INSERT INTO {schema}.acetate_meta (session, row, key, value) VALUES ({id}, {row}, \
         'of_a_later_version', '7'); UPDATE {schema}.change SET changed = \
         '{{\"acetate_meta\":[{row}]}}' WHERE session = {id} AND seq = {seq}"
    ));
    assert_eq!(second.catch_up(&kept), Followed::UpTo(kept.row().mark));
    assert_eq!(meta(&second.path, &local), before);
    assert_eq!(meta(&second.path, &["of_a_later_version"]), [Some("37".to_owned())]);
}

#[test]
fn a_replica_that_the_changes_do_not_lead_on_from_is_made_again() {
    let refused: [(&str, &str); 5] = [
        (
            "the first batch has another stamp",
            "UPDATE CHANGE SET stamp = stamp + 1 WHERE OF AND seq = $1",
        ),
        ("one batch is missing", "DELETE FROM CHANGE WHERE OF AND seq = $1 + 2"),
        ("the last batch is missing", "DELETE FROM CHANGE WHERE OF AND seq = $1 + 3"),
        ("its own batch is forgotten", "DELETE FROM CHANGE WHERE OF AND seq <= $1"),
        (
            "a table is unknown",
            "UPDATE CHANGE SET changed = '{\"later\":[1]}' WHERE OF AND seq = $1 + 1",
        ),
    ];
    for (what, text) in refused {
        let kept = Kept::new();
        let mut writer = kept.store.writer().unwrap();
        make_files(&mut *writer, &["first"]).unwrap();
        let second = Second::of(&kept);
        make_files(&mut *writer, &["f", "g", "h"]).unwrap();
        let before = second.rows();
        let text = text.replace("CHANGE", &format!("{}.change", kept.url.schema));
        let text = text.replace("OF", &format!("session = {}", kept.row.id));
        kept.database.run(&text.replace("$1", &second.mark.seq.to_string()));
        let expected = if what.contains("stamp") { Followed::Diverged } else { Followed::Unusable };
        assert_eq!(second.catch_up(&kept), expected, "{what}");
        assert_alike(&second.rows(), &before);
    }
}

#[test]
fn no_replica_is_none_and_one_in_use_is_left_alone() {
    let kept = Kept::new();
    let second = Second::of(&kept);
    let session = Session::open_any(&second.path, &host()).unwrap();
    let of = (&kept.url.schema, kept.row.id);
    let refused = kept
        .database
        .with(|client, runtime| runtime.block_on(catch_up(client, of, (&second.path, &host()))));
    assert!(refused.unwrap_err().to_string().contains("in use"), "it is served");
    drop(session);
    std::fs::remove_file(&second.path).unwrap();
    assert_eq!(second.catch_up(&kept), Followed::Unusable);
}
