//! Schemas of other versions.

use acetate::delta::postgres::{SessionError, check_schema, connect, prepare_schema};

use crate::support::database::server::{TestDatabase, any, apart};

/// A database with a schema of this version.
fn made(name: &str) -> TestDatabase {
    any().apart(&format!("{name}_{}", std::process::id()))
}

fn prepare(database: &TestDatabase) -> Result<(), SessionError> {
    let url = database.url("none");
    database.with(|client, runtime| runtime.block_on(prepare_schema(client, &url.schema)))
}

/// The names of all relations of the schema, with their kinds.
fn relations(database: &TestDatabase) -> Vec<Vec<String>> {
    database.rows(
        "SELECT relname, relkind FROM pg_class WHERE relnamespace = 'acetate'::regnamespace
         ORDER BY relname",
    )
}

#[test]
fn a_schema_of_an_older_version_gets_what_it_lacks_and_keeps_its_rows() {
    let database = made("older");
    let before = relations(&database);
    let views = "SELECT viewname FROM pg_views WHERE schemaname = 'acetate'";
    let views = database.rows(views).concat();
    assert!(views.contains(&"files".to_owned()) && views.len() >= 7, "{views:?}");
    // As it was before there were views, with rows.
    views.iter().for_each(|view| database.run(&format!("DROP VIEW acetate.{view}")));
    database.run(
        "DROP TABLE acetate.layout; DROP INDEX acetate.fs_data_chunk;
         INSERT INTO acetate.fs_dentry (session, id, name, parent_ino, ino)
         VALUES (1, 1, '\x61', 1, 2)",
    );
    prepare(&database).unwrap();
    assert_eq!(relations(&database), before);
    assert_eq!(database.rows("SELECT id FROM acetate.fs_dentry"), [["1"]]);
    // A view of an older version gets its new columns, and keeps who may read it.
    let reader = format!("reader_{}", std::process::id());
    database.run(&format!(
        "CREATE ROLE {reader}; DROP VIEW acetate.base_renamed;
         CREATE VIEW acetate.base_renamed AS SELECT s.name AS session,
         convert_from('', 'UTF8') AS base_path FROM acetate.session s;
         GRANT SELECT ON acetate.base_renamed TO {reader};
         UPDATE acetate.layout SET revision = 0"
    ));
    prepare(&database).unwrap();
    let may = format!("SELECT has_table_privilege('{reader}', 'acetate.base_renamed', 'SELECT')");
    assert_eq!(database.rows(&may), [["t"]]);
    assert_eq!(database.rows("SELECT session_number FROM acetate.base_renamed"), [[""; 0]; 0]);
    database.run(&format!("DROP OWNED BY {reader}; DROP ROLE {reader}"));
}

#[test]
fn servers_that_make_a_schema_at_the_same_time_all_succeed() {
    let database = made("crowded");
    let before = relations(&database);
    database.run("DROP SCHEMA acetate CASCADE");
    let (url, runtime) = (database.url("none"), database.runtime().clone());
    let server = || {
        let (url, handle) = (url.clone(), runtime.clone());
        runtime.spawn(async move {
            let client = connect(&url.connection, &handle).await.unwrap();
            prepare_schema(&client, &url.schema).await
        })
    };
    let servers: Vec<_> = (0..6).map(|_| server()).collect();
    for server in servers {
        apart(|| runtime.block_on(server)).unwrap().unwrap();
    }
    assert_eq!(relations(&database), before);
}

#[test]
fn a_schema_of_a_newer_version_is_used_only_if_its_format_is_known() {
    let database = made("newer");
    database.run("UPDATE acetate.layout SET revision = 99; DROP VIEW acetate.files");
    prepare(&database).unwrap();
    let revision = database.rows("SELECT revision FROM acetate.layout");
    assert_eq!(revision, [["99"]], "a newer version completed it");
    database.run("UPDATE acetate.layout SET format = 2");
    assert!(matches!(prepare(&database), Err(SessionError::NewerSchema(2))));
    let url = database.url("none");
    let checked =
        database.with(|client, runtime| runtime.block_on(check_schema(client, &url.schema)));
    assert!(matches!(checked, Err(SessionError::NewerSchema(2))));
}

#[test]
fn contents_are_compressed_by_lz4_where_the_server_can() {
    let database = made("compressed");
    let methods = "SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'";
    let has_lz4 = database.rows(methods).concat().iter().any(|it| it.contains("lz4"));
    let by_lz4 = "SELECT attrelid::regclass, attname FROM pg_attribute WHERE attcompression = 'l'
        ORDER BY 1::text";
    let expected: &[[&str; 2]] = &[
        ["acetate.acetate_old_acetate_original", "content"],
        ["acetate.acetate_old_fs_data", "data"],
        ["acetate.acetate_old_piece", "data"],
        ["acetate.acetate_original", "content"],
        ["acetate.fs_data", "data"],
    ];
    match has_lz4 {
        true => assert_eq!(database.rows(by_lz4), expected),
        false => assert_eq!(database.rows("SELECT revision FROM acetate.layout"), [["1"]]),
    }
}
