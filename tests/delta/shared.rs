//! Other programs beside the session's server.

use acetate::delta::sqlite::{OpenError, OpenMode, Session};
use acetate::delta::{Ino, Store, StoreErrorKind};
use acetate::vfs::FileKind;

use super::{Place, change, host, look, make, name};

#[test]
fn another_program_writes_the_key_value_store() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    let other = place.sql();
    for i in 0..20 {
        change(&mut *writer, |txn| make(txn, Ino::ROOT, &format!("f{i}"), FileKind::Regular));
        let set = "INSERT INTO kv_store (key, value) VALUES (?1, '1')";
        other.execute(set, [format!("k{i}")]).unwrap();
    }
    writer.close().unwrap();
    drop(other);
    assert_eq!(place.number("SELECT count(*) FROM kv_store"), 20);
    assert_eq!(place.number("SELECT count(*) FROM fs_dentry"), 20);
}

#[test]
fn only_its_owner_reads_a_new_session() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    let names = ["session.db", "session.db-lock", "session.db-shm", "session.db-wal"];
    assert_eq!(place.names(), names);
    for name in names {
        let meta = std::fs::metadata(place.path.with_file_name(name)).unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&meta) & 0o777;
        assert_eq!(mode, 0o600, "{name}: {mode:o}");
    }
}

#[test]
fn a_batch_waits_for_another_program() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |_| ());
    let other = place.sql();
    other
        .execute_batch("BEGIN IMMEDIATE; INSERT INTO kv_store (key, value) VALUES ('k', '1')")
        .unwrap();
    let waiting = std::thread::spawn(move || {
        change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    });
    std::thread::sleep(std::time::Duration::from_millis(200));
    other.execute_batch("COMMIT").unwrap();
    waiting.join().unwrap();
    assert!(look(&session, |txn| txn.dentry(Ino::ROOT, &name("f")).unwrap()).is_some());
}

#[test]
fn one_server_at_a_time() {
    let place = Place::new();
    let session = place.create();
    for mode in [OpenMode::Serve, OpenMode::ReadOnly] {
        match Session::open(&place.path, mode, &host("boot")) {
            Err(error @ OpenError::InUse { .. }) => {
                let pid = std::process::id().to_string();
                assert!(error.to_string().contains(&pid), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
    Session::open(&place.path, OpenMode::Inspect, &host("boot")).unwrap();
    // The connections keep the lock when the session itself is dropped.
    let writer = session.writer().unwrap();
    drop(session);
    assert!(Session::open(&place.path, OpenMode::Serve, &host("boot")).is_err());
    drop(writer);
    drop(place.open());
    assert_eq!(place.names(), ["session.db"]);
}

#[test]
fn a_session_that_is_only_read_stays_as_it_is() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    writer.close().unwrap();
    drop((writer, session));
    let before = super::bytes(&place.path);

    let session = place.open();
    let mut writer = session.writer().unwrap();
    assert!(look(&session, |txn| txn.dentry(Ino::ROOT, &name("f")).unwrap()).is_some());
    writer.sync().unwrap();
    writer.close().unwrap();
    drop((writer, session));
    assert!(before == super::bytes(&place.path));
    assert_eq!(place.names(), ["session.db"]);

    let session = Session::open(&place.path, OpenMode::ReadOnly, &host("other")).unwrap();
    let second = Session::open(&place.path, OpenMode::ReadOnly, &host("other")).unwrap();
    assert!(look(&second, |txn| txn.dentry(Ino::ROOT, &name("f")).unwrap()).is_some());
    let mut writer = session.writer().unwrap();
    assert!(matches!(writer.begin(false), Err(error) if error.kind == StoreErrorKind::ReadOnly));
    writer.sync().unwrap();
    writer.close().unwrap();
    drop((writer, session, second));
    assert!(before == super::bytes(&place.path));
    // SQLite's own files stay: whoever only reads cannot clear them away.
    assert!(!place.names().iter().any(|name| name.ends_with("-lock")));
}

#[test]
fn a_read_only_medium_can_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    writer.close().unwrap();
    drop((writer, session));
    let dir = place.path.parent().unwrap();
    let permissions = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(&place.path, permissions(0o444)).unwrap();
    std::fs::set_permissions(dir, permissions(0o555)).unwrap();
    let session = Session::open(&place.path, OpenMode::ReadOnly, &host("boot"));
    let found = session.map(|s| look(&s, |txn| txn.dentry(Ino::ROOT, &name("f")).unwrap()));
    std::fs::set_permissions(dir, permissions(0o755)).unwrap();
    assert!(found.unwrap().is_some());
}
