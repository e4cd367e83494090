//! Sessions of all versions of the specification, and of other implementations, become ours: what
//! they hold stays, and nothing is at fault.

use std::fs;
use std::path::{Path, PathBuf};

use acetate::delta::sqlite::{
    CheckOptions, Host, MigrateOptions, Migrated, OpenError, SPEC_VERSION,
};
use acetate::inspect::InspectError;
use acetate::inspect::check::check;
use acetate::inspect::maintenance::migrate;
use acetate::vfs::FileKind;

use super::all_rows;
use crate::delta::{FOREIGN, Place, bytes};
use crate::support::check::assert_consistent;
use crate::support::database::session::TestSession;
use crate::support::spec_versions::{self, SECS, VERSIONS};
use crate::support::tree::assert_same;
use crate::support::{merged, spec_reader};

const REAL: MigrateOptions<'_> = MigrateOptions { backup: None, dry_run: false, most: 100 };
const DRY: MigrateOptions<'_> = MigrateOptions { dry_run: true, ..REAL };

#[track_caller]
fn migrated(path: &Path, options: &MigrateOptions<'_>) -> Migrated {
    migrate(path, options, &mut |_, _| ()).unwrap()
}

fn refusal(path: &Path) -> OpenError {
    match migrate(path, &REAL, &mut |_, _| ()) {
        Err(InspectError::Open(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn rules(migrated: &Migrated) -> Vec<(&'static str, u64)> {
    migrated.left.iter().map(|broken| (broken.rule, broken.count)).collect()
}

fn backup(place: &Place) -> PathBuf {
    place.path.with_file_name("session.db.before-migrate")
}

fn base(place: &Place) -> PathBuf {
    place.path.with_file_name("base")
}

#[track_caller]
fn assert_sound(path: &Path) {
    let sound = check(path, None, &CheckOptions { most: 10, quick: false }).unwrap();
    assert!(sound.broken.is_empty() && !sound.is_foreign, "{sound:#?}");
    assert_consistent(path);
}

#[test]
fn every_version_becomes_ours_and_holds_what_it_held() {
    for version in VERSIONS {
        let place = Place::new();
        let tree = spec_versions::make(&place.path, &base(&place), version);
        let (before, rows) = (bytes(&place.path), all_rows(&place.path));
        let dry = migrated(&place.path, &DRY);
        assert!(dry.left.is_empty() && dry.backup.is_none(), "{version}: {dry:?}");
        assert!(bytes(&place.path) == before, "{version}: a dry run wrote");
        assert_eq!(place.names(), ["base", "session.db"], "{version}");

        let done = migrated(&place.path, &REAL);
        assert_eq!(done.from, &version[..3]);
        assert_eq!(done.steps, dry.steps, "{version}");
        assert!(done.left.is_empty(), "{version}: {done:?}");
        assert_eq!(place.names(), ["base", "session.db", "session.db.before-migrate"]);
        assert!(all_rows(&backup(&place)) == rows, "{version}: the copy is another");
        assert_sound(&place.path);
        assert_same(&merged::read_tree(&place.path, &base(&place)), &tree, version);
        assert_same(&spec_reader::read_tree(&place.path, &base(&place)), &tree, version);
        let kept = "SELECT count(*) FROM fs_inode WHERE uid = 1000 AND gid = 100 AND atime = ?1
            AND mtime = ?1 + 1 AND ctime = ?1 + 2 AND mtime_nsec = 0 AND rdev = 0";
        let kept: i64 = place.sql().query_row(kept, [SECS], |row| row.get(0)).unwrap();
        assert_eq!(kept + 1, place.number("SELECT count(*) FROM fs_inode"), "{version}");
        let calls = "SELECT count(*) FROM tool_calls WHERE duration_ms = 1000 * (id = 1)
            AND status = iif(name = 'bad', 'error', 'success')";
        assert_eq!(place.number(calls), 2, "{version}");
        assert_eq!(place.number("SELECT count(*) FROM kv_store WHERE value = '[1]'"), 1);

        let before = bytes(&place.path);
        let again = migrated(&place.path, &REAL);
        assert!(again.steps.is_empty() && again.backup.is_none(), "{version}: {again:?}");
        assert_eq!(again.from, SPEC_VERSION);
        assert!(bytes(&place.path) == before, "{version}: it wrote for nothing");
        // And it can be served.
        drop(place.open());
    }
}

#[test]
fn a_session_of_ours_is_left_alone() {
    let place = Place::new();
    drop(place.create());
    let before = bytes(&place.path);
    let migrated = migrated(&place.path, &REAL);
    assert!(migrated.steps.is_empty() && migrated.backup.is_none(), "{migrated:?}");
    assert!(bytes(&place.path) == before);
    assert_eq!(place.names(), ["session.db"]);
}

#[test]
fn a_session_of_an_earlier_acetate_gets_its_columns_in_their_places() {
    let place = Place::new();
    let id = place.create().id().to_owned();
    let earlier = "DROP TABLE tool_calls; CREATE TABLE tool_calls (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, parameters TEXT, result TEXT,
        error TEXT, started_at INTEGER NOT NULL, completed_at INTEGER NOT NULL,
        duration_ms INTEGER NOT NULL, status TEXT NOT NULL DEFAULT 'pending');
      INSERT INTO tool_calls VALUES (5, 'f', NULL, '1', NULL, 1, 2, 1000, 'success')";
    place.sql().execute_batch(earlier).unwrap();
    let done = migrated(&place.path, &REAL);
    let said: Vec<_> = done.steps.iter().map(|step| (step.table, step.what.as_str())).collect();
    assert_eq!(said, [("tool_calls", "is rewritten in acetate's form")]);
    assert_sound(&place.path);
    assert_eq!(place.number("SELECT count(*) FROM tool_calls WHERE status = 'success'"), 1);
    assert_eq!(place.open().id(), id);
}

/// Chunks of version 0.0, the size of the file, and what it holds.
type Chunked<'a> = (i64, &'a [(i64, &'a [u8])], Vec<u8>);

#[test]
fn no_byte_of_any_chunk_is_lost() {
    let large: Vec<u8> = (0..200_001u32).map(|at| (at * 7 % 253) as u8).collect();
    let joined = [&large[..], b"end"].concat();
    let mut holes = vec![0; 140_005];
    holes[3..6].copy_from_slice(b"abc");
    holes[140_000..140_003].copy_from_slice(b"def");
    let cases: [Chunked<'_>; 9] = [
        (6, &[(3, b"def"), (0, b"abc")], b"abcdef".to_vec()),
        (200_004, &[(0, &large), (200_001, b"end")], joined),
        // Holes: the size says that there are some.
        (140_005, &[(3, b"abc"), (140_000, b"def")], holes),
        (5, &[], vec![0; 5]),
        // As the specification reads them, where it has no holes: one behind the other.
        (6, &[(0, b"abc"), (100, b"def")], b"abcdef".to_vec()),
        (4, &[(0, b"abcd"), (1, b"xy")], b"abcdxy".to_vec()),
        (9, &[(0, b"abcd"), (0, b"xy")], b"abcdxy".to_vec()),
        // Behind the end, and before the beginning.
        (2, &[(0, b"abc"), (3, b"def")], b"abcdef".to_vec()),
        (-1, &[(-5, b"abc"), (i64::MAX, b"def")], b"abcdef".to_vec()),
    ];
    let place = Place::new();
    let made = spec_versions::empty(&place.path, &base(&place), "0.0");
    for (number, (size, chunks, _)) in cases.iter().enumerate() {
        made.chunked(&format!("f{number}"), *size, chunks);
    }
    let text = "UPDATE fs_data SET data = CAST(data AS TEXT) WHERE ino = 2";
    place.sql().execute(text, []).unwrap();
    drop(made);
    let done = migrated(&place.path, &REAL);
    assert!(done.left.is_empty(), "{done:?}");
    let said = done.steps.iter().find(|step| step.what.contains("size that their chunks have"));
    assert_eq!(said.map(|step| step.what.ends_with(": 4")), Some(true), "{done:?}");
    assert_sound(&place.path);
    let ours = merged::read_tree(&place.path, &base(&place));
    assert_same(&spec_reader::read_tree(&place.path, &base(&place)), &ours, "to the letter");
    for (number, (.., content)) in cases.iter().enumerate() {
        let object = &ours[format!("f{number}").as_bytes()];
        assert_eq!(object.kind, FileKind::Regular);
        assert!(object.content == *content, "f{number}: {} bytes", object.content.len());
    }
}

#[test]
fn chunks_of_nothing_are_kept_and_told() {
    let place = Place::new();
    let made = spec_versions::empty(&place.path, &base(&place), "0.0");
    made.chunked("f", 3, &[(0, b"abc")]);
    let orphans = "INSERT INTO fs_data (ino, offset, size, data) VALUES (77, 0, 3, 'abc'),
        (1, 0, 3, 'abc')";
    place.sql().execute_batch(&format!("PRAGMA foreign_keys = OFF; {orphans}")).unwrap();
    drop(made);
    assert_eq!(rules(&migrated(&place.path, &DRY)), [("D2", 2)]);
    assert_eq!(rules(&migrated(&place.path, &REAL)), [("D2", 2)]);
    assert_eq!(place.number("SELECT count(*) FROM fs_data WHERE data = CAST('abc' AS BLOB)"), 3);
}

#[test]
fn what_agentfs_makes_becomes_ours_and_what_does_not_fit_is_told() {
    for journal in ["DELETE", "WAL"] {
        let place = Place::new();
        place.sql().execute_batch(&format!("PRAGMA journal_mode = {journal}; {FOREIGN}")).unwrap();
        // What yet another program adds goes on.
        let more = "ALTER TABLE fs_inode ADD COLUMN tag TEXT; UPDATE fs_inode SET tag = 't' || ino;
            CREATE INDEX theirs ON fs_dentry(ino, name);
            CREATE VIEW seen AS SELECT * FROM fs_inode;
            INSERT INTO tool_calls VALUES (9, 'f', NULL, NULL, 'e', 1, 1, 0);
            INSERT INTO fs_dentry VALUES (500, 'later', 1, 3);
            DELETE FROM fs_dentry WHERE id = 500";
        place.sql().execute_batch(more).unwrap();
        let dry = migrated(&place.path, &DRY);
        let done = migrated(&place.path, &REAL);
        assert_eq!(done.from, "0.4");
        assert_eq!(rules(&dry), rules(&done), "{journal}");
        let left = ["S2", "S5", "S6", "S9", "S10", "D1", "D2", "D5", "W2"];
        assert_eq!(done.left.iter().map(|broken| broken.rule).collect::<Vec<_>>(), left);
        for (asked, number) in [
            ("SELECT count(*) FROM fs_inode WHERE tag = 't' || ino", 6),
            ("SELECT count(*) FROM seen", 6),
            ("SELECT count(*) FROM sqlite_master WHERE name = 'theirs'", 1),
            ("SELECT count(*) FROM tool_calls WHERE status = 'error'", 1),
            ("SELECT seq >= 500 FROM sqlite_sequence WHERE name = 'fs_dentry'", 1),
            ("SELECT nlink FROM fs_inode WHERE ino = 3", 8),
            ("SELECT value = '4096' FROM fs_config WHERE key = 'chunk_size'", 1),
            ("SELECT count(*) FROM fs_whiteout WHERE parent_path = '/dir'", 1),
            ("SELECT count(*) FROM sqlite_master WHERE name LIKE '%before%'", 0),
        ] {
            assert_eq!(place.number(asked), number, "{journal}: {asked}");
        }
        let sql = "SELECT sql LIKE '%AUTOINCREMENT%' FROM sqlite_master WHERE name = 'fs_inode'";
        assert_eq!(place.number(sql), 1);
        assert!(migrated(&place.path, &REAL).steps.is_empty());
        drop(place.open());
    }
}

#[test]
fn two_entries_of_one_name_are_both_kept() {
    let place = Place::new();
    let odd = FOREIGN.replace(", UNIQUE(parent_ino, name)", "");
    place.sql().execute_batch(&odd).unwrap();
    let twice = "INSERT INTO fs_dentry (id, name, parent_ino, ino) VALUES (70, 'file', 1, 6)";
    place.sql().execute(twice, []).unwrap();
    migrated(&place.path, &REAL);
    assert_eq!(place.number("SELECT ino FROM fs_dentry WHERE name = 'file'"), 3);
    assert_eq!(place.number("SELECT ino FROM fs_dentry WHERE name = 'file~70'"), 6);
}

#[test]
fn holes_of_others_are_counted() {
    let place = Place::new();
    spec_versions::make(&place.path, &base(&place), "0.4");
    let sparse = "UPDATE fs_inode SET size = 20000 WHERE size = 0 AND mode = 33188";
    place.sql().execute(sparse, []).unwrap();
    assert!(migrated(&place.path, &REAL).left.is_empty());
    assert_eq!(place.number("SELECT holes FROM acetate_inode"), 5);
    assert_sound(&place.path);
}

#[test]
fn what_another_program_migrated_by_half_is_migrated() {
    let place = Place::new();
    let tree = spec_versions::make(&place.path, &base(&place), "0.3 at first");
    let columns = ["rdev", "atime_nsec", "mtime_nsec", "ctime_nsec"];
    let add = columns.map(|column| {
        format!("ALTER TABLE fs_inode ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0;")
    });
    place.sql().execute_batch(&add.concat()).unwrap();
    assert_eq!(migrated(&place.path, &REAL).from, "0.3");
    assert_sound(&place.path);
    assert_same(&merged::read_tree(&place.path, &base(&place)), &tree, "migrated by half");
}

#[test]
fn a_session_that_acetate_served_keeps_its_id() {
    let place = Place::new();
    place.sql().execute_batch(FOREIGN).unwrap();
    let (id, key) = {
        let session = place.open();
        (session.id().to_owned(), session.handle_key())
    };
    let done = migrated(&place.path, &REAL);
    assert!(!done.steps.is_empty());
    let copy = acetate::delta::sqlite::Session::open(
        &backup(&place),
        acetate::delta::sqlite::OpenMode::ReadOnly,
        &Host::current().unwrap(),
    );
    for session in [place.open(), TestSession::File(copy.unwrap())] {
        assert_eq!((session.id(), session.handle_key()), (&*id, key));
    }
}

#[test]
fn data_in_the_log_alone_is_migrated() {
    let place = Place::new();
    let sql = place.sql();
    let make = format!("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; {FOREIGN}");
    sql.execute_batch(&make).unwrap();
    let copy = Place::new();
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", place.path.display());
        fs::copy(from, format!("{}{suffix}", copy.path.display())).unwrap();
    }
    migrated(&copy.path, &REAL);
    assert_eq!(copy.number("SELECT count(*) FROM fs_inode"), 6);
    fs::remove_file(format!("{}-wal", place.path.display())).unwrap();
    assert!(matches!(refusal(&place.path), OpenError::LostWal { .. }));
}

#[test]
fn what_is_in_use_or_taken_is_refused_and_stays() {
    let place = Place::new();
    spec_versions::make(&place.path, &base(&place), "0.2");
    let rows = all_rows(&place.path);
    fs::write(backup(&place), "mine").unwrap();
    assert!(matches!(refusal(&place.path), OpenError::Exists { .. }));
    assert_eq!(bytes(&backup(&place)), b"mine");
    assert!(all_rows(&place.path) == rows, "a row changed");
    fs::remove_file(backup(&place)).unwrap();
    let other = place.path.with_file_name("elsewhere.db");
    let elsewhere = MigrateOptions { backup: Some(&other), ..REAL };
    assert_eq!(migrated(&place.path, &elsewhere).backup.unwrap().path, other);
    assert!(!backup(&place).exists());

    let place = Place::new();
    place.sql().execute_batch(FOREIGN).unwrap();
    let session = place.open();
    assert!(matches!(refusal(&place.path), OpenError::InUse { .. }));
    drop(session);
    let info = place.path.with_file_name("session.db-info");
    fs::write(&info, "{}").unwrap();
    assert!(matches!(refusal(&place.path), OpenError::CloudSynced { .. }));
    fs::remove_file(info).unwrap();
    let place = Place::new();
    fs::write(&place.path, [&b"Turso\x00\x01"[..], &[0x5a; 8000]].concat()).unwrap();
    assert!(matches!(refusal(&place.path), OpenError::Encrypted { .. }));
    let place = Place::new();
    place.sql().execute_batch("CREATE TABLE fs_inode (ino INTEGER PRIMARY KEY)").unwrap();
    assert!(matches!(refusal(&place.path), OpenError::NotSession { .. }));
}
