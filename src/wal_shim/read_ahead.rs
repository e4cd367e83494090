//! Read-ahead for the database file.
//!
//! SQLite reads page by page. The content of a file is a chain of pages, nearly all of them
//! consecutive: 272 calls per MiB, which take as long as SQLite's remaining work for it
//! (docs/decisions/0034-read-ahead.md). So sequential reads fetch the pages that
//! follow.
//!
//! Like SQLite's own page cache, read-ahead data is valid for one transaction. During a transaction
//! no checkpoint writes a page that the transaction reads from the database. Every transaction
//! begins with a lock, and every lock call discards the data.

/// Bytes of the database read at once; each connection that reads content has a buffer of this
/// size.
pub(super) const MAX_CONTENT_PIECE_BYTES: usize = 64 << 10;

/// Number of sequential reads after which read-ahead starts.
const IN_A_ROW: u32 = 2;

/// A readable file.
pub(super) trait Get {
    /// Fills `to` from byte `offset` on; `Err` is SQLite's error code.
    fn get(&mut self, to: &mut [u8], offset: u64) -> Result<(), i32>;

    /// The file's length in bytes, if it can be determined.
    fn length(&mut self) -> Option<u64>;
}

/// A buffer with a piece of a file.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// Bytes read at once.
    piece_bytes: usize,
    /// The buffer; its first `held` bytes are the file's content from `at` on.
    piece: Vec<u8>,
    held: usize,
    at: u64,
    /// Where the last read ended.
    next: u64,
    /// Number of preceding reads that were sequential.
    in_a_row: u32,
}

impl ReadAhead {
    /// A buffer that reads `piece_bytes` at once.
    pub fn new(piece_bytes: usize) -> Self {
        Self { piece_bytes, piece: Vec::new(), held: 0, at: 0, next: 0, in_a_row: 0 }
    }

    /// The `count` bytes from `offset` on; `None` if they must be read from the file.
    pub fn read(&mut self, offset: u64, count: usize, file: &mut impl Get) -> Option<&[u8]> {
        self.note(offset, count);
        if !self.holds(offset, count) && (self.in_a_row < IN_A_ROW || !self.fill(offset, file)) {
            return None;
        }
        let from = usize::try_from(offset - self.at).ok()?;
        self.piece[..self.held].get(from..from.checked_add(count)?)
    }

    /// The buffered bytes from `offset` on.
    pub fn held_from(&self, offset: u64) -> &[u8] {
        let from = offset.checked_sub(self.at).and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.piece[..self.held].get(from..)).unwrap_or_default()
    }

    /// Makes the next read start a piece at `offset`, if the buffered piece contains it but ends
    /// too early.
    pub fn begin_at(&mut self, offset: u64) {
        if self.held == self.piece_bytes && !self.held_from(offset).is_empty() {
            self.held = usize::try_from(offset - self.at).unwrap_or(0);
        }
    }

    /// Discards the buffer, because the file may have changed.
    pub fn forget(&mut self) {
        self.held = 0;
    }

    fn note(&mut self, offset: u64, count: usize) {
        // Between two chunks of content, SQLite may read an index page to find the next one.
        let follows_piece = self.held > 0 && offset == self.at + self.held as u64;
        self.in_a_row =
            if offset == self.next || follows_piece { self.in_a_row.saturating_add(1) } else { 0 };
        if follows_piece {
            self.in_a_row = self.in_a_row.max(IN_A_ROW);
        }
        self.next = offset.saturating_add(count as u64);
    }

    fn holds(&self, offset: u64, count: usize) -> bool {
        let end = offset.saturating_add(count as u64);
        self.at <= offset && end <= self.at + self.held as u64
    }

    /// Reads a piece from `offset` on, or up to the end of the file; returns whether it could.
    fn fill(&mut self, offset: u64, file: &mut impl Get) -> bool {
        self.held = 0;
        let left = file.length().map_or(0, |length| length.saturating_sub(offset));
        let bytes = left.min(self.piece_bytes as u64) as usize;
        self.piece.resize(self.piece_bytes, 0);
        if bytes == 0 || file.get(&mut self.piece[..bytes], offset).is_err() {
            // Do not retry read-ahead here with each page.
            self.in_a_row = 0;
            return false;
        }
        (self.held, self.at) = (bytes, offset);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// A file with varying bytes that records the calls that read it.
    struct Bytes {
        bytes: Vec<u8>,
        reads: Vec<(u64, usize)>,
        fails: bool,
        failures: usize,
    }

    impl Bytes {
        fn pages(count: usize) -> Self {
            let bytes = (0..count * PAGE).map(|at| (at / 7 % 251) as u8).collect();
            Self { bytes, reads: Vec::new(), fails: false, failures: 0 }
        }

        /// Reads a page as SQLite does.
        fn page(&mut self, ahead: &mut ReadAhead, page: usize) {
            let offset = (page * PAGE) as u64;
            let mut read = vec![0; PAGE];
            match ahead.read(offset, PAGE, self) {
                Some(held) => read.copy_from_slice(held),
                None => self.get(&mut read, offset).unwrap(),
            }
            assert!(read == self.bytes[page * PAGE..][..PAGE], "page {page}");
        }
    }

    impl Get for Bytes {
        fn get(&mut self, to: &mut [u8], offset: u64) -> Result<(), i32> {
            if self.fails && to.len() > PAGE {
                to.fill(9);
                self.failures += 1;
                return Err(10);
            }
            self.reads.push((offset, to.len()));
            to.copy_from_slice(&self.bytes[offset as usize..][..to.len()]);
            Ok(())
        }

        fn length(&mut self) -> Option<u64> {
            Some(self.bytes.len() as u64)
        }
    }

    #[test]
    fn pages_one_behind_the_other_are_read_together() {
        let (mut ahead, mut file) = (ReadAhead::new(MAX_CONTENT_PIECE_BYTES), Bytes::pages(100));
        for page in 10..100 {
            file.page(&mut ahead, page);
        }
        // Two reads start it; then 16 pages per read.
        assert_eq!(file.reads.len(), 2 + (90_usize - 2).div_ceil(16));
        assert_eq!(file.reads.last(), Some(&(92 * PAGE as u64, 8 * PAGE)));
    }

    #[test]
    fn a_look_elsewhere_does_not_end_it() {
        let (mut ahead, mut file) = (ReadAhead::new(MAX_CONTENT_PIECE_BYTES), Bytes::pages(100));
        for page in 10..90 {
            file.page(&mut ahead, page);
            if page % 17 == 0 {
                file.page(&mut ahead, 3);
            }
        }
        let elsewhere = (10..90).filter(|page| page % 17 == 0).count();
        let alone = file.reads.iter().filter(|(_, bytes)| *bytes == PAGE).count();
        assert!(alone <= 2 + elsewhere, "{:?}", file.reads);
    }

    #[test]
    fn pages_here_and_there_are_read_alone() {
        let (mut ahead, mut file) = (ReadAhead::new(MAX_CONTENT_PIECE_BYTES), Bytes::pages(100));
        for page in [5, 6, 50, 51, 7, 8, 99, 0, 1, 60, 59, 58] {
            file.page(&mut ahead, page);
        }
        assert_eq!(file.reads.len(), 12);
        assert!(file.reads.iter().all(|&(_, bytes)| bytes == PAGE));
    }

    #[test]
    fn nothing_old_is_shown() {
        let (mut ahead, mut file) = (ReadAhead::new(MAX_CONTENT_PIECE_BYTES), Bytes::pages(40));
        for page in 0..6 {
            file.page(&mut ahead, page);
        }
        file.bytes.fill(1);
        ahead.forget();
        for page in 6..40 {
            file.page(&mut ahead, page);
        }
    }

    #[test]
    fn what_cannot_be_read_ahead_is_read_alone() {
        let (mut ahead, mut file) = (ReadAhead::new(MAX_CONTENT_PIECE_BYTES), Bytes::pages(40));
        for page in 0..4 {
            file.page(&mut ahead, page);
        }
        file.fails = true;
        for page in 4..40 {
            file.page(&mut ahead, page);
        }
        assert!(file.reads.iter().skip(3).all(|&(_, bytes)| bytes == PAGE));
        // Every third page completes a sequence and triggers a read-ahead.
        assert!(file.failures <= 40 / 3, "{} times in vain", file.failures);
    }
}
