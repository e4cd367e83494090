//! `keep_checkpoints`: which automatic checkpoints a session keeps.

use std::fmt;

use jiff::{Span, SpanRelativeTo, Unit};
use toml::{Spanned, Value};

use super::error::Result;
use super::limits::{MAX_HOURLY_SECS, MAX_KEPT_CHECKPOINTS};
use super::quota::{check_bytes, parse_bytes};
use super::written::{KeepCheckpoints, SourceText};

/// `keep_checkpoints`; what is `None` is as usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepCheckpointsConfig {
    /// Number of newest ones.
    pub newest: Option<u64>,
    /// Age up to which one for each hour is kept, in seconds.
    pub hourly_secs: Option<u64>,
    /// Age up to which one for each day is kept, in seconds.
    pub daily_secs: Option<u64>,
    /// Most bytes that what is saved for them takes.
    pub max_bytes: Option<u64>,
}

/// What an error says was expected.
const EXPECTED: &str =
    "expected a number and ages, such as 100, or newest=100,hourly=24h,daily=30d,bytes=1GiB";

impl KeepCheckpointsConfig {
    /// Parses the form of the command line: a number, or keys with values, separated by commas.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut keep = Self::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').unwrap_or(("newest", part));
            let (key, value) = (key.trim(), value.trim());
            let is_new = match key {
                "newest" => {
                    let newest = value.parse().map_err(|_| EXPECTED)?;
                    check_newest(newest)?;
                    keep.newest.replace(newest).is_none()
                }
                "hourly" => {
                    let secs = secs(value).ok_or_else(|| expected_age(key))?;
                    check_hourly(secs)?;
                    keep.hourly_secs.replace(secs).is_none()
                }
                "daily" => {
                    let secs = secs(value).ok_or_else(|| expected_age(key))?;
                    keep.daily_secs.replace(secs).is_none()
                }
                "bytes" => {
                    let bytes = parse_bytes(value).ok_or("bytes is a size, such as 1GiB")?;
                    keep.max_bytes.replace(bytes).is_none()
                }
                _ => return Err(EXPECTED.to_owned()),
            };
            if !is_new {
                return Err(format!("{key} is given twice"));
            }
        }
        Ok(keep)
    }
}

impl fmt::Display for KeepCheckpointsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { newest, hourly_secs, daily_secs, max_bytes } = self;
        let newest = newest.map(|newest| format!("newest={newest}"));
        let hourly = hourly_secs.map(|secs| format!("hourly={secs}s"));
        let daily = daily_secs.map(|secs| format!("daily={secs}s"));
        let bytes = max_bytes.map(|bytes| format!("bytes={bytes}"));
        let parts = [newest, hourly, daily, bytes].into_iter().flatten();
        f.write_str(&parts.collect::<Vec<_>>().join(","))
    }
}

/// Checks `keep_checkpoints`.
pub(super) fn check(
    source: &SourceText<'_>,
    written: Option<&Spanned<KeepCheckpoints>>,
) -> Result<Option<KeepCheckpointsConfig>> {
    let Some(keep) = written else { return Ok(None) };
    let KeepCheckpoints { newest, hourly, daily, bytes } = keep.get_ref();
    if newest.is_none() && hourly.is_none() && daily.is_none() && bytes.is_none() {
        let what = "keep_checkpoints says which automatic checkpoints are kept";
        let hint = "such as keep_checkpoints = { newest = 100, hourly = \"24h\", daily = \"30d\" }";
        return Err(source.wrong(&keep.span(), what).with_hint(hint));
    }
    let wrong = |at: &Spanned<Value>, why: String| source.wrong(&at.span(), why);
    let age = |key: &str, at: &Option<Spanned<Value>>| -> Result<Option<u64>> {
        let Some(at) = at else { return Ok(None) };
        let secs = at.get_ref().as_str().and_then(secs);
        secs.map(Some).ok_or_else(|| wrong(at, expected_age(key)))
    };
    if let Some(newest) = newest {
        let checked = check_newest(*newest.get_ref());
        checked.map_err(|why| source.wrong(&newest.span(), why))?;
    }
    let hourly_secs = age("hourly", hourly)?;
    if let (Some(secs), Some(at)) = (hourly_secs, hourly) {
        check_hourly(secs).map_err(|why| wrong(at, why))?;
    }
    let daily_secs = age("daily", daily)?;
    let max_bytes = check_bytes(source, bytes.as_ref())?;
    let newest = newest.as_ref().map(|newest| *newest.get_ref());
    Ok(Some(KeepCheckpointsConfig { newest, hourly_secs, daily_secs, max_bytes }))
}

fn check_newest(newest: u64) -> std::result::Result<(), String> {
    let most = MAX_KEPT_CHECKPOINTS;
    if newest <= most { Ok(()) } else { Err(format!("at most {most} checkpoints are kept")) }
}

fn check_hourly(secs: u64) -> std::result::Result<(), String> {
    let fits = secs <= MAX_HOURLY_SECS;
    if fits { Ok(()) } else { Err("one for each hour is kept for at most 366 days".to_owned()) }
}

fn expected_age(key: &str) -> String {
    format!("{key} is an age, such as 12h, 30d, 2 weeks or 0s")
}

/// The seconds of an age without months and years. A day has 24 hours.
pub(super) fn secs(text: &str) -> Option<u64> {
    let span: Span = text.trim().parse().ok()?;
    let secs = span.total((Unit::Second, SpanRelativeTo::days_are_24_hours())).ok()?;
    (secs >= 0.0).then_some(secs as u64)
}

#[cfg(test)]
mod tests {
    use super::KeepCheckpointsConfig;

    #[test]
    fn what_is_kept_is_read() {
        let parse = |text: &str| {
            let parsed = KeepCheckpointsConfig::parse(text);
            parsed.map(|keep| (keep.newest, keep.hourly_secs, keep.daily_secs, keep.max_bytes))
        };
        assert_eq!(parse("50"), Ok((Some(50), None, None, None)));
        let all = Ok((Some(5), Some(12 * 3600), Some(14 * 86_400), Some(1 << 30)));
        assert_eq!(parse("newest=5,hourly=12h,daily=2w,bytes=1GiB"), all);
        assert_eq!(parse("5, bytes=1 GiB, daily=2 weeks, hourly = 12h"), all);
        assert_eq!(parse("hourly=0s"), Ok((None, Some(0), None, None)));
        for (text, why) in [
            ("", "expected a number and ages"),
            ("-1", "expected a number and ages"),
            ("10001", "at most 10000"),
            ("weekly=1d", "expected a number and ages"),
            ("hourly=much", "hourly is an age"),
            ("hourly=367d", "at most 366 days"),
            ("daily=-1d", "daily is an age"),
            ("daily=1y", "daily is an age"),
            ("bytes=1gib", "bytes is a size"),
            ("5,newest=6", "newest is given twice"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
