//! Sizes for messages.

/// A size with a unit and one decimal place.
pub(crate) fn with_unit(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let Some(unit) = (bytes.max(1).ilog2() / 10).checked_sub(1) else {
        return format!("{bytes} B");
    };
    let tenths = (u128::from(bytes) * 10) >> (10 * (unit + 1));
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit as usize])
}

#[cfg(test)]
mod tests {
    use super::with_unit;

    #[test]
    fn sizes_have_a_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1535, "1.4 KiB"),
            (5 << 20, "5.0 MiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(with_unit(bytes), text);
        }
    }
}
