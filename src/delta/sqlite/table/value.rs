//! Encodes values, and decodes those of other implementations leniently.

use rusqlite::Row;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};

use crate::vfs::{Device, Time};

/// Bytes stored as TEXT if they are UTF-8 without NUL, otherwise as BLOB (invariant D5).
pub struct Bytes<'a>(pub &'a [u8]);

impl ToSql for Bytes<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let [ours, _] = keys(self.0);
        Ok(ours)
    }
}

/// Bytes in our form, and as BLOB, because other programs may have stored either. Two lookups take
/// a quarter of the time of `IN (?1, CAST(?1 AS BLOB))`.
pub fn keys(bytes: &[u8]) -> [ToSqlOutput<'_>; 2] {
    let is_text = !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok();
    let ours = if is_text { ValueRef::Text(bytes) } else { ValueRef::Blob(bytes) };
    [ours, ValueRef::Blob(bytes)].map(ToSqlOutput::Borrowed)
}

/// Reads TEXT or BLOB as bytes. Any other type yields empty bytes, which are no valid name or path.
pub fn bytes<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    })
}

/// Reads text that may be NULL; a number is converted to its digits.
pub fn optional_bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Vec<u8>>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
        ValueRef::Integer(number) => Some(number.to_string().into_bytes()),
        ValueRef::Real(number) => Some(number.to_string().into_bytes()),
        ValueRef::Null => None,
    })
}

/// Reads a number that may be NULL.
pub fn optional_int(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<i64>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        _ => Some(int(row, column)?),
    })
}

/// Reads a number of any stored type; 0 if the value is not a number.
pub fn int(row: &Row<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => number,
        ValueRef::Real(number) => number as i64,
        ValueRef::Text(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
        }
        ValueRef::Null | ValueRef::Blob(_) => 0,
    })
}

/// Reads a count or size; negative values, which other implementations store, become 0.
pub fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(int(row, column)?).unwrap_or(0))
}

/// Reads a 32-bit count, clamped to the range of `u32`.
pub fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u32> {
    Ok(u32::try_from(unsigned(row, column)?).unwrap_or(u32::MAX))
}

/// Reads seconds and nanoseconds from two columns.
pub fn time(row: &Row<'_>, secs: usize, nanos: usize) -> rusqlite::Result<Time> {
    let nanos = u32::try_from(int(row, nanos)?.clamp(0, 999_999_999)).unwrap_or(0);
    Ok(Time { secs: int(row, secs)?, nanos })
}

/// Packs a device number as Linux's `makedev` does, on every host: the file is portable.
pub(super) fn pack_device(device: Device) -> i64 {
    let (major, minor) = (u64::from(device.major), u64::from(device.minor));
    let packed = ((major & 0xffff_f000) << 32)
        | ((major & 0xfff) << 8)
        | ((minor & 0xffff_ff00) << 12)
        | (minor & 0xff);
    packed.cast_signed()
}

/// Unpacks a device number.
pub(super) fn unpack_device(packed: i64) -> Device {
    let packed = packed.cast_unsigned();
    let major = ((packed >> 32) & 0xffff_f000) | ((packed >> 8) & 0xfff);
    let minor = ((packed >> 12) & 0xffff_ff00) | (packed & 0xff);
    Device { major: major as u32, minor: minor as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_survive_packing() {
        for (major, minor) in [(0, 0), (8, 1), (4095, 255), (4096, 256), (u32::MAX, u32::MAX)] {
            let device = Device { major, minor };
            assert_eq!(unpack_device(pack_device(device)), device);
        }
        assert_eq!(pack_device(Device { major: 8, minor: 1 }), 0x801);
    }
}
