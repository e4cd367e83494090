//! How much of its audit log a served session keeps: two keys of `acetate_meta`.

use rusqlite::Connection;

use crate::delta::Result;

use super::meta;

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

    /// The retention that a session records.
    pub(in crate::delta::sqlite) fn load(conn: &Connection) -> Result<Self> {
        let number = |key| -> Result<Option<u64>> {
            Ok(meta::get::<i64>(conn, key)?.and_then(|number| u64::try_from(number).ok()))
        };
        Ok(Self { rows: number(meta::LOG_KEEP_ROWS)?, secs: number(meta::LOG_KEEP_SECS)? })
    }

    /// Records it.
    pub(in crate::delta::sqlite) fn put(self, conn: &Connection) -> Result<()> {
        for (key, number) in [(meta::LOG_KEEP_ROWS, self.rows), (meta::LOG_KEEP_SECS, self.secs)] {
            match number {
                Some(number) => meta::put(conn, key, i64::try_from(number).unwrap_or(i64::MAX)),
                None => meta::delete(conn, key),
            }?;
        }
        Ok(())
    }
}
