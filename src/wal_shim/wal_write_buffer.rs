//! Decides which writes to the WAL are held back, and until when.

use rusqlite::ffi::SQLITE_NOMEM;

use super::{PIECE_BYTES, WalCommit};

/// Length of a frame's header, in bytes. Big-endian page number, then the database's size in pages
/// if the frame ends a commit (otherwise 0), then salts and checksums
/// (<https://www.sqlite.org/fileformat2.html#the_write_ahead_log>).
pub(super) const HEADER_BYTES: usize = 24;

/// Maximum of frames held back, in bytes; beyond that, whole pieces are written.
const MAX_HELD_BYTES: usize = PIECE_BYTES;

/// SQLite's largest page, in bytes.
const PAGE_BYTES: usize = 64 << 10;

/// Maximum of one write call of SQLite's Unix VFS, in bytes.
pub(super) const CALL_BYTES: usize = (128 << 10) - 1;

// A call must fit the held bytes and one more page.
const _: () = assert!(MAX_HELD_BYTES - 1 + PAGE_BYTES <= CALL_BYTES);

/// A writable file.
pub(super) trait WriteAt {
    /// Writes at `offset`; `Err` is SQLite's error code.
    fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), i32>;

    /// The file's length in bytes, if it can be determined.
    fn length(&mut self) -> Option<u64>;

    /// Truncates the file to `length` bytes, if possible.
    fn cut(&mut self, length: u64);
}

/// The frames at the end of the WAL that are held back.
#[derive(Debug, Default)]
pub(super) struct WalWriteBuffer {
    held: Vec<u8>,
    /// Offset of the first byte of `held`; if `held` is empty, the offset of the next expected
    /// frame. `None` while that is unknown.
    at: Option<u64>,
    /// The commit that `held` belongs to; `None` for a header outside a commit.
    held_in: Option<WalCommit>,
    /// Whether the last header marks the end of a commit.
    ends_commit: bool,
}

impl WalWriteBuffer {
    /// Handles a write of SQLite. Afterwards, only bytes that another write will follow are held:
    /// in a `commit`, frames before its last one; otherwise, a header before its page.
    ///
    /// # Errors
    /// The file's error; the held frames are lost, and with them the commit.
    pub fn write(
        &mut self,
        bytes: &[u8],
        offset: u64,
        commit: Option<WalCommit>,
        file: &mut impl WriteAt,
    ) -> Result<(), i32> {
        self.drop_ended(commit);
        let is_header = bytes.len() == HEADER_BYTES;
        if is_header {
            self.ends_commit = bytes[4..8] != [0; 4];
        }
        if self.end() != Some(offset) {
            // The WAL's header, a rewritten frame, or a frame that follows rolled-back ones.
            self.flush(commit, file)?;
            file.put(bytes, offset)?;
            let ends_here = offset == 0 || (self.ends_commit && !is_header);
            if ends_here {
                self.at = Some(offset + bytes.len() as u64);
            }
            return Ok(());
        }
        self.held.try_reserve(bytes.len()).map_err(|_| SQLITE_NOMEM)?;
        self.held.extend_from_slice(bytes);
        self.held_in = commit;
        let waits = is_header || (commit.is_some() && !self.ends_commit);
        if waits { self.put_pieces(file) } else { self.flush(commit, file) }
    }

    /// Writes the held bytes up to the last multiple of a piece, so that a large commit needs no
    /// more memory.
    fn put_pieces(&mut self, file: &mut impl WriteAt) -> Result<(), i32> {
        let Some(at) = self.at.filter(|_| self.held.len() >= MAX_HELD_BYTES) else { return Ok(()) };
        let rest = (at + self.held.len() as u64) % PIECE_BYTES as u64;
        let whole = self.held.len() - rest as usize;
        let put = file.put(&self.held[..whole], at);
        self.at = put.is_ok().then(|| at + whole as u64);
        self.held.drain(..if put.is_ok() { whole } else { self.held.len() });
        put
    }

    /// Writes all held bytes, before any other access to the file.
    ///
    /// # Errors
    /// The file's error; the held bytes are lost.
    pub fn flush(&mut self, commit: Option<WalCommit>, file: &mut impl WriteAt) -> Result<(), i32> {
        self.drop_ended(commit);
        let Some(at) = self.at.filter(|_| !self.held.is_empty()) else { return Ok(()) };
        let put = file.put(&self.held, at);
        self.at = put.is_ok().then(|| at + self.held.len() as u64);
        self.held.clear();
        put
    }

    /// Drops bytes of a commit that has ended: it failed, and another process may use their place.
    fn drop_ended(&mut self, commit: Option<WalCommit>) {
        if self.held_in.is_some() && self.held_in != commit {
            self.held_in = None;
            if !self.held.is_empty() {
                self.held.clear();
                self.at = None;
            }
        }
    }

    fn end(&self) -> Option<u64> {
        Some(self.at? + self.held.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 512;
    const FRAME: u64 = (HEADER_BYTES + PAGE) as u64;
    const WAL_HEADER: u64 = 32;

    /// A file in memory that counts its writes and can simulate a full disk.
    #[derive(Default)]
    struct Memory {
        bytes: Vec<u8>,
        writes: usize,
        is_full: bool,
    }

    impl WriteAt for Memory {
        fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), i32> {
            if self.is_full {
                return Err(13);
            }
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            self.bytes.resize(self.bytes.len().max(end), 0);
            self.bytes[start..end].copy_from_slice(bytes);
            self.writes += 1;
            Ok(())
        }

        fn length(&mut self) -> Option<u64> {
            Some(self.bytes.len() as u64)
        }

        fn cut(&mut self, length: u64) {
            self.bytes.truncate(length as usize);
        }
    }

    /// SQLite's writes: the same WAL, written directly and through [`WalWriteBuffer`].
    #[derive(Default)]
    struct TestWal {
        frames: WalWriteBuffer,
        file: Memory,
        direct: Memory,
        stamp: u8,
        commit: u64,
    }

    impl TestWal {
        fn new() -> Self {
            let mut wal = Self::default();
            wal.write(&[7; WAL_HEADER as usize], 0, false).unwrap();
            wal
        }

        fn write(&mut self, bytes: &[u8], offset: u64, committing: bool) -> Result<(), i32> {
            self.direct.put(bytes, offset).unwrap();
            let commit = committing.then_some(WalCommit(self.commit));
            self.frames.write(bytes, offset, commit, &mut self.file)
        }

        /// Appends frame `number`, counted from 0.
        fn frame(&mut self, number: u64, ends: bool, committing: bool) -> Result<(), i32> {
            self.stamp = self.stamp.wrapping_add(1);
            let mut header = [self.stamp; HEADER_BYTES];
            header[4..8].copy_from_slice(&u32::from(ends).to_be_bytes());
            let at = WAL_HEADER + number * FRAME;
            self.write(&header, at, committing)?;
            let page = [self.stamp; PAGE];
            self.write(&page, at + HEADER_BYTES as u64, committing)
        }

        /// Appends these frames and commits.
        fn commit(&mut self, frames: std::ops::Range<u64>) -> Result<(), i32> {
            self.commit += 1;
            let last = frames.end - 1;
            frames.into_iter().try_for_each(|number| self.frame(number, number == last, true))
        }

        fn assert_whole(&self) {
            assert!(self.file.bytes == self.direct.bytes, "the file is not what SQLite wrote");
        }
    }

    #[test]
    fn a_commit_is_one_write() {
        let mut wal = TestWal::new();
        wal.commit(0..9).unwrap();
        wal.assert_whole();
        assert_eq!(wal.file.writes, 2, "the WAL's header, and the commit");
        wal.commit(9..10).unwrap();
        wal.assert_whole();
        assert_eq!(wal.file.writes, 3);
    }

    #[test]
    fn a_large_commit_takes_no_more_memory_than_it_may() {
        let mut wal = TestWal::new();
        wal.commit(0..100).unwrap();
        wal.file.writes = 0;
        let start = WAL_HEADER + 100 * FRAME;
        let frames = 4 * PIECE_BYTES as u64 / FRAME;
        for number in 100..100 + frames {
            wal.frame(number, number == 99 + frames, true).unwrap();
            assert!(wal.frames.held.capacity() <= 2 * PIECE_BYTES);
            let at = wal.frames.at.unwrap();
            let is_last = number == 99 + frames;
            assert!(
                at == start || at.is_multiple_of(PIECE_BYTES as u64) || is_last,
                "no whole piece"
            );
        }
        wal.assert_whole();
        assert_eq!(wal.file.writes, 5);
    }

    #[test]
    fn a_large_commit_fails_with_any_piece_of_it() {
        for full_from in [100, 200, 350] {
            let mut wal = TestWal::new();
            wal.commit(0..2).unwrap();
            wal.commit += 1;
            let outcome = (2..400).try_for_each(|number| {
                wal.file.is_full = number >= full_from;
                wal.frame(number, number == 399, true)
            });
            assert_eq!(outcome, Err(13));
            wal.file.is_full = false;
            wal.commit(2..400).unwrap();
            assert!(wal.file.bytes == wal.direct.bytes[..wal.file.bytes.len()]);
        }
    }

    #[test]
    fn outside_of_a_commit_a_page_is_not_held() {
        let mut wal = TestWal::new();
        wal.frame(0, false, false).unwrap();
        wal.assert_whole();
        assert_eq!(wal.file.writes, 2, "the WAL's header, and a frame");
    }

    #[test]
    fn a_log_that_somebody_else_began_is_gathered_after_a_commit() {
        let mut wal = TestWal::new();
        wal.frames = WalWriteBuffer::default();
        wal.commit(3..5).unwrap();
        wal.assert_whole();
        assert_eq!(wal.file.writes, 1 + 4);
        wal.commit(5..7).unwrap();
        wal.assert_whole();
        assert_eq!(wal.file.writes, 1 + 4 + 1);
    }

    #[test]
    fn frames_that_are_written_again_are_not_held() {
        let mut wal = TestWal::new();
        wal.frame(0, false, false).unwrap();
        wal.frame(1, false, false).unwrap();
        // The commit overwrites a page of its own transaction, appends the last page, and then
        // recomputes the headers: the last header ends a commit without a page after it.
        let page_of = |number| WAL_HEADER + number * FRAME + HEADER_BYTES as u64;
        wal.write(&[9; PAGE], page_of(0), true).unwrap();
        wal.frame(2, true, true).unwrap();
        wal.assert_whole();
        for number in 0..3u8 {
            let mut header = [number; HEADER_BYTES];
            header[4..8].copy_from_slice(&u32::from(number == 2).to_be_bytes());
            wal.write(&header, WAL_HEADER + u64::from(number) * FRAME, true).unwrap();
            wal.assert_whole();
        }
        wal.commit(3..6).unwrap();
        wal.assert_whole();
    }

    #[test]
    fn what_follows_a_rollback_is_whole_too() {
        let mut wal = TestWal::new();
        wal.commit(0..2).unwrap();
        wal.frame(2, false, false).unwrap();
        wal.frame(3, false, false).unwrap();
        wal.commit(2..6).unwrap();
        wal.assert_whole();
        let before = wal.file.writes;
        wal.commit(6..9).unwrap();
        wal.assert_whole();
        assert_eq!(wal.file.writes, before + 1);
        // The WAL restarts.
        wal.write(&[8; WAL_HEADER as usize], 0, true).unwrap();
        wal.commit(0..3).unwrap();
        wal.assert_whole();
        assert_eq!(wal.file.writes, before + 3);
    }

    #[test]
    fn a_write_that_fails_fails_the_commit_and_no_other() {
        let mut wal = TestWal::new();
        wal.commit(0..2).unwrap();
        wal.file.is_full = true;
        assert_eq!(wal.commit(2..5), Err(13));
        assert_eq!(wal.commit(2..3), Err(13));
        wal.file.is_full = false;
        wal.commit(2..4).unwrap();
        wal.direct.bytes.truncate(wal.file.bytes.len());
        wal.assert_whole();
    }

    #[test]
    fn whatever_sqlite_does_next_finds_the_file_whole() {
        let mut wal = TestWal::new();
        wal.commit(0..1).unwrap();
        wal.frame(1, false, true).unwrap();
        assert!(wal.file.bytes != wal.direct.bytes, "nothing is held");
        wal.frames.flush(Some(WalCommit(wal.commit)), &mut wal.file).unwrap();
        wal.assert_whole();
        wal.frame(2, true, true).unwrap();
        wal.assert_whole();
    }

    #[test]
    fn what_a_failed_commit_left_is_never_written() {
        let mut wal = TestWal::new();
        wal.commit(0..2).unwrap();
        wal.commit += 1;
        wal.frame(2, false, true).unwrap();
        let before = wal.file.bytes.clone();
        // The commit fails, another process commits, and then this file is used again.
        for commit in [None, Some(WalCommit(wal.commit + 1))] {
            let mut frames = WalWriteBuffer { held: vec![1; 24], ..WalWriteBuffer::default() };
            (frames.at, frames.held_in) = (wal.frames.at, Some(WalCommit(wal.commit)));
            frames.flush(commit, &mut wal.file).unwrap();
            assert!(wal.file.bytes == before);
        }
        wal.commit += 1;
        wal.direct.bytes.truncate(before.len());
        wal.commit(2..5).unwrap();
        wal.assert_whole();
    }
}
