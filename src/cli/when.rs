//! Moments on the command line: a date and time, or an age.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::vfs::Time;

/// Reads a moment: `2026-11-21T12:00:00Z`, a local `2026-11-21` or `2026-11-21 12:00`, or how
/// long ago it was: `2h30m`, `90s`, `3 days`.
pub(super) fn parse(text: &str) -> Result<Timestamp, String> {
    parse_at(text, Timestamp::now(), TimeZone::system())
}

/// The same moment as the session's rows have it.
pub(super) fn time(stamp: Timestamp) -> Time {
    // Before 1970 the nanoseconds of a stamp are negative.
    let (secs, nanos) = (stamp.as_second(), stamp.subsec_nanosecond());
    let secs = if nanos < 0 { secs - 1 } else { secs };
    Time { secs, nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0) }
}

fn parse_at(text: &str, now: Timestamp, zone: TimeZone) -> Result<Timestamp, String> {
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Ok(stamp);
    }
    if let Ok(local) = text.parse::<DateTime>() {
        let moment = zone.to_timestamp(local).map_err(|error| error.to_string())?;
        return Ok(moment);
    }
    let ago = text.strip_suffix("ago").unwrap_or(text).trim();
    let days = |text: &str| -> Option<SignedDuration> {
        let number =
            text.strip_suffix("days").or(text.strip_suffix("day")).or(text.strip_suffix('d'));
        let hours = number?.trim().parse::<i64>().ok()?.checked_mul(24)?;
        Some(SignedDuration::from_hours(hours))
    };
    let age = days(ago).or_else(|| ago.parse::<SignedDuration>().ok());
    let moment = age.filter(|age| !age.is_negative()).and_then(|age| now.checked_sub(age).ok());
    moment.ok_or_else(|| "expected a moment (2026-11-21T12:00:00Z) or an age (2h30m)".to_owned())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::tz::{TimeZone, offset};

    use super::{parse_at, time};
    use crate::vfs::Time;

    #[test]
    fn moments_of_rows() {
        let moment = |text: &str| time(text.parse().unwrap());
        let after = Time { secs: 1, nanos: 500_000_000 };
        assert_eq!(moment("1970-01-01T00:00:01.5Z"), after);
        let before = Time { secs: -2, nanos: 500_000_000 };
        assert_eq!(moment("1969-12-31T23:59:58.5Z"), before);
    }

    #[test]
    fn moments_and_ages() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let zone = TimeZone::fixed(offset(2));
        for (text, moment) in [
            ("2026-11-20T01:02:03Z", "2026-11-20T01:02:03Z"),
            ("2026-11-20T01:02:03+01:00", "2026-11-20T00:02:03Z"),
            ("2026-11-20", "2026-11-19T22:00:00Z"),
            ("2026-11-20 10:30", "2026-11-20T08:30:00Z"),
            ("2h30m", "2026-11-21T09:30:00Z"),
            ("90s ago", "2026-11-21T11:58:30Z"),
            ("3 days", "2026-11-18T12:00:00Z"),
            ("1d", "2026-11-20T12:00:00Z"),
        ] {
            assert_eq!(parse_at(text, now, zone.clone()), Ok(moment.parse().unwrap()), "{text}");
        }
        for text in ["", "tomorrow", "-2h", "2026-13-01", "99999999999999d"] {
            assert!(parse_at(text, now, zone.clone()).is_err(), "{text}");
        }
    }
}
