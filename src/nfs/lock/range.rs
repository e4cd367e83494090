//! Ranges of bytes in a file.

/// The last byte that a file can have: offsets are signed on the clients.
const LAST_BYTE: u64 = i64::MAX as u64;

/// At least one byte; [`ByteRange::last`] is the greatest number where it goes on for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
}

impl ByteRange {
    /// A range as NLM has it: length 0 goes on for ever. `None` if it goes beyond what a file can
    /// have.
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        let last = match length {
            0 => u64::MAX,
            length => offset.checked_add(length - 1).filter(|&last| last <= LAST_BYTE)?,
        };
        (offset <= LAST_BYTE).then_some(Self { first: offset, last })
    }

    /// The number of bytes as NLM has it: 0 where the range goes on for ever.
    pub fn length(self) -> u64 {
        if self.last == u64::MAX { 0 } else { self.last - self.first + 1 }
    }

    /// Whether there are bytes that both have.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// What is left without `hole`: the part before it, and the part behind it.
    pub(super) fn without(self, hole: Self) -> [Option<Self>; 2] {
        if !self.overlaps(hole) {
            return [Some(self), None];
        }
        let before = (self.first < hole.first).then(|| Self { last: hole.first - 1, ..self });
        let behind = (self.last > hole.last).then(|| Self { first: hole.last + 1, ..self });
        [before, behind]
    }

    /// Both as one range, if nothing is between them.
    pub(super) fn joined(self, next: Self) -> Option<Self> {
        let touch = self.overlaps(next) || self.last.checked_add(1) == Some(next.first);
        touch.then(|| Self { first: self.first.min(next.first), last: self.last.max(next.last) })
    }
}
