//! What a session takes, and how much it may: what quotas are made of.
//!
//! Counted are the names of the delta's objects and its whiteouts, the bytes that the contents of
//! regular files take (chunks that are stored, and those that copy-up has yet to bring), and the
//! targets of symbolic links.

use std::ops::{AddAssign, Neg};

use crate::vfs::FileKind;

use super::Ino;

/// What a session takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of contents and of targets of symbolic links.
    pub bytes: u64,
    /// Names of objects of any type, but for the root, and whiteouts.
    pub files: u64,
}

/// How much may be taken; `None` for as much as there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes of contents.
    pub bytes: Option<u64>,
    /// Objects.
    pub files: Option<u64>,
    /// The size of each file, in bytes; `None` for [`DEFAULT_FILE_BYTES`].
    pub file_bytes: Option<u64>,
}

/// The largest file where nothing else is set, in bytes: that of ext4 with blocks of 4 KiB. What
/// is larger could not be copied or applied there.
pub const DEFAULT_FILE_BYTES: u64 = (1 << 44) - 4096;

/// By how much a usage changes. Wide enough for the sum of any files: the size of one goes to
/// 2^63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageDelta {
    /// Bytes of contents.
    pub bytes: i128,
    /// Objects.
    pub files: i128,
}

impl Usage {
    /// What an inode takes that has so many bytes and holes, and `names`, with chunks of `chunk`
    /// bytes. An inode that has no name yet counts as one with a name.
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

    /// What whiteouts take that count as so many objects.
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

/// Where only bytes are limited, there may be a name, or a whiteout, for so many bytes.
const BYTES_PER_NAME: u64 = 1024;

/// Minimum of that implied limit: names take at most 1.5 KiB each in the session file.
const MIN_NAMES: u64 = 65_536;

/// Bytes of a whiteout's path that count as one object. The session file holds the path four
/// times.
pub const WHITEOUT_UNIT_BYTES: u64 = 256;

/// How many objects a whiteout counts as whose path has so many bytes.
pub fn whiteout_files(path_bytes: usize) -> u64 {
    (path_bytes as u64).div_ceil(WHITEOUT_UNIT_BYTES)
}

/// Bytes that the content of a file takes: what is neither stored nor still the base's takes none.
///
/// Nobody knows whether the last chunk, which may be shorter, is a hole. So a file with holes is
/// taken to store whole chunks: at most its size, and never less than what is stored.
pub fn content_bytes(size: u64, holes: u64, chunk: u64) -> u64 {
    size.div_ceil(chunk).saturating_sub(holes).saturating_mul(chunk).min(size)
}

impl Limits {
    /// Whether a total is limited (bytes or names), so usage must be counted.
    pub fn is_some(&self) -> bool {
        self.bytes.is_some() || self.files.is_some()
    }

    /// The limit of names and whiteouts: where only bytes are limited, so many that they cannot
    /// fill the disk either.
    pub fn files(&self) -> Option<u64> {
        let implied = |bytes: u64| (bytes / BYTES_PER_NAME).max(MIN_NAMES);
        self.files.or(self.bytes.map(implied))
    }

    /// Whether `used` may grow like this: what does not grow may always, also past a limit that
    /// was lowered meanwhile.
    pub fn allow(&self, used: UsageDelta, growth: UsageDelta) -> bool {
        let fits = |limit: Option<u64>, used: i128, growth: i128| {
            growth <= 0 || limit.is_none_or(|limit| used + growth <= i128::from(limit))
        };
        fits(self.bytes, used.bytes, growth.bytes) && fits(self.files(), used.files, growth.files)
    }
}

impl UsageDelta {
    /// Whether nothing changes.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// What becomes more of it, and what becomes less.
    pub fn split(self) -> (Self, Self) {
        let more = Self { bytes: self.bytes.max(0), files: self.files.max(0) };
        let less = Self { bytes: self.bytes.min(0), files: self.files.min(0) };
        (more, less)
    }

    /// The usage that it is from nothing.
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
