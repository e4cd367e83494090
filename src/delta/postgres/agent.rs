//! The agent's tables of a session in a database: `kv_store` and `tool_calls`, which programs read
//! and write beside the server. They need no lease: no replica has their rows.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::connect::{connect, words};
use super::hold::HoldError;
use super::schema::check_rights;
use super::session::find;
use super::statement;
use super::url::{SchemaName, SessionUrl};
use crate::delta::sqlite::{
    CallBegin, CallBounds, CallFilter, CallRow, CallStats, CallStatus, KvKey, KvRow, NewCall,
    ToolCall,
};
use crate::delta::{CheckpointId, Result, StoreError};

/// Attempts to record a call: another process may take the same number.
const ATTEMPTS: usize = 16;

type SqlParameter<'a> = &'a (dyn ToSql + Sync);

/// `kv_store` and `tool_calls` of a session in a database. Each function blocks, and must not run
/// on a runtime thread.
pub struct DatabaseAgentTables {
    runtime: Runtime,
    client: Client,
    schema: SchemaName,
    id: i64,
    url: String,
}

impl fmt::Debug for DatabaseAgentTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseAgentTables").field("url", &self.url).finish_non_exhaustive()
    }
}

impl DatabaseAgentTables {
    /// Connects to the database.
    ///
    /// # Errors
    /// It refuses, or has no such session.
    pub fn open(url: &SessionUrl) -> std::result::Result<Self, HoldError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::io(error.to_string()));
        let runtime = runtime.map_err(|error| HoldError::Session(error.into()))?;
        let (client, row) = runtime.block_on(async {
            let client = connect(&url.connection, runtime.handle()).await?;
            let row = find(&client, url).await?;
            Ok::<_, HoldError>((client, row))
        })?;
        let (schema, url) = (url.schema.clone(), url.to_string());
        Ok(Self { runtime, client, schema, id: row.id, url })
    }

    /// The session's name.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn rows(&self, text: &str, parameters: &[SqlParameter<'_>]) -> Result<Vec<Row>> {
        self.runtime.block_on(self.client.query(text, parameters)).map_err(|error| failed(&error))
    }

    fn row(&self, text: &str, parameters: &[SqlParameter<'_>]) -> Result<Option<Row>> {
        Ok(self.rows(text, parameters)?.pop())
    }

    /// The row of a key.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn kv_get(&self, key: &[u8]) -> Result<Option<KvRow>> {
        let Some(key) = text_of(key) else { return Ok(None) };
        let row = self.row(&statement::key(&self.schema), &[&self.id, &key])?;
        row.as_ref().map(kv_row).transpose()
    }

    /// The keys that begin with `prefix`, sorted.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn kv_keys(&self, prefix: &[u8]) -> Result<Vec<KvKey>> {
        let Some(prefix) = text_of(prefix) else { return Ok(Vec::new()) };
        let rows = self.rows(&statement::keys(&self.schema), &[&self.id, &prefix])?;
        let mut keys = Vec::with_capacity(rows.len());
        for row in &rows {
            keys.push(KvKey {
                key: get::<String>(row, 0)?.into_bytes(),
                value_bytes: get::<Option<i64>>(row, 1)?.unwrap_or(0).unsigned_abs(),
                created_at: get(row, 2)?,
                updated_at: get(row, 3)?,
            });
        }
        keys.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(keys)
    }

    /// Sets a key to the JSON text `value`, at the time `now` (in seconds since 1970). `created_at`
    /// of an existing key stays.
    ///
    /// # Errors
    /// The key has a NUL, or the database does not answer.
    pub fn kv_set(&self, key: &str, value: &str, now: i64) -> Result<()> {
        let key = text_of(key.as_bytes())
            .ok_or_else(|| StoreError::io("a key in a database has no NUL"))?;
        let row = new_row(key);
        let text = statement::set_key(&self.schema);
        let changed = self.row(&text, &[&self.id, &row, &key, &value, &now])?;
        match changed.map(|row| get::<i64>(&row, 0)).transpose()? {
            Some(1..) => Ok(()),
            _ => Err(moved()),
        }
    }

    /// Deletes a key and returns its row.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn kv_remove(&self, key: &[u8]) -> Result<Option<KvRow>> {
        let Some(key) = text_of(key) else { return Ok(None) };
        let row = self.row(&statement::remove_key(&self.schema), &[&self.id, &key])?;
        row.as_ref().map(kv_row).transpose()
    }

    /// Checks that calls can be recorded, without recording one.
    ///
    /// # Errors
    /// The role may not, or the database does not answer.
    pub fn require_calls(&self) -> Result<()> {
        let checked = self.runtime.block_on(check_rights(&self.client, &self.schema));
        checked.map_err(|error| StoreError::io(error.to_string()))
    }

    /// The beginning of a call that begins now, as far as it is known without a checkpoint.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn begin_call(&self) -> Result<CallBegin> {
        let row = self.row(&statement::last_op(&self.schema), &[&self.id])?;
        let last_op = row.map(|row| get::<i64>(&row, 0)).transpose()?.unwrap_or(0);
        Ok(CallBegin { last_op, checkpoint: None })
    }

    /// Records a call; returns its number.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn record_call(&self, call: &NewCall<'_>) -> Result<i64> {
        let (result, error) = (call.outcome.ok(), call.outcome.err());
        let seconds = call.completed_at.saturating_sub(call.started_at);
        let duration_ms = seconds.saturating_mul(1000);
        let status = if error.is_some() { CallStatus::Error } else { CallStatus::Success };
        let (name, status) = (call.name.as_bytes(), status.as_str());
        let begin_op = call.begin.map_or(0, |begin| begin.last_op);
        let checkpoint = call.begin.and_then(|begin| begin.checkpoint).map(|id| id.0);
        let has_bounds = call.begin.is_some();
        let parameters: [SqlParameter<'_>; 12] = [
            &self.id,
            &name,
            &call.parameters,
            &result,
            &error,
            &status,
            &call.started_at,
            &call.completed_at,
            &duration_ms,
            &begin_op,
            &has_bounds,
            &checkpoint,
        ];
        let text = statement::record_call(&self.schema);
        for _ in 0..ATTEMPTS {
            match self.runtime.block_on(self.client.query_opt(&text, &parameters)) {
                Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
                Err(error) => return Err(failed(&error)),
                Ok(None) => return Err(moved()),
                Ok(Some(row)) => return get(&row, 0),
            }
        }
        Err(StoreError::busy("other processes record calls all the time"))
    }

    /// The calls that match `filter`, in the order in which they were recorded.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn calls(&self, filter: &CallFilter) -> Result<Vec<CallRow>> {
        let name = filter.name.as_ref().map(String::as_bytes);
        let status = filter.status.map(CallStatus::as_str);
        let last = filter.last.and_then(|last| i64::try_from(last).ok()).unwrap_or(i64::MAX);
        let text = statement::calls(&self.schema);
        let parameters: [SqlParameter<'_>; 6] =
            [&self.id, &name, &filter.since, &filter.until, &status, &last];
        let rows = self.rows(&text, &parameters)?;
        rows.iter().rev().map(call_row).collect()
    }

    /// One call with its texts.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn call(&self, id: i64) -> Result<Option<ToolCall>> {
        let Some(row) = self.row(&statement::call(&self.schema), &[&self.id, &id])? else {
            return Ok(None);
        };
        let bytes =
            |at| Ok::<_, StoreError>(get::<Option<String>>(&row, at)?.map(String::into_bytes));
        let (parameters, result, error) = (bytes(9)?, bytes(10)?, bytes(11)?);
        Ok(Some(ToolCall { row: call_row(&row)?, parameters, result, error }))
    }

    /// Statistics per tool, most frequent first.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn call_stats(&self) -> Result<Vec<CallStats>> {
        let rows = self.rows(&statement::call_stats(&self.schema), &[&self.id])?;
        let count = |row: &Row, at| Ok::<_, StoreError>(get::<i64>(row, at)?.unsigned_abs());
        let stats = |row: &Row| {
            Ok(CallStats {
                name: get(row, 0)?,
                calls: count(row, 1)?,
                errors: count(row, 2)?,
                pending: count(row, 3)?,
                total_ms: get(row, 4)?,
                mean_ms: get(row, 5)?,
                max_ms: get(row, 6)?,
            })
        };
        rows.iter().map(stats).collect()
    }
}

fn moved() -> StoreError {
    StoreError::read_only("it was moved away")
}

fn failed(error: &tokio_postgres::Error) -> StoreError {
    let text = words(error);
    match error.code() {
        Some(&SqlState::DISK_FULL) => StoreError::full(text),
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => StoreError::read_only(text),
        _ => StoreError::io(text),
    }
}

fn get<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| StoreError::corrupt(words(&error)))
}

/// Bytes as a text of the database: `None` for those that it cannot hold, and so does not have.
fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// The row of a new key: the same for each process that adds it, so that there is only one. Those
/// of a session that came from a file are small numbers.
fn new_row(key: &str) -> i64 {
    let mut hasher = SipHasher24::new();
    hasher.write(key.as_bytes());
    (hasher.finish() >> 2).cast_signed()
}

fn kv_row(row: &Row) -> Result<KvRow> {
    Ok(KvRow {
        key: get::<String>(row, 0)?.into_bytes(),
        value: get::<Option<String>>(row, 1)?.unwrap_or_default().into_bytes(),
        created_at: get(row, 2)?,
        updated_at: get(row, 3)?,
    })
}

/// A row that begins with the columns of a call and its status.
fn call_row(row: &Row) -> Result<CallRow> {
    let status = match get::<String>(row, 8)?.as_str() {
        "error" => CallStatus::Error,
        "pending" => CallStatus::Pending,
        _ => CallStatus::Success,
    };
    let bounds = (get::<Option<i64>>(row, 5)?, get::<Option<i64>>(row, 6)?);
    let checkpoint = get::<Option<i64>>(row, 7)?.map(CheckpointId);
    let bounds = match bounds {
        (Some(begin_op @ 0..), Some(end_op)) if begin_op <= end_op => {
            Some(CallBounds { begin_op, end_op, checkpoint })
        }
        _ => None,
    };
    Ok(CallRow {
        id: get(row, 0)?,
        name: get(row, 1)?,
        status,
        started_at: get::<Option<i64>>(row, 2)?.unwrap_or(0),
        completed_at: get(row, 3)?,
        duration_ms: get(row, 4)?,
        bounds,
    })
}
