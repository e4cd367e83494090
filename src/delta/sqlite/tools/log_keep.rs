//! How much of its audit log a served session keeps: two keys of `acetate_meta`.

use crate::delta::Result;

use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::meta;

/// Retention of the audit log. A row is kept if either bound keeps it; without bounds all rows are
/// kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogKeep {
    /// Number of newest rows to keep.
    pub rows: Option<u64>,
    /// Age up to which rows are kept, in seconds.
    pub secs: Option<u64>,
}

impl LogKeep {
    /// Whether rows are ever deleted.
    pub fn is_bound(self) -> bool {
        self != Self::default()
    }
}

impl Session {
    /// The session's retention of its audit log.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn log_keep(&self) -> Result<LogKeep> {
        let conn = open_read_only(&self.path)?;
        let number = |key| -> Result<Option<u64>> {
            Ok(meta::get::<i64>(&conn, key)?.and_then(|number| u64::try_from(number).ok()))
        };
        Ok(LogKeep { rows: number(meta::LOG_KEEP_ROWS)?, secs: number(meta::LOG_KEEP_SECS)? })
    }

    /// Stores the session's retention of its audit log. Call before the writer is opened.
    ///
    /// # Errors
    /// As [`Session::record_base`].
    pub fn record_log_keep(&mut self, keep: LogKeep) -> Result<()> {
        self.before_writer(|conn| {
            for (key, number) in
                [(meta::LOG_KEEP_ROWS, keep.rows), (meta::LOG_KEEP_SECS, keep.secs)]
            {
                match number {
                    Some(number) => meta::put(conn, key, i64::try_from(number).unwrap_or(i64::MAX)),
                    None => meta::delete(conn, key),
                }?;
            }
            Ok(())
        })
    }
}
