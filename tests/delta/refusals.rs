//! Files that are refused, and stay as they are.

use std::path::Path;

use acetate::delta::sqlite::{ChunkSize, CreateOptions, OpenError, OpenMode, Session};

use super::{Place, bytes, host};

/// Opens in every mode, and checks that nothing in the directory changed.
#[track_caller]
fn refused(place: &Place, expected: fn(&OpenError) -> bool, says: &str) {
    let state = || {
        let dir = place.path.parent().unwrap();
        place.names().into_iter().map(|n| (bytes(&dir.join(&n)), n)).collect::<Vec<_>>()
    };
    let before = state();
    for mode in [OpenMode::Serve, OpenMode::ReadOnly, OpenMode::Inspect] {
        let error = Session::open(&place.path, mode, &host("boot")).unwrap_err();
        assert!(expected(&error), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(says) && text.contains("session.db"), "{text}");
        assert!(error.hint().is_some(), "{text}");
        let names = |s: &[(Vec<u8>, String)]| s.iter().map(|x| x.1.clone()).collect::<Vec<_>>();
        let now = state();
        assert!(before == now, "{mode:?}: {:?} became {:?}", names(&before), names(&now));
    }
}

fn sql(path: &Path, batch: &str) {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.execute_batch(batch).unwrap();
}

#[test]
fn what_is_no_database() {
    let place = Place::new();
    for content in [&b""[..], b"x", b"hello", &[0x5a; 8192]] {
        std::fs::write(&place.path, content).unwrap();
        refused(&place, |e| matches!(e, OpenError::NotSqlite { .. }), "not a SQLite database");
    }
    let mut encrypted = vec![0x5a; 8192];
    encrypted[..7].copy_from_slice(b"Turso\x00\x01");
    std::fs::write(&place.path, encrypted).unwrap();
    refused(&place, |e| matches!(e, OpenError::Encrypted { .. }), "encrypted");
}

#[test]
fn what_is_no_session() {
    let place = Place::new();
    sql(&place.path, "PRAGMA journal_mode = WAL; CREATE TABLE notes (text)");
    refused(&place, |e| matches!(e, OpenError::NotSession { .. }), "fs_inode");
}

#[test]
fn a_newer_session() {
    let place = Place::new();
    drop(place.create());
    sql(&place.path, "UPDATE acetate_meta SET value = 99 WHERE key = 'format_version'");
    refused(&place, |e| matches!(e, OpenError::Newer { found: 99, .. }), "99");
}

#[test]
fn a_later_version_of_the_specification() {
    let place = Place::new();
    drop(place.create());
    let stored = "SELECT value FROM fs_config WHERE key = 'schema_version'";
    let conn = rusqlite::Connection::open(&place.path).unwrap();
    assert_eq!(conn.query_row(stored, [], |row| row.get::<_, String>(0)).unwrap(), "0.4");
    drop(conn);
    for later in ["0.5", "0.10", "1", "0.4.1"] {
        let set = format!("UPDATE fs_config SET value = '{later}' WHERE key = 'schema_version'");
        sql(&place.path, &set);
        refused(&place, |e| matches!(e, OpenError::NewerSpec { .. }), later);
    }
    for known in ["0.4", "0.3", "what"] {
        let set = format!("UPDATE fs_config SET value = '{known}' WHERE key = 'schema_version'");
        sql(&place.path, &set);
        drop(place.open());
    }
}

#[test]
fn older_specifications() {
    let common = "CREATE TABLE fs_dentry (id INTEGER PRIMARY KEY, name, parent_ino, ino);
        CREATE TABLE fs_symlink (ino INTEGER PRIMARY KEY, target);";
    let chunks = "CREATE TABLE fs_config (key, value);
        CREATE TABLE fs_data (ino, chunk_index, data);";
    let versions = [
        (
            "0.0",
            "CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY, mode);
            CREATE TABLE fs_data (ino, offset, size, data);"
                .to_owned(),
        ),
        ("0.1", format!("CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY, mode); {chunks}")),
        (
            "0.2",
            format!(
                "CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY, mode, nlink); {chunks}
            CREATE TABLE fs_whiteout (path, parent_path, created_at);"
            ),
        ),
        (
            "0.3",
            format!(
                "CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY, mode, nlink); {chunks}
            CREATE TABLE fs_origin (delta_ino INTEGER PRIMARY KEY, base_ino);"
            ),
        ),
    ];
    for (version, tables) in versions {
        let place = Place::new();
        sql(&place.path, &format!("{common} {tables}"));
        refused(&place, |e| matches!(e, OpenError::OldSpec { .. }), &format!("version {version}"));
    }
}

#[test]
fn an_empty_database_without_its_log() {
    let place = Place::new();
    // As the other implementation's engine leaves it: one page, and all else in the log.
    sql(
        &place.path,
        "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; CREATE TABLE t (x);
        DROP TABLE t; VACUUM",
    );
    assert_eq!(bytes(&place.path).len(), 4096);
    refused(&place, |e| matches!(e, OpenError::LostWal { .. }), "session.db-wal is missing");
}

#[test]
fn a_synced_database() {
    let place = Place::new();
    drop(place.create());
    std::fs::write(format!("{}-info", place.path.display()), "{}").unwrap();
    refused(&place, |e| matches!(e, OpenError::CloudSynced { .. }), "session.db-info");
}

#[test]
fn a_session_without_a_root() {
    let place = Place::new();
    drop(place.create());
    sql(&place.path, "DELETE FROM fs_inode");
    let error = Session::open(&place.path, OpenMode::Serve, &host("boot")).unwrap_err();
    assert!(error.to_string().contains("root directory"), "{error}");
}

#[test]
fn a_damaged_database() {
    let place = Place::new();
    drop(place.create());
    let mut content = bytes(&place.path);
    content[100..4000].fill(0xff);
    std::fs::write(&place.path, content).unwrap();
    refused(&place, |e| matches!(e, OpenError::Store { .. }), "corrupt");
}

#[test]
fn what_is_no_file() {
    let place = Place::new();
    let open = |path: &Path| Session::open(path, OpenMode::Serve, &host("boot")).unwrap_err();
    assert!(matches!(open(&place.path), OpenError::Missing { .. }));
    assert!(matches!(open(place.path.parent().unwrap()), OpenError::NotFile { .. }));
    assert!(place.names().is_empty());
}

#[test]
fn nothing_is_overwritten() {
    let create = |place: &Place| {
        Session::create(&place.path, &CreateOptions::default(), &host("boot")).unwrap_err()
    };
    let place = Place::new();
    std::fs::write(&place.path, "precious").unwrap();
    assert!(matches!(create(&place), OpenError::Exists { .. }));
    assert_eq!(bytes(&place.path), b"precious");
    assert_eq!(place.names(), ["session.db"]);

    let place = Place::new();
    std::os::unix::fs::symlink("/nowhere/at/all", &place.path).unwrap();
    assert!(matches!(create(&place), OpenError::Exists { .. }));

    let place = Place::new();
    let log = format!("{}-wal", place.path.display());
    std::fs::write(&log, "precious").unwrap();
    assert!(matches!(create(&place), OpenError::LeftoverWal { .. }));
    assert_eq!(bytes(log.as_ref()), b"precious");
    assert_eq!(place.names(), ["session.db-wal"]);
}

#[test]
fn a_new_session_has_its_name_once_it_is_whole() {
    for _ in 0..10 {
        let place = Place::new();
        let path = place.path.clone();
        let seen = std::thread::spawn(move || {
            loop {
                if let Ok(found) = path.metadata() {
                    return found.len();
                }
                std::hint::spin_loop();
            }
        });
        drop(place.create());
        let (first, whole) = (seen.join().unwrap(), bytes(&place.path).len() as u64);
        assert!(first >= whole / 2, "{first} of {whole} bytes");
    }
}

#[test]
fn what_a_killed_creation_left_blocks_no_other() {
    let place = Place::new();
    for suffix in ["-new", "-new-wal", "-new-shm", "-new-journal"] {
        std::fs::write(format!("{}{suffix}", place.path.display()), "half").unwrap();
    }
    drop(place.create());
    drop(place.open());
    assert_eq!(place.names(), ["session.db"]);
}

#[test]
fn a_link_in_the_place_of_the_lock_is_not_followed() {
    let place = Place::new();
    drop(place.create());
    let precious = place.path.with_file_name("precious");
    std::fs::write(&precious, "precious").unwrap();
    let lock = format!("{}-lock", place.path.display());
    std::os::unix::fs::symlink(&precious, lock).unwrap();
    let error = Session::open(&place.path, OpenMode::Serve, &host("boot")).unwrap_err();
    assert!(error.to_string().contains("session.db-lock"), "{error}");
    assert_eq!(bytes(&precious), b"precious");
}

#[test]
fn chunk_sizes() {
    for bytes in [0, 1, 256, 1000, 65537, 1 << 21, u64::MAX] {
        assert!(ChunkSize::new(bytes).is_err(), "{bytes}");
    }
    for bytes in [512, 4096, 65536, 1 << 20] {
        assert_eq!(ChunkSize::new(bytes).unwrap().bytes(), bytes);
    }
    assert_eq!(ChunkSize::default().bytes(), 65536);
}

/// SQLite sees missing pages, but fills up a last one that is short.
#[test]
fn a_database_that_is_cut_off() {
    let place = Place::new();
    drop(place.create());
    let whole = bytes(&place.path);
    for lost in [1, 100, 20_000] {
        std::fs::write(&place.path, &whole[..whole.len() - lost]).unwrap();
        refused(&place, |e| matches!(e, OpenError::Store { .. }), "corrupt");
    }
}
