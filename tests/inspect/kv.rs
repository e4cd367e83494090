//! The key-value store, beside a server and without one.

use std::time::Duration;

use acetate::delta::sqlite::AgentAccess;
use acetate::inspect::json::MAX_VALUE_BYTES;
use acetate::inspect::kv::KeyValues;
use rusqlite::Connection;

use crate::support::world::World;

fn open(world: &World, access: AgentAccess) -> KeyValues {
    KeyValues::open(&world.session(), access).unwrap()
}

fn value(kept: &KeyValues, key: &str) -> String {
    String::from_utf8(kept.get(key.as_bytes()).unwrap().unwrap().value).unwrap()
}

fn keys(kept: &KeyValues, prefix: &str) -> Vec<String> {
    let keys = kept.keys(prefix.as_bytes()).unwrap();
    keys.iter().map(|key| key.key.escape_ascii().to_string()).collect()
}

#[test]
fn values_are_kept_while_files_change() {
    let mut world = World::new("file \"content\"\n");
    let kept = open(&world, AgentAccess::Write);
    for number in 0..50 {
        kept.set(&format!("key-{number}"), &number.to_string(), 1).unwrap();
        world.put(format!("file-{number}"), "new");
        // Another program, that comes and goes.
        let other = open(&world, AgentAccess::Write);
        other.set("last", &number.to_string(), 1).unwrap();
        other.remove(format!("key-{}", number - 10).as_bytes()).unwrap();
    }
    world.write("file", 0, b"C").unwrap();
    assert_eq!(keys(&kept, "key-").len(), 10);
    assert_eq!(value(&kept, "last"), "49");
    assert_eq!(world.sql_value::<String>("PRAGMA integrity_check"), "ok");
    drop(kept);
    let log = format!("{}-wal", world.session().display());
    assert!(std::fs::metadata(log).unwrap().len() > 0, "the log is the server's");
    // Checks the session against its rules.
    world.reopen();
    assert_eq!(world.cat("file-49"), "new");
    assert_eq!(world.cat("file"), "Content");
    assert_eq!(value(&open(&world, AgentAccess::Read), "key-49"), "49");
}

#[test]
fn a_session_at_rest_is_one_file_afterwards() {
    let mut world = World::plain();
    world.put("file", "content");
    world.close();
    open(&world, AgentAccess::Write).set("key", "1", 1).unwrap();
    let names = || {
        let entries = std::fs::read_dir(world.scratch()).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["session.db"]);
    assert_eq!(value(&open(&world, AgentAccess::Read), "key"), "1");
    world.open_again();
    assert_eq!(world.cat("file"), "content");
}

#[test]
fn it_waits_for_the_lock_of_another_writer() {
    let world = World::plain();
    let other = world.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let session = world.session();
    let setting = std::thread::spawn(move || {
        KeyValues::open(&session, AgentAccess::Write).unwrap().set("key", "1", 1).unwrap();
    });
    std::thread::sleep(Duration::from_millis(200));
    assert!(!setting.is_finished());
    other.execute_batch("COMMIT").unwrap();
    setting.join().unwrap();
    assert_eq!(keys(&open(&world, AgentAccess::Read), ""), ["key"]);
}

#[test]
fn a_value_that_is_set_again_keeps_when_it_was_first() {
    let world = World::plain();
    let kept = open(&world, AgentAccess::Write);
    kept.set("key", "1", 100).unwrap();
    kept.set("key", "2", 200).unwrap();
    let row = kept.get(b"key").unwrap().unwrap();
    assert_eq!((row.created_at, row.updated_at), (Some(100), Some(200)));
    assert_eq!(row.value, b"2");
    let removed = kept.remove(b"key").unwrap();
    assert_eq!(removed, Some(row));
    assert_eq!((kept.remove(b"key").unwrap(), kept.get(b"key").unwrap()), (None, None));
    kept.set("key", "3", 300).unwrap();
    assert_eq!(kept.get(b"key").unwrap().unwrap().created_at, Some(300));
}

#[test]
fn only_json_is_kept_and_as_it_is_given() {
    let world = World::plain();
    let kept = open(&world, AgentAccess::Write);
    for text in [
        "null",
        "-5",
        "1.10",
        "123456789012345678901234567890",
        "1e400",
        r#""a \u00e9 text""#,
        r#"{"b": 1, "a": [true,  {}], "b": 2}"#,
    ] {
        kept.set("key", text, 1).unwrap();
        assert_eq!(value(&kept, "key"), text);
        kept.set("key", &format!(" \n\t{text}\r\n"), 1).unwrap();
        assert_eq!(value(&kept, "key"), text, "white space around it");
        let valid: bool = world.sql_value("SELECT json_valid(value) FROM kv_store");
        assert!(valid, "{text}");
    }
    let before = kept.get(b"key").unwrap();
    for text in ["", " ", "text", "{", "1 2", "NaN", "'a'", "01", "\"\u{1}\"", "[1,]"] {
        let error = kept.set("key", text, 2).unwrap_err();
        assert!(error.to_string().starts_with("value: not JSON: "), "{text}: {error}");
        assert!(error.hint().unwrap().contains("double quotes"));
    }
    let error = kept.set("key", r#"{"$serde_json::private::Number": "5"}"#, 2).unwrap_err();
    assert!(error.to_string().contains("is not taken as a key"), "it would be shown as 5: {error}");
    let long = format!("\"{}\"", "x".repeat(MAX_VALUE_BYTES));
    let error = kept.set("key", &long, 2).unwrap_err().to_string();
    assert!(error.contains("more than 64 MiB"), "{error}");
    assert_eq!(kept.get(b"key").unwrap(), before);
}

#[test]
fn a_prefix_is_taken_literally() {
    let world = World::plain();
    let kept = open(&world, AgentAccess::Write);
    for key in ["user:1", "user:10", "User:2", "user%", "use", "é:1", "a_b", "axb", ""] {
        kept.set(key, "1", 1).unwrap();
    }
    let all = ["", "User:2", "a_b", "axb", "use", "user%", "user:1", "user:10", "\\xc3\\xa9:1"];
    assert_eq!(keys(&kept, ""), all);
    assert_eq!(keys(&kept, "user:"), ["user:1", "user:10"]);
    assert_eq!(keys(&kept, "user%"), ["user%"]);
    assert_eq!(keys(&kept, "a_"), ["a_b"]);
    assert_eq!(keys(&kept, "é"), ["\\xc3\\xa9:1"]);
    assert_eq!(keys(&kept, "z"), [""; 0]);
}

#[test]
fn odd_rows_of_other_programs_are_no_obstacle() {
    let world = World::plain();
    world
        .sql()
        .execute_batch(
            "INSERT INTO kv_store (key, value, created_at, updated_at) VALUES
               ('number', 5, NULL, NULL), (CAST('blob' AS BLOB), x'ff00', 'soon', 7),
               (NULL, 'x', 1, 1), ('real', 1.5, 1, 1);
             INSERT INTO kv_store (key, value) VALUES ('theirs', '\"v\"');",
        )
        .unwrap();
    let kept = open(&world, AgentAccess::Write);
    assert_eq!(keys(&kept, ""), ["", "number", "real", "theirs", "blob"]);
    assert_eq!((value(&kept, "number"), value(&kept, "real")), ("5".into(), "1.5".into()));
    let blob = kept.get(b"blob").unwrap().unwrap();
    assert_eq!((blob.value, blob.created_at, blob.updated_at), (vec![0xff, 0], Some(0), Some(7)));
    assert_eq!(kept.get(b"number").unwrap().unwrap().updated_at, None);
    kept.set("theirs", "2", 5).unwrap();
    let row = kept.get(b"theirs").unwrap().unwrap();
    assert!(row.created_at.unwrap() > 1_000_000_000 && row.updated_at == Some(5), "{row:?}");
    assert!(kept.remove(b"blob").unwrap().is_some());
    assert_eq!(keys(&kept, "").len(), 4);
}

#[test]
fn a_missing_table_is_empty_and_made_when_it_is_needed() {
    let mut world = World::plain();
    world.close();
    let before: String = world.sql_value("SELECT group_concat(sql) FROM sqlite_master");
    world.sql().execute_batch("DROP TABLE kv_store").unwrap();
    let kept = open(&world, AgentAccess::Read);
    assert_eq!((keys(&kept, "").len(), kept.get(b"key").unwrap()), (0, None));
    open(&world, AgentAccess::Write).set("key", "1", 1).unwrap();
    assert_eq!(keys(&kept, ""), ["key"]);
    drop(kept);
    let sorted = |text: String| {
        let mut words: Vec<_> = text.split(',').map(str::to_owned).collect();
        words.sort();
        words
    };
    let after: String = world.sql_value("SELECT group_concat(sql) FROM sqlite_master");
    assert_eq!(sorted(after), sorted(before), "the table and index of the specification");
}

#[test]
fn a_table_that_lacks_a_column_is_named() {
    let mut world = World::plain();
    world.close();
    world.sql().execute_batch("ALTER TABLE kv_store DROP COLUMN updated_at").unwrap();
    for access in [AgentAccess::Read, AgentAccess::Write] {
        let kept = open(&world, access);
        let error = match access {
            AgentAccess::Read => kept.keys(b"").unwrap_err(),
            AgentAccess::Write => kept.set("key", "1", 1).unwrap_err(),
        };
        let error = error.to_string();
        assert!(error.contains("table kv_store has no column updated_at"), "{error}");
    }
    world.sql().execute_batch("ALTER TABLE kv_store ADD COLUMN updated_at INTEGER").unwrap();
}

#[test]
fn the_journal_mode_of_another_implementation_stays() {
    let mut world = World::plain();
    world.close();
    let mode = |conn: &Connection, sql: &str| {
        conn.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(mode(&world.sql(), "PRAGMA journal_mode = DELETE"), "delete");
    open(&world, AgentAccess::Write).set("key", "1", 1).unwrap();
    assert_eq!(value(&open(&world, AgentAccess::Read), "key"), "1");
    assert_eq!(mode(&world.sql(), "PRAGMA journal_mode"), "delete");
}

#[test]
fn what_is_no_session_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.db");
    for access in [AgentAccess::Read, AgentAccess::Write] {
        let error = KeyValues::open(&path, access).unwrap_err().to_string();
        assert!(error.ends_with("no such session"), "{error}");
    }
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE kv_store (key, value)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = KeyValues::open(&path, AgentAccess::Write).unwrap_err().to_string();
    assert!(error.contains("not a session"), "{error}");
    assert!(std::fs::read(&path).unwrap() == before);
}
