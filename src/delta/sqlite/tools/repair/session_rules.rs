//! M1 to M7, K1, K2, T1, and the chunk size: repairs the session's own metadata.

use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::delta::Result;
use crate::delta::sqlite::file::config;
use crate::delta::sqlite::table::inode_numbers::InodeNumbers;
use crate::delta::sqlite::table::{call_bounds, checkpoint, hide, incomplete, meta, old_rows};
use crate::pattern::{Pattern, PatternSet};

use super::repairer::Repairer;

/// Keys with integer values.
const NUMBERS: &str =
    "'format_version', 'boot_epoch', 'clean', 'next_ino', 'last_dentry', 'late_op', 'syncs'";

/// The chunk size, in bytes, and whether it was derived from the chunks.
pub(super) fn chunk_bytes(conn: &Connection) -> Result<(u64, bool)> {
    if let Ok(bytes) = config::chunk_bytes(conn) {
        return Ok((bytes, false));
    }
    // A chunk with a successor is full. If there is none, each file has one chunk at most.
    let whole = "SELECT length(data) FROM fs_data d WHERE EXISTS (SELECT 1 FROM fs_data n
          WHERE n.ino = d.ino AND n.chunk_index = d.chunk_index + 1)
        GROUP BY length(data) ORDER BY count(*) DESC LIMIT 1";
    let largest = "SELECT max(octet_length(data)) FROM fs_data";
    let ask = |sql: &str| -> Result<u64> {
        let mut statement = conn.prepare(sql)?;
        let mut rows = statement.query([])?;
        let bytes = rows.next()?.map(|row| row.get::<_, Option<i64>>(0)).transpose()?.flatten();
        Ok(bytes.unwrap_or(0).max(0).cast_unsigned())
    };
    let bytes = match ask(whole)? {
        0 => ask(largest)?.max(config::DEFAULT_CHUNK_BYTES).next_power_of_two(),
        bytes => bytes,
    };
    conn.execute(
        "INSERT INTO fs_config (key, value) VALUES ('chunk_size', ?1)
         ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        params![bytes.to_string()],
    )?;
    Ok((bytes, true))
}

/// Repairs `acetate_meta` as far as needed before inode numbers are allocated.
pub(super) fn before(conn: &Connection) -> Result<Vec<(&'static str, &'static str)>> {
    let mut mended = Vec::new();
    let odd =
        format!("DELETE FROM acetate_meta WHERE typeof(value) <> 'integer' AND key IN ({NUMBERS})");
    conn.execute(&odd, [])?;
    let of_later = "SELECT 1 FROM acetate_opaque
         UNION ALL SELECT 1 FROM acetate_meta WHERE key = 'hide'";
    let is_later = conn.prepare(of_later)?.exists([])? || checkpoint::is_used(conn)?;
    let later = meta::OPAQUE_FORMAT.max(meta::HIDE_FORMAT).max(meta::CHECKPOINT_FORMAT);
    let least = if is_later { later } else { meta::FIRST_FORMAT };
    let known = least..=meta::FORMAT_VERSION;
    if !meta::get::<i64>(conn, meta::FORMAT)?.is_some_and(|format| known.contains(&format)) {
        meta::put(conn, meta::FORMAT, least)?;
        mended.push(("M1", "format_version is that of the tables"));
    }
    // From 2^52 + 2^32 to 2^53.
    let next = 4_503_603_922_337_792..=9_007_199_254_740_992;
    let stored = meta::get::<i64>(conn, meta::NEXT_INO)?;
    let is_below = "SELECT 1 FROM fs_inode WHERE ino >= ?1";
    let is_used = conn.prepare(is_below)?.exists([stored])?;
    if !stored.is_some_and(|stored| next.contains(&stored)) || is_used {
        conn.execute("DELETE FROM acetate_meta WHERE key = ?1", [meta::NEXT_INO])?;
        meta::put(conn, meta::NEXT_INO, InodeNumbers::load(conn)?.last().cast_signed())?;
        mended.push(("M2", "next_ino is above all numbers in use"));
    }
    Ok(mended)
}

/// Repairs the rest.
pub(super) fn mend(mender: &mut Repairer<'_>) -> Result<()> {
    let (conn, host) = (mender.conn, mender.host);
    let is_sound = |key: &str, test: &str| -> Result<bool> {
        let sql = format!("SELECT 1 FROM acetate_meta WHERE key = ?1 AND {test}");
        Ok(conn.prepare(&sql)?.exists([key])?)
    };
    let is_id = "typeof(value) = 'text' AND length(value) = 32 AND value NOT GLOB '*[^0-9a-f]*'";
    let is_key = "typeof(value) = 'blob' AND length(value) = 16";
    if !is_sound(meta::SESSION_ID, is_id)? || !is_sound(meta::HANDLE_KEY, is_key)? {
        // Both together: with the old key, a handle of another session could be accepted.
        config::identify(conn, host)?;
        mender.mended("M1", "the session gets a new id and key: mounts of it have to be renewed");
    }
    if !is_sound(meta::EPOCH, "value >= 1")? {
        // Larger than any epoch reached by counting, so no client knows it.
        meta::put(conn, meta::EPOCH, host.now.secs.max(1))?;
        mender.mended("M3", "boot_epoch is one that no client knows");
    }
    if !is_sound(meta::CLEAN, "value IN (0, 1)")? {
        meta::put(conn, meta::CLEAN, 0)?;
        mender.mended("M4", "clean is 0: what was not synced counts as lost");
    }
    for key in [meta::QUOTA_BYTES, meta::QUOTA_FILES, meta::MAX_FILE_BYTES] {
        let is_there = meta::get::<Value>(conn, key)?.is_some();
        if is_there && !is_sound(key, "typeof(value) = 'integer' AND value >= 0")? {
            meta::delete(conn, key)?;
            mender.mended("M5", "a limit that is no number is gone: set another");
        }
    }
    for key in [meta::AUDIT_DROPPED, meta::AUDIT_SINCE] {
        let is_there = meta::get::<Value>(conn, key)?.is_some();
        if is_there && !is_sound(key, "typeof(value) = 'integer' AND value >= 0")? {
            // An unknown number of rows is gone; they may date back to 1970.
            meta::put(conn, key, i64::from(key == meta::AUDIT_DROPPED))?;
            mender.mended("M6", "the audit log is one that lost rows");
        }
    }
    if hide::patterns(conn).is_err() {
        let lines = meta::get::<Value>(conn, meta::HIDE)?;
        let lines = if let Some(Value::Text(lines)) = lines { lines } else { String::new() };
        let patterns = lines.lines().filter_map(|line| Pattern::new(line).ok()).collect();
        hide::put(conn, &PatternSet::new(patterns).unwrap_or_default())?;
        mender.mended("M7", "what is no pattern hides nothing");
    }
    if !is_sound(meta::CLEAN, "value = 1")? && !is_sound(meta::BOOT_ID, "typeof(value) = 'text'")? {
        meta::put(conn, meta::BOOT_ID, "")?;
        mender.mended("M3", "boot_id is of no boot: what was not synced counts as lost");
    }
    if checkpoint::is_used(conn)? && !old_rows::without_checkpoint(conn)?.is_empty() {
        old_rows::delete_without_checkpoint(conn)?;
        mender.mended("K1", "what was kept for no checkpoint is gone");
    }
    if checkpoint::is_used(conn)? && !incomplete::unknown(conn)?.is_empty() {
        incomplete::mend_unknown(conn)?;
        mender.mended("K2", "a checkpoint is incomplete because of another program");
    }
    let unsound = call_bounds::delete_unsound(conn)? as u64;
    mender.mended_all(
        "T1",
        unsound,
        "it is not known which rows of the log are a call's".to_owned(),
    );
    Ok(())
}
