//! How much of its audit log a session keeps while it is served: two keys of `acetate_meta`.

use crate::delta::Result;

use crate::delta::sqlite::file::session::{Session, open_read_only};
use crate::delta::sqlite::table::meta;

/// What stays of the audit log; where both are given, what either of them keeps. Without any, all
/// of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogKeep {
    /// The newest rows.
    pub rows: Option<u64>,
    /// Rows that are younger, in seconds.
    pub secs: Option<u64>,
}

impl LogKeep {
    /// Whether anything is ever deleted.
    pub fn is_bound(self) -> bool {
        self != Self::default()
    }
}

impl Session {
    /// What the session keeps of its audit log.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn log_keep(&self) -> Result<LogKeep> {
        let conn = open_read_only(&self.path)?;
        let number = |key| -> Result<Option<u64>> {
            Ok(meta::get::<i64>(&conn, key)?.and_then(|number| u64::try_from(number).ok()))
        };
        Ok(LogKeep { rows: number(meta::LOG_KEEP_ROWS)?, secs: number(meta::LOG_KEEP_SECS)? })
    }

    /// Says what the session keeps of its audit log; before the writer is opened.
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
