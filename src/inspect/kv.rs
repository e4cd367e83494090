//! The key-value store of a session.

use std::path::Path;

use super::error::{InspectError, Result};
use super::json;
use crate::delta::StoreError;
use crate::delta::sqlite::{AgentAccess, AgentTables, KvKey, KvRow};

/// An open key-value store; others may change it at any time.
#[derive(Debug)]
pub struct KeyValues {
    tables: AgentTables,
}

impl KeyValues {
    /// Opens that of the session file `session`.
    ///
    /// # Errors
    /// It is no session, or, to be written, may not be.
    pub fn open(session: &Path, access: AgentAccess) -> Result<Self> {
        Ok(Self { tables: AgentTables::open(session, access)? })
    }

    /// What is kept under a key.
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

    /// Keeps a JSON text under a key, since `now` (in seconds since 1970).
    ///
    /// # Errors
    /// The text is no JSON, or the session cannot be written; it is as it was.
    pub fn set(&self, key: &str, value: &str, now: i64) -> Result<()> {
        let value = json::checked("value", value)?;
        self.tables.kv_set(key, value, now).map_err(|error| self.failed(error))
    }

    /// Removes a key; what was kept under it, if it was there.
    ///
    /// # Errors
    /// The session cannot be written; it is as it was.
    pub fn remove(&self, key: &[u8]) -> Result<Option<KvRow>> {
        self.tables.kv_remove(key).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: StoreError) -> InspectError {
        InspectError::Store { session: self.tables.path().to_owned(), source }
    }
}
