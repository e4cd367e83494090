//! `kv_store`: an agent's key-value pairs (specification 0.4, "Key-Value Data").

use rusqlite::{OptionalExtension, Row, params};

use crate::delta::Result;

use super::agent::{AgentTable, AgentTables};
use crate::delta::sqlite::table::value::{self, Bytes};

const TABLE: AgentTable =
    AgentTable { name: "kv_store", columns: &["key", "value", "created_at", "updated_at"] };

/// A row of `kv_store`. Times are in seconds since 1970; other programs may leave them out. Other
/// programs may also store keys and values that are not text, and values that are not JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvRow {
    /// The key.
    pub key: Vec<u8>,
    /// The value, in JSON.
    pub value: Vec<u8>,
    /// When the key was first set.
    pub created_at: Option<i64>,
    /// When the key was last set.
    pub updated_at: Option<i64>,
}

/// A row of `kv_store` without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvKey {
    /// The key.
    pub key: Vec<u8>,
    /// Length of the value, in bytes.
    pub value_bytes: u64,
    /// When the key was first set, in seconds since 1970.
    pub created_at: Option<i64>,
    /// When the key was last set, in seconds since 1970.
    pub updated_at: Option<i64>,
}

impl AgentTables {
    /// The row of a key.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn kv_get(&self, key: &[u8]) -> Result<Option<KvRow>> {
        if !self.has(&TABLE)? {
            return Ok(None);
        }
        self.kv_row(key)
    }

    fn kv_row(&self, key: &[u8]) -> Result<Option<KvRow>> {
        let mut statement = self.conn.prepare_cached(
            "SELECT key, value, created_at, updated_at FROM kv_store WHERE key = ?1",
        )?;
        for key in value::keys(key) {
            if let Some(found) = statement.query_row([key], read).optional()? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The keys that begin with `prefix`, sorted.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn kv_keys(&self, prefix: &[u8]) -> Result<Vec<KvKey>> {
        if !self.has(&TABLE)? {
            return Ok(Vec::new());
        }
        let mut statement = self.conn.prepare(
            "SELECT key, octet_length(value), created_at, updated_at FROM kv_store
             WHERE substr(CAST(key AS BLOB), 1, ?2) = CAST(?1 AS BLOB) OR ?2 = 0 ORDER BY key",
        )?;
        let length = i64::try_from(prefix.len()).unwrap_or(i64::MAX);
        let keys = statement.query_map(params![Bytes(prefix), length], |row| {
            Ok(KvKey {
                key: value::bytes(row, 0)?.to_vec(),
                value_bytes: value::unsigned(row, 1)?,
                created_at: value::optional_int(row, 2)?,
                updated_at: value::optional_int(row, 3)?,
            })
        })?;
        Ok(keys.collect::<rusqlite::Result<_>>()?)
    }

    /// Sets a key to the JSON text `value`, at the time `now` (in seconds since 1970). `created_at`
    /// of an existing key stays.
    ///
    /// # Errors
    /// The session cannot be written; it is unchanged.
    pub fn kv_set(&self, key: &str, value: &str, now: i64) -> Result<()> {
        let transaction = self.change(&TABLE)?;
        transaction.execute(
            "INSERT INTO kv_store (key, value, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value,
               updated_at = excluded.updated_at",
            params![key, value, now],
        )?;
        Ok(transaction.commit()?)
    }

    /// Deletes a key and returns its row.
    ///
    /// # Errors
    /// The session cannot be written; it is unchanged.
    pub fn kv_remove(&self, key: &[u8]) -> Result<Option<KvRow>> {
        let transaction = self.change(&TABLE)?;
        let Some(found) = self.kv_row(key)? else { return Ok(None) };
        transaction.execute("DELETE FROM kv_store WHERE key IN (?1, ?2)", value::keys(key))?;
        transaction.commit()?;
        Ok(Some(found))
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<KvRow> {
    Ok(KvRow {
        key: value::bytes(row, 0)?.to_vec(),
        value: value::optional_bytes(row, 1)?.unwrap_or_default(),
        created_at: value::optional_int(row, 2)?,
        updated_at: value::optional_int(row, 3)?,
    })
}
