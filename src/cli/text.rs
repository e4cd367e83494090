//! Formats values for people, and for programs (`--json`).

use std::fmt::Display;

use jiff::Timestamp;
use serde_json::{Map, Value};

pub(super) use crate::escape::{line, name, printable, printable_json};
use crate::inspect::counts::ChangeCounts;
pub(super) use crate::inspect::sizes::with_unit as bytes;
use crate::vfs::{Attr, FileKind, Time};

/// The version of the JSON output: fields may be added, but existing ones do not change.
const JSON_VERSION: u32 = 1;

/// The path of a directory as [`name`] has it, with a slash at its end.
pub(super) fn dir_name(path: &[u8]) -> String {
    let slash = if path.ends_with(b"/") { "" } else { "/" };
    name(path) + slash
}

/// How many changes of each kind there are, of the kinds that there are.
pub(super) fn changes(counts: ChangeCounts) -> String {
    let ChangeCounts { added, deleted, modified, renamed, retyped } = counts;
    let modified_as = match retyped {
        0 => "modified".to_owned(),
        retyped => format!("modified ({retyped} of another type)"),
    };
    let kinds =
        [(added, "added"), (deleted, "deleted"), (modified, &*modified_as), (renamed, "renamed")];
    let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<_> = kinds.map(|(count, what)| format!("{count} {what}")).collect();
    if kinds.is_empty() { "no changes".to_owned() } else { kinds.join(", ") }
}

/// The columns of a terminal that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(char_width).sum()
}

/// The columns of a terminal that a character takes: none for combining ones, two for those that
/// are wide in East Asia (UAX #11) and for emoji. The blocks, without their few exceptions.
pub(super) fn char_width(c: char) -> usize {
    match c {
        '\u{300}'..='\u{36f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{20d0}'..='\u{20ff}'
        | '\u{3099}'..='\u{309a}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{fe20}'..='\u{fe2f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{a4cf}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe10}'..='\u{fe19}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff01}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{17000}'..='\u{18aff}'
        | '\u{1b000}'..='\u{1b2ff}'
        | '\u{1f300}'..='\u{1f64f}'
        | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f900}'..='\u{1f9ff}'
        | '\u{1fa70}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

/// A time in UTC, with nanoseconds (RFC 3339).
pub(super) fn time(time: Time) -> String {
    let nanos = i32::try_from(time.nanos).unwrap_or(0);
    match Timestamp::new(time.secs, nanos) {
        Ok(stamp) => stamp.to_string(),
        // The year is before -9999 or after 9999.
        Err(_) => format!("@{}.{nanos:09}", time.secs),
    }
}

/// A time in UTC, with exactly three digits for milliseconds.
pub(super) fn time_millis(at: Time) -> String {
    match Timestamp::new(at.secs, i32::try_from(at.nanos).unwrap_or(0)) {
        Ok(stamp) => format!("{stamp:.3}"),
        Err(_) => time(at),
    }
}

/// A time in UTC, in seconds.
pub(super) fn time_short(at: Time) -> String {
    time(Time { nanos: 0, ..at })
}

/// A span in its largest unit that divides it.
pub(super) fn span(secs: u64) -> String {
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    let unit = units.into_iter().find(|(unit, _)| secs > 0 && secs.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "second"));
    count(secs / unit, name)
}

/// A number with a noun: `1 file`, `2 files`, `3 directories`.
pub(super) fn count<N: Display + PartialEq + From<u8>>(number: N, what: &str) -> String {
    if number == N::from(1) {
        return format!("{number} {what}");
    }
    let is_vowel = |c: char| "aeiou".contains(c);
    match what.strip_suffix('y') {
        Some(stem) if !stem.ends_with(is_vowel) => format!("{number} {stem}ies"),
        _ => format!("{number} {what}s"),
    }
}

/// Parses permission bits in octal.
pub(super) fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| "expected an octal number, 0 to 7777".to_owned())
}

/// The name of a file type.
pub(super) fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Block => "block device",
        FileKind::Character => "character device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// Type and permissions, like `ls -l`.
pub(super) fn mode(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Block => 'b',
        FileKind::Character => 'c',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    };
    // The special bits, each with its letters for executable and not executable.
    let groups = [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')];
    let mut text = String::from(kind);
    for (shift, special, with, without) in groups {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A new JSON object with the version and this type.
pub(super) fn json(what: &str) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("v".to_owned(), JSON_VERSION.into());
    object.insert("type".to_owned(), what.into());
    object
}

/// Adds a name or path. If it is not UTF-8, invalid bytes are replaced, and `KEY_hex` has the bytes
/// in hexadecimal.
pub(super) fn put_path(object: &mut Map<String, Value>, key: &str, bytes: &[u8]) {
    object.insert(key.to_owned(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        object.insert(format!("{key}_hex"), hex.into());
    }
}

/// Adds attributes.
pub(super) fn put_attr(object: &mut Map<String, Value>, attr: &Attr) {
    object.insert("kind".to_owned(), kind(attr.kind).into());
    object.insert("mode".to_owned(), format!("{:04o}", attr.mode).into());
    object.insert("nlink".to_owned(), attr.nlink.into());
    object.insert("uid".to_owned(), attr.uid.into());
    object.insert("gid".to_owned(), attr.gid.into());
    object.insert("size".to_owned(), attr.size.into());
    object.insert("used".to_owned(), attr.used.into());
    object.insert("fileid".to_owned(), attr.fileid.0.into());
    object.insert("atime".to_owned(), time(attr.atime).into());
    object.insert("mtime".to_owned(), time(attr.mtime).into());
    object.insert("ctime".to_owned(), time(attr.ctime).into());
}

#[cfg(test)]
mod tests {
    use super::{count, mode, time, time_millis};
    use crate::vfs::{Attr, Device, FileId, FileKind, Time};

    #[test]
    fn one_thing_is_no_things() {
        assert_eq!(count(1_u64, "tool call"), "1 tool call");
        assert_eq!(count(0_u64, "export"), "0 exports");
        assert_eq!(count(2_usize, "directory"), "2 directories");
        assert_eq!((count(1_u32, "key"), count(7_u32, "key")), ("1 key".into(), "7 keys".into()));
    }

    #[test]
    fn times_that_no_calendar_has_are_shown_all_the_same() {
        assert_eq!(time(Time { secs: 1, nanos: 20 }), "1970-01-01T00:00:01.00000002Z");
        assert_eq!(time(Time { secs: i64::MAX, nanos: 1 }), "@9223372036854775807.000000001");
        let millis = time_millis(Time { secs: 1, nanos: 20_999_999 });
        assert_eq!(millis, "1970-01-01T00:00:01.020Z");
    }

    #[test]
    fn modes_look_as_in_ls() {
        let attr = |kind, mode| Attr {
            kind,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            rdev: Device::default(),
            fsid: 0,
            fileid: FileId(2),
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        };
        assert_eq!(mode(&attr(FileKind::Regular, 0o4755)), "-rwsr-xr-x");
        assert_eq!(mode(&attr(FileKind::Directory, 0o1776)), "drwxrwxrwT");
        assert_eq!(mode(&attr(FileKind::Symlink, 0o2664)), "lrw-rwSr--");
    }
}
