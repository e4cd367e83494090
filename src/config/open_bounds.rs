//! `max_open`, `idle_close`, `ephemeral_expire` and `expire`: how many sessions a server has open,
//! and how long it keeps what is not used.

use std::time::Duration;

use toml::{Spanned, Value};

use super::error::Result;
use super::keep_checkpoints::secs;
use super::limits::{
    DEFAULT_EPHEMERAL_EXPIRE, DEFAULT_IDLE_CLOSE, DEFAULT_MAX_OPEN, MAX_EXPIRE, MAX_IDLE_CLOSE,
    MAX_MAX_OPEN, MIN_EXPIRE,
};
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

/// Checks `ephemeral_expire`.
pub(super) fn check_ephemeral_expire(
    source: &SourceText<'_>,
    written: Option<&Spanned<Value>>,
) -> Result<Duration> {
    let checked = check_age(source, "ephemeral_expire", written)?;
    Ok(checked.unwrap_or(DEFAULT_EPHEMERAL_EXPIRE))
}

/// Checks `expire` of a template.
pub(super) fn check_expire(
    source: &SourceText<'_>,
    written: Option<&Spanned<Value>>,
) -> Result<Option<Duration>> {
    check_age(source, "expire", written)
}

fn check_age(
    source: &SourceText<'_>,
    key: &str,
    written: Option<&Spanned<Value>>,
) -> Result<Option<Duration>> {
    let Some(written) = written else { return Ok(None) };
    let age = written.get_ref().as_str().and_then(secs).map(Duration::from_secs);
    let age = age.filter(|age| (MIN_EXPIRE..=MAX_EXPIRE).contains(age));
    age.map(Some).ok_or_else(|| {
        let what = format!("{key} is a time of 1s to 3650d, such as 12h or 30d");
        source.wrong(&written.span(), what)
    })
}
