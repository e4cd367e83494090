//! Extends the database file in large pieces while a checkpoint copies the WAL into it.
//!
//! SQLite copies the WAL page by page. A page behind the file's end costs twice as much to write
//! as one inside it: the kernel allocates memory and disk blocks for it. In large pieces that
//! cost nearly vanishes (docs/decisions/0033-the-database-grows-in-pieces.md). So the pages that
//! follow in the WAL are written along with a page ([`wal_prefetch`]), and zeros where the WAL
//! has other pages next. A page that is already there is not written again; anything else is
//! overwritten.
//!
//! This happens only between the beginning and the end of a checkpoint: SQLite's lock then keeps
//! other connections from the file's end. What is left there is behind the last page of the
//! database, or a later checkpoint overwrites it; after a crash, the WAL's pages are copied
//! again. The last page is never written ahead: a database that is cut off from its WAL is too
//! short until all pages are there.
//!
//! As with the zeros behind the WAL ([`wal_zero_fill`](super::wal_zero_fill)), a write ahead that
//! finds no room is not reported.

use super::PIECE_BYTES;
use super::wal_prefetch;
use super::wal_write_buffer::{CALL_BYTES, WriteAt};
use super::wal_zero_fill::fill;

/// Pages that follow each other in the log come at once from so many on, in bytes.
const MIN_RUN_BYTES: usize = PIECE_BYTES / 2;

/// The most of them that come at once, in bytes: up to a multiple of a piece.
const MAX_RUN_BYTES: usize = MIN_RUN_BYTES + PIECE_BYTES;

const _: () = assert!(MAX_RUN_BYTES <= CALL_BYTES);

/// What is known of a database while a checkpoint copies the log into it.
#[derive(Debug, Default)]
pub(super) struct DbExtender {
    /// It does.
    is_copying: bool,
    /// The file's length when it began, in bytes.
    start: u64,
    /// Its length now.
    end: u64,
    /// What it is going to be; 0 where it does not grow.
    goal: u64,
    /// Pages come behind `start`.
    is_growing: bool,
    /// The last pages that came at once, as the file has them from `run_at` on.
    run: Vec<u8>,
    run_at: u64,
    /// What the disk says of a write may be said of one before it.
    is_vague: bool,
}

impl DbExtender {
    /// For a file; `tells_each_write` says how its disk fails.
    pub fn new(tells_each_write: bool) -> Self {
        Self { is_vague: !tells_each_write, ..Self::default() }
    }

    /// Begins: the log is about to be copied.
    pub fn begin(&mut self) {
        *self = Self { is_copying: !self.is_vague, ..Self::new(!self.is_vague) };
    }

    /// Notes that the file is going to be `goal` bytes long.
    pub fn hint(&mut self, goal: u64, file: &mut impl WriteAt) {
        if self.is_copying
            && let Some(length) = file.length()
        {
            (self.start, self.end, self.goal) = (length, length, goal);
        }
    }

    /// Goes before a write of `page` at `offset`; whether it is in the file, and needs none.
    pub fn write(&mut self, page: &[u8], offset: u64, file: &mut impl WriteAt) -> bool {
        if let Some(known) = self.known(page.len(), offset) {
            // Another one is in the log again, later.
            return known == page;
        }
        let end = offset.saturating_add(page.len() as u64);
        // What is last comes by itself.
        if offset < self.start || end >= self.goal {
            return false;
        }
        if !std::mem::replace(&mut self.is_growing, true) {
            // Pages before it are anywhere in the log: what follows them would be read in vain.
            wal_prefetch::begin();
        }
        self.write_run(page, offset, file) || {
            if end > self.end {
                self.write_zeros(offset, end, file);
            }
            false
        }
    }

    /// Ends: nothing more of the log is copied.
    pub fn finish(&mut self) {
        wal_prefetch::finish();
        *self = Self::new(!self.is_vague);
    }

    /// What the file has where a page is to be written, if that was written ahead.
    fn known(&self, page_bytes: usize, offset: u64) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.run_at)?).ok()?;
        self.run.get(from..from.checked_add(page_bytes)?)
    }

    /// Writes the page and those that follow it in the log, if they are many; whether it did.
    fn write_run(&mut self, page: &[u8], offset: u64, file: &mut impl WriteAt) -> bool {
        self.run.clear();
        let last = self.goal.saturating_sub(page.len() as u64);
        let most = (offset + MIN_RUN_BYTES as u64).next_multiple_of(PIECE_BYTES as u64);
        wal_prefetch::following(page, offset, last.min(most), &mut self.run);
        if self.run.len() < MIN_RUN_BYTES {
            self.run.clear();
            return false;
        }
        if file.put(&self.run, offset).is_err() {
            // What is there of them is where they come one by one.
            self.give_up();
            return false;
        }
        self.run_at = offset;
        self.end = self.end.max(offset + self.run.len() as u64);
        true
    }

    /// Writes zeros where the page comes that ends at `end`, and behind it, if there is more.
    fn write_zeros(&mut self, offset: u64, end: u64, file: &mut impl WriteAt) {
        let last = self.goal.saturating_sub(end - offset);
        let to = last.min((offset + 1).next_multiple_of(PIECE_BYTES as u64));
        if to <= end {
            return;
        }
        if fill(offset, to, file) {
            self.end = to;
        } else {
            self.give_up();
        }
    }

    /// Where the disk is full, pages find that out one by one.
    fn give_up(&mut self) {
        self.run.clear();
        (self.end, self.goal) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::read_ahead::Get;
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

    impl WriteAt for End {
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
    fn write(growth: &mut DbExtender, file: &mut End, page: u64) -> bool {
        let content = [1; PAGE as usize];
        growth.write(&content, page * PAGE, file) || file.put(&content, page * PAGE).is_ok()
    }

    #[test]
    fn a_database_grows_by_much_at_a_time() {
        let (mut growth, mut file) = (DbExtender::default(), End::new(10 * PAGE));
        growth.begin();
        growth.hint(1000 * PAGE, &mut file);
        for page in 3..1000 {
            assert!(file.length < 1000 * PAGE, "as long as if all were there");
            assert!(write(&mut growth, &mut file, page));
        }
        assert_eq!(file.length, 1000 * PAGE);
        // Of the pieces a part comes first and last; and the last page.
        assert_eq!(file.growths as u64, (999 * PAGE).div_ceil(PIECE_BYTES as u64) + 1);
    }

    #[test]
    fn what_is_copied_out_of_order_is_not_written_over() {
        let (mut growth, mut file) = (DbExtender::default(), End::new(PAGE));
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
        let (mut growth, mut file) = (DbExtender::default(), End::new(PAGE));
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
        let mut vague = DbExtender::new(false);
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
        let (mut growth, mut file) = (DbExtender::default(), End::new(PAGE));
        file.most = 20 * PAGE;
        growth.begin();
        growth.hint(500 * PAGE, &mut file);
        for page in 1..20 {
            assert!(write(&mut growth, &mut file, page), "page {page}");
            // A piece, and then there is no room for one.
            assert_eq!(file.length, (page + 1).max(16) * PAGE);
        }
        assert!(!write(&mut growth, &mut file, 20));
    }

    /// Frames as the log has them: number of the page, and what it is filled with.
    struct Log(Vec<u8>);

    impl Log {
        const FRAME: usize = PAGE as usize + 24;

        fn new(frames: &[(u32, u8)]) -> Self {
            let frame = |&(number, content): &(u32, u8)| {
                let header = number.to_be_bytes().into_iter().chain([0xfe; 20]);
                header.chain([content; PAGE as usize]).collect::<Vec<u8>>()
            };
            Self(frames.iter().flat_map(frame).collect())
        }
    }

    impl Get for Log {
        fn get(&mut self, to: &mut [u8], offset: u64) -> Result<(), i32> {
            to.copy_from_slice(&self.0[offset as usize..][..to.len()]);
            Ok(())
        }

        fn length(&mut self) -> Option<u64> {
            Some(self.0.len() as u64)
        }
    }

    /// A database's file.
    struct Database {
        content: Vec<u8>,
        most: usize,
        writes: usize,
    }

    impl WriteAt for Database {
        fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), i32> {
            let end = offset as usize + bytes.len();
            self.content.resize(self.content.len().max(end.min(self.most)), 0);
            if end > self.most {
                return Err(13);
            }
            self.content[offset as usize..end].copy_from_slice(bytes);
            self.writes += 1;
            Ok(())
        }

        fn length(&mut self) -> Option<u64> {
            Some(self.content.len() as u64)
        }

        fn cut(&mut self, length: u64) {
            self.content.truncate(length as usize);
        }
    }

    /// Copies frames as SQLite does: the last one of each page up to `most`, by number. Returns
    /// whether there was room for all; then asserts that every page is in its place.
    fn copy(frames: &[(u32, u8)], most: usize, file: &mut Database) -> bool {
        let (mut growth, mut log) = (DbExtender::default(), Log::new(frames));
        let goal =
            u64::from(frames[..most].iter().map(|&(number, _)| number).max().unwrap()) * PAGE;
        let last: BTreeMap<u32, usize> =
            frames[..most].iter().enumerate().map(|(at, &(number, _))| (number, at)).collect();
        growth.begin();
        let grows = (file.content.len() as u64) < goal;
        if grows {
            growth.hint(goal, file);
        }
        let before = file.content.clone();
        let mut has_room = true;
        for (&number, &frame) in &last {
            let mut page = [0; PAGE as usize];
            let at = (frame * Log::FRAME + 24) as u64;
            if !wal_prefetch::read(at, page.len(), &mut log, |held| page.copy_from_slice(held)) {
                log.get(&mut page, at).unwrap();
            }
            assert_eq!(page, [frames[frame].1; PAGE as usize]);
            let place = u64::from(number - 1) * PAGE;
            assert!(!grows || (file.content.len() as u64) < goal, "as long as if all were there");
            has_room = growth.write(&page, place, file) || file.put(&page, place).is_ok();
            if !has_room {
                break;
            }
        }
        growth.finish();
        for (&number, &frame) in last.iter().filter(|_| has_room) {
            let place = (number - 1) as usize * PAGE as usize;
            let page = &file.content[place..][..PAGE as usize];
            assert!(page.iter().all(|&byte| byte == frames[frame].1), "page {number}");
        }
        // What there was, and what transactions may still read.
        for (number, page) in (1..).zip(before.chunks(PAGE as usize)) {
            let place = (number - 1) as usize * PAGE as usize;
            let is_same = page == &file.content[place..][..PAGE as usize];
            assert!(last.contains_key(&number) || is_same, "page {number} is not to be copied");
        }
        has_room
    }

    fn database(pages: usize) -> Database {
        let content = vec![9; pages * PAGE as usize];
        Database { content, most: usize::MAX, writes: 0 }
    }

    #[test]
    fn pages_that_follow_each_other_in_the_log_come_at_once() {
        let frames: Vec<(u32, u8)> = (11..=310).map(|number| (number, number as u8)).collect();
        let mut file = database(10);
        assert!(copy(&frames, frames.len(), &mut file));
        // 16 at a time; a few until they are seen to follow each other, and at the end.
        assert!(file.writes <= 300 / 16 + 14, "{} writes", file.writes);
        // What the database has is written as ever.
        file.writes = 0;
        assert!(copy(&frames, frames.len(), &mut file));
        assert_eq!(file.writes, 300);
    }

    #[test]
    fn what_transactions_may_read_comes_only_when_it_is_asked_for() {
        // Two commits, and a third that is not to be copied, of pages that there were.
        let numbers = (1..=4).chain([40]).chain([5]).chain(6..=30);
        let frames: Vec<(u32, u8)> = numbers.map(|number| (number, 1)).collect();
        assert!(copy(&frames, 6, &mut database(39)));
    }

    #[test]
    fn what_the_log_has_again_is_written_over() {
        let mut random = 7_u32;
        let mut below = |end: u32| {
            random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
            (random >> 16) % end
        };
        for round in 0..60 {
            let mut frames = Vec::new();
            let mut end = 20 + below(20);
            for commit in 0..1 + below(12) {
                // Some pages that there were, in their order, and new ones.
                let rare = [1, 2, 1 + end / 4][below(3) as usize];
                let old = (1..end).filter(|_| below(rare) == 0).collect::<Vec<u32>>();
                let grown = end + below(90);
                frames.extend(old.into_iter().chain(end..grown).map(|n| (n, commit as u8 + 1)));
                end = grown;
            }
            let mut file = database(19);
            // Of the last ones not all are committed.
            let most = frames.len().saturating_sub(below(30) as usize).max(1);
            assert!(copy(&frames, most, &mut file), "round {round}");
            assert!(copy(&frames, frames.len(), &mut file), "round {round}");
        }
    }

    #[test]
    fn the_last_room_of_a_disk_is_left_to_each_page() {
        let frames: Vec<(u32, u8)> = (11..=310).map(|number| (number, number as u8)).collect();
        for room in [0, 1, 30, 31, 32, 60, 299] {
            let mut file = database(10);
            file.most = (10 + room) * PAGE as usize + 100;
            assert!(!copy(&frames, frames.len(), &mut file));
            assert_eq!(file.content.len(), file.most, "as much as there is room for");
            let held: Vec<u8> = (0..room).map(|page| file.content[(10 + page) * 4096]).collect();
            assert_eq!(held, (11..11 + room).map(|page| page as u8).collect::<Vec<u8>>());
        }
    }
}
