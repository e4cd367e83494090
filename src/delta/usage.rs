//! Quota usage and limits of a session.
//!
//! Usage counts names of delta objects, whiteouts, bytes of regular files (stored chunks and chunks
//! that copy-up has yet to copy), and bytes of symbolic link targets.

use std::ops::{AddAssign, Neg};

use crate::vfs::FileKind;

use super::Ino;

/// The quota usage of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of contents and of targets of symbolic links.
    pub bytes: u64,
    /// Number of names (of objects of any type except the root) and whiteouts.
    pub files: u64,
}

/// Quota limits; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Limit of [`Usage::bytes`].
    pub bytes: Option<u64>,
    /// Limit of [`Usage::files`].
    pub files: Option<u64>,
    /// Largest size of one file, in bytes; `None` for [`DEFAULT_FILE_BYTES`].
    pub file_bytes: Option<u64>,
}

/// Default limit of a file's size, in bytes: that of ext4 with blocks of 4 KiB. A larger file could
/// not be copied to, or applied on, ext4.
pub const DEFAULT_FILE_BYTES: u64 = (1 << 44) - 4096;

/// A change of usage. `i128` holds the sum over any number of files: one file's size can be 2^63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageDelta {
    /// Change of [`Usage::bytes`].
    pub bytes: i128,
    /// Change of [`Usage::files`].
    pub files: i128,
}

impl Usage {
    /// The usage of an inode with the given size, holes and number of names, with chunks of `chunk`
    /// bytes. An inode without a name yet counts as one name.
    pub fn of(ino: Ino, kind: FileKind, (size, holes): (u64, u64), names: u32, chunk: u64) -> Self {
        if ino == Ino::ROOT {
            return Self::default();
        }
        let bytes = match kind {
            FileKind::Regular => content_bytes(size, holes, chunk),
            FileKind::Symlink => size,
            _ => 0,
        };
        Self { bytes, files: names.max(1).into() }
    }

    /// The usage of whiteouts that count as `files` files.
    pub fn of_whiteouts(files: u64) -> Self {
        Self { bytes: 0, files }
    }

    /// The change from `before` to this.
    pub fn since(self, before: Self) -> UsageDelta {
        let mut growth = UsageDelta::from(self);
        growth += -UsageDelta::from(before);
        growth
    }
}

/// If only bytes are limited, one name or whiteout is allowed for each of these bytes of the limit.
const BYTES_PER_NAME: u64 = 1024;

/// Minimum of that implied limit. A name takes at most 1.5 KiB in the session file.
const MIN_NAMES: u64 = 65_536;

/// Bytes of a whiteout's path that count as one file. The session file stores the path four times.
pub const WHITEOUT_UNIT_BYTES: u64 = 256;

/// How many files a whiteout counts as; `path_bytes` is the length of its path.
pub fn whiteout_files(path_bytes: usize) -> u64 {
    (path_bytes as u64).div_ceil(WHITEOUT_UNIT_BYTES)
}

/// Upper bound of the bytes that a file stores or has yet to copy from the base; holes take none.
///
/// The row does not say whether the shorter last chunk is a hole. So a file with holes is counted
/// in whole chunks, up to its size: never less than it stores.
pub fn content_bytes(size: u64, holes: u64, chunk: u64) -> u64 {
    size.div_ceil(chunk).saturating_sub(holes).saturating_mul(chunk).min(size)
}

impl Limits {
    /// Whether bytes or names are limited, so that usage must be counted.
    pub fn is_some(&self) -> bool {
        self.bytes.is_some() || self.files.is_some()
    }

    /// The limit of names and whiteouts. If only bytes are limited, derived from that limit, so
    /// that names cannot fill the disk either.
    pub fn files(&self) -> Option<u64> {
        let implied = |bytes: u64| (bytes / BYTES_PER_NAME).max(MIN_NAMES);
        self.files.or(self.bytes.map(implied))
    }

    /// Whether `used` may grow by `growth`. Anything that does not grow is allowed, even above a
    /// limit that was lowered.
    pub fn allow(&self, used: UsageDelta, growth: UsageDelta) -> bool {
        let fits = |limit: Option<u64>, used: i128, growth: i128| {
            growth <= 0 || limit.is_none_or(|limit| used + growth <= i128::from(limit))
        };
        fits(self.bytes, used.bytes, growth.bytes) && fits(self.files(), used.files, growth.files)
    }
}

impl UsageDelta {
    /// Whether usage does not change.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Splits into the parts that grow and the parts that shrink.
    pub fn split(self) -> (Self, Self) {
        let more = Self { bytes: self.bytes.max(0), files: self.files.max(0) };
        let less = Self { bytes: self.bytes.min(0), files: self.files.min(0) };
        (more, less)
    }

    /// The usage that results from growing by this from zero.
    pub fn usage(self) -> Usage {
        let clamp = |sum: i128| u64::try_from(sum.max(0)).unwrap_or(u64::MAX);
        Usage { bytes: clamp(self.bytes), files: clamp(self.files) }
    }
}

impl From<Usage> for UsageDelta {
    fn from(usage: Usage) -> Self {
        Self { bytes: usage.bytes.into(), files: usage.files.into() }
    }
}

impl AddAssign for UsageDelta {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.files += other.files;
    }
}

impl Neg for UsageDelta {
    type Output = Self;

    fn neg(self) -> Self {
        Self { bytes: -self.bytes, files: -self.files }
    }
}

#[cfg(test)]
mod tests {
    use super::{Limits, Usage, UsageDelta, content_bytes};

    #[test]
    fn a_file_never_takes_less_than_it_stores() {
        for (size, holes, bytes) in [
            (0, 0, 0),
            (5000, 0, 5000),
            (5000, 2, 0),
            // One of two chunks: the whole one, or the one of 904 bytes.
            (5000, 1, 4096),
            // A whole chunk, and a hole of one byte.
            (4097, 1, 4096),
            (u64::MAX, 0, u64::MAX),
            // More holes than chunks, from another implementation.
            (5000, 9, 0),
        ] {
            assert_eq!(content_bytes(size, holes, 4096), bytes, "{size} bytes, {holes} holes");
        }
    }

    #[test]
    fn only_what_grows_past_a_limit_is_refused() {
        let used = UsageDelta::from(Usage { bytes: 100, files: 5 });
        let limits = Limits { bytes: Some(100), files: Some(4), file_bytes: None };
        for (bytes, files, allowed) in
            [(0, 0, true), (1, 0, false), (-1, 0, true), (-1, 1, false), (0, -1, true)]
        {
            assert_eq!(limits.allow(used, UsageDelta { bytes, files }), allowed, "{bytes} {files}");
        }
        assert!(Limits::default().allow(used, used));
    }

    #[test]
    fn a_change_has_a_part_that_grows_and_one_that_shrinks() {
        let before = Usage { bytes: 10, files: 1 };
        let change = Usage { bytes: 4, files: 3 }.since(before);
        assert_eq!(change, UsageDelta { bytes: -6, files: 2 });
        let (more, less) = change.split();
        assert_eq!(more, UsageDelta { bytes: 0, files: 2 });
        assert_eq!(less, UsageDelta { bytes: -6, files: 0 });
        assert_eq!(less.usage(), Usage::default());
    }
}
