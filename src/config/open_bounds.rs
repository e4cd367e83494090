//! `max_open` and `idle_close`: how many sessions a server has open, and how long.

use std::time::Duration;

use toml::{Spanned, Value};

use super::error::Result;
use super::keep_checkpoints::secs;
use super::limits::{DEFAULT_IDLE_CLOSE, DEFAULT_MAX_OPEN, MAX_IDLE_CLOSE, MAX_MAX_OPEN};
use super::written::SourceText;

/// Checks `max_open`.
pub(super) fn check_max_open(
    source: &SourceText<'_>,
    written: Option<&Spanned<u64>>,
) -> Result<usize> {
    let Some(written) = written else { return Ok(DEFAULT_MAX_OPEN) };
    let sessions = *written.get_ref();
    if !(1..=MAX_MAX_OPEN).contains(&sessions) {
        let what = format!("max_open is a number of sessions, 1 to {MAX_MAX_OPEN}");
        return Err(source.wrong(&written.span(), what));
    }
    Ok(usize::try_from(sessions).unwrap_or(usize::MAX))
}

/// Checks `idle_close`.
pub(super) fn check_idle_close(
    source: &SourceText<'_>,
    written: Option<&Spanned<Value>>,
) -> Result<Duration> {
    let Some(written) = written else { return Ok(DEFAULT_IDLE_CLOSE) };
    let idle = written.get_ref().as_str().and_then(secs).map(Duration::from_secs);
    let is_fit = |idle: &Duration| (Duration::from_secs(1)..=MAX_IDLE_CLOSE).contains(idle);
    idle.filter(is_fit).ok_or_else(|| {
        let what = "idle_close is a time of 1s to 24h, such as 60s or 10min";
        source.wrong(&written.span(), what)
    })
}
