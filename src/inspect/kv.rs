//! The key-value store of a session.

use std::path::Path;

use super::error::{InspectError, Result};
use super::json;
use crate::delta::StoreError;
use crate::delta::sqlite::{AgentAccess, AgentTables, KvKey, KvRow};

/// An open key-value store; other processes may change it at any time.
#[derive(Debug)]
pub struct KeyValues {
    tables: AgentTables,
}

impl KeyValues {
    /// Opens the key-value store of the session file `session`.
    ///
    /// # Errors
    /// `session` is not a session, or `access` asks to write and it cannot be written.
    pub fn open(session: &Path, access: AgentAccess) -> Result<Self> {
        Ok(Self { tables: AgentTables::open(session, access)? })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<KvRow>> {
        self.tables.kv_get(key).map_err(|error| self.failed(error))
    }

    /// The keys that begin with `prefix`, in order.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn keys(&self, prefix: &[u8]) -> Result<Vec<KvKey>> {
        self.tables.kv_keys(prefix).map_err(|error| self.failed(error))
    }

    /// Stores a JSON text under a key. `now` is the time of the change, in seconds since 1970.
    ///
    /// # Errors
    /// The text is not JSON, or the session cannot be written. The store is unchanged then.
    pub fn set(&self, key: &str, value: &str, now: i64) -> Result<()> {
        let value = json::checked("value", value)?;
        self.tables.kv_set(key, value, now).map_err(|error| self.failed(error))
    }

    /// Removes a key; returns its last value, if it had one.
    ///
    /// # Errors
    /// The session cannot be written. The store is unchanged then.
    pub fn remove(&self, key: &[u8]) -> Result<Option<KvRow>> {
        self.tables.kv_remove(key).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: StoreError) -> InspectError {
        InspectError::Store { session: self.tables.path().to_owned(), source }
    }
}
