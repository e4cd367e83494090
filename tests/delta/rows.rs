//! Every operation on rows, read back by the same connection, by a reader, and after reopening.

use std::collections::BTreeSet;

use acetate::base::{BasePath, DELTA_IDS};
use acetate::delta::{Ino, InodeRow, Origin, Store, StoreErrorKind};
use acetate::vfs::{Device, FileId, FileKind, Name};

use super::{Place, change, host, inode, look, make, name, time};
use crate::support::check::assert_consistent;

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
            copy_up: None,
            origin: Some(Origin {
                fileid: FileId(4711),
                path: BasePath::from_bytes(b"a/\xff").unwrap(),
                dev: u64::MAX,
                ino: u64::MAX - 1,
                nlink: 3,
                size: 1 << 40,
                mtime: time(-5),
                ctime: time(1 << 40),
                attributes: Some([0o7777, u32::MAX, 3]),
            }),
            ..inode(ino, FileKind::Block)
        };
        txn.put_inode(&row).unwrap();
        assert_eq!(txn.inode(ino).unwrap().unwrap(), row);
        row
    });
    assert_eq!(look(&session, |txn| txn.inode(full.ino).unwrap().unwrap()), full);
    assert_eq!(full.fileid(), FileId(4711));
    assert_eq!(look(&session, |txn| txn.copied_up(FileId(4711)).unwrap()), [full.ino]);
    assert_eq!(place.number("SELECT base_ino FROM fs_origin"), 4711);

    let bare = InodeRow { origin: None, create_verifier: None, ..full.clone() };
    change(&mut *writer, |txn| txn.put_inode(&bare).unwrap());
    assert_eq!(look(&session, |txn| txn.inode(full.ino).unwrap().unwrap()), bare);
    assert_eq!(look(&session, |txn| txn.copied_up(FileId(4711)).unwrap()), []);
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
        assert!(matches!(&taken, Err(error) if error.kind == StoreErrorKind::Corrupt));
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
            attributes: None,
        });
        txn.put_inode(&file).unwrap();
        let link = make(txn, Ino::ROOT, "l", FileKind::Symlink);
        txn.put_symlink(link.ino, b"target").unwrap();
        let dir = make(txn, Ino::ROOT, "d", FileKind::Directory);
        txn.put_redirect(dir.ino, &base("somewhere")).unwrap();
        for (at, row) in [("f", file), ("l", link), ("d", dir)] {
            txn.delete_dentry(Ino::ROOT, &name(at)).unwrap();
            txn.delete_inode(row.ino).unwrap();
            assert_eq!(txn.inode(row.ino).unwrap(), None);
        }
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

#[test]
fn entries_move_as_they_are() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let (dir, file) = change(&mut *writer, |txn| {
        let dir = make(txn, Ino::ROOT, "dir", FileKind::Directory).ino;
        (dir, make(txn, Ino::ROOT, "f", FileKind::Regular).ino)
    });
    let id = "SELECT id FROM fs_dentry WHERE name = 'f'";
    let before = place.number(id);
    change(&mut *writer, |txn| {
        let from = (Ino::ROOT, &name("f"));
        txn.move_dentry(from, (dir, &name("g")), file).unwrap();
        assert_eq!(txn.dentry(Ino::ROOT, &name("f")).unwrap(), None);
        assert_eq!(txn.dentry(dir, &name("g")).unwrap(), Some(file));
        assert_eq!(txn.name_of(file).unwrap(), Some((dir, name("g"))));
        txn.move_dentry((dir, &name("g")), from, file).unwrap();
    });
    assert_eq!(place.number(id), before);

    // Entries that others wrote: one that points nowhere makes way, a name may be a BLOB.
    let sql = place.sql();
    sql.execute_batch(
        "INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('nowhere', 1, 12345);
         UPDATE fs_dentry SET name = CAST(name AS BLOB) WHERE name = 'f'",
    )
    .unwrap();
    change(&mut *writer, |txn| {
        txn.move_dentry((Ino::ROOT, &name("f")), (Ino::ROOT, &name("nowhere")), file).unwrap();
        assert_eq!(txn.dentry(Ino::ROOT, &name("f")).unwrap(), None);
        assert_eq!(txn.dentry(Ino::ROOT, &name("nowhere")).unwrap(), Some(file));
        // And one that is there does not.
        let onto = (Ino::ROOT, &name("dir"));
        assert!(txn.move_dentry((Ino::ROOT, &name("nowhere")), onto, file).is_err());
    });
    let sound = "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'";
    assert_eq!(place.number(sound), 1);
}

#[test]
fn content_that_another_program_left_without_an_inode_is_nobodys() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let last = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular).ino);
    writer.close().unwrap();
    drop((writer, session));
    // Where this session's next file would be.
    let sql = "INSERT INTO fs_data (ino, chunk_index, data) VALUES (?1, 0, 'left behind')";
    place.sql().execute(sql, [last.0 as i64 + 1]).unwrap();
    let session = place.open();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| {
        let mut row = make(txn, Ino::ROOT, "g", FileKind::Regular);
        assert!(row.ino.0 > last.0 + 1);
        txn.truncate(&mut row, 20).unwrap();
        txn.put_inode(&row).unwrap();
        assert_eq!(super::content(&*txn, row.ino), [0; 20]);
    });
}

#[test]
fn numbers_of_entries_are_fresh_and_never_come_back() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let last = "SELECT max(id) FROM fs_dentry";
    let made = |writer: &mut dyn acetate::delta::Writer, at: &str| {
        change(writer, |txn| make(txn, Ino::ROOT, at, FileKind::Regular));
        place.number(last)
    };
    let first = made(&mut *writer, "a");
    assert_eq!(made(&mut *writer, "b"), first + 1);
    change(&mut *writer, |txn| txn.delete_dentry(Ino::ROOT, &name("b")).unwrap());
    writer.begin(false).unwrap();
    make(writer.txn(), Ino::ROOT, "c", FileKind::Regular);
    writer.abort().unwrap();
    drop((writer, session));

    let session = place.open();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "d", FileKind::Regular));
    let ours = place.number(last);
    assert!(ours > first + 1, "{ours}");
    writer.close().unwrap();
    drop((writer, session));
    // What another program inserts is fresh, too.
    place
        .sql()
        .execute_batch(
            "INSERT INTO fs_inode (mode, atime, mtime, ctime) VALUES (33188, 0, 0, 0);
             INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('e', 1, last_insert_rowid())",
        )
        .unwrap();
    assert!(place.number(last) > ours);
    assert_eq!(place.number("SELECT count(*) FROM sqlite_sequence WHERE name = 'fs_dentry'"), 1);
    let session = place.open();
    let mut writer = session.writer().unwrap();
    let row = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    assert!(row.ino.0 as i64 > place.number("SELECT ino FROM fs_dentry WHERE name = 'e'"));
}
