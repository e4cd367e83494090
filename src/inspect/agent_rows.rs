//! The agent's tables of a session: in its file, or in its database, which a replica lacks.

use std::path::{Path, PathBuf};

use super::error::{InspectError, Result};
use crate::delta::StoreError;
use crate::delta::postgres::{DatabaseAgentTables, SessionUrl, without_password};
use crate::delta::sqlite::{AgentAccess, AgentTables};

/// The agent's tables.
#[derive(Debug)]
pub(super) enum AgentRows {
    /// In the session file.
    File(AgentTables),
    /// In the database.
    Database(Box<DatabaseAgentTables>),
}

/// Calls a function that both kinds of [`AgentRows`] have.
macro_rules! either {
    ($rows:expr, $tables:ident => $call:expr) => {
        match $rows {
            $crate::inspect::agent_rows::AgentRows::File($tables) => $call,
            $crate::inspect::agent_rows::AgentRows::Database($tables) => $call,
        }
    };
}
pub(super) use either;

impl AgentRows {
    /// Opens the tables of a session: a file, the replica of a session in a database, or its URL.
    ///
    /// # Errors
    /// It is none, or `access` asks to write and it cannot be written; or the database refuses.
    pub(super) fn open(session: &Path, access: AgentAccess) -> Result<Self> {
        let text = session.to_str().filter(|text| SessionUrl::is_meant(text));
        if let Some(url) = text {
            return in_database(url);
        }
        let tables = AgentTables::open(session, access)?;
        let url = tables.replica_of().map_err(|source| {
            let session = tables.path().to_owned();
            InspectError::Store { session, source }
        })?;
        match url {
            Some(url) => in_database(&url),
            None => Ok(Self::File(tables)),
        }
    }

    /// The numbers of keys and of tool calls.
    ///
    /// # Errors
    /// The session cannot be read.
    pub(super) fn counts(&self) -> Result<(u64, u64)> {
        let keys = either!(self, tables => tables.kv_keys(b""));
        let keys = keys.map_err(|error| self.failed(error))?.len() as u64;
        let stats = either!(self, tables => tables.call_stats());
        let stats = stats.map_err(|error| self.failed(error))?;
        Ok((keys, stats.iter().map(|tool| tool.calls).sum()))
    }

    /// A failure of a function of the tables.
    pub(super) fn failed(&self, source: StoreError) -> InspectError {
        let session = match self {
            Self::File(tables) => tables.path().to_owned(),
            Self::Database(tables) => PathBuf::from(tables.url()),
        };
        InspectError::Store { session, source }
    }
}

fn in_database(url: &str) -> Result<AgentRows> {
    let parsed: SessionUrl = url.parse().map_err(|error| {
        let what = format!("{}: {error}", without_password(url));
        InspectError::Invalid { what }
    })?;
    match DatabaseAgentTables::open(&parsed) {
        Ok(tables) => Ok(AgentRows::Database(Box::new(tables))),
        Err(source) => {
            let (url, source) = (url.to_owned(), Box::new(source));
            Err(InspectError::Database { url, source })
        }
    }
}
