//! What a session takes, counted in SQL from its rows: a second opinion.

use acetate::delta::{Limits, Usage};

use super::world::World;

/// More than any test takes: it makes the server count.
pub const AMPLE: Limits = Limits { bytes: Some(1 << 50), files: Some(1 << 40), file_bytes: None };

/// Chunks below the size that are neither holes nor missing count whole, but for the last; names
/// and whiteouts count as files.
const USAGE: &str = "
    WITH chunk AS (SELECT CAST(value AS INTEGER) AS c FROM fs_config WHERE key = 'chunk_size')
    SELECT ifnull(sum(max(nlink, 1)), 0)
        + (SELECT ifnull(sum((octet_length(path) + 255) / 256), 0) FROM fs_whiteout),
      ifnull(sum(CASE mode & 61440 WHEN 40960 THEN size WHEN 32768 THEN
        min(size, ((size + c - 1) / c - ifnull(holes, 0)) * c) ELSE 0 END), 0)
    FROM chunk, fs_inode i LEFT JOIN acetate_inode a ON a.ino = i.ino WHERE i.ino <> 1";

/// The rows' own word for it.
pub fn usage(world: &World) -> Usage {
    let row = world.sql().query_row(USAGE, [], |row| Ok((row.get(0)?, row.get(1)?)));
    let (files, bytes): (i64, i64) = row.unwrap();
    Usage { bytes: bytes.try_into().unwrap(), files: files.try_into().unwrap() }
}

/// Asserts that the server has counted what the rows say, and that no less is stored than that;
/// what it is.
#[track_caller]
pub fn assert_counted(world: &World) -> Usage {
    let (counted, _) = world.wait(world.overlay.quota()).unwrap();
    assert_eq!(counted, usage(world), "counted, and in the rows");
    let stored: i64 = world.sql_value("SELECT ifnull(sum(length(data)), 0) FROM fs_data");
    assert!(stored as u64 <= counted.bytes, "{stored} bytes are stored: {counted:?}");
    counted
}
