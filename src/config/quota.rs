//! `quota`: byte counts with units, and file counts.

use toml::{Spanned, Value};

use super::error::Result;
use super::model::QuotaConfig;
use super::written::{self, SourceText};

/// Units of bytes: powers of 1000 (SI) and of 1024 (IEC).
const UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// SQLite's integers are signed.
const MAX_COUNT: u64 = i64::MAX as u64;

/// Checks `quota`.
pub(super) fn check(
    source: &SourceText<'_>,
    written: Option<&Spanned<written::QuotaToml>>,
) -> Result<QuotaConfig> {
    let Some(quota) = written else { return Ok(QuotaConfig::default()) };
    let bytes = check_bytes(source, quota.get_ref().bytes.as_ref())?;
    let files = quota.get_ref().files.as_ref();
    if let Some(files) = files.filter(|files| *files.get_ref() > MAX_COUNT) {
        return Err(source.wrong(&files.span(), "the number of files is too large"));
    }
    let limits = QuotaConfig { bytes, files: files.map(|files| *files.get_ref()) };
    let span = quota.span();
    if limits == QuotaConfig::default() {
        let hint = "such as { bytes = \"2GiB\", files = 100000 }";
        return Err(source.wrong(&span, "an empty quota has no effect").with_hint(hint));
    }
    if limits.bytes == Some(0) || limits.files == Some(0) {
        let hint = "for an export that takes no changes, use the option ro";
        return Err(source.wrong(&span, "a quota of 0 allows no writes").with_hint(hint));
    }
    Ok(limits)
}

/// Checks a number of bytes.
pub(super) fn check_bytes(
    source: &SourceText<'_>,
    written: Option<&Spanned<Value>>,
) -> Result<Option<u64>> {
    let Some(value) = written else { return Ok(None) };
    let bytes = bytes_of(value.get_ref()).ok_or_else(|| {
        let hint = "a number of bytes, or one with a unit: 500MB, 2GiB";
        source.wrong(&value.span(), "not a number of bytes").with_hint(hint)
    })?;
    Ok(Some(bytes))
}

/// The number of bytes in a TOML value.
fn bytes_of(value: &Value) -> Option<u64> {
    let bytes = match value {
        Value::Integer(bytes) => u64::try_from(*bytes).ok(),
        Value::String(text) => parse_bytes(text),
        _ => None,
    };
    bytes.filter(|bytes| *bytes <= MAX_COUNT)
}

/// Parses a whole number with a unit: `2GiB`, `500 MB`, `4096`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::parse_bytes;

    #[test]
    fn bytes_are_read_with_their_unit() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("1 B", Some(1)),
            ("2GiB", Some(2 << 30)),
            (" 500 MB ", Some(500_000_000)),
            ("1kB", Some(1000)),
            ("3TiB", Some(3 << 40)),
            ("16777216TiB", None),
            ("1.5GiB", None),
            ("2gib", None),
            ("-1", None),
            ("GiB", None),
            ("", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }
}
