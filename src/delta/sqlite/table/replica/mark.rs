//! The last batch that a replica has.

use rusqlite::Connection;

use crate::delta::Result;
use crate::delta::sqlite::table::meta;

/// A batch: no two of a session have the same mark, even if the other store was set back in
/// between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMark {
    /// Its number.
    pub seq: i64,
    /// A random number.
    pub stamp: i64,
}

impl BatchMark {
    /// The mark of the batch after this one.
    pub fn next(self) -> Self {
        let stamp = getrandom::u64().map_or(self.stamp.wrapping_add(1), u64::cast_signed);
        Self { seq: self.seq + 1, stamp }
    }
}

/// Records the last batch that the file has; `None` if it has rows of no batch.
pub fn put(conn: &Connection, mark: Option<BatchMark>) -> Result<()> {
    let Some(BatchMark { seq, stamp }) = mark else { return meta::delete(conn, meta::SEQ) };
    meta::put(conn, meta::SEQ, seq)?;
    meta::put(conn, meta::STAMP, stamp)
}

/// The last batch that the file has.
pub fn get(conn: &Connection) -> Result<Option<BatchMark>> {
    let (seq, stamp) = (meta::get(conn, meta::SEQ)?, meta::get(conn, meta::STAMP)?);
    Ok(seq.zip(stamp).map(|(seq, stamp)| BatchMark { seq, stamp }))
}
