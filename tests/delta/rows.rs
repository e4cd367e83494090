//! Every operation on rows, read back by the same connection, by a reader, and after reopening.

use std::collections::BTreeSet;

use acetate::base::{BasePath, DELTA_IDS};
use acetate::delta::{AuditRow, Ino, InodeRow, MergedPath, Origin, Procedure, Store, StoreError};
use acetate::vfs::{Device, FileId, FileKind, Name};

use super::{Place, change, host, inode, look, make, name, time};
use crate::support::check::assert_consistent;

fn merged(text: &str) -> MergedPath {
    MergedPath::from_bytes(text.as_bytes()).unwrap()
}

fn base(text: &str) -> BasePath {
    BasePath::from_bytes(text.as_bytes()).unwrap()
}

#[test]
fn the_root_is_there_from_the_start() {
    let place = Place::new();
    let session = place.create();
    let root = look(&session, |txn| txn.inode(Ino::ROOT).unwrap().unwrap());
    assert_eq!((root.kind, root.mode, root.nlink), (FileKind::Directory, 0o755, 1));
    assert_eq!((root.uid, root.gid, root.subdirs), (0, 0, Some(0)));
    assert_eq!(root.ctime, host("").now);
    assert_consistent(&place.path);
}

#[test]
fn an_inode_keeps_every_column() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let full = change(&mut *writer, |txn| {
        let ino = txn.allocate_ino().unwrap();
        let row = InodeRow {
            mode: 0o7777,
            nlink: 3,
            rdev: Device { major: 259, minor: 70_000 },
            holes: 0,
            create_verifier: Some(*b"\0verify\xff"),
            origin: Some(Origin {
                fileid: FileId(4711),
                path: BasePath::from_bytes(b"a/\xff").unwrap(),
                dev: u64::MAX,
                ino: u64::MAX - 1,
                nlink: 3,
                size: 1 << 40,
                mtime: time(-5),
                ctime: time(1 << 40),
            }),
            ..inode(ino, FileKind::Block)
        };
        txn.put_inode(&row).unwrap();
        assert_eq!(txn.inode(ino).unwrap().unwrap(), row);
        row
    });
    assert_eq!(look(&session, |txn| txn.inode(full.ino).unwrap().unwrap()), full);
    assert_eq!(full.fileid(), FileId(4711));
    assert_eq!(look(&session, |txn| txn.copied_up(FileId(4711)).unwrap()), Some(full.ino));
    assert_eq!(place.number("SELECT base_ino FROM fs_origin"), 4711);

    let bare = InodeRow { origin: None, create_verifier: None, ..full.clone() };
    change(&mut *writer, |txn| txn.put_inode(&bare).unwrap());
    assert_eq!(look(&session, |txn| txn.inode(full.ino).unwrap().unwrap()), bare);
    assert_eq!(look(&session, |txn| txn.copied_up(FileId(4711)).unwrap()), None);
    assert_eq!(place.number("SELECT count(*) FROM fs_origin"), 0);
    assert_eq!(place.number("SELECT count(*) FROM acetate_inode WHERE ino <> 1"), 0);
}

#[test]
fn numbers_are_fresh_and_never_come_back() {
    let place = Place::new();
    drop(place.create());
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        let session = place.open();
        let mut writer = session.writer().unwrap();
        writer.begin(false).unwrap();
        writer.savepoint().unwrap();
        let lost = writer.txn().allocate_ino().unwrap();
        writer.roll_back().unwrap();
        writer.abort().unwrap();
        assert!(seen.insert(lost), "round {round}");
        let kept = change(&mut *writer, |txn| {
            make(txn, Ino::ROOT, &format!("f{round}"), FileKind::Regular).ino
        });
        assert!(seen.insert(kept), "round {round}");
        assert!(kept.0 > DELTA_IDS && kept.0 < FileId::LIMIT);
        assert_eq!(kept.fileid(), FileId(kept.0));
        // Lost again, and by a process that dies in rounds 0 and 2.
        writer.begin(false).unwrap();
        assert!(seen.insert(writer.txn().allocate_ino().unwrap()), "round {round}");
        writer.abort().unwrap();
        if round == 1 {
            writer.close().unwrap();
        }
    }
    assert_consistent(&place.path);
}

#[test]
fn entries_come_and_go() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let odd = Name::new(b"\xff\xfe odd").unwrap();
    let (directory, file) = change(&mut *writer, |txn| {
        let directory = make(txn, Ino::ROOT, "dir", FileKind::Directory);
        let file = make(txn, directory.ino, "file", FileKind::Regular);
        txn.insert_dentry(directory.ino, &odd, file.ino).unwrap();
        txn.put_inode(&InodeRow { nlink: 2, ..file.clone() }).unwrap();
        (directory.ino, file.ino)
    });
    assert_consistent(&place.path);
    look(&session, |txn| {
        assert_eq!(txn.dentry(directory, &odd).unwrap(), Some(file));
        assert_eq!(txn.dentry(directory, &name("file")).unwrap(), Some(file));
        assert_eq!(txn.dentry(directory, &name("FILE")).unwrap(), None);
        assert_eq!(txn.name_of(directory).unwrap(), Some((Ino::ROOT, name("dir"))));
        assert_eq!(txn.name_of(Ino::ROOT).unwrap(), None);
        assert!(txn.has_dentries(directory).unwrap() && !txn.has_dentries(file).unwrap());
        let mut listed = BTreeSet::new();
        txn.dentries(directory, &mut |name, ino, mode, fileid| {
            assert_eq!((ino, mode, fileid), (file, 0o100_640, FileId(file.0)));
            listed.insert(name);
        })
        .unwrap();
        assert_eq!(listed, BTreeSet::from([odd.clone(), name("file")]));
    });
    // One TEXT, one BLOB.
    let types = "SELECT count(DISTINCT typeof(name)) FROM fs_dentry WHERE parent_ino > 1";
    assert_eq!(place.number(types), 2);

    change(&mut *writer, |txn| {
        txn.delete_dentry(directory, &odd).unwrap();
        txn.delete_dentry(directory, &name("file")).unwrap();
        txn.delete_inode(file).unwrap();
        assert!(!txn.has_dentries(directory).unwrap());
        let taken = txn.insert_dentry(Ino::ROOT, &name("dir"), Ino::ROOT);
        assert!(matches!(taken, Err(StoreError::Corrupt(_))));
    });
    assert_consistent(&place.path);
}

#[test]
fn deleting_an_inode_leaves_nothing() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let counts = "SELECT (SELECT count(*) FROM fs_inode) + (SELECT count(*) FROM fs_data)
        + (SELECT count(*) FROM fs_symlink) + (SELECT count(*) FROM fs_origin)
        + (SELECT count(*) FROM acetate_inode) + (SELECT count(*) FROM acetate_origin)
        + (SELECT count(*) FROM acetate_redirect)";
    let before = place.number(counts);
    change(&mut *writer, |txn| {
        let mut file = make(txn, Ino::ROOT, "f", FileKind::Regular);
        txn.write_data(&mut file, 10_000, b"data").unwrap();
        file.origin = Some(Origin {
            fileid: FileId(5),
            path: base("f"),
            dev: 1,
            ino: 5,
            nlink: 1,
            size: 0,
            mtime: time(0),
            ctime: time(0),
        });
        txn.put_inode(&file).unwrap();
        txn.put_symlink(file.ino, b"target").unwrap();
        txn.put_redirect(file.ino, &base("somewhere")).unwrap();
        txn.delete_dentry(Ino::ROOT, &name("f")).unwrap();
        txn.delete_inode(file.ino).unwrap();
        assert_eq!(txn.inode(file.ino).unwrap(), None);
    });
    assert_eq!(place.number(counts), before);
}

#[test]
fn symlinks_hold_any_bytes() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    for target in [&b"../a b"[..], b"\xff/x", b"with\0nul"] {
        let ino = change(&mut *writer, |txn| {
            let ino = txn.allocate_ino().unwrap();
            txn.put_symlink(ino, target).unwrap();
            ino
        });
        assert_eq!(look(&session, |txn| txn.symlink(ino).unwrap()).unwrap(), target);
    }
    assert_eq!(look(&session, |txn| txn.symlink(Ino(99)).unwrap()), None);
}

#[test]
fn whiteouts_cover_exactly_their_path() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let odd = MergedPath::from_bytes(b"/a/\xff").unwrap();
    change(&mut *writer, |txn| {
        for path in ["/a/b", "/a/b/c/d", "/a/bc", "/a.b", "/top"] {
            txn.add_whiteout(&merged(path), time(9)).unwrap();
        }
        txn.add_whiteout(&odd, time(9)).unwrap();
        txn.add_whiteout(&odd, time(10)).unwrap();
    });
    assert_consistent(&place.path);
    look(&session, |txn| {
        assert!(txn.is_whited_out(&merged("/a/b")).unwrap());
        assert!(!txn.is_whited_out(&merged("/a")).unwrap());
        assert!(txn.is_whited_out(&odd).unwrap());
        let in_a: BTreeSet<_> = txn.whiteouts_in(&merged("/a")).unwrap().into_iter().collect();
        let expected = [name("b"), name("bc"), Name::new(b"\xff").unwrap()];
        assert_eq!(in_a, BTreeSet::from(expected));
        let root: BTreeSet<_> =
            txn.whiteouts_in(&MergedPath::root()).unwrap().into_iter().collect();
        assert_eq!(root, BTreeSet::from([name("a.b"), name("top")]));
    });
    change(&mut *writer, |txn| {
        txn.move_whiteouts_below(&merged("/a"), &merged("/x/y")).unwrap();
        assert!(txn.is_whited_out(&merged("/x/y/b/c/d")).unwrap());
        assert!(txn.is_whited_out(&MergedPath::from_bytes(b"/x/y/\xff").unwrap()).unwrap());
        assert!(txn.is_whited_out(&merged("/a.b")).unwrap());
        assert!(txn.whiteouts_in(&merged("/a")).unwrap().is_empty());
        assert!(txn.move_whiteouts_below(&merged("/x"), &merged("/x/z")).is_err());
    });
    assert_consistent(&place.path);
    change(&mut *writer, |txn| {
        assert!(txn.remove_whiteout(&merged("/x/y/b")).unwrap());
        assert!(!txn.remove_whiteout(&merged("/x/y/b")).unwrap());
        txn.remove_whiteouts_below(&merged("/x/y/b")).unwrap();
        assert!(!txn.is_whited_out(&merged("/x/y/b/c/d")).unwrap());
        assert!(txn.is_whited_out(&merged("/x/y/bc")).unwrap());
        txn.remove_whiteouts_below(&MergedPath::root()).unwrap();
    });
    assert_eq!(place.number("SELECT count(*) FROM fs_whiteout"), 0);
}

#[test]
fn many_whiteouts_move() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| {
        for i in 0..3000 {
            txn.add_whiteout(&merged(&format!("/a/{i}")), time(9)).unwrap();
        }
        // To where the path is BLOB.
        let to = MergedPath::from_bytes(b"/\xff").unwrap();
        txn.move_whiteouts_below(&merged("/a"), &to).unwrap();
        assert_eq!(txn.whiteouts_in(&to).unwrap().len(), 3000);
        txn.move_whiteouts_below(&to, &merged("/b")).unwrap();
        assert_eq!(txn.whiteouts_in(&merged("/b")).unwrap().len(), 3000);
    });
    assert_eq!(place.number("SELECT count(*) FROM fs_whiteout"), 3000);
    assert_consistent(&place.path);
}

#[test]
fn redirects_are_unique() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let one = change(&mut *writer, |txn| {
        let one = make(txn, Ino::ROOT, "one", FileKind::Directory).ino;
        let two = make(txn, Ino::ROOT, "two", FileKind::Directory).ino;
        txn.put_redirect(one, &base("old/place")).unwrap();
        let again = txn.put_redirect(two, &base("old/place"));
        assert!(matches!(again, Err(StoreError::Corrupt(_))), "{again:?}");
        one
    });
    look(&session, |txn| {
        assert_eq!(txn.redirect(one).unwrap(), Some(base("old/place")));
        assert_eq!(txn.redirect(Ino::ROOT).unwrap(), None);
        assert_eq!(txn.redirected_to(&base("old/place")).unwrap(), Some(one));
        assert_eq!(txn.redirected_to(&base("old")).unwrap(), None);
    });
    assert_consistent(&place.path);
}

#[test]
fn hidden_links_are_counted() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    assert_eq!(look(&session, |txn| txn.hidden_links(FileId(8)).unwrap()), (0, None));
    change(&mut *writer, |txn| {
        txn.hide_link(FileId(8), time(1)).unwrap();
        txn.hide_link(FileId(8), time(2)).unwrap();
    });
    assert_eq!(look(&session, |txn| txn.hidden_links(FileId(8)).unwrap()), (2, Some(time(2))));
}

fn write_op(offset: u64, length: u64) -> AuditRow {
    AuditRow {
        time: time(1),
        client: "[::1]:700".parse().unwrap(),
        uid: 1,
        gid: 2,
        procedure: Procedure::Write,
        path: merged("/f"),
        path2: None,
        fileid: FileId(5),
        offset: Some(offset),
        length: Some(length),
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
        procedure: Procedure::Rename,
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
            assert_eq!(txn.dentry(Ino::ROOT, &name("f")).unwrap(), None);
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
    assert!(matches!(session.writer().err(), Some(StoreError::Busy(_))));
    drop(writer);
    session.writer().unwrap();
}

#[test]
fn a_base_is_recorded_at_any_time() {
    use acetate::delta::sqlite::{CreateOptions, RootAttr, Session};
    use std::path::Path;
    let place = Place::new();
    let mut session = place.create();
    assert_eq!(session.base_path(), None);
    session.record_base(Path::new("/the/base")).unwrap();
    assert_eq!(session.base_path(), Some(Path::new("/the/base")));
    // Its subdirectories are not counted yet.
    assert_eq!(look(&session, |txn| txn.inode(Ino::ROOT).unwrap().unwrap().subdirs), None);
    assert_consistent(&place.path);
    drop(session);
    let session = place.open();
    assert_eq!(session.base_path(), Some(Path::new("/the/base")));

    let place = Place::new();
    let root = RootAttr { mode: 0o1777, uid: 5, gid: 6, ..RootAttr::new(time(77)) };
    let base_path = Some("/other".into());
    let options = CreateOptions { base_path, root: Some(root), ..Default::default() };
    let session = Session::create(&place.path, &options, &host("boot")).unwrap();
    assert_eq!(session.base_path(), Some(Path::new("/other")));
    let root = look(&session, |txn| txn.inode(Ino::ROOT).unwrap().unwrap());
    assert_eq!((root.mode, root.uid, root.gid, root.ctime), (0o1777, 5, 6, time(77)));
    assert_eq!(root.subdirs, None);
    assert_eq!((session.id().len(), session.handle_key()), (32, [7; 16]));
}
