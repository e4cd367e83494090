//! What keeps a session in a database from being served, as far as the database says now.

use crate::cli::in_database;
use crate::delta::postgres::{HoldError, SessionError, SessionUrl};
use crate::workspace::Error;
use crate::workspace::database::row_of;

/// Asks the database about a session; changes nothing. A session that does not exist is made by
/// the first mount, unless mounts only read it.
pub(super) fn database_fault(url: &SessionUrl, is_read_only: bool) -> Option<String> {
    let runtime = match in_database::start() {
        Ok(runtime) => runtime,
        Err(error) => return Some(format!("session {url}: {error}")),
    };
    let found = row_of(url, runtime.handle());
    runtime.shutdown_background();
    let error = found.err()?;
    let is_missing = matches!(
        &error,
        Error::Database { source, .. }
            if matches!(**source, HoldError::Session(SessionError::Missing(_)))
    );
    match is_missing {
        true if is_read_only => Some(format!(
            "session {url}: it does not exist, and a mount that only reads makes none"
        )),
        true => None,
        false => Some(format!("session {error}")),
    }
}
