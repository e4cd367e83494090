//! Parses times: a date and time, a day in words, or an age.

use jiff::civil::{DateTime, Time as Clock};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

use crate::vfs::Time;

/// Parses `2026-11-21T12:00:00Z`, a local `2026-11-21` or `2026-11-21 12:00`, a local `today` or
/// `yesterday` with or without a time of day, `now`, or an age such as `2h30m`, `90s`, `3 days` or
/// `2 weeks ago`.
pub(super) fn parse(text: &str) -> Result<Timestamp, String> {
    parse_at(text, Timestamp::now(), TimeZone::system())
}

/// Converts a timestamp to the form of the session's rows.
pub(super) fn time(stamp: Timestamp) -> Time {
    // Before 1970, the nanoseconds of a timestamp are negative.
    let (secs, nanos) = (stamp.as_second(), stamp.subsec_nanosecond());
    let secs = if nanos < 0 { secs - 1 } else { secs };
    Time { secs, nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0) }
}

/// Parses a span before now, in seconds: `30d`, `2 weeks`.
pub(super) fn secs(text: &str) -> Option<u64> {
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let then = now.checked_sub(age(text).filter(|span| span.is_positive())?).ok()?;
    u64::try_from(now.timestamp().as_second() - then.timestamp().as_second()).ok()
}

fn parse_at(text: &str, now: Timestamp, zone: TimeZone) -> Result<Timestamp, String> {
    if let Ok(stamp) = text.parse::<Timestamp>() {
        return Ok(stamp);
    }
    if let Ok(local) = text.parse::<DateTime>() {
        let moment = zone.to_timestamp(local).map_err(|error| error.to_string())?;
        return Ok(moment);
    }
    if let Some(moment) = day_in_words(text, now, &zone) {
        return Ok(moment);
    }
    let span = age(text).filter(|span| !span.is_negative());
    let moment = span.and_then(|span| now.to_zoned(zone).checked_sub(span).ok());
    moment.map(|moment| moment.timestamp()).ok_or_else(|| {
        "expected a moment (2026-11-21T12:00:00Z, today, yesterday 14:00) or an age (2h30m, 2 days \
         ago)"
            .to_owned()
    })
}

/// Parses an age: `2h30m`, `2 hours ago`, `an hour ago`.
fn age(text: &str) -> Option<Span> {
    let text = text.strip_suffix("ago").unwrap_or(text).trim();
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    match first {
        "a" | "an" => format!("1 {rest}").parse().ok(),
        _ => text.parse().ok(),
    }
}

/// Parses `now`, or the start of a day in words, or a time on that day.
fn day_in_words(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    if text == "now" {
        return Some(now);
    }
    let (day, clock) = text.split_once(' ').unwrap_or((text, "00:00"));
    let back = match day {
        "today" => 0,
        "yesterday" => 1,
        _ => return None,
    };
    let day = now.to_zoned(zone.clone()).date().checked_sub(back.days()).ok()?;
    let clock: Clock = clock.trim().parse().ok()?;
    zone.to_timestamp(day.to_datetime(clock)).ok()
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
            ("2 hours ago", "2026-11-21T10:00:00Z"),
            ("an hour ago", "2026-11-21T11:00:00Z"),
            ("2 weeks ago", "2026-11-07T12:00:00Z"),
            ("1 month", "2026-10-21T12:00:00Z"),
            ("now", "2026-11-21T12:00:00Z"),
            ("today", "2026-11-20T22:00:00Z"),
            ("today 10:30", "2026-11-21T08:30:00Z"),
            ("yesterday", "2026-11-19T22:00:00Z"),
            ("yesterday 23:00:01", "2026-11-20T21:00:01Z"),
        ] {
            assert_eq!(parse_at(text, now, zone.clone()), Ok(moment.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            "tomorrow",
            "today 25:00",
            "ago",
            "a",
            "-2h",
            "-2 days ago",
            "2026-13-01",
            "99999999999999d",
        ] {
            assert!(parse_at(text, now, zone.clone()).is_err(), "{text}");
        }
    }
}
