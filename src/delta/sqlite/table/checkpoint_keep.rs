//! How many automatic checkpoints a session keeps: keys of `acetate_meta`.

use rusqlite::Connection;

use crate::delta::{CheckpointKeep, Result};

use super::meta;

/// What the session keeps.
pub fn get(conn: &Connection) -> Result<CheckpointKeep> {
    let usual = CheckpointKeep::default();
    let number = |key| -> Result<Option<u64>> {
        Ok(meta::get::<i64>(conn, key)?.and_then(|number| u64::try_from(number).ok()))
    };
    Ok(CheckpointKeep {
        newest: number(meta::CHECKPOINTS_NEWEST)?.unwrap_or(usual.newest),
        hourly_secs: number(meta::CHECKPOINTS_HOURLY)?.unwrap_or(usual.hourly_secs),
        daily_secs: number(meta::CHECKPOINTS_DAILY)?.or(usual.daily_secs),
        max_bytes: number(meta::CHECKPOINTS_BYTES)?.or(usual.max_bytes),
    })
}

/// Stores what the session keeps; what is as usual has no row.
pub fn put(conn: &Connection, keep: CheckpointKeep) -> Result<()> {
    let usual = CheckpointKeep::default();
    let CheckpointKeep { newest, hourly_secs, daily_secs, max_bytes } = keep;
    for (key, number) in [
        (meta::CHECKPOINTS_NEWEST, Some(newest).filter(|newest| *newest != usual.newest)),
        (meta::CHECKPOINTS_HOURLY, Some(hourly_secs).filter(|secs| *secs != usual.hourly_secs)),
        (meta::CHECKPOINTS_DAILY, daily_secs),
        (meta::CHECKPOINTS_BYTES, max_bytes),
    ] {
        match number {
            Some(number) => meta::put(conn, key, i64::try_from(number).unwrap_or(i64::MAX)),
            None => meta::delete(conn, key),
        }?;
    }
    Ok(())
}
