//! The key-value store of a session.

use std::path::Path;

use super::agent_rows::{AgentRows, either};
use super::error::Result;
use super::json;
use crate::delta::sqlite::{AgentAccess, KvKey, KvRow};

/// An open key-value store; other processes may change it at any time.
#[derive(Debug)]
pub struct KeyValues {
    tables: AgentRows,
}

impl KeyValues {
    /// Opens the key-value store of `session`: a file, the replica of a session in a database, or
    /// its URL.
    ///
    /// # Errors
    /// `session` is not a session, or `access` asks to write and it cannot be written.
    pub fn open(session: &Path, access: AgentAccess) -> Result<Self> {
        Ok(Self { tables: AgentRows::open(session, access)? })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<KvRow>> {
        either!(&self.tables, tables => tables.kv_get(key))
            .map_err(|error| self.tables.failed(error))
    }

    /// The keys that begin with `prefix`, in order.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn keys(&self, prefix: &[u8]) -> Result<Vec<KvKey>> {
        either!(&self.tables, tables => tables.kv_keys(prefix))
            .map_err(|error| self.tables.failed(error))
    }

    /// Stores a JSON text under a key. `now` is the time of the change, in seconds since 1970.
    ///
    /// # Errors
    /// The text is not JSON, or the session cannot be written. The store is unchanged then.
    pub fn set(&self, key: &str, value: &str, now: i64) -> Result<()> {
        let value = json::checked("value", value)?;
        either!(&self.tables, tables => tables.kv_set(key, value, now))
            .map_err(|error| self.tables.failed(error))
    }

    /// Removes a key; returns its last value, if it had one.
    ///
    /// # Errors
    /// The session cannot be written. The store is unchanged then.
    pub fn remove(&self, key: &[u8]) -> Result<Option<KvRow>> {
        either!(&self.tables, tables => tables.kv_remove(key))
            .map_err(|error| self.tables.failed(error))
    }
}
