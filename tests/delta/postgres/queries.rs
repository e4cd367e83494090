//! The queries of docs/POSTGRES.md find what they say, over all sessions of a schema.

use std::collections::BTreeSet;

use acetate::delta::postgres::upload;
use acetate::delta::sqlite::Session;
use acetate::vfs::Time;

use super::{TERM, host};
use crate::support::database::server::{TestDatabase, any};
use crate::support::sql_blocks::{section, sql_blocks};
use crate::support::world::{START_SECS, World};

const TREE: &str = r#"
    dir/file "content"
    gone/a "a"
    old/b "b"
"#;

/// The time of the tests' clock, as PostgreSQL shows it.
const START: &str = "2033-05-18 03:33:20+00";

/// A session in which each query has something to find, and with names that are no UTF-8.
fn first() -> World {
    let world = World::new(TREE);
    world.put("notes.txt", "to be remembered");
    world.checkpoint();
    world.write("dir/file", 0, b"C").unwrap();
    world.rm_rf("gone");
    world.rename("old", "new").unwrap();
    world.mkdir(b"bad\xff").unwrap();
    world.put("bad\\ \u{1f427}", "x");
    world.symlink(b"to \xc3\xa9 \xed\xa0\x80", b"bad\xff/\xc3\xa9").unwrap();
    world.utimes("bad\\ \u{1f427}", Time { secs: 300_000_000_000, nanos: 5 }).unwrap();
    let call = format!(
        "INSERT INTO tool_calls (name, result, started_at, completed_at, duration_ms, status)
         VALUES ('edit', '1', {START_SECS}, {START_SECS}, 5, 'success')"
    );
    world.sql().execute_batch(&call).unwrap();
    world
}

/// Another one, a minute later.
fn second() -> World {
    let world = World::plain();
    world.tick(60);
    world.mkdir("dir").unwrap();
    world.put("dir/large", &"0123456789".repeat(20_000));
    world.put("notes.txt", "other notes");
    world
}

/// Puts the session of a world into the database.
fn put(database: &TestDatabase, mut world: World, name: &str) {
    world.close();
    let file = Session::open_any(&world.session(), &host()).unwrap();
    let url = database.url(name);
    database.with(|client, runtime| upload((client, runtime), &url, &file, TERM)).unwrap();
}

/// A database with these sessions, and one that was moved away.
fn filled(name: &str) -> TestDatabase {
    let database = any().apart(&format!("{name}_{}", std::process::id()));
    put(&database, first(), "chat-abc");
    put(&database, second(), "chat-xyz");
    put(&database, second(), "moved");
    database.run("UPDATE acetate.session SET moved_to = 'a file' WHERE name = 'moved'");
    database.run("SET timezone = 'UTC'");
    database
}

/// What a query must find, in any of its columns and rows.
const FOUND: &[(&str, &[&str])] = &[
    ("The queries below", &[]),
    ("All sessions, with", &["chat-abc", "chat-xyz", "200011"]),
    ("Every path of a session", &["/notes.txt"]),
    ("The ten files", &["/dir/large", "/notes.txt", "200000"]),
    ("The content of a text file", &["to be remembered"]),
    ("In one with millions", &["/notes.txt", "/bad\\377"]),
    ("Names of the base", &["/gone", "/old", START]),
    ("Files and directories of the base that were copied up", &["dir/file", "7"]),
    ("Directories of the base", &["old", "/new"]),
    ("The last twenty", &["RENAME", "2033-05-18 03:34:20+00"]),
    ("The files with most bytes", &["/dir/large", "200000"]),
    ("Deleted files and directories", &["/gone/a", START]),
    ("Sessions that changed", &["chat-abc", "chat-xyz"]),
    ("Changes by minute", &["2033-05-18 03:33:00+00", "2033-05-18 03:34:00+00"]),
    ("The history of one object", &["CREATE", "WRITE"]),
    ("Checkpoints:", &["chat-abc", START]),
    ("Files that changed while", &["edit", "/notes.txt"]),
    ("How often each tool", &["edit", "5"]),
];

#[test]
fn every_query_finds_what_it_says() {
    let database = filled("queries");
    let page = include_str!("../../../docs/POSTGRES.md");
    let blocks = sql_blocks(section(page, "## SQL"));
    for (said, query) in &blocks {
        let rows = database.rows(query);
        let (_, wanted) = FOUND.iter().find(|(words, _)| said.starts_with(words)).expect(said);
        for wanted in *wanted {
            assert!(rows.iter().flatten().any(|it| it == wanted), "{said} {wanted}: {rows:?}");
        }
        assert!(!rows.iter().flatten().any(|it| it == "moved"), "{said}: {rows:?}");
    }
    assert_eq!(blocks.len(), FOUND.len(), "each query has something that it must find");
}

#[test]
fn files_have_their_paths_types_and_times_whatever_their_names() {
    let database = filled("files");
    let files = "SELECT session, path, type, size, mtime, target FROM acetate.files
                 WHERE path NOT LIKE '%/dir%' ORDER BY session, path COLLATE \"C\"";
    let rows = database.rows(files);
    let shown: Vec<_> = rows.iter().map(|row| row.join(" | ")).collect();
    let later = "2033-05-18 03:34:20+00";
    let expected = [
        // Of a year that programs do not show.
        "chat-abc | /bad\\ \u{1f427} | file | 1 | NULL | NULL".to_owned(),
        format!("chat-abc | /bad\\377 | directory | 0 | {START} | NULL"),
        format!(
            "chat-abc | /bad\\377/\u{e9} | symlink | 9 | {START} | to \\303\\251 \\355\\240\\200"
        ),
        shown.iter().find(|row| row.starts_with("chat-abc | /new ")).cloned().unwrap(),
        format!("chat-abc | /notes.txt | file | 16 | {START} | NULL"),
        format!("chat-xyz | /notes.txt | file | 11 | {later} | NULL"),
    ];
    assert_eq!(shown, expected);
}

/// Every kind of valid and invalid UTF-8, as names that the database may have.
#[test]
fn text_is_what_is_utf8_and_all_else_is_escaped() {
    let database = any().apart(&format!("names_{}", std::process::id()));
    let valid = ["a", "\u{7f}", "\u{80}", "\u{7ff}", "\u{800}", "\u{fff}", "\u{1000}", "\u{cfff}"];
    let more = ["\u{d7ff}", "\u{e000}", "\u{ffff}", "\u{10000}", "\u{3ffff}", "\u{40000}"];
    let last = ["\u{fffff}", "\u{100000}", "\u{10ffff}", "\u{1}a\u{e9}\u{20ac}\u{1f427}\n"];
    let valid: BTreeSet<Vec<u8>> =
        [&valid[..], &more, &last].concat().iter().map(|it| it.as_bytes().to_vec()).collect();
    let mut all = valid.clone();
    // Each with a byte less, a byte more, and each byte changed to the bounds of all ranges.
    let bounds = [0, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf];
    let high = [0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf8, 0xff];
    for name in &valid {
        all.insert(name[1..].to_vec());
        all.insert([name, &[0x80][..]].concat());
        for at in 0..name.len() {
            for byte in bounds.iter().chain(&high) {
                let mut changed = name.clone();
                changed[at] = *byte;
                all.insert(changed);
            }
        }
    }
    database.run(
        "INSERT INTO acetate.session (id, name, format, incarnation, epoch, beat, seq, stamp,
         lease_ms) VALUES (1, 's', 1, 1, 0, 0, 0, 0, 0)",
    );
    let all: Vec<_> = all.into_iter().collect();
    database.with(|client, runtime| {
        let insert = "INSERT INTO acetate.fs_whiteout (session, \"row\", path, created_at)
            SELECT 1, n.row, n.path, n.row FROM unnest($1::bigint[], $2::bytea[]) n(row, path)";
        let rows: Vec<_> = (0..i64::try_from(all.len()).unwrap()).collect();
        runtime.block_on(client.execute(insert, &[&rows, &all])).unwrap();
    });
    let shown = database.rows("SELECT path FROM acetate.base_deleted ORDER BY since");
    assert!(all.len() > 500 && shown.len() == all.len());
    for (bytes, shown) in all.iter().zip(shown.iter().flatten()) {
        let text = std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        let escaped = || {
            let escape = |byte: &u8| match byte {
                0 | 0x80.. => format!("\\{byte:03o}"),
                b'\\' => "\\\\".to_owned(),
                byte => char::from(*byte).to_string(),
            };
            bytes.iter().map(escape).collect()
        };
        assert_eq!(*shown, text.map_or_else(escaped, str::to_owned), "{bytes:x?}");
    }
}
