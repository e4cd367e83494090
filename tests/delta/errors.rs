//! Errors of the store: what callers decide by, and what caused them.

use std::error::Error;

use acetate::delta::{StoreError, StoreErrorKind};
use rusqlite::Connection;

/// The failure of a statement in a database of its own.
fn failure_of(sql: &str) -> StoreError {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch("CREATE TABLE t (a INTEGER PRIMARY KEY); PRAGMA max_page_count = 3")
        .unwrap();
    StoreError::from(conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap_err())
}

#[test]
fn an_error_of_sqlite_has_a_kind_and_stays_the_source() {
    let grow = "INSERT INTO t VALUES (randomblob(1)) RETURNING a";
    let fill = "CREATE TABLE u AS SELECT randomblob(100000)";
    for (sql, kind, is_failure) in [
        (fill, StoreErrorKind::Full, true),
        (grow, StoreErrorKind::Io, true),
        ("SELECT 'text'", StoreErrorKind::Corrupt, false),
    ] {
        let error = failure_of(sql);
        assert_eq!(error.kind, kind, "{error}");
        let source = error.source().and_then(|source| source.downcast_ref::<rusqlite::Error>());
        let source = source.expect("the error of SQLite");
        assert_eq!(source.sqlite_error().is_some(), is_failure, "{source}");
        assert!(error.to_string().contains(&source.to_string()), "{error}");
    }
}

#[test]
fn a_copy_of_an_error_has_its_source_too() {
    let cause = std::io::Error::other("the cable is cut");
    let error = StoreError::io("the file cannot be read").with_source(cause);
    assert_eq!(error.to_string(), "cannot access the session: the file cannot be read");
    assert_eq!(error.clone().source().unwrap().to_string(), "the cable is cut");
}
