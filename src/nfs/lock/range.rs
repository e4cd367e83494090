//! Byte ranges of a file.

/// The highest offset of a byte in a file: offsets are signed on clients.
const LAST_BYTE: u64 = i64::MAX as u64;

/// A range of at least one byte; [`ByteRange::last`] is `u64::MAX` if the range has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
}

impl ByteRange {
    /// Converts a range of NLM, where length 0 means no end. `None` if the range exceeds the
    /// highest offset.
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        let last = match length {
            0 => u64::MAX,
            length => offset.checked_add(length - 1).filter(|&last| last <= LAST_BYTE)?,
        };
        (offset <= LAST_BYTE).then_some(Self { first: offset, last })
    }

    /// The number of bytes as in NLM: 0 if the range has no end.
    pub fn length(self) -> u64 {
        if self.last == u64::MAX { 0 } else { self.last - self.first + 1 }
    }

    /// Whether the ranges have bytes in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The rest without `hole`: the part before, and the part after.
    pub(super) fn without(self, hole: Self) -> [Option<Self>; 2] {
        if !self.overlaps(hole) {
            return [Some(self), None];
        }
        let before = (self.first < hole.first).then(|| Self { last: hole.first - 1, ..self });
        let behind = (self.last > hole.last).then(|| Self { first: hole.last + 1, ..self });
        [before, behind]
    }

    /// The union of two ranges without a gap between them.
    pub(super) fn joined(self, next: Self) -> Option<Self> {
        let touch = self.overlaps(next) || self.last.checked_add(1) == Some(next.first);
        touch.then(|| Self { first: self.first.min(next.first), last: self.last.max(next.last) })
    }
}
