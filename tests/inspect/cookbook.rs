//! The queries of docs/COOKBOOK.md find what they say.

use rusqlite::types::Value;

use crate::support::sql_blocks::sql_blocks;
use crate::support::world::{START_SECS, World};

const TREE: &str = r#"
    dir/file "content"
    gone/a "a"
    old/b "b"
"#;

/// A session in which each query has something to find.
fn world() -> World {
    let world = World::new(TREE);
    world.put("notes.txt", "to be remembered");
    world.write("dir/file", 0, b"C").unwrap();
    world.rm_rf("gone");
    world.rename("old", "new").unwrap();
    let call = format!(
        "INSERT INTO tool_calls (name, result, started_at, completed_at, duration_ms, status)
         VALUES ('edit', '1', {START_SECS}, {START_SECS}, 5, 'success')"
    );
    world.sql().execute_batch(&call).unwrap();
    world
}

#[test]
fn every_query_finds_what_it_says() {
    let page = include_str!("../../docs/COOKBOOK.md");
    let world = world();
    let conn = world.sql();
    let queries = sql_blocks(page);
    assert!(queries.len() >= 13, "{}", queries.len());
    let expected = [
        ("Every path", "/notes.txt"),
        ("The ten files", "/notes.txt"),
        ("The content of the text file", "to be remembered"),
        ("Names of the base", "/gone"),
        ("Files and directories of the base that were copied up", "dir/file"),
        ("Directories of the base", "new"),
        ("The last twenty", "RENAME"),
        ("The files with most bytes", "/notes.txt"),
        ("Deleted files and directories", "/gone/a"),
        ("Changes by minute", "2033-05-18 03:33"),
        ("The history of one object", "CREATE"),
        ("Files that changed while", "/notes.txt"),
        ("How often each tool", "edit"),
    ];
    for (said, query) in &queries {
        let mut statement = conn.prepare(query).unwrap_or_else(|e| panic!("{said} {e}"));
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            (0..columns).map(|at| row.get::<_, Value>(at)).collect::<Result<Vec<_>, _>>()
        });
        let rows: Vec<Vec<Value>> = rows.unwrap().map(Result::unwrap).collect();
        let (_, value) = expected.iter().find(|(words, _)| said.starts_with(words)).expect(said);
        let wanted = Value::Text((*value).to_owned());
        assert!(rows.iter().flatten().any(|found| *found == wanted), "{said}: {rows:?}");
    }
    assert_eq!(queries.len(), expected.len(), "each query has something that it must find");
}

/// The statement that docs/OPERATIONS.md gives to `sqlite3` adds a key, or changes its value.
#[test]
fn the_statement_for_other_programs_can_run_again() {
    let page = include_str!("../../docs/OPERATIONS.md");
    let line = page.lines().find(|line| line.starts_with("$ sqlite3 ")).unwrap();
    let (_, sql) = line.split_once("session.db \"").unwrap();
    let sql = sql.strip_suffix('"').unwrap().replace("\\\"", "\"");
    let world = World::new(TREE);
    let conn = world.sql();
    conn.execute_batch(&sql).unwrap();
    conn.execute_batch("UPDATE kv_store SET value = '0', created_at = 1, updated_at = 1").unwrap();
    conn.execute_batch(&sql).unwrap();
    let row = "SELECT key, value, created_at = 1, updated_at > 1 FROM kv_store";
    let row = conn.query_row(row, [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?))
    });
    assert_eq!(row.unwrap(), ("state".into(), r#"{"step": 3}"#.into(), true, true));
}
