//! Writes zeros beyond the WAL's end, so that most fsyncs do not change the file's length.
//!
//! An fsync of a file that has grown also writes its length and new blocks to the disk, and takes
//! at least half as long again (docs/decisions/0032-zeros-ahead-of-the-log.md). So when a synced
//! commit has extended the file, zeros are appended and synced with it; the next commits overwrite
//! them.
//!
//! Zeros are not a valid frame: a reader finds the WAL's end at the same place as without them.
//!
//! If there is no space for the zeros, the error is ignored. So none are written on a disk whose
//! error may belong to an earlier write ([`tells_each_write`](super::tells_each_write)).

use super::PIECE_BYTES;
use super::wal_write_buffer::WriteAt;

/// Bytes of zeros written at a time.
const AHEAD_BYTES: u64 = 256 << 10;

/// Growth between two syncs above which no zeros are written, in bytes. For a long stream, the sync
/// at its end matters little, and zeros would double the writes.
const MAX_GROWTH_BYTES: u64 = AHEAD_BYTES;

static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

/// State of the WAL's end.
#[derive(Debug, Default)]
pub(super) struct WalZeroFill {
    /// The file's length at the last sync, in bytes, as far as this connection knows.
    synced: u64,
    /// End of the writes since then, if beyond `synced`; otherwise equal to `synced`.
    end: u64,
    /// Whether the WAL has restarted and its header is not synced.
    is_new: bool,
    /// Whether there was no space for zeros since the file was last truncated.
    is_full: bool,
    /// Whether an error of a write may belong to an earlier write.
    is_vague: bool,
}

impl WalZeroFill {
    /// For a file in unknown state; `tells_each_write` is that of its filesystem.
    pub fn new(tells_each_write: bool) -> Self {
        Self { is_vague: !tells_each_write, ..Self::default() }
    }

    /// Records a write of `bytes` bytes at `offset`.
    pub fn note_write(&mut self, offset: u64, bytes: usize) {
        if offset == 0 {
            // Another process may have truncated the file.
            (self.synced, self.end, self.is_new) = (0, 0, true);
        }
        self.end = self.end.max(offset.saturating_add(bytes as u64));
    }

    /// Records that the file was truncated to `length`.
    pub fn note_cut(&mut self, length: u64) {
        self.synced = self.synced.min(length);
        self.end = self.end.min(length);
        self.is_full = false;
    }

    /// Called before a sync. Appends zeros only while this connection commits: at any other time,
    /// another process may be writing beyond the end that this connection knows.
    pub fn before_sync(&mut self, commits: bool, file: &mut impl WriteAt) {
        if self.end <= self.synced {
            return;
        }
        let is_short = self.end - self.synced <= MAX_GROWTH_BYTES;
        // SQLite syncs a new header before anything else. Until then, a power loss may bring back
        // the frames of the previous WAL; they would be read up to the first overwritten frame.
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

/// Writes zeros from `end`, the end of the file, up to `to`; returns whether there was space. If
/// not, truncates the file again, to leave the last space to real data.
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

    /// The end of a file on a disk of limited size.
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
        // Another process truncated the file.
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
