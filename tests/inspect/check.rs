//! Each rule of docs/SCHEMA.md is checked: a session that is damaged in just that way is found
//! out, and a sound one is not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use acetate::delta::sqlite::{Broken, CheckOptions, INTEGRITY, RULES};
use acetate::inspect::check::{Soundness, check};
use acetate::overlay::CopyLimits;
use acetate::vfs::{CreateHow, CreateVerifier, Device, NewNode, SetAttr};

use crate::delta::Place;
use crate::support::world::{Setup, World};

const OPTIONS: CheckOptions = CheckOptions { most: 100, quick: false };

pub const CHUNK: u64 = 512;

/// A session that has something for each rule to be about, closed.
pub fn world() -> World {
    let large = "x".repeat(20 * CHUNK as usize);
    let base = format!(
        "dir/large \"{large}\"\nmoved/inner \"x\"\nhard/one \"h\"\nhard/two = hard/one\n\
         hard/three = hard/one\ngone \"g\"\nsmall \"small\"\nsecond \"second\"\n"
    );
    let copy_up = CopyLimits::of(1000, 2 * CHUNK);
    let setup = Setup { base: Some(base), chunk_bytes: CHUNK, copy_up, ..Setup::default() };
    let mut world = World::with(setup);
    world.put("plain", "plain content");
    world.put("two", &"2".repeat(700));
    world.put("empty", "");
    world.link("plain", "again").unwrap();
    world.symlink("target", "link").unwrap();
    world.mkdir("made").unwrap();
    world.mkdir("made/sub").unwrap();
    world.put("made/file", "in it");
    world.put("sparse", "s");
    world.truncate("sparse", 5000).unwrap();
    let device = NewNode::Character(Device { major: 1, minor: 3 });
    world.make("device", device, SetAttr::default()).unwrap();
    world.create("exclusive", CreateHow::Exclusive(CreateVerifier([7; 8]))).unwrap();
    world.rename("moved", "redirected").unwrap();
    world.remove("hard/one").unwrap();
    world.remove("gone").unwrap();
    world.write("small", 0, b"S").unwrap();
    world.write("second", 0, b"S").unwrap();
    world.checkpoint();
    world.chmod("empty", 0o600).unwrap();
    world.write("dir/large", 3 * CHUNK + 7, b"!").unwrap();
    world.close();
    world
}

/// A copy of the world's session with the changes that `damage` makes.
pub fn damaged(world: &World, damage: &str) -> PathBuf {
    let path = world.scratch().join("damaged.db");
    fs::copy(world.session(), &path).unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
    conn.execute_batch(
        "CREATE TEMP VIEW at AS SELECT CAST(name AS TEXT) AS name, ino FROM fs_dentry",
    )
    .unwrap();
    let names = ["plain", "two", "empty", "made", "sub", "sparse", "small", "second", "large"];
    let damage = names.iter().fold(damage.to_owned(), |damage, name| {
        damage.replace(&format!("@{name}"), &format!("(SELECT ino FROM at WHERE name = '{name}')"))
    });
    let entry = "INSERT INTO fs_dentry (parent_ino, name, ino) VALUES";
    conn.execute_batch(&damage.replace("ENTRY", entry)).unwrap();
    // As if we had added the entries ourselves.
    conn.execute(
        "UPDATE acetate_meta SET value = (SELECT max(id) FROM fs_dentry) WHERE key = 'last_dentry'",
        [],
    )
    .unwrap();
    path
}

fn rules(sound: &Soundness) -> Vec<&'static str> {
    sound.broken.iter().map(|broken| broken.rule).collect()
}

fn all(sound: &Soundness) -> Vec<String> {
    let line = |broken: &Broken| {
        let breaches: Vec<_> = broken.first.iter().map(|b| format!("{b:?}")).collect();
        format!("{} {}", broken.rule, breaches.join(", "))
    };
    sound.broken.iter().map(line).collect()
}

/// What breaks which rules: those before the colon, and no other. `@name` is the inode of that
/// name, ENTRY adds entries: (directory, name, inode).
pub const DAMAGE: &[&str] = &[
    "S1 S3 D4: UPDATE fs_inode SET mode = 33188 WHERE ino = 1",
    "S1 S3 D4: DELETE FROM fs_inode WHERE ino = 1",
    "S1: ENTRY (@made, 'loop', 1)",
    "S2: ENTRY (1, 'dangling', 4503603922337999)",
    "S3: ENTRY (77, 'x', @plain); UPDATE fs_inode SET nlink = 3 WHERE ino = @plain",
    "S3: ENTRY (@empty, 'x', @plain); UPDATE fs_inode SET nlink = 3 WHERE ino = @plain",
    "S4 D5: ENTRY (1, CAST('plain' AS BLOB), @empty);
       UPDATE fs_inode SET nlink = 2 WHERE ino = @empty",
    "S5: UPDATE fs_inode SET mode = 420 WHERE ino = @empty",
    "S5: UPDATE fs_inode SET mode = mode + 65536 WHERE ino = @empty",
    "S6: UPDATE fs_inode SET nlink = 0 WHERE ino = @empty;
       DELETE FROM fs_dentry WHERE name = 'empty'",
    "S7: UPDATE fs_inode SET nlink = 3 WHERE ino = @plain",
    "S7: UPDATE fs_inode SET nlink = 2 WHERE ino = 1",
    "S8: ENTRY (1, 'again-made', @made); UPDATE fs_inode SET nlink = 2 WHERE ino = @made",
    "S8: UPDATE fs_dentry SET parent_ino = @sub WHERE ino = @made",
    "S9: UPDATE fs_inode SET mtime_nsec = 1000000000 WHERE ino = @plain",
    "S9: UPDATE fs_inode SET ctime_nsec = -1 WHERE ino = @plain",
    "S9: UPDATE fs_inode SET size = -1 WHERE ino = @empty",
    "S10: UPDATE fs_dentry SET name = '..' WHERE ino = @empty",
    "S10: UPDATE fs_dentry SET name = 'a/b' WHERE ino = @empty",
    "S10: UPDATE fs_dentry SET name = '' WHERE ino = @empty",
    "S10: UPDATE fs_dentry SET name = printf('%.*c', 256, 'x') WHERE ino = @empty",
    "D1: UPDATE fs_data SET data = x'00' WHERE ino = @plain",
    "D1: UPDATE fs_data SET data = CAST(data AS TEXT) WHERE ino = @plain",
    "D1: UPDATE fs_config SET value = 'many' WHERE key = 'chunk_size'",
    "D2: INSERT INTO fs_data VALUES (@plain, 1, x'00')",
    "D2: INSERT INTO fs_data VALUES (@plain, -1, x'00')",
    "D2: INSERT INTO fs_data VALUES (@made, 0, x'00')",
    "D2: INSERT INTO fs_data VALUES (77, 0, x'00')",
    "D3: UPDATE acetate_inode SET holes = holes - 1 WHERE ino = @sparse",
    "D3: DELETE FROM fs_data WHERE ino = @two AND chunk_index = 1",
    "D4: INSERT INTO acetate_inode (ino, subdirs) VALUES (77, 1)",
    "D4: INSERT INTO acetate_inode (ino) VALUES (@two)",
    "D4: UPDATE acetate_inode SET create_verifier = x'00' WHERE create_verifier IS NOT NULL",
    "D4: INSERT INTO acetate_inode (ino, subdirs) VALUES (@two, 1)",
    "D5: UPDATE fs_dentry SET name = CAST(name AS BLOB) WHERE ino = @two",
    "D5: UPDATE fs_dentry SET name = CAST(x'ff' AS TEXT) WHERE ino = @two",
    "D5: UPDATE fs_symlink SET target = CAST(target AS BLOB)",
    "D5: UPDATE fs_whiteout SET path = CAST(path AS BLOB) WHERE path = '/gone'",
    "D6: DELETE FROM fs_symlink",
    "D6: INSERT INTO fs_symlink VALUES (@two, 'target')",
    "D6: INSERT INTO fs_symlink VALUES (77, 'target')",
    "D7: UPDATE fs_inode SET rdev = 5 WHERE ino = @two",
    "W1: INSERT INTO fs_whiteout VALUES ('/made/file', '/made', 0)",
    "W1: INSERT INTO fs_whiteout VALUES ('/made', '/', 0)",
    "W2: UPDATE fs_whiteout SET parent_path = '/dir' WHERE path = '/gone'",
    "W2: INSERT INTO fs_whiteout VALUES ('no path', '', 0)",
    "W3: INSERT OR REPLACE INTO acetate_meta VALUES ('format_version', 2);
       INSERT INTO acetate_opaque VALUES (@two, 0)",
    "W3: INSERT OR REPLACE INTO acetate_meta VALUES ('format_version', 2);
       INSERT INTO acetate_opaque VALUES (1, 0)",
    "W3: INSERT OR REPLACE INTO acetate_meta VALUES ('format_version', 2);
       INSERT INTO acetate_opaque SELECT delta_ino, 0 FROM acetate_redirect",
    "M1: UPDATE acetate_meta SET value = 1 WHERE key = 'format_version'",
    "M1: UPDATE acetate_meta SET value = 1 WHERE key = 'format_version';
       INSERT INTO acetate_opaque VALUES (@made, 0)",
    "M1: UPDATE acetate_meta SET value = 0 WHERE key = 'format_version'",
    "M1: DELETE FROM acetate_meta WHERE key = 'format_version'",
    "M1: UPDATE acetate_meta SET value = 'an id' WHERE key = 'session_id'",
    "M1: UPDATE acetate_meta SET value = x'00' WHERE key = 'handle_key'",
    "M2: UPDATE acetate_meta SET value = @two WHERE key = 'next_ino'",
    "M2: DELETE FROM acetate_meta WHERE key = 'next_ino'",
    "M3: UPDATE acetate_meta SET value = 0 WHERE key = 'boot_epoch'",
    "M3: UPDATE acetate_meta SET value = 0 WHERE key = 'clean';
       DELETE FROM acetate_meta WHERE key = 'boot_id'",
    "M4: UPDATE acetate_meta SET value = 2 WHERE key = 'clean'",
    "M5: INSERT INTO acetate_meta (key, value) VALUES ('quota_bytes', 'much')",
    "M5: INSERT INTO acetate_meta (key, value) VALUES ('quota_files', -1)",
    "M6: INSERT INTO acetate_meta (key, value) VALUES ('audit_dropped', -1)",
    "M6: INSERT INTO acetate_meta (key, value) VALUES ('audit_since', 'ever')",
    "M5: INSERT INTO acetate_meta (key, value) VALUES ('max_file_bytes', 'large')",
    "M1: UPDATE acetate_meta SET value = 1 WHERE key = 'format_version';
       INSERT INTO acetate_meta (key, value) VALUES ('hide', '.env')",
    "M7: INSERT OR REPLACE INTO acetate_meta VALUES ('format_version', 2);
       INSERT INTO acetate_meta (key, value) VALUES ('hide', 'a/')",
    "O1: DELETE FROM fs_origin WHERE delta_ino = @small",
    "O1: UPDATE fs_origin SET base_ino = base_ino + 1 WHERE delta_ino = @small",
    "O1: UPDATE acetate_origin SET delta_ino = 77 WHERE delta_ino = @small",
    "O2: UPDATE acetate_origin SET (base_ino, base_path) =
         (SELECT base_ino, base_path FROM acetate_origin WHERE delta_ino = @second)
       WHERE delta_ino = @small;
       UPDATE fs_origin SET base_ino =
         (SELECT base_ino FROM acetate_origin WHERE delta_ino = @second)
       WHERE delta_ino = @small",
    "O3: UPDATE acetate_original SET size = size + 1 WHERE content IS NOT NULL",
    "C1: UPDATE acetate_copy_up SET next_byte = next_byte + 1",
    "C1: UPDATE acetate_copy_up SET end_byte = end_byte + 100000",
    "D3 C1: UPDATE acetate_copy_up SET delta_ino = 77",
    "C2: INSERT INTO acetate_inode (ino, holes) VALUES (@large, 3)",
    "R1: UPDATE acetate_redirect SET delta_ino = @two",
    "R1: INSERT INTO acetate_redirect SELECT @made, CAST(base_path AS TEXT) FROM acetate_redirect",
    "R1: DELETE FROM fs_whiteout WHERE path = '/moved'",
    "R1: UPDATE acetate_redirect SET base_path = x'2f2f'",
    "L1: UPDATE acetate_link SET hidden = 0",
    "K1: UPDATE acetate_old_fs_inode SET checkpoint = checkpoint + 7",
    "K1: DELETE FROM acetate_checkpoint",
    "K2: UPDATE acetate_checkpoint SET incomplete = 'moon'",
    "T1: CREATE TABLE acetate_tool_call (call INTEGER PRIMARY KEY, begin_op, end_op, checkpoint);
       INSERT INTO acetate_tool_call VALUES (7, 0, 0, NULL)",
    "integrity: PRAGMA writable_schema = ON;
       DELETE FROM sqlite_schema WHERE name = 'idx_kv_store_created_at'",
];

#[test]
fn a_sound_session_is_sound() {
    let world = world();
    for path in [world.session(), damaged(&world, "")] {
        let sound = check(&path, None, &OPTIONS).unwrap();
        assert!(sound.broken.is_empty(), "{:#?}", all(&sound));
        assert!(!sound.is_foreign);
    }
}

#[test]
fn each_damage_breaks_its_rules_and_no_other() {
    let world = world();
    for case in DAMAGE {
        let (expected, damage) = case.split_once(": ").unwrap();
        let path = damaged(&world, damage);
        let sound = check(&path, None, &OPTIONS).unwrap();
        let expected: Vec<_> = expected.split(' ').collect();
        assert_eq!(rules(&sound), expected, "{case}:\n{:#?}", all(&sound));
        assert!(sound.broken.iter().all(|broken| !broken.is_note), "{case}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn the_rules_are_those_of_the_document_and_each_has_its_damage() {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/SCHEMA.md"));
    let document = document.unwrap();
    let described: Vec<_> = document
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**:"))
        .map(|(rule, _)| rule)
        .collect();
    assert_eq!(described, RULES);
    let damaged: BTreeSet<_> =
        DAMAGE.iter().flat_map(|case| case.split(": ").next().unwrap().split(' ')).collect();
    let missing: Vec<_> = RULES.iter().filter(|rule| !damaged.contains(*rule)).collect();
    assert_eq!(missing, [&"C3"], "it is about the base, and has a test of its own");
}

#[test]
fn what_is_pending_is_compared_with_the_base() {
    let mut world = world();
    let session = world.session();
    let base = world.change_base();
    fs::write(base.join("dir/large"), "another").unwrap();
    let sound = check(&session, None, &OPTIONS).unwrap();
    assert_eq!(rules(&sound), ["C3"]);
    let breach = &sound.broken[0].first[0];
    assert_eq!(breach.path.as_deref(), Some(&b"/dir/large"[..]));
    assert!(!sound.is_sound());
    let sound = check(&session, Some(Path::new("/nowhere")), &OPTIONS).unwrap();
    assert_eq!((rules(&sound), sound.is_sound()), (vec!["C3"], true), "not checked: a note");
}

#[test]
fn what_breaks_a_rule_has_its_inode_and_path() {
    let world = world();
    let path = damaged(
        &world,
        "UPDATE fs_inode SET nlink = 9 WHERE ino IN (@plain, @sub, 1);
         ENTRY (@made, 'dangling', 88), (77, 'lost', 88)",
    );
    let sound = check(&path, None, &OPTIONS).unwrap();
    assert_eq!(rules(&sound), ["S2", "S3", "S7"]);
    let paths = |at: usize| -> Vec<_> {
        let first = sound.broken[at].first.iter();
        first.map(|b| b.path.clone().map(|path| String::from_utf8(path).unwrap())).collect()
    };
    let some = |path: &str| Some(path.to_owned());
    assert_eq!(paths(0), [some("/made/dangling"), None]);
    assert!(sound.broken[0].first[1].what.contains("\"lost\" of inode 77"));
    assert_eq!(paths(2), [some("/"), some("/plain"), some("/made/sub")]);
    assert_eq!(sound.broken[2].first[0].ino, Some(1));
    // The same without the index that tells an inode's entries.
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("DROP INDEX acetate_dentry_ino").unwrap();
    let again = check(&path, None, &OPTIONS).unwrap();
    assert_eq!(again.broken, sound.broken);
}

#[test]
fn as_much_is_told_as_was_asked_for_and_the_rest_is_counted() {
    let world = world();
    let path = damaged(&world, "UPDATE fs_inode SET mtime_nsec = -1");
    let sound = check(&path, None, &CheckOptions { most: 3, quick: true }).unwrap();
    let inodes: i64 = world.sql_value("SELECT count(*) FROM fs_inode");
    assert_eq!(sound.broken[0].count, inodes as u64);
    assert_eq!((rules(&sound), sound.broken[0].first.len()), (vec!["S9"], 3));
}

#[test]
fn damaged_pages_are_findings() {
    let world = world();
    let path = damaged(&world, "");
    let conn = rusqlite::Connection::open(&path).unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'acetate_redirect'";
    let page: u64 = conn.query_row(root, [], |row| row.get::<_, i64>(0)).unwrap() as u64;
    drop(conn);
    let mut bytes = fs::read(&path).unwrap();
    bytes[(page as usize - 1) * 4096..page as usize * 4096].fill(0xEE);
    fs::write(&path, bytes).unwrap();
    for quick in [false, true] {
        let sound = check(&path, None, &CheckOptions { quick, ..OPTIONS }).unwrap();
        assert_eq!(rules(&sound), [INTEGRITY], "{:?}", all(&sound));
        assert!(!sound.is_sound());
    }
}

#[test]
fn the_quick_check_leaves_the_file_itself_out() {
    let world = world();
    let path = damaged(&world, DAMAGE.last().unwrap().split_once(": ").unwrap().1);
    let sound = check(&path, None, &CheckOptions { quick: true, ..OPTIONS }).unwrap();
    assert!(sound.broken.is_empty());
}

#[test]
fn what_others_may_break_is_noted_in_their_files() {
    let place = Place::new();
    place.sql().execute_batch(crate::delta::FOREIGN).unwrap();
    let sound = check(&place.path, None, &OPTIONS).unwrap();
    assert!(sound.is_foreign && sound.is_sound(), "{:#?}", all(&sound));
    let noted = ["S2", "S5", "S6", "S7", "S9", "S10", "D1", "D2", "D5", "W2"];
    assert_eq!(rules(&sound), noted, "{:#?}", all(&sound));
    assert!(sound.broken.iter().all(|broken| broken.is_note));
    // Data that a whiteout hides is more than that.
    place.sql().execute("INSERT INTO fs_whiteout VALUES ('/file', 5)", []).unwrap();
    let sound = check(&place.path, None, &OPTIONS).unwrap();
    assert_eq!(sound.findings(), 1);
    // And so it is once acetate has served it.
    place.open();
    let sound = check(&place.path, None, &OPTIONS).unwrap();
    assert!(sound.is_foreign && sound.findings() == 1, "{:#?}", all(&sound));
}

#[test]
fn what_others_add_to_a_session_of_ours_is_noted_until_it_is_served() {
    let world = world();
    let path = damaged(&world, "");
    let conn = rusqlite::Connection::open(&path).unwrap();
    let link = "INSERT INTO fs_dentry (name, parent_ino, ino)
        SELECT 'theirs', 1, ino FROM fs_dentry WHERE name = 'plain'";
    conn.execute(link, []).unwrap();
    let sound = check(&path, None, &OPTIONS).unwrap();
    assert_eq!((rules(&sound), sound.is_foreign, sound.notes()), (vec!["S7"], true, 1));
    assert!(sound.is_sound());
}

#[test]
fn a_moved_directory_of_which_the_base_has_nothing_any_more_is_noted() {
    let mut world = World::new("dir/file \"f\"\nother/file \"o\"");
    world.rename("dir", "moved").unwrap();
    world.rename("other", "kept").unwrap();
    world.close();
    let base = world.change_base();
    assert_eq!(all(&check(&world.session(), None, &OPTIONS).unwrap()), [""; 0]);
    fs::rename(base.join("dir"), base.join("elsewhere")).unwrap();
    let sound = check(&world.session(), None, &OPTIONS).unwrap();
    assert_eq!((sound.findings(), sound.notes(), sound.has_foreign_damage()), (0, 1, false));
    let [note] = &sound.broken[..] else { panic!("{sound:?}") };
    assert_eq!(note.rule, "R1");
    assert_eq!(note.first[0].path.as_deref(), Some(&b"/moved"[..]));
    assert_eq!(note.first[0].what, "the base has no directory at /dir any more");
    // An apply has it on its way.
    fs::create_dir(base.join(".acetate-apply")).unwrap();
    fs::write(base.join(".acetate-apply/journal"), "").unwrap();
    assert_eq!(all(&check(&world.session(), None, &OPTIONS).unwrap()), [""; 0]);
}

/// Each of the things that format 1 does not know breaks M1 by itself.
#[test]
fn a_session_of_the_first_format_has_nothing_of_later_ones() {
    let later = [
        "INSERT INTO acetate_opaque SELECT ino, 0 FROM fs_dentry",
        "INSERT INTO acetate_meta (key, value) VALUES ('hide', '.env')",
        "CREATE TABLE acetate_checkpoint (id INTEGER PRIMARY KEY, name, kind, time, time_nsec,
           labels, last_op, next_ino, saved_rows, saved_bytes)",
    ];
    for statement in later {
        let mut world = World::new("");
        world.mkdir("dir").unwrap();
        world.close();
        let damaged = damaged(&world, statement);
        let sound = check(&damaged, None, &OPTIONS).unwrap();
        assert!(rules(&sound).contains(&"M1"), "{statement}: {:#?}", all(&sound));
    }
}
