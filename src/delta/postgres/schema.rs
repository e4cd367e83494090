//! The tables and views of a schema: creates what is missing, refuses what a newer acetate made,
//! and finds out whether a role may use them.
//!
//! The schema records its *format*, which moves when an older acetate could no longer use it, and
//! its *revision*, which moves with each table, index or view that is added.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::connect::words;
use super::session::{FORMAT, Result, SessionError, is_missing_table};
use super::ship::BatchToSend;
use super::statement;
use super::url::SchemaName;
use crate::delta::sqlite::{TableRows, session_tables};

/// The revision of schemas that this program makes.
const REVISION: i64 = 1;

/// No session has this number, and no lease this epoch.
const NO_SESSION: i64 = -1;

/// How often a schema is completed if other servers do it at the same time.
const MAX_ATTEMPTS: u32 = 10;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Creates the tables and views of a schema that are missing. Does nothing if the schema is of this
/// revision or a later one, so that a role that does not own the schema can use it then.
///
/// # Errors
/// The role may not, or a newer acetate made the schema.
pub async fn prepare_schema(client: &Client, schema: &SchemaName) -> Result<()> {
    let mut attempt = 1;
    while !is_complete(client, schema).await? {
        match complete(client, schema).await {
            Err(SessionError::Database(error))
                if attempt < MAX_ATTEMPTS && is_of_another_server(&error) =>
            {
                attempt += 1;
                tokio::time::sleep(PAUSE).await;
            }
            completed => return completed,
        }
    }
    Ok(())
}

/// Whether a schema has all that this program makes in it.
async fn is_complete(client: &Client, schema: &SchemaName) -> Result<bool> {
    let row = match client.query_opt(&statement::layout(schema), &[]).await {
        Err(error) if is_missing_table(&error) => None,
        found => found?,
    };
    let Some(row) = row else { return Ok(false) };
    let (format, revision): (i64, i64) = (row.get(0), row.get(1));
    match format > FORMAT {
        true => Err(SessionError::NewerSchema(format)),
        false => Ok(revision >= REVISION),
    }
}

/// Creates what is missing. Not in one transaction, as not every engine can do that; the revision
/// comes last.
async fn complete(client: &Client, schema: &SchemaName) -> Result<()> {
    let found = client.query_opt(&statement::has_schema(), &[&schema.to_string()]).await?;
    // Only then: even where it exists, creating it takes a right in the database.
    if found.is_none() {
        client.batch_execute(&statement::create_schema(schema)).await?;
    }
    for text in statement::complete_schema(schema) {
        client.batch_execute(&text).await?;
    }
    for text in statement::compress_contents(schema) {
        if let Err(error) = client.batch_execute(&text).await {
            tracing::debug!(error = words(&error), "contents are compressed as usual");
            break;
        }
    }
    client.execute(&statement::record_layout(schema), &[&FORMAT, &REVISION]).await?;
    Ok(())
}

/// Whether the reason of an error is that another server creates the same at the same time.
fn is_of_another_server(error: &tokio_postgres::Error) -> bool {
    let codes = [
        &SqlState::UNIQUE_VIOLATION,
        &SqlState::DUPLICATE_SCHEMA,
        &SqlState::DUPLICATE_TABLE,
        &SqlState::DUPLICATE_OBJECT,
        &SqlState::T_R_SERIALIZATION_FAILURE,
        &SqlState::T_R_DEADLOCK_DETECTED,
        // "tuple concurrently updated", of views.
        &SqlState::INTERNAL_ERROR,
    ];
    error.code().is_some_and(|code| codes.contains(&code))
}

/// Completes the schema of a session that is to be served, as far as the role may, and fails unless
/// it may do what serving takes.
///
/// # Errors
/// A right or a table is missing, or a newer acetate made the schema.
pub async fn check_schema(client: &Client, schema: &SchemaName) -> Result<()> {
    match prepare_schema(client, schema).await {
        // Only views for people may be missing; the rest is looked for below.
        Err(error) if error.is_denied() => tracing::warn!(
            %schema, %error,
            "the schema is of an older acetate; a server with the role that owns it completes it"
        ),
        prepared => prepared?,
    }
    check_rights(client, schema).await
}

/// Fails unless the role may do all that serving a session takes: runs a batch that touches all
/// tables, of no session, forgets changes of none, and looks for the key of none.
///
/// # Errors
/// A right or a table is missing.
pub async fn check_rights(client: &Client, schema: &SchemaName) -> Result<()> {
    let tables: Vec<TableRows> = session_tables().iter().map(TableRows::new).collect();
    let batch = BatchToSend::touching(&tables, true);
    let text = statement::batch(schema, &batch.touched);
    let mut all: Vec<&(dyn ToSql + Sync)> =
        vec![&NO_SESSION, &NO_SESSION, &0_i64, &0_i64, &batch.changed];
    all.extend_from_slice(&batch.arrays);
    client.query(&text, &all).await?;
    client.execute(&statement::forget_changes(schema), &[&NO_SESSION, &0_i64]).await?;
    client.query_opt(&statement::handle_key(schema), &[&NO_SESSION]).await?;
    Ok(())
}
