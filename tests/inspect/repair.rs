//! Each rule that is broken can be mended, and every byte of content is there afterwards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use acetate::delta::sqlite::{OpenError, RepairOptions, RepairReport, Session};
use acetate::inspect::InspectError;
use acetate::inspect::check::Soundness;
use acetate::inspect::repair::repair;
use acetate::vfs::FileKind;

use super::all_rows;
use super::check::{DAMAGE, damaged, world};
use crate::delta::{FOREIGN, Place, bytes};
use crate::support::check::assert_consistent;
use crate::support::merged;
use crate::support::tree::Tree;
use crate::support::world::World;

const REAL: RepairOptions<'_> = RepairOptions { backup: None, dry_run: false, most: 100 };
const DRY: RepairOptions<'_> = RepairOptions { dry_run: true, ..REAL };

/// Damage with content in it, in the form of [`DAMAGE`]: what is mended, and what breaks it.
const WORSE: &[&str] = &[
    "D2: INSERT INTO fs_data VALUES (@plain, 5, CAST('behind the end' AS BLOB))",
    "D2: INSERT INTO fs_data VALUES (@plain, -1, CAST('before' AS BLOB)),
       (@plain, 'word', CAST('numberless' AS BLOB)), (@plain, 1e300, CAST('far' AS BLOB)),
       (@plain, 9007199254740993, CAST('too far' AS BLOB)), (@plain, 4611686018427387904, 'text')",
    "D2: INSERT INTO fs_data VALUES (77, 0, CAST('of nothing' AS BLOB)), (77, 2, x'31'),
       (@made, 0, CAST('of a directory' AS BLOB)), (1, 0, CAST('of the root' AS BLOB)),
       (-3, 0, CAST('of a negative' AS BLOB)), ('word', 0, CAST('of a word' AS BLOB))",
    "D2: UPDATE fs_inode SET size = 300 WHERE ino = @two",
    "D2: UPDATE fs_inode SET size = 0 WHERE ino = @two",
    "S9: UPDATE fs_inode SET size = -300 WHERE ino = @two",
    "D1: UPDATE fs_data SET data = CAST(printf('%.*c', 1500, 'y') AS BLOB)
       WHERE ino = @two AND chunk_index = 0",
    "D1: UPDATE fs_data SET data = CAST('short' AS BLOB) WHERE ino = @two AND chunk_index = 0",
    "D1: UPDATE fs_data SET data = 12345 WHERE ino = @two AND chunk_index = 0",
    "S6: DELETE FROM fs_dentry WHERE ino IN (@made, @plain)",
    "S3 S6: DELETE FROM fs_inode WHERE ino = @made",
    "S3: UPDATE fs_dentry SET parent_ino = @two WHERE ino = @made",
    "S3: UPDATE fs_dentry SET parent_ino = 'word' WHERE ino = @made",
    "S3: UPDATE fs_dentry SET parent_ino = -4 WHERE ino IN (@two, @sparse)",
    "S8 S6: UPDATE fs_dentry SET parent_ino = @sub WHERE ino = @made;
       ENTRY (@sub, 'deep', @two), (@made, 'self', @made)",
    "S10: UPDATE fs_dentry SET name = x'2f00' WHERE ino = @two;
       UPDATE fs_dentry SET name = '' WHERE ino = @empty;
       UPDATE fs_dentry SET name = '.' WHERE ino = @made; ENTRY (1, '__', @sparse)",
    "S4: ENTRY (1, CAST('two' AS BLOB), @plain), (@made, CAST('file' AS BLOB), @two)",
    "S1: ENTRY (@made, 'loop', 1); UPDATE fs_inode SET mode = 33188, size = 4 WHERE ino = 1;
       INSERT INTO fs_data VALUES (1, 0, CAST('root' AS BLOB))",
    "S5: UPDATE fs_inode SET mode = 420 WHERE ino IN (1, @made, @two, @plain)",
    "D6: INSERT INTO fs_symlink VALUES (@two, 'of a file'), (77, 'of nothing')",
    "M1 M2 M3 M4: DELETE FROM acetate_meta WHERE key <> 'last_dentry'",
    "D1: DELETE FROM fs_config; INSERT INTO fs_config VALUES ('chunk_size', '-1')",
    "R1: INSERT INTO acetate_redirect SELECT @made, CAST(base_path AS TEXT) FROM acetate_redirect;
       INSERT INTO acetate_redirect VALUES (@sub, x'2f')",
];

/// What is lost before anybody repairs, so that nobody can mend it.
const LOST: &[&str] = &["integrity"];

fn repaired(path: &Path, options: &RepairOptions<'_>) -> (RepairReport, Option<Soundness>) {
    repair(path, None, options, &mut |_, _| ()).unwrap()
}

fn backup(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.before-repair", path.display()))
}

/// All bytes that the session's rows have as content: chunks without the zeros at their ends, and
/// targets.
fn stored(path: &Path) -> Vec<Vec<u8>> {
    let conn = rusqlite::Connection::open(path).unwrap();
    let mut statement = conn
        .prepare(
            "SELECT CAST(CAST(data AS TEXT) AS BLOB) FROM fs_data WHERE typeof(data) <> 'blob'
             UNION ALL SELECT data FROM fs_data WHERE typeof(data) = 'blob'
             UNION ALL SELECT CAST(target AS BLOB) FROM fs_symlink",
        )
        .unwrap();
    let rows = statement.query_map([], |row| row.get::<_, Vec<u8>>(0)).unwrap();
    let rows = rows.map(|row| {
        let mut bytes = row.unwrap();
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        bytes
    });
    rows.filter(|bytes| !bytes.is_empty()).collect()
}

#[track_caller]
fn assert_reachable(stored: &[Vec<u8>], tree: &Tree, case: &str) {
    for bytes in stored {
        // In whole, or as what comes before and behind an end that was drawn in it.
        let is_in = |part: &[u8]| {
            part.is_empty()
                || tree.values().any(|object| object.content.windows(part.len()).any(|w| w == part))
        };
        let is_cut = || (0..bytes.len()).any(|at| is_in(&bytes[..at]) && is_in(&bytes[at..]));
        assert!(is_in(bytes) || is_cut(), "{case}: {} is gone", bytes.escape_ascii());
    }
}

#[test]
fn each_rule_is_mended_and_no_byte_is_lost() {
    let world = world();
    let base = world.base();
    for case in DAMAGE.iter().chain(WORSE) {
        let (expected, damage) = case.split_once(": ").unwrap();
        if LOST.contains(&expected) {
            continue;
        }
        let path = damaged(&world, damage);
        let (content, rows) = (stored(&path), all_rows(&path));
        let (dry, left) = repaired(&path, &DRY);
        assert!(left.is_none() && dry.backup.is_none(), "{case}");
        assert!(all_rows(&path) == rows && !backup(&path).exists(), "{case}: a dry run wrote");

        let (done, left) = repaired(&path, &REAL);
        let left = left.unwrap();
        assert!(left.broken.is_empty() && !left.is_foreign, "{case}: {left:#?}");
        assert_eq!(done.mended, dry.mended, "{case}");
        let mended: BTreeSet<&str> = done.mended.iter().map(|mended| mended.rule).collect();
        for rule in expected.split(' ') {
            // What mends one can mend another that was broken with it.
            let with = match rule {
                "C2" => "D3",
                "D4" | "S3" => "S1",
                "D5" => "S4",
                rule => rule,
            };
            let is_mended = mended.contains(rule) || mended.contains(with);
            assert!(is_mended, "{case}: {:#?}", done.mended);
        }
        assert!(all_rows(&backup(&path)) == rows, "{case}: the copy is another");
        assert_consistent(&path);
        assert_reachable(&content, &merged::read_tree(&path, &base), case);
        if WORSE.contains(case) {
            let (again, _) = repaired(&path, &REAL);
            assert!(again.mended.is_empty() && again.backup.is_none(), "{case}: {again:?}");
        }
        for path in [&backup(&path), &path] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn what_is_lost_is_found_in_a_directory_of_its_own() {
    let world = World::new("lost+found/of-the-base \"b\"\nfile \"f\"\n");
    world.put("kept", "kept content");
    world.mkdir("dir").unwrap();
    world.put("dir/in-it", "in it");
    let mut world = world;
    world.close();
    let path = damaged(
        &world,
        "DELETE FROM fs_dentry WHERE name IN ('kept', 'dir');
         UPDATE fs_inode SET size = 4 WHERE size = 12",
    );
    let (done, left) = repaired(&path, &REAL);
    assert!(left.unwrap().broken.is_empty());
    let tree = merged::read_tree(&path, &world.base());
    // Beside the base's.
    let of_base: Vec<_> = tree.keys().filter(|path| path.starts_with(b"lost+found/")).collect();
    assert_eq!(of_base, [b"lost+found/of-the-base"]);
    assert_eq!(tree[&b"lost+found~1"[..]].mode, 0o700);
    let found: BTreeSet<String> = tree
        .iter()
        .filter(|(path, object)| {
            path.starts_with(b"lost+found~1/") && object.kind == FileKind::Regular
        })
        .map(|(_, object)| String::from_utf8(object.content.clone()).unwrap())
        .collect();
    let expected = ["in it", "kept", " content"].map(str::to_owned);
    assert_eq!(found, BTreeSet::from(expected));
    let said: Vec<_> = done.mended.iter().flat_map(|mended| &mended.first).collect();
    assert!(said.iter().any(|what| what.contains("it is /lost+found~1/4503")), "{said:?}");
    assert!(said.iter().any(|what| what.contains(".tail")), "{said:?}");
}

#[test]
fn what_a_whiteout_hid_is_there_again_and_what_it_hid_of_the_base_is_not() {
    let base = "d/a \"a\"\nd/b \"b\"\nd/sub/x \"x\"\nd/sub/y/z \"z\"\nf \"f\"\n";
    let mut world = World::new(base);
    world.write("d/a", 0, b"A").unwrap();
    world.put("d/sub/new", "new");
    world.write("f", 0, b"F").unwrap();
    world.close();
    let path = damaged(&world, "INSERT INTO fs_whiteout VALUES ('/d', '/', 0), ('/f', '', 0)");
    // Without the base nobody knows what else is to stay hidden.
    let nowhere = Some(Path::new("/nowhere"));
    let elsewhere = path.with_file_name("elsewhere.db");
    let options = RepairOptions { backup: Some(&elsewhere), ..REAL };
    let (done, left) = repair(&path, nowhere, &options, &mut |_, _| ()).unwrap();
    assert_eq!(done.backup.unwrap().path, elsewhere.canonicalize().unwrap());
    let left = left.unwrap();
    assert_eq!((left.broken[0].rule, left.findings()), ("W1", 1), "{left:#?}");
    let (_, left) = repaired(&path, &REAL);
    assert!(left.unwrap().broken.is_empty());
    let tree = merged::read_tree(&path, &world.base());
    let paths: Vec<_> = tree.keys().map(|path| String::from_utf8_lossy(path)).collect();
    assert_eq!(paths, ["d", "d/a", "d/sub", "d/sub/new", "f"]);
    assert_eq!((&*tree[&b"d/a"[..]].content, &*tree[&b"f"[..]].content), (&b"A"[..], &b"F"[..]));
    assert_eq!(crate::support::spec_reader::read_tree(&path, &world.base()), tree);
}

#[test]
fn a_name_that_is_mended_hides_nothing_of_the_base() {
    let mut world = World::new("d/a_b \"of the base\"\nd/gone \"g\"\n");
    world.put("d/new", "new");
    world.remove("d/gone").unwrap();
    world.close();
    let damage = "UPDATE fs_dentry SET name = 'a/b' WHERE name = 'new';
        INSERT INTO fs_whiteout VALUES ('/d/a_b~1', '/d', 0)";
    let path = damaged(&world, damage);
    let (_, left) = repaired(&path, &REAL);
    assert!(left.unwrap().broken.is_empty());
    let tree = merged::read_tree(&path, &world.base());
    let paths: Vec<_> = tree.keys().map(|path| String::from_utf8_lossy(path)).collect();
    assert_eq!(paths, ["d", "d/a_b", "d/a_b~2"]);
    assert_eq!(tree[&b"d/a_b"[..]].content, b"of the base");
}

#[test]
fn what_cannot_be_mended_is_left_and_told() {
    let world = world();
    let path = damaged(&world, "DELETE FROM acetate_origin WHERE delta_ino = @large");
    let rows = all_rows(&path);
    let (done, left) = repaired(&path, &REAL);
    let left = left.unwrap();
    assert_eq!((left.broken[0].rule, left.findings()), ("C1", 1), "{left:#?}");
    assert!(done.mended.is_empty() && done.backup.is_none(), "{:?}", done.mended);
    assert!(all_rows(&path) == rows, "for nothing it wrote");
}

#[test]
fn a_session_of_another_implementation_is_repaired() {
    let place = Place::new();
    place.sql().execute_batch(FOREIGN).unwrap();
    std::fs::create_dir(place.path.with_file_name("base")).unwrap();
    let content = stored(&place.path);
    let (_, left) = repaired(&place.path, &REAL);
    let left = left.unwrap();
    assert!(left.broken.is_empty(), "{left:#?}");
    let tree = merged::read_tree(&place.path, &place.path.with_file_name("base"));
    assert_reachable(&content, &tree, "theirs");
    let names = ["dir/a_b", "dir/blob", "dir/dot", "dir/dot-dot", "dir/nul_", "dir/unnamed"];
    for name in names {
        assert_eq!(tree[name.as_bytes()].content, b"hello", "{name}");
    }
    drop(place.open());
}

#[test]
fn a_sound_session_is_left_alone_and_one_in_use_is_refused() {
    let place = Place::new();
    let session = place.create();
    let refusal = |path: &Path| match repair(path, None, &REAL, &mut |_, _| ()) {
        Err(InspectError::Open(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refusal(&place.path), OpenError::InUse { .. }));
    drop(session);
    let before = bytes(&place.path);
    let (done, left) = repaired(&place.path, &REAL);
    assert!(done.mended.is_empty() && done.backup.is_none() && left.unwrap().is_sound());
    assert!(bytes(&place.path) == before);
    assert_eq!(place.names(), ["session.db"]);
    // A file in the place of the copy stays, and so does the session.
    place.sql().execute("UPDATE fs_inode SET nlink = 9", []).unwrap();
    let rows = all_rows(&place.path);
    std::fs::write(backup(&place.path), "mine").unwrap();
    assert!(matches!(refusal(&place.path), OpenError::Exists { .. }));
    assert_eq!(bytes(&backup(&place.path)), b"mine");
    assert!(all_rows(&place.path) == rows);
    // What SQLite cannot read is nothing for us.
    let damage = "PRAGMA writable_schema = ON;
        DELETE FROM sqlite_schema WHERE name = 'idx_kv_store_created_at'";
    place.sql().execute_batch(damage).unwrap();
    let error = refusal(&place.path);
    assert!(matches!(error, OpenError::Store { .. }), "{error}");
    assert!(error.hint().unwrap().contains("sqlite3 FILE .recover"));
}

#[test]
fn the_copy_is_the_same_session_and_the_id_stays() {
    let place = Place::new();
    let id = place.create().id().to_owned();
    place.sql().execute("UPDATE fs_inode SET nlink = 9", []).unwrap();
    repaired(&place.path, &REAL);
    assert_eq!(place.open().id(), id);
    let host = acetate::delta::sqlite::Host::current().unwrap();
    let mode = acetate::delta::sqlite::OpenMode::ReadOnly;
    assert_eq!(Session::open(&backup(&place.path), mode, &host).unwrap().id(), id);
}
