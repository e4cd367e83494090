//! The rows of whole sessions in the database: making one, taking its lease, reading it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::connect::words;
use super::lease::{HeldLease, LeaseRow, LeaseTime, WENT_BACK};
use super::ship::{BatchToSend, HeldSession};
use super::statement;
use super::url::{SchemaName, SessionUrl};
use crate::counters::COUNTERS;
use crate::delta::sqlite::{
    AboutReplica, BatchMark, CellColumn, Host, NewReplica, OpenError, Session, SessionTable,
    TableRows, session_tables,
};
use crate::delta::{Result as StoreResult, StoreError};

/// The format of the tables, and of the rows of a session.
pub(super) const FORMAT: i64 = 1;

/// Rows that are read at once.
const PAGE_ROWS: usize = 4096;

/// Content that is read at once, in rows: each has up to a chunk of content.
const CONTENT_PAGE_ROWS: usize = 64;

/// The table with content.
const CONTENT: &str = "fs_data";

/// Why a session in a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The database refuses, or does not answer.
    #[error("{}", words(.0))]
    Database(#[from] tokio_postgres::Error),
    /// There is a session of this name.
    #[error("there is a session {0} in the database")]
    Exists(String),
    /// It was moved into a file.
    #[error("the session was moved to {0}")]
    Moved(String),
    /// The database did not say whether it has made it.
    #[error("the database did not say whether it has the session now: {}", words(.0))]
    InDoubt(tokio_postgres::Error),
    /// There is none.
    #[error("there is no session {0} in the database")]
    Missing(String),
    /// A newer acetate made the session.
    #[error("a newer acetate made the session (format {0})")]
    Newer(i64),
    /// A newer acetate made the tables.
    #[error("a newer acetate made the schema (format {0})")]
    NewerSchema(i64),
    /// The replica.
    #[error(transparent)]
    Replica(#[from] OpenError),
    /// A row has no valid values, or the disk is full.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SessionError {
    /// Whether the role lacks a right.
    pub fn is_denied(&self) -> bool {
        let denied = Some(&SqlState::INSUFFICIENT_PRIVILEGE);
        matches!(self, Self::Database(error) if error.code() == denied)
    }
}

pub(super) type Result<T> = std::result::Result<T, SessionError>;

/// A session's row.
#[derive(Debug, Clone)]
pub struct SessionRow {
    /// Its number.
    pub id: i64,
    /// The last batch that was kept.
    pub mark: BatchMark,
    /// Random, as the number is: a session that is made again under its name has another one.
    pub incarnation: i64,
    /// Its lease.
    pub lease: LeaseRow,
    /// Tells the base of the session from other directories; `None` before it was first served.
    pub base_mark: Option<String>,
}

/// The row of the session with this name.
///
/// # Errors
/// There is none, or it is of a newer acetate, or was moved into a file.
pub async fn find(client: &Client, url: &SessionUrl) -> Result<SessionRow> {
    let text = statement::find(&url.schema);
    let row = match client.query_opt(&text, &[&url.name]).await {
        Err(error) if is_missing_table(&error) => None,
        found => found?,
    };
    let row = row.ok_or_else(|| SessionError::Missing(url.name.clone()))?;
    let format: i64 = row.get("format");
    if format > FORMAT {
        return Err(SessionError::Newer(format));
    }
    if let Some(place) = row.get("moved_to") {
        return Err(SessionError::Moved(place));
    }
    let term: i64 = row.get("lease_ms");
    let lease = LeaseRow {
        epoch: row.get("epoch"),
        beat: row.get("beat"),
        holder: row.get("holder"),
        address: row.get("address"),
        term: Duration::from_millis(term.unsigned_abs()),
    };
    let mark = BatchMark { seq: row.get("seq"), stamp: row.get("stamp") };
    let (id, incarnation) = (row.get("id"), row.get("incarnation"));
    Ok(SessionRow { id, mark, incarnation, lease, base_mark: row.get("base_mark") })
}

/// What the database has of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionState {
    /// Another one after the session was removed and made again.
    pub incarnation: i64,
    /// The last batch that was kept.
    pub mark: BatchMark,
    /// Whether it was moved into a file.
    pub is_moved: bool,
    /// The stamp of the batch with the number that was asked for, if the database knows it.
    pub stamp: Option<i64>,
}

/// What the database has of the session with this number, if there is one, and of its batch `seq`.
///
/// # Errors
/// The database refuses.
pub async fn session_state(
    client: &Client,
    schema: &SchemaName,
    id: i64,
    seq: i64,
) -> Result<Option<SessionState>> {
    let row = match client.query_opt(&statement::state(schema), &[&id, &seq]).await {
        Err(error) if is_missing_table(&error) => None,
        found => found?,
    };
    Ok(row.map(|row| {
        let mark = BatchMark { seq: row.get(1), stamp: row.get(2) };
        let (is_moved, stamp) = (row.get(3), row.get(4));
        SessionState { incarnation: row.get(0), mark, is_moved, stamp }
    }))
}

/// Whether a table or the schema does not exist.
pub(super) fn is_missing_table(error: &tokio_postgres::Error) -> bool {
    let missing = [&SqlState::UNDEFINED_TABLE, &SqlState::INVALID_SCHEMA_NAME];
    error.code().is_some_and(|code| missing.contains(&code))
}

/// Makes a session with the rows of a file; no server has its lease yet. One transaction. Blocks;
/// must not run on a runtime thread.
///
/// # Errors
/// There is a session of this name. After [`SessionError::InDoubt`], there may be this one.
pub fn upload(
    (client, runtime): (&mut Client, &Handle),
    url: &SessionUrl,
    file: &Session,
    term: Duration,
) -> Result<SessionRow> {
    let schema = &url.schema;
    let random = || getrandom::u64().map(|random| (random >> 1).cast_signed());
    let failed = |error: getrandom::Error| StoreError::io(error.to_string());
    let (id, incarnation) = (random().map_err(failed)?, random().map_err(failed)?);
    let transaction = runtime.block_on(client.transaction())?;
    runtime.block_on(remove_moved(&transaction, url))?;
    let text = statement::new_session(schema);
    let term_ms = i64::try_from(term.as_millis()).unwrap_or(i64::MAX);
    let parameters: [&(dyn ToSql + Sync); 5] = [&id, &url.name, &FORMAT, &incarnation, &term_ms];
    match runtime.block_on(transaction.execute(&text, &parameters)) {
        Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
            return Err(SessionError::Exists(url.name.clone()));
        }
        made => made?,
    };
    let key = file.handle_key();
    let text = statement::new_secret(schema);
    runtime.block_on(transaction.execute(&text, &[&id, &key.as_slice()]))?;
    let mut mark = BatchMark { seq: 0, stamp: 0 };
    let mut refused = None;
    let read = file.each_row(true, &mut |rows| {
        mark = mark.next();
        let rows = [rows];
        let batch = BatchToSend::without_replicas(&rows);
        let text = statement::batch(schema, &batch.touched);
        let mut all: Vec<&(dyn ToSql + Sync)> =
            vec![&id, &0_i64, &mark.seq, &mark.stamp, &batch.changed];
        all.extend_from_slice(&batch.arrays);
        let sent = runtime.block_on(transaction.query_one(&text, &all));
        sent.map(drop).map_err(|error| {
            let error = refused.insert(error);
            StoreError::io(words(error))
        })
    });
    if let Some(error) = refused {
        return Err(error.into());
    }
    read?;
    runtime.block_on(transaction.commit()).map_err(SessionError::InDoubt)?;
    runtime.block_on(find(client, url)).map_err(|error| match error {
        SessionError::Database(error) => SessionError::InDoubt(error),
        error => error,
    })
}

/// Takes a session's lease, if no other server has taken or renewed it since `row` was read; `None`
/// otherwise.
///
/// # Errors
/// The database does not answer.
pub async fn take(
    client: &Client,
    schema: &SchemaName,
    row: &SessionRow,
    (holder, address): (&str, &str),
) -> Result<Option<HeldLease>> {
    let text = statement::take(schema);
    let sent = LeaseTime::now();
    let (epoch, beat) = (row.lease.epoch, row.lease.beat);
    let taken = client.query_opt(&text, &[&row.id, &epoch, &beat, &holder, &address]).await?;
    Ok(taken.map(|taken| HeldLease::taken(taken.get(0), row.lease.term, sent)))
}

/// Renews the leases of sessions; one that was not renewed is lost, and so is one whose row lacks
/// batches that were kept.
///
/// # Errors
/// The database does not answer.
pub async fn renew(
    client: &Client,
    schema: &SchemaName,
    held: &[(i64, Arc<HeldLease>)],
) -> Result<()> {
    let text = statement::renew(schema);
    let ids: Vec<i64> = held.iter().map(|(id, _)| *id).collect();
    let epochs: Vec<i64> = held.iter().map(|(_, lease)| lease.epoch()).collect();
    let sent = LeaseTime::now();
    let kept: Vec<i64> = held.iter().map(|(_, lease)| lease.kept_seq()).collect();
    let renewed = client.query(&text, &[&ids, &epochs]).await?;
    let renewed: HashMap<i64, i64> = renewed.iter().map(|row| (row.get(0), row.get(1))).collect();
    for ((id, lease), kept) in held.iter().zip(kept) {
        match renewed.get(id) {
            Some(seq) if *seq >= kept => lease.renewed(sent),
            Some(_) => lease.lose(WENT_BACK),
            None => lease.lose(why_lost(client, schema, (*id, lease)).await?),
        }
    }
    Ok(())
}

/// Why a session has not the epoch of its lease.
async fn why_lost(
    client: &Client,
    schema: &SchemaName,
    (id, lease): (i64, &HeldLease),
) -> Result<&'static str> {
    let text = statement::last_batch(schema);
    let epoch: Option<i64> = client.query_opt(&text, &[&id]).await?.map(|row| row.get(0));
    Ok(match epoch {
        None => "the session was removed",
        Some(epoch) if epoch < lease.epoch() => WENT_BACK,
        Some(_) => "another server has taken the session",
    })
}

/// Gives a lease back: another server may take it at once.
///
/// # Errors
/// The database does not answer.
pub async fn release(client: &Client, session: &HeldSession) -> Result<()> {
    let text = statement::release(&session.schema);
    session.lease.give_back();
    client.execute(&text, &[&session.id, &session.lease.epoch()]).await?;
    Ok(())
}

/// Marks a session as moved into a file: no server takes it any more, and its name is free for
/// another one.
///
/// # Errors
/// The database does not answer, or the lease is lost.
pub async fn record_move(client: &Client, session: &HeldSession, to: &str) -> Result<()> {
    let text = statement::record_move(&session.schema);
    let epoch = session.lease.epoch();
    match client.execute(&text, &[&session.id, &epoch, &to]).await? {
        1 => Ok(()),
        _ => Err(StoreError::busy("another server has taken the session").into()),
    }
}

/// The id of a session, 32 hexadecimal digits (invariant M1).
///
/// # Errors
/// The database does not answer.
pub async fn session_id(client: &Client, schema: &SchemaName, id: i64) -> Result<Option<String>> {
    let text = statement::session_id(schema);
    let row = client.query_opt(&text, &[&id]).await?;
    // Values are JSON.
    let value: Option<String> = row.and_then(|row| row.get(0));
    Ok(value.and_then(|value| serde_json::from_str(&value).ok()))
}

/// What identifies a session in handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInDatabase {
    /// Its name.
    pub name: String,
    /// The id, 32 hexadecimal digits (invariant M1).
    pub id: String,
    /// The key of its handles' MAC.
    pub handle_key: [u8; 16],
}

/// What identifies the sessions of these names; nothing of those that do not exist.
///
/// # Errors
/// The database refuses.
pub async fn identities(
    client: &Client,
    schema: &SchemaName,
    names: &[String],
) -> Result<Vec<SessionInDatabase>> {
    let text = statement::identities(schema);
    let rows = match client.query(&text, &[&names]).await {
        Err(error) if is_missing_table(&error) => Vec::new(),
        found => found?,
    };
    let identity = |row: &Row| {
        let (key, id): (Vec<u8>, String) = (row.get(1), row.get(2));
        let corrupt = |what: &'static str| SessionError::from(StoreError::corrupt(what));
        let handle_key = key.try_into().map_err(|_| corrupt("the handle key"))?;
        let id = serde_json::from_str(&id).map_err(|_| corrupt("the session's id"))?;
        Ok(SessionInDatabase { name: row.get(0), id, handle_key })
    };
    rows.iter().map(identity).collect()
}

/// Removes all rows of a session that was moved away.
async fn remove_moved(
    transaction: &tokio_postgres::Transaction<'_>,
    url: &SessionUrl,
) -> Result<()> {
    let schema = &url.schema;
    let text = statement::moved_away(schema);
    let Some(row) = transaction.query_opt(&text, &[&url.name]).await? else { return Ok(()) };
    let id: i64 = row.get(0);
    for text in statement::remove(schema) {
        transaction.execute(&text, &[&id]).await?;
    }
    Ok(())
}

/// Records what a holder knows: the address that it serves the session at, and the mark of its
/// base.
///
/// # Errors
/// The database does not answer.
pub async fn describe(
    client: &Client,
    session: &HeldSession,
    (address, base_mark): (&str, Option<&str>),
) -> Result<()> {
    let text = statement::describe(&session.schema);
    let epoch = session.lease.epoch();
    client.execute(&text, &[&session.id, &epoch, &address, &base_mark]).await?;
    Ok(())
}

/// Makes the replica of a session at `path`, and opens it to be served; returns it with the last
/// batch that it has.
///
/// # Errors
/// The database does not answer, a row is not valid, or the disk is full.
pub async fn hydrate(
    client: &mut Client,
    (url, id): (&SessionUrl, i64),
    (path, host): (&Path, &Host),
) -> Result<(Session, BatchMark)> {
    let begun = Instant::now();
    let (replica, mark, handle_key) = read(client, (&url.schema, id), path, false).await?;
    let about = AboutReplica { url: &url.to_string(), mark, handle_key };
    let replica = replica.finish(&about, host)?;
    COUNTERS.database.fetched(begun.elapsed());
    Ok((replica, mark))
}

/// Makes a session file at `path` with all rows of a session, and its id and key, or with new ones
/// as a copy.
///
/// # Errors
/// As [`hydrate`].
pub async fn download(
    client: &mut Client,
    (url, id): (&SessionUrl, i64),
    is_copy: bool,
    (path, host): (&Path, &Host),
) -> Result<()> {
    let (file, _, handle_key) = read(client, (&url.schema, id), path, true).await?;
    Ok(file.finish_session(handle_key, is_copy, host)?)
}

/// A new file with the rows of a session, as of one moment: the last batch, and the handle key.
async fn read(
    client: &mut Client,
    (schema, id): (&SchemaName, i64),
    path: &Path,
    with_outside: bool,
) -> Result<(NewReplica, BatchMark, [u8; 16])> {
    let transaction = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let row = transaction.query_one(&statement::last_batch(schema), &[&id]).await?;
    let mark = BatchMark { seq: row.get("seq"), stamp: row.get("stamp") };
    let text = statement::handle_key(schema);
    let key: Vec<u8> = transaction.query_one(&text, &[&id]).await?.get(0);
    let handle_key = key.try_into().map_err(|_| StoreError::corrupt("the handle key"))?;
    let file = NewReplica::create(path)?;
    for table in session_tables().iter().filter(|it| with_outside || !it.is_outside) {
        let text = transaction.prepare(&statement::read_after(schema, table)).await?;
        let most = i64::try_from(page_rows(table)).unwrap_or(i64::MAX);
        let mut after = i64::MIN;
        loop {
            let page = transaction.query(&text, &[&id, &after, &most]).await?;
            let rows = table_rows(table, &page)?;
            let Some(last) = rows.ids.last() else { break };
            after = *last;
            file.insert(&rows)?;
        }
    }
    transaction.commit().await?;
    Ok((file, mark, handle_key))
}

/// Rows of a table that are read at once.
pub(super) fn page_rows(table: &SessionTable) -> usize {
    if table.name == CONTENT { CONTENT_PAGE_ROWS } else { PAGE_ROWS }
}

/// Rows of a table as [`statement::read_after`] and [`statement::read_rows`] return them.
pub(super) fn table_rows(table: &'static SessionTable, page: &[Row]) -> StoreResult<TableRows> {
    let mut rows = TableRows::new(table);
    let invalid = |error: tokio_postgres::Error| StoreError::corrupt(words(&error));
    for row in page {
        rows.ids.push(row.try_get(0).map_err(invalid)?);
        let mut next = 1;
        for (at, column) in rows.columns.iter_mut().enumerate() {
            let from = if table.key == Some(at) { 0 } else { next };
            next += usize::from(table.key != Some(at));
            match column {
                CellColumn::Ints(values) => values.push(row.try_get(from).map_err(invalid)?),
                CellColumn::Texts(values) => values.push(row.try_get(from).map_err(invalid)?),
                CellColumn::Blobs(values) => values.push(row.try_get(from).map_err(invalid)?),
            }
        }
    }
    Ok(rows)
}
