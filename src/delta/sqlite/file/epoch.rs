//! The boot epoch (invariant M3): it changes if and only if unsynced data may have been lost.

use rusqlite::Connection;

use crate::delta::Result;

use super::host::Host;
use crate::delta::sqlite::table::meta;

/// Returns the current epoch, and advances it if unsynced data may have been lost since the last
/// open. An advanced epoch is in the caller's transaction, which the caller must sync.
///
/// The death of a process loses nothing: what it committed is in the page cache, from which SQLite
/// reads. Data is missing only after a reboot or crash of the machine, or on another machine.
pub(super) fn load_or_advance(conn: &Connection, host: &Host) -> Result<u64> {
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

/// The epoch stored in the file.
pub(super) fn stored(conn: &Connection) -> Result<u64> {
    Ok(meta::get::<i64>(conn, meta::EPOCH)?.unwrap_or(1).cast_unsigned())
}

/// Stores the epoch.
pub fn put(conn: &Connection, epoch: u64) -> Result<()> {
    meta::put(conn, meta::EPOCH, epoch.cast_signed())
}

/// Whether the session is marked clean: everything acknowledged is synced.
pub fn is_clean(conn: &Connection) -> Result<bool> {
    Ok(meta::get::<i64>(conn, meta::CLEAN)? == Some(1))
}

/// The id of the last audit row whose client may not have received its reply. After an unclean
/// shutdown, this is the last row. After a clean close, it is the stored value: the run that closed
/// may have ended before clients retransmitted calls of a crashed run before it.
pub(super) fn late_op(conn: &Connection) -> Result<Option<i64>> {
    if is_clean(conn)? {
        return meta::get(conn, meta::LATE_OP);
    }
    Ok(conn.query_row("SELECT max(id) FROM acetate_op", [], |row| row.get(0))?)
}
