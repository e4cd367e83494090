//! Zeros behind the end of the database, before a checkpoint's pages come there.
//!
//! SQLite copies the log page by page. Where the file grows by that, each page is one more that
//! the system has to find memory and a place on the disk for, which costs twice as much as to
//! write it; in large pieces hardly anything (docs/decisions/0033-the-database-grows-in-pieces.md).
//! So what is to be written there is zeros first, a piece at a time.
//!
//! Only between the beginning of a checkpoint and its end: then SQLite's lock keeps everybody else
//! from the file's end. Whatever is left of them is behind what the database holds, or comes with
//! a later checkpoint; in a crash, pages of the log come again as after any other. The last page is
//! never written so: a database that is cut off from its log is too short until all is there.
//!
//! As with the log's zeros ([`ahead`](super::ahead)), nobody hears where there is no room for them.

use super::ahead::fill;
use super::frames::Put;

/// How much is written ahead, in bytes.
const PIECE_BYTES: u64 = 256 << 10;

/// What is known of a database while a checkpoint copies the log into it.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// It does.
    is_copying: bool,
    /// The file's length, in bytes.
    end: u64,
    /// What it is going to be; 0 where it does not grow.
    goal: u64,
    /// What the disk says of a write may be said of one before it.
    is_vague: bool,
}

impl Growth {
    /// For a file; `tells_each_write` says how its disk fails.
    pub fn new(tells_each_write: bool) -> Self {
        Self { is_vague: !tells_each_write, ..Self::default() }
    }

    /// Begins: the log is about to be copied.
    pub fn begin(&mut self) {
        *self = Self { is_copying: !self.is_vague, ..Self::new(!self.is_vague) };
    }

    /// Notes that the file is going to be `goal` bytes long.
    pub fn hint(&mut self, goal: u64, file: &mut impl Put) {
        if self.is_copying
            && let Some(end) = file.length()
        {
            (self.end, self.goal) = (end, goal);
        }
    }

    /// Goes before a write of so many bytes at `offset`.
    pub fn before_write(&mut self, offset: u64, bytes: usize, file: &mut impl Put) {
        let end = offset.saturating_add(bytes as u64);
        // What is last needs none.
        if end <= self.end || end >= self.goal {
            return;
        }
        // Pieces that begin at a multiple of their length are the cheapest.
        let last = self.goal.saturating_sub(bytes as u64);
        let to = last.min((offset / PIECE_BYTES + 1) * PIECE_BYTES);
        // Where the disk is full, pages find that out one by one.
        (self.end, self.goal) = if fill(offset, to, file) { (to, self.goal) } else { (0, 0) };
    }

    /// Ends: nothing more of the log is copied.
    pub fn finish(&mut self) {
        *self = Self::new(!self.is_vague);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    /// A file that grows, and where its disk is full.
    struct End {
        length: u64,
        most: u64,
        /// Calls that made it grow.
        growths: usize,
    }

    impl End {
        fn new(length: u64) -> Self {
            Self { length, most: u64::MAX, growths: 0 }
        }
    }

    impl Put for End {
        fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), i32> {
            let end = offset + bytes.len() as u64;
            let is_zeros = bytes.iter().all(|&byte| byte == 0);
            assert!(!is_zeros || offset >= self.length, "zeros over what is there");
            if end > self.most {
                self.length = self.most;
                return Err(13);
            }
            self.growths += usize::from(end > self.length);
            self.length = self.length.max(end);
            Ok(())
        }

        fn length(&mut self) -> Option<u64> {
            Some(self.length)
        }

        fn cut(&mut self, length: u64) {
            self.length = length;
        }
    }

    /// Writes a page as SQLite does; whether there was room.
    fn write(growth: &mut Growth, file: &mut End, page: u64) -> bool {
        growth.before_write(page * PAGE, PAGE as usize, file);
        file.put(&[1; PAGE as usize], page * PAGE).is_ok()
    }

    #[test]
    fn a_database_grows_by_much_at_a_time() {
        let (mut growth, mut file) = (Growth::default(), End::new(10 * PAGE));
        growth.begin();
        growth.hint(1000 * PAGE, &mut file);
        for page in 3..1000 {
            assert!(file.length < 1000 * PAGE, "as long as if all were there");
            assert!(write(&mut growth, &mut file, page));
        }
        assert_eq!(file.length, 1000 * PAGE);
        // 64 KiB at a time, of which a part comes first and last, and the last page.
        assert_eq!(file.growths as u64, (999 * PAGE).div_ceil(64 << 10) + 1);
    }

    #[test]
    fn what_is_copied_out_of_order_is_not_written_over() {
        let (mut growth, mut file) = (Growth::default(), End::new(PAGE));
        growth.begin();
        growth.hint(500 * PAGE, &mut file);
        // Some come with a later checkpoint.
        for page in [0, 1, 2, 100, 101, 400, 499] {
            assert!(write(&mut growth, &mut file, page));
        }
        assert_eq!(file.length, 500 * PAGE);
    }

    #[test]
    fn only_a_checkpoint_makes_it_grow_so() {
        let (mut growth, mut file) = (Growth::default(), End::new(PAGE));
        // As where a database has no log.
        growth.hint(500 * PAGE, &mut file);
        assert!(write(&mut growth, &mut file, 1));
        assert_eq!(file.length, 2 * PAGE);
        growth.begin();
        growth.hint(500 * PAGE, &mut file);
        growth.finish();
        assert!(write(&mut growth, &mut file, 2));
        assert_eq!(file.length, 3 * PAGE);
        // On a disk that is not to be believed.
        let mut vague = Growth::new(false);
        vague.begin();
        vague.hint(500 * PAGE, &mut file);
        assert!(write(&mut vague, &mut file, 3));
        assert_eq!(file.length, 4 * PAGE);
        // One that says nothing of its length.
        growth.begin();
        assert!(write(&mut growth, &mut file, 4));
        assert_eq!(file.length, 5 * PAGE);
    }

    #[test]
    fn the_last_room_of_a_disk_is_left_to_pages() {
        let (mut growth, mut file) = (Growth::default(), End::new(PAGE));
        file.most = 20 * PAGE;
        growth.begin();
        growth.hint(500 * PAGE, &mut file);
        for page in 1..20 {
            assert!(write(&mut growth, &mut file, page), "page {page}");
            assert_eq!(file.length, (page + 1) * PAGE);
        }
        assert!(!write(&mut growth, &mut file, 20));
    }
}
