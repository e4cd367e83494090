//! Zeros behind the end of the log's file, so that most syncs find its length as it was.
//!
//! A sync of a file that has grown writes its length and its new blocks to the disk as well, and
//! takes half as long again, or more (docs/decisions/0032-zeros-ahead-of-the-log.md). So where a
//! commit that is synced has made the file longer, zeros go behind it, and are synced with it; the
//! next commits overwrite them.
//!
//! Zeros are no frame: whoever reads the log finds its end where it would be without them.
//!
//! Where there is no room for them, nobody hears of it. So there are none on a disk whose error
//! may be one of what was written before ([`tells_each_write`](super::tells_each_write)).

use super::PIECE_BYTES;
use super::wal_write_buffer::WriteAt;

/// How much of them is written at a time, in bytes.
const AHEAD_BYTES: u64 = 256 << 10;

/// Growth between two syncs above which there are none, in bytes: for a long stream the one
/// sync at its end counts little, and all that it writes would be written twice.
const MAX_GROWTH_BYTES: u64 = AHEAD_BYTES;

static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// What is known of the end of a log's file.
#[derive(Debug, Default)]
pub(super) struct WalZeroFill {
    /// The file's length when it was synced last, in bytes, as far as this connection knows.
    synced: u64,
    /// The end of what was written since, where that is behind it; else the same.
    end: u64,
    /// The log has started over, and its header is not synced.
    is_new: bool,
    /// There was no room for zeros, since the file was last cut.
    is_full: bool,
    /// What the disk says of a write may be said of one before it.
    is_vague: bool,
}

impl WalZeroFill {
    /// For a file of which nothing is known; `tells_each_write` says how its disk fails.
    pub fn new(tells_each_write: bool) -> Self {
        Self { is_vague: !tells_each_write, ..Self::default() }
    }

    /// Notes that so many bytes were written at `offset`.
    pub fn note_write(&mut self, offset: u64, bytes: usize) {
        if offset == 0 {
            // Another process may have cut the file.
            (self.synced, self.end, self.is_new) = (0, 0, true);
        }
        self.end = self.end.max(offset.saturating_add(bytes as u64));
    }

    /// Notes that the file was cut to `length`.
    pub fn note_cut(&mut self, length: u64) {
        self.synced = self.synced.min(length);
        self.end = self.end.min(length);
        self.is_full = false;
    }

    /// Goes before a sync. Only while this connection commits may the file be touched: at any
    /// other time somebody else may be writing behind the end that is known here.
    pub fn before_sync(&mut self, commits: bool, file: &mut impl WriteAt) {
        if self.end <= self.synced {
            return;
        }
        let is_short = self.end - self.synced <= MAX_GROWTH_BYTES;
        // SQLite syncs a new header before anything else. Until then the frames of the log before
        // may be there again after a power cut, and be read up to whatever was written over them.
        let may_fill =
            commits && !std::mem::take(&mut self.is_new) && !self.is_full && !self.is_vague;
        let Some(length) = file.length() else { return };
        self.synced = length;
        if may_fill && is_short && length == self.end {
            self.is_full = !fill(length, length + AHEAD_BYTES, file);
            self.synced = if self.is_full { length } else { length + AHEAD_BYTES };
        }
        self.end = self.synced;
    }
}

/// Writes zeros from `end`, where the file ends, up to `to`; whether there is room for them. Where
/// there is none, the last of it is left to what counts.
pub(super) fn fill(end: u64, to: u64, file: &mut impl WriteAt) -> bool {
    let mut at = end;
    while at < to {
        let next = to.min((at + 1).next_multiple_of(PIECE_BYTES as u64));
        let piece = &ZEROS[..(next - at) as usize];
        if file.put(piece, at).is_err() {
            file.cut(end);
            return false;
        }
        at += piece.len() as u64;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a file, and where its disk is full.
    struct End {
        length: u64,
        most: u64,
    }

    impl Default for End {
        fn default() -> Self {
            Self { length: 0, most: u64::MAX }
        }
    }

    impl WriteAt for End {
        fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), i32> {
            assert_eq!(offset, self.length, "zeros over what is there");
            assert!(bytes.iter().all(|&byte| byte == 0));
            self.length = self.most.min(offset + bytes.len() as u64);
            if self.length == self.most { Err(13) } else { Ok(()) }
        }

        fn length(&mut self) -> Option<u64> {
            Some(self.length)
        }

        fn cut(&mut self, length: u64) {
            self.length = length;
        }
    }

    /// Writes up to `end`, and syncs.
    fn commit(ahead: &mut WalZeroFill, file: &mut End, end: u64) {
        ahead.note_write(end - 1, 1);
        file.length = file.length.max(end);
        ahead.before_sync(true, file);
    }

    #[test]
    fn a_file_that_grows_grows_by_much_at_a_time() {
        let (mut ahead, mut file) = (WalZeroFill::default(), End::default());
        commit(&mut ahead, &mut file, 1000);
        assert_eq!(file.length, 1000 + AHEAD_BYTES);
        for end in [2000, AHEAD_BYTES, 1000 + AHEAD_BYTES] {
            commit(&mut ahead, &mut file, end);
            assert_eq!(file.length, 1000 + AHEAD_BYTES, "there is space up to {end}");
        }
        commit(&mut ahead, &mut file, 1001 + AHEAD_BYTES);
        assert_eq!(file.length, 1001 + 2 * AHEAD_BYTES);
        ahead.note_cut(0);
        file.length = 0;
        commit(&mut ahead, &mut file, 500);
        assert_eq!(file.length, 500 + AHEAD_BYTES, "it was cut");
        // By somebody else, who does not say so.
        file.length = 0;
        ahead.note_write(0, 32);
        commit(&mut ahead, &mut file, 32);
        commit(&mut ahead, &mut file, 600);
        assert_eq!(file.length, 600 + AHEAD_BYTES, "it starts over");
    }

    #[test]
    fn nothing_is_touched_that_may_be_somebody_elses() {
        let (mut ahead, mut file) = (WalZeroFill::default(), End::default());
        ahead.note_write(500, 500);
        file.length = 1000;
        ahead.before_sync(false, &mut file);
        assert_eq!(file.length, 1000, "no commit");
        ahead.note_write(1000, 1000);
        file.length = 3000;
        ahead.before_sync(true, &mut file);
        assert_eq!(file.length, 3000, "the end is not ours");
    }

    #[test]
    fn zeros_come_after_a_header_that_is_synced() {
        let (mut ahead, mut file) = (WalZeroFill::default(), End::default());
        ahead.note_write(0, 32);
        commit(&mut ahead, &mut file, 32);
        assert_eq!(file.length, 32);
        commit(&mut ahead, &mut file, 100);
        assert_eq!(file.length, 100 + AHEAD_BYTES);
    }

    #[test]
    fn no_error_is_missed_that_may_be_one_of_what_counts() {
        let (mut ahead, mut file) = (WalZeroFill::new(false), End::default());
        commit(&mut ahead, &mut file, 1000);
        assert_eq!(file.length, 1000);
        let (mut ahead, mut file) = (WalZeroFill::new(true), End::default());
        commit(&mut ahead, &mut file, 1000);
        assert_eq!(file.length, 1000 + AHEAD_BYTES);
    }

    #[test]
    fn a_stream_is_not_written_twice() {
        let (mut ahead, mut file) = (WalZeroFill::default(), End::default());
        commit(&mut ahead, &mut file, MAX_GROWTH_BYTES + 1);
        assert_eq!(file.length, MAX_GROWTH_BYTES + 1);
        commit(&mut ahead, &mut file, MAX_GROWTH_BYTES + 2);
        assert_eq!(file.length, MAX_GROWTH_BYTES + 2 + AHEAD_BYTES);
    }

    #[test]
    fn the_last_room_of_a_disk_is_left_to_what_counts() {
        let (mut ahead, mut file) = (WalZeroFill::default(), End::default());
        file.most = 1000 + AHEAD_BYTES / 2;
        commit(&mut ahead, &mut file, 1000);
        assert_eq!(file.length, 1000);
        file.most = u64::MAX;
        commit(&mut ahead, &mut file, 1001);
        assert_eq!(file.length, 1001, "it was tried");
        ahead.note_cut(0);
        file.length = 0;
        commit(&mut ahead, &mut file, 1000);
        assert_eq!(file.length, 1000 + AHEAD_BYTES);
    }
}
