//! A copy of a session is whole, of one moment, and a session of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use acetate::delta::sqlite::{OpenError, OpenMode, Session};
use acetate::delta::{Ino, Store};
use acetate::inspect::InspectError;
use acetate::inspect::maintenance::snapshot;
use acetate::vfs::FileKind;

use super::{all_rows, half_empty};
use crate::delta::{Place, change, host, look, make, name};
use crate::support::check::assert_consistent;
use crate::support::world::World;

/// Where the copy of the place's session goes.
fn new(place: &Place) -> PathBuf {
    place.path.with_file_name("new.db")
}

/// Rows but for what tells a session from its copy.
fn shared_rows(rows: Vec<String>) -> Vec<String> {
    let own = ["session_id", "handle_key", "clean", "last_dentry", "late_op"];
    let is_own = |row: &String| own.iter().any(|key| row.contains(&format!("Text(\"{key}\")")));
    rows.into_iter().filter(|row| !is_own(row)).collect()
}

fn refusal(place: &Place) -> OpenError {
    match snapshot(&place.path, &new(place), &mut |_, _| ()) {
        Err(InspectError::Open(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_served_session_is_copied_whole() {
    let world = World::new("dir/file \"content\"\n");
    world.put("new", "new");
    world.write("dir/file", 0, b"C").unwrap();
    let to = world.scratch().join("new.db");
    let copied = snapshot(&world.session(), &to, &mut |_, _| ()).unwrap();
    assert_eq!(copied.bytes, fs::metadata(&to).unwrap().len());
    for suffix in ["-wal", "-shm", "-lock", "-snapshot-unfinished"] {
        assert!(!world.scratch().join(format!("new.db{suffix}")).exists(), "{suffix}");
    }
    assert_consistent(&to);
    let rows = shared_rows(all_rows(&world.session()));
    assert!(rows == shared_rows(all_rows(&to)), "a row is another");
    assert!(rows.iter().any(|row| row.contains("WRITE")), "the audit log is there");
}

#[test]
fn the_copy_is_a_session_of_its_own() {
    let place = Place::new();
    let session = place.create();
    let mut writer = session.writer().unwrap();
    change(&mut *writer, |txn| make(txn, Ino::ROOT, "f", FileKind::Regular));
    let copied = snapshot(&place.path, &new(&place), &mut |_, _| ()).unwrap();
    let copy = Session::open(&copied.path, OpenMode::Serve, &host("other boot")).unwrap();
    assert_eq!(copied.id.as_deref(), Some(copy.id()));
    assert_ne!(copy.id(), session.id());
    assert_ne!(copy.handle_key(), session.handle_key(), "handles of one are none of the other");
    // Nobody heard anything of the copy that could be lost: its epoch stays, and it knows no call.
    assert_eq!(copy.epoch(), session.epoch());
    assert!(copy.unacknowledged_ops().is_empty());
    // Both go on, each by itself, and give out no number that was in use before.
    let mut other = copy.writer().unwrap();
    let here = change(&mut *writer, |txn| make(txn, Ino::ROOT, "here", FileKind::Regular));
    let there = change(&mut *other, |txn| make(txn, Ino::ROOT, "there", FileKind::Regular));
    let f = look(&session, |txn| txn.dentry(Ino::ROOT, &name("f")).unwrap().unwrap());
    assert!(here.ino > f && there.ino > f);
    look(&session, |txn| assert_eq!(txn.dentry(Ino::ROOT, &name("there")).unwrap(), None));
    look(&copy, |txn| assert_eq!(txn.dentry(Ino::ROOT, &name("here")).unwrap(), None));
    writer.close().unwrap();
    other.close().unwrap();
    assert_consistent(&place.path);
    assert_consistent(&copied.path);
}

#[test]
fn a_writer_that_never_rests_does_not_make_it_begin_anew() {
    let place = Place::new();
    half_empty(&place, 200);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = place.sql();
            let mut number = 0;
            while !is_done.load(Ordering::Relaxed) {
                // Two rows at one moment, on pages far from each other.
                let pair = "BEGIN IMMEDIATE;
                    INSERT INTO kv_store (key, value) VALUES (@n, '1');
                    INSERT INTO tool_calls (name, started_at, completed_at, duration_ms)
                      VALUES (@n, 1, 1, 0); COMMIT";
                other.execute_batch(&pair.replace("@n", &number.to_string())).unwrap();
                number += 1;
            }
        });
        let mut told = Vec::new();
        for _ in 0..5 {
            let copied = snapshot(&place.path, &new(&place), &mut |done, all| {
                // Then the other one rests, so that this ends.
                let went_back = told.last().is_some_and(|(last, _)| done <= *last);
                is_done.fetch_or(went_back, Ordering::Relaxed);
                told.push((done, all));
                std::thread::sleep(std::time::Duration::from_millis(5));
            });
            let copied = copied.unwrap();
            assert!(told.len() > 1, "several steps");
            assert!(told.windows(2).all(|two| two[0].0 < two[1].0), "it went back: {told:?}");
            let (done, all) = told.drain(..).next_back().unwrap();
            assert_eq!(done, all);
            assert_consistent(&copied.path);
            let copy = rusqlite::Connection::open(&copied.path).unwrap();
            let count = |table| {
                let sql = format!("SELECT count(*) FROM {table}");
                copy.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
            };
            assert_eq!(count("kv_store"), count("tool_calls"), "of one moment");
            drop(copy);
            fs::remove_file(copied.path).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_copy_is_in_wal_mode_alone_and_its_owners_whatever_the_mode_of_the_original() {
    let place = Place::new();
    half_empty(&place, 4);
    fs::set_permissions(&place.path, Permissions::from_mode(0o644)).unwrap();
    // A killed copy's leftover.
    let unfinished = place.path.with_file_name("new.db-snapshot-unfinished");
    for suffix in ["", "-journal", "-wal"] {
        fs::write(format!("{}{suffix}", unfinished.display()), "half of a copy").unwrap();
    }
    let copied = snapshot(&place.path, &new(&place), &mut |_, _| ()).unwrap();
    let names = place.names();
    let mine: Vec<_> = names.iter().filter(|name| !name.starts_with("session")).collect();
    assert_eq!(mine, ["new.db"]);
    assert_eq!(fs::metadata(&copied.path).unwrap().permissions().mode() & 0o7777, 0o600);
    // Bytes 18 and 19 of the header say how it is written: 2 is WAL.
    assert_eq!(fs::read(&copied.path).unwrap()[18..20], [2, 2]);
}

#[test]
fn what_is_there_already_is_left_alone() {
    let place = Place::new();
    half_empty(&place, 4);
    fs::write(new(&place), "mine").unwrap();
    assert!(matches!(refusal(&place), OpenError::Exists { .. }));
    assert_eq!(fs::read(new(&place)).unwrap(), b"mine");
    fs::remove_file(new(&place)).unwrap();
    // SQLite would take any log there for the copy's.
    for suffix in ["-wal", "-journal"] {
        let log = place.path.with_file_name(format!("new.db{suffix}"));
        fs::write(&log, "somebody's").unwrap();
        assert!(matches!(refusal(&place), OpenError::LeftoverWal { .. }));
        assert_eq!(fs::read(&log).unwrap(), b"somebody's");
        fs::remove_file(log).unwrap();
    }
    std::os::unix::fs::symlink("nowhere", new(&place)).unwrap();
    assert!(matches!(refusal(&place), OpenError::Exists { .. }));
}

#[test]
fn what_is_no_session_is_refused_and_leaves_nothing() {
    let place = Place::new();
    assert!(matches!(refusal(&place), OpenError::Missing { .. }));
    fs::write(&place.path, vec![7; 8192]).unwrap();
    assert!(matches!(refusal(&place), OpenError::NotSqlite { .. }));
    assert_eq!(place.names(), ["session.db"]);
}

#[test]
fn sessions_of_other_implementations_and_versions_are_copied_as_they_are() {
    let old = "CREATE TABLE fs_config (key TEXT PRIMARY KEY, value TEXT NOT NULL);
      CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY AUTOINCREMENT, mode INTEGER NOT NULL);
      CREATE TABLE fs_dentry (id INTEGER PRIMARY KEY, name TEXT, parent_ino INTEGER, ino INTEGER);
      CREATE TABLE fs_data (ino INTEGER, chunk_index INTEGER, data BLOB);
      CREATE TABLE fs_symlink (ino INTEGER PRIMARY KEY, target TEXT);
      INSERT INTO fs_inode VALUES (1, 16877);";
    let columns = ["nlink", "rdev", "atime_nsec", "mtime_nsec", "ctime_nsec"];
    let new_columns = columns.map(|c| format!("ALTER TABLE fs_inode ADD COLUMN {c} INTEGER;"));
    for tables in [old.to_owned(), format!("{old}{}", new_columns.concat())] {
        for journal in ["DELETE", "WAL"] {
            let place = Place::new();
            place
                .sql()
                .execute_batch(&format!(
                    "PRAGMA page_size = 1024; PRAGMA journal_mode = {journal}; {tables}"
                ))
                .unwrap();
            let copied = snapshot(&place.path, &new(&place), &mut |_, _| ()).unwrap();
            assert_eq!(copied.id, None);
            assert!(all_rows(&copied.path) == all_rows(&place.path));
        }
    }
}

#[test]
fn links_that_another_program_added_are_counted_in_the_copy_too() {
    let place = Place::new();
    half_empty(&place, 4);
    let add = "INSERT INTO fs_dentry (name, parent_ino, ino) SELECT 'again', 1, max(ino)
        FROM fs_inode";
    place.sql().execute(add, []).unwrap();
    let copied = snapshot(&place.path, &new(&place), &mut |_, _| ()).unwrap();
    let copy = Session::open(&copied.path, OpenMode::Serve, &host("boot")).unwrap();
    copy.writer().unwrap().close().unwrap();
    assert_consistent(&copied.path);
}
