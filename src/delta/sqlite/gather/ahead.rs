//! Zeros behind the end of the log's file, so that most syncs find its length as it was.
//!
//! A sync of a file that has grown writes its length and its new blocks to the disk as well: of
//! 14 pages it took 240 µs where one of a file that was overwritten took 140
//! (docs/decisions/0032-zeros-ahead-of-the-log.md). So where a synced commit has made the file
//! longer, zeros go behind it, and are synced with it; the next commits overwrite them.
//!
//! Zeros are no frame: whoever reads the log finds its end where it would be without them.

use super::frames::Put;

/// How much of them is written at a time, in bytes.
const AHEAD_BYTES: u64 = 256 << 10;

/// Growth between two syncs above which there are none, in bytes: for a long stream the one
/// sync at its end counts little, and all that it writes would be written twice.
const MAX_GROWTH_BYTES: u64 = AHEAD_BYTES;

/// SQLite's layer for Unix takes less than twice as much in one call.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What is known of the end of a log's file.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The file's length when it was synced last, in bytes, as far as this connection knows.
    synced: u64,
    /// The end of what was written since, where that is behind it; else the same.
    end: u64,
}

impl Ahead {
    /// Notes that the file has something up to `end`.
    pub fn note_write(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Notes that the file was cut to `length`.
    pub fn note_cut(&mut self, length: u64) {
        self.synced = self.synced.min(length);
        self.end = self.end.min(length);
    }

    /// Goes before a sync. Only while this connection commits may the file be touched: at any
    /// other time somebody else may be writing behind the end that is known here.
    pub fn before_sync(&mut self, commits: bool, file: &mut impl Put) {
        if self.end <= self.synced {
            return;
        }
        let grown = self.end - self.synced;
        let Some(length) = file.length() else { return };
        self.synced = length;
        if commits && grown <= MAX_GROWTH_BYTES && length == self.end {
            self.synced = fill(length, file);
        }
        self.end = self.synced;
    }
}

/// Writes zeros behind `end`; where they end. Where there is no room for them, it is so: what
/// counts is written.
fn fill(end: u64, file: &mut impl Put) -> u64 {
    let mut at = end;
    while at < end + AHEAD_BYTES && file.put(&ZEROS, at).is_ok() {
        at += ZEROS.len() as u64;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a file, and whether anything more fits behind it.
    #[derive(Default)]
    struct End {
        length: u64,
        is_full: bool,
    }

    impl Put for End {
        fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), i32> {
            if self.is_full {
                return Err(13);
            }
            assert_eq!(offset, self.length, "zeros over what is there");
            assert!(bytes.iter().all(|&byte| byte == 0));
            self.length += bytes.len() as u64;
            Ok(())
        }

        fn length(&mut self) -> Option<u64> {
            Some(self.length)
        }
    }

    /// Writes up to `end`, and syncs.
    fn commit(ahead: &mut Ahead, file: &mut End, end: u64) {
        ahead.note_write(end);
        file.length = file.length.max(end);
        ahead.before_sync(true, file);
    }

    #[test]
    fn a_file_that_grows_grows_by_much_at_a_time() {
        let (mut ahead, mut file) = (Ahead::default(), End::default());
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
    }

    #[test]
    fn nothing_is_touched_that_may_be_somebody_elses() {
        let (mut ahead, mut file) = (Ahead::default(), End::default());
        ahead.note_write(1000);
        file.length = 1000;
        ahead.before_sync(false, &mut file);
        assert_eq!(file.length, 1000, "no commit");
        ahead.note_write(2000);
        file.length = 3000;
        ahead.before_sync(true, &mut file);
        assert_eq!(file.length, 3000, "the end is not ours");
    }

    #[test]
    fn a_stream_is_not_written_twice() {
        let (mut ahead, mut file) = (Ahead::default(), End::default());
        commit(&mut ahead, &mut file, MAX_GROWTH_BYTES + 1);
        assert_eq!(file.length, MAX_GROWTH_BYTES + 1);
        commit(&mut ahead, &mut file, MAX_GROWTH_BYTES + 2);
        assert_eq!(file.length, MAX_GROWTH_BYTES + 2 + AHEAD_BYTES);
    }

    #[test]
    fn a_full_disk_keeps_nobody_from_a_sync() {
        let (mut ahead, mut file) = (Ahead::default(), End { is_full: true, ..End::default() });
        commit(&mut ahead, &mut file, 1000);
        assert_eq!(file.length, 1000);
        file.is_full = false;
        commit(&mut ahead, &mut file, 1001);
        assert_eq!(file.length, 1001 + AHEAD_BYTES);
    }
}
