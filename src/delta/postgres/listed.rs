//! The sessions of a schema, for people.

use std::time::Duration;

use tokio_postgres::{Client, Row};

use super::lease::LeaseRow;
use super::session::{Result, is_missing_table};
use super::statement;
use super::url::SchemaName;

/// A session of a schema, for people.
#[derive(Debug, Clone)]
pub struct ListedSession {
    /// Its name.
    pub name: String,
    /// The number of the last batch that was kept.
    pub seq: i64,
    /// Bytes of content that it has stored.
    pub bytes: i64,
    /// Its lease.
    pub lease: LeaseRow,
}

/// The sessions of a schema, by name; none if it has no tables.
///
/// # Errors
/// The database refuses.
pub async fn list(client: &Client, schema: &SchemaName) -> Result<Vec<ListedSession>> {
    let text = statement::list(schema);
    let rows = match client.query(&text, &[]).await {
        Err(error) if is_missing_table(&error) => Vec::new(),
        found => found?,
    };
    let listed = |row: &Row| {
        let term: i64 = row.get(6);
        let term = Duration::from_millis(term.unsigned_abs());
        let (epoch, beat) = (row.get(2), row.get(3));
        let lease = LeaseRow { epoch, beat, holder: row.get(4), address: row.get(5), term };
        ListedSession { name: row.get(0), seq: row.get(1), bytes: row.get(7), lease }
    };
    Ok(rows.iter().map(listed).collect())
}
