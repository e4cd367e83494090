//! Sessions of another implementation, and what they leave in ours.

use acetate::base::DELTA_IDS;
use acetate::delta::sqlite::{OpenMode, Session};
use acetate::delta::{Ino, MergedPath, Store};
use acetate::vfs::{FileId, FileKind};

use super::{Place, bytes, change, content, host, look, make, name};

/// A session as AgentFS 0.6.4 writes it, after a migration: no `parent_path`, no AUTOINCREMENT,
/// another column order, link counts of all kinds, and rows that nobody should write.
pub const FOREIGN: &str = "
  CREATE TABLE fs_config (key TEXT PRIMARY KEY, value TEXT NOT NULL);
  CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY, mode INTEGER NOT NULL,
    uid INTEGER NOT NULL DEFAULT 0, gid INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0, atime INTEGER NOT NULL, mtime INTEGER NOT NULL,
    ctime INTEGER NOT NULL, nlink INTEGER NOT NULL DEFAULT 0, rdev INTEGER NOT NULL DEFAULT 0,
    atime_nsec INTEGER NOT NULL DEFAULT 0, mtime_nsec INTEGER NOT NULL DEFAULT 0,
    ctime_nsec INTEGER NOT NULL DEFAULT 0);
  CREATE TABLE fs_dentry (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
    parent_ino INTEGER NOT NULL, ino INTEGER NOT NULL, UNIQUE(parent_ino, name));
  CREATE TABLE fs_data (ino INTEGER NOT NULL, chunk_index INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (ino, chunk_index));
  CREATE TABLE fs_symlink (ino INTEGER PRIMARY KEY, target TEXT NOT NULL);
  CREATE TABLE fs_whiteout (path TEXT PRIMARY KEY, created_at INTEGER NOT NULL);
  CREATE TABLE fs_origin (delta_ino INTEGER PRIMARY KEY, base_ino INTEGER NOT NULL);
  CREATE TABLE fs_overlay_config (key TEXT PRIMARY KEY, value TEXT NOT NULL);
  CREATE TABLE tool_calls (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL,
    parameters TEXT, result TEXT, error TEXT, started_at INTEGER NOT NULL,
    completed_at INTEGER NOT NULL, duration_ms INTEGER NOT NULL);
  INSERT INTO fs_config VALUES ('schema_version', '0.4');
  INSERT INTO fs_overlay_config VALUES ('base_path', '/the/base');
  INSERT INTO fs_whiteout VALUES ('/gone', 5), ('/dir/gone', 5), ('no path', 5);
  INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime, mtime_nsec) VALUES
    (1, 16877, 3, 0, 1, 1, 1, 0), (2, 16877, 2, 0, 1, 1, 1, 0), (3, 33188, 0, 5, 1, 1, 1, 9),
    (4, 33188, -1, -7, 1, 1, 1, -1), (5, 0, 1, 0, 1, 1, 1, 2000000000),
    (6, 33188, 1, 0, 1, 1, 1, 0);
  INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('dir', 1, 2), ('file', 1, 3),
    ('other', 2, 3), ('negative', 1, 4), ('typeless', 1, 5), ('dangling', 1, 77),
    ('', 2, 3), ('.', 2, 3), ('..', 2, 3), ('a/b', 2, 3), (CAST('blob' AS BLOB), 2, 3),
    ('nul' || char(0), 2, 3);
  INSERT INTO fs_data VALUES (3, 0, 'hello'), (2, 0, x'00');
  INSERT INTO fs_origin VALUES (3, 12);
";

fn foreign(journal: &str) -> Place {
    let place = Place::new();
    place.sql().execute_batch(&format!("PRAGMA journal_mode = {journal}; {FOREIGN}")).unwrap();
    place
}

fn looks_right(session: &Session) {
    assert_eq!(session.chunk_bytes(), 4096);
    assert_eq!(session.base_path().unwrap().to_str(), Some("/the/base"));
    look(session, |txn| {
        let mut names = Vec::new();
        txn.dentries(Ino::ROOT, &mut |name, ino, _, id| {
            assert_eq!(id, FileId(DELTA_IDS + ino.0));
            names.push(name);
        })
        .unwrap();
        names.sort();
        assert_eq!(names, ["dir", "file", "negative", "typeless"].map(name));
        assert_eq!(content(txn, Ino(3)), b"hello");
        let negative = txn.inode(Ino(4)).unwrap().unwrap();
        assert_eq!((negative.size, negative.mtime.nanos), (0, 0));
        let typeless = txn.inode(Ino(5)).unwrap().unwrap();
        assert_eq!((typeless.kind, typeless.mtime.nanos), (FileKind::Regular, 999_999_999));
        assert_eq!(txn.dentry(Ino::ROOT, &name("dangling")).unwrap(), None);
        assert_eq!(txn.dentry(Ino(2), &name("blob")).unwrap(), Some(Ino(3)));
        assert!(txn.has_dentries(Ino(2)).unwrap());
        assert_eq!(txn.whiteouts_in(&MergedPath::root()).unwrap(), [name("gone")]);
        let dir = MergedPath::from_bytes(b"/dir").unwrap();
        assert_eq!(txn.whiteouts_in(&dir).unwrap(), [name("gone")]);
        assert!(txn.is_whited_out(&dir.join(&name("gone"))).unwrap());
        // Their fs_origin counts something else.
        assert_eq!(txn.copied_up(FileId(12)).unwrap(), []);
        assert_eq!(txn.inode(Ino(3)).unwrap().unwrap().origin, None);
        assert_eq!(txn.inode(Ino(2)).unwrap().unwrap().subdirs, None);
    });
}

#[test]
fn a_foreign_session_is_read_without_a_change() {
    for journal in ["DELETE", "WAL"] {
        let place = foreign(journal);
        let before = bytes(&place.path);
        let session = Session::open(&place.path, OpenMode::ReadOnly, &host("boot")).unwrap();
        looks_right(&session);
        drop(session);
        assert!(bytes(&place.path) == before, "{journal}");
    }
}

#[test]
fn a_foreign_session_that_is_looked_at_may_be_written_meanwhile() {
    for journal in ["DELETE", "WAL"] {
        let place = foreign(journal);
        let session = Session::open(&place.path, OpenMode::Inspect, &host("boot")).unwrap();
        let mut reader = session.reader().unwrap();
        let mut has_file = || {
            let mut found = None;
            reader
                .read(&mut |txn| found = Some(txn.dentry(Ino::ROOT, &name("file")).unwrap()))
                .unwrap();
            found.unwrap().is_some()
        };
        assert!(has_file());
        place.sql().execute("DELETE FROM fs_dentry WHERE name = 'file'", []).unwrap();
        assert!(!has_file(), "{journal}");
    }
}

#[test]
fn a_foreign_session_is_adopted() {
    for journal in ["DELETE", "WAL"] {
        let place = foreign(journal);
        let session = place.open();
        looks_right(&session);
        let id = session.id().to_owned();
        look(&session, |txn| assert_eq!(txn.inode(Ino(4)).unwrap().unwrap().nlink, 1));
        // `file`, `other`, and what nobody sees.
        look(&session, |txn| assert_eq!(txn.inode(Ino(3)).unwrap().unwrap().nlink, 8));
        let mut writer = session.writer().unwrap();
        change(&mut *writer, |txn| {
            let new = make(txn, Ino::ROOT, "dangling", FileKind::Regular).ino;
            assert!(new.0 > DELTA_IDS + 77, "{new:?}");
        });
        writer.close().unwrap();
        drop((writer, session));
        // What they insert now is what they expect.
        let sql = place.sql();
        sql.execute("INSERT INTO fs_whiteout (path, created_at) VALUES ('/dir/late', 5)", [])
            .unwrap();
        let parents = "SELECT count(*) FROM fs_whiteout WHERE parent_path IN ('/', '/dir')";
        assert_eq!(place.number(parents), 2);
        assert_eq!(place.number("SELECT count(*) FROM fs_origin"), 1);
        assert_eq!(place.number("SELECT count(status) FROM tool_calls"), 0);
        drop(sql);
        let session = place.open();
        assert_eq!(session.id(), id);
        let dir = MergedPath::from_bytes(b"/dir").unwrap();
        let late = look(&session, |txn| txn.whiteouts_in(&dir).unwrap());
        assert!(late.contains(&name("late")), "{late:?}");
    }
}

#[test]
fn a_foreign_session_may_live_in_its_log() {
    let place = Place::new();
    let sql = place.sql();
    sql.execute_batch(&format!(
        "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL;
         PRAGMA wal_autocheckpoint = 0; {FOREIGN}"
    ))
    .unwrap();
    let copy = Place::new();
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", place.path.display());
        std::fs::copy(from, format!("{}{suffix}", copy.path.display())).unwrap();
    }
    assert_eq!(bytes(&copy.path).len(), 4096);
    looks_right(&copy.open());
}

#[test]
fn numbers_step_over_what_others_inserted() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let ours = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular).ino);
    writer.close().unwrap();
    drop((writer, session));
    let theirs = ours.0 as i64 + 1_000_000;
    let sql = "INSERT INTO fs_inode (ino, mode, atime, mtime, ctime) VALUES (?1, 33188, 0, 0, 0)";
    place.sql().execute(sql, [theirs]).unwrap();
    place.sql().execute(sql, [i64::MAX]).unwrap();
    let session = place.open();
    let mut writer = session.writer().unwrap();
    let next = change(&mut *writer, |txn| txn.allocate_ino().unwrap());
    assert!(next.0 as i64 > theirs && next.0 < FileId::LIMIT, "{next:?}");
}

#[test]
fn links_that_others_added_are_counted() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let file = change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular).ino);
    writer.close().unwrap();
    drop((writer, session));
    let sql = place.sql();
    let link = "INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('g', 1, ?1)";
    sql.execute(link, [file.0 as i64]).unwrap();
    sql.execute_batch("UPDATE fs_inode SET nlink = -1").unwrap();
    drop(sql);
    let session = place.open();
    look(&session, |txn| {
        assert_eq!(txn.inode(file).unwrap().unwrap().nlink, 2);
        let root = txn.inode(Ino::ROOT).unwrap().unwrap();
        assert_eq!((root.nlink, root.subdirs), (1, None));
    });
}
