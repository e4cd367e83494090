//! The quota usage of a session, counted from its rows.

use crate::delta::sqlite::file::config;
use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::quota::{count, limits};
use crate::delta::{Limits, Result, Usage};

impl Session {
    /// The session's usage, counted from its rows, and its own limits, on one snapshot.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn quota(&self) -> Result<(Usage, Limits)> {
        let conn = open_read_only(&self.path)?;
        let conn = conn.unchecked_transaction()?;
        Ok((count(&conn, config::chunk_bytes(&conn)?)?.usage(), limits(&conn)?))
    }
}
