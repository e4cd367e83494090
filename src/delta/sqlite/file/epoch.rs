//! The boot epoch (invariant M3): it moves if and only if unsynced data may have been lost.

use rusqlite::Connection;

use crate::delta::Result;

use super::host::Host;
use crate::delta::sqlite::table::meta;

/// Returns the epoch in force after what happened since the session was last open; where that
/// moves it, the caller's transaction holds it, and must be synced.
///
/// A process that dies loses nothing: what it committed is in the page cache of the system,
/// which SQLite reads on. Only a machine that went down, or another machine, may lack it.
pub(super) fn settle(conn: &Connection, host: &Host) -> Result<u64> {
    let epoch = stored(conn)?;
    if is_clean(conn)? {
        return Ok(epoch);
    }
    let last_boot: Option<String> = meta::get(conn, meta::BOOT_ID)?;
    if host.boot_id.is_some() && last_boot == host.boot_id {
        return Ok(epoch);
    }
    let next = epoch + 1;
    put(conn, next)?;
    meta::put(conn, meta::BOOT_ID, host.boot_id.as_deref().unwrap_or(""))?;
    Ok(next)
}

/// The epoch in the file.
pub(super) fn stored(conn: &Connection) -> Result<u64> {
    Ok(meta::get::<i64>(conn, meta::EPOCH)?.unwrap_or(1).cast_unsigned())
}

/// Writes the epoch.
pub fn put(conn: &Connection, epoch: u64) -> Result<()> {
    meta::put(conn, meta::EPOCH, epoch.cast_signed())
}

/// Whether all that was ever acknowledged is certainly synced.
pub fn is_clean(conn: &Connection) -> Result<bool> {
    Ok(meta::get::<i64>(conn, meta::CLEAN)? == Some(1))
}

/// The last row whose client may not have heard of its change, if there is any: the last of all,
/// where the session was not closed.
///
/// A clean end does not settle that, as its server may not have been asked again yet: then it is
/// what the one before it knew.
pub(super) fn late_op(conn: &Connection) -> Result<Option<i64>> {
    if is_clean(conn)? {
        return meta::get(conn, meta::LATE_OP);
    }
    Ok(conn.query_row("SELECT max(id) FROM acetate_op", [], |row| row.get(0))?)
}
