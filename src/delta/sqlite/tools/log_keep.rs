//! The bound of a session's audit log.

use crate::delta::Result;

use crate::delta::sqlite::file::session::Session;
use crate::delta::sqlite::table::log_keep::LogKeep;

impl Session {
    /// The session's retention of its audit log. Nothing changes it while a server has the session.
    pub fn log_keep(&self) -> LogKeep {
        self.config.log_keep
    }

    /// Stores the session's retention of its audit log. Call before the writer is opened.
    ///
    /// # Errors
    /// As [`Session::record_base`].
    pub fn record_log_keep(&mut self, keep: LogKeep) -> Result<()> {
        self.before_writer(|conn| keep.put(conn))?;
        self.config.log_keep = keep;
        Ok(())
    }
}
