//! Extends the database file in large pieces while a checkpoint copies the WAL into it.
//!
//! SQLite copies the WAL page by page. A page beyond the file's end costs twice as much to write as
//! one inside it, because the kernel allocates memory and disk blocks for it. In large pieces that
//! cost nearly vanishes (docs/decisions/0033-file-growth.md). So consecutive pages
//! of the WAL are written in one call ([`wal_prefetch`]), and zeros are written ahead where other
//! pages come next in the WAL. A page that was already written ahead is not written again; other
//! pages overwrite what is there.
//!
//! This happens only between the beginning and the end of a checkpoint, when SQLite's lock keeps
//! other connections from the file's end. Bytes left there are beyond the database's last page, or
//! a later checkpoint overwrites them; after a crash, the WAL's pages are copied again. The last
//! page is never written ahead: without its WAL, a database is too short until all pages are
//! copied.
//!
//! If there is no space to write ahead, the error is ignored. So nothing is written ahead on a disk
//! whose error may belong to an earlier write ([`tells_each_write`](super::tells_each_write)).

use super::PIECE_BYTES;
use super::wal_prefetch;
use super::wal_write_buffer::{CALL_BYTES, WriteAt};

/// Minimum run of consecutive WAL pages that is written in one call, in bytes.
const MIN_RUN_BYTES: usize = PIECE_BYTES / 2;

/// Maximum run, in bytes; a run ends at a multiple of a piece.
const MAX_RUN_BYTES: usize = MIN_RUN_BYTES + PIECE_BYTES;

static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

const _: () = assert!(MAX_RUN_BYTES <= CALL_BYTES);

/// State of a database file while a checkpoint copies the WAL into it.
#[derive(Debug, Default)]
pub(super) struct DbExtender {
    /// Whether a checkpoint is running.
    is_copying: bool,
    /// The file's length when the checkpoint began, in bytes.
    start: u64,
    /// The file's current length, in bytes.
    end: u64,
    /// The file's length after the checkpoint, in bytes; 0 if it does not grow.
    goal: u64,
    /// Whether pages beyond `start` have been written.
    is_growing: bool,
    /// The last run written in one call, which begins at `run_at` of the file.
    run: Vec<u8>,
    run_at: u64,
    /// Whether an error of a write may belong to an earlier write.
    is_vague: bool,
}

impl DbExtender {
    /// For a file whose filesystem has this value of [`tells_each_write`](super::tells_each_write).
    pub fn new(tells_each_write: bool) -> Self {
        Self { is_vague: !tells_each_write, ..Self::default() }
    }

    /// A checkpoint begins.
    pub fn begin(&mut self) {
        *self = Self { is_copying: !self.is_vague, ..Self::new(!self.is_vague) };
    }

    /// Records that the file will be `goal` bytes long.
    pub fn hint(&mut self, goal: u64, file: &mut impl WriteAt) {
        if self.is_copying
            && let Some(length) = file.length()
        {
            (self.start, self.end, self.goal) = (length, length, goal);
        }
    }

    /// Called before a write of `page` at `offset`. Returns whether the page is in the file and
    /// need not be written.
    pub fn write(&mut self, page: &[u8], offset: u64, file: &mut impl WriteAt) -> bool {
        if let Some(known) = self.known(page.len(), offset) {
            // It differs if the WAL has a later version of the page.
            return known == page;
        }
        let end = offset.saturating_add(page.len() as u64);
        // The last page is written alone.
        if offset < self.start || end >= self.goal {
            return false;
        }
        if !std::mem::replace(&mut self.is_growing, true) {
            // Earlier pages are scattered over the WAL, so that prefetching would not pay.
            wal_prefetch::begin();
        }
        self.write_run(page, offset, file) || {
            if end > self.end {
                self.write_zeros(offset, end, file);
            }
            false
        }
    }

    /// The checkpoint has ended.
    pub fn finish(&mut self) {
        wal_prefetch::finish();
        *self = Self::new(!self.is_vague);
    }

    /// The bytes written ahead at the place of a page; `None` if there are none.
    fn known(&self, page_bytes: usize, offset: u64) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.run_at)?).ok()?;
        self.run.get(from..from.checked_add(page_bytes)?)
    }

    /// Writes the page and the pages that follow it in the WAL, if the run is long enough; returns
    /// whether it did.
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
            // A partly written run is overwritten page by page.
            self.give_up();
            return false;
        }
        self.run_at = offset;
        self.end = self.end.max(offset + self.run.len() as u64);
        true
    }

    /// Writes zeros from `offset` to the next multiple of a piece, unless that is within the page
    /// (`offset..end`). Leaves the database's last page out.
    fn write_zeros(&mut self, offset: u64, end: u64, file: &mut impl WriteAt) {
        let last = self.goal.saturating_sub(end - offset);
        let to = last.min((offset + 1).next_multiple_of(PIECE_BYTES as u64));
        if to <= end {
            return;
        }
        let zeros = &ZEROS[..(to - offset) as usize];
        if file.put(zeros, offset).is_ok() {
            self.end = to;
        } else {
            // A partly written piece takes the last space from real data.
            file.cut(offset);
            self.give_up();
        }
    }

    /// Stops writing ahead on a full disk: SQLite gets the error for the page itself.
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

    /// A growing file on a disk of limited size.
    struct End {
        length: u64,
        most: u64,
        /// Number of calls that extended it.
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

    /// Writes a page as SQLite does; returns whether there was space.
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
        // Partial pieces at the start and the end, and the last page.
        assert_eq!(file.growths as u64, (999 * PAGE).div_ceil(PIECE_BYTES as u64) + 1);
    }

    #[test]
    fn what_is_copied_out_of_order_is_not_written_over() {
        let (mut growth, mut file) = (DbExtender::default(), End::new(PAGE));
        growth.begin();
        growth.hint(500 * PAGE, &mut file);
        // A later checkpoint copies the missing ones.
        for page in [0, 1, 2, 100, 101, 400, 499] {
            assert!(write(&mut growth, &mut file, page));
        }
        assert_eq!(file.length, 500 * PAGE);
    }

    #[test]
    fn only_a_checkpoint_makes_it_grow_so() {
        let (mut growth, mut file) = (DbExtender::default(), End::new(PAGE));
        // As for a database without a WAL.
        growth.hint(500 * PAGE, &mut file);
        assert!(write(&mut growth, &mut file, 1));
        assert_eq!(file.length, 2 * PAGE);
        growth.begin();
        growth.hint(500 * PAGE, &mut file);
        growth.finish();
        assert!(write(&mut growth, &mut file, 2));
        assert_eq!(file.length, 3 * PAGE);
        // A disk whose errors may belong to earlier writes.
        let mut vague = DbExtender::new(false);
        vague.begin();
        vague.hint(500 * PAGE, &mut file);
        assert!(write(&mut vague, &mut file, 3));
        assert_eq!(file.length, 4 * PAGE);
        // Without a hint of the file's length.
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
            // One piece fits, and then no other.
            assert_eq!(file.length, (page + 1).max(16) * PAGE);
        }
        assert!(!write(&mut growth, &mut file, 20));
    }

    /// A WAL's frames: page number and fill byte.
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

    /// A database file in memory.
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

    /// Copies frames as SQLite does: of the first `most` frames, the last one of each page, by page
    /// number. Returns whether there was space for all, and then asserts that every page is in its
    /// place.
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
        // Other pages, which transactions may still read, are unchanged.
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
        // 16 pages per write, after a few single ones at the start and at the end.
        assert!(file.writes <= 300 / 16 + 14, "{} writes", file.writes);
        // Pages inside the file are written one by one.
        file.writes = 0;
        assert!(copy(&frames, frames.len(), &mut file));
        assert_eq!(file.writes, 300);
    }

    #[test]
    fn what_transactions_may_read_comes_only_when_it_is_asked_for() {
        // Two commits, and a third that must not be copied yet, which changes existing pages.
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
                // Some existing pages in ascending order, and new ones.
                let rare = [1, 2, 1 + end / 4][below(3) as usize];
                let old = (1..end).filter(|_| below(rare) == 0).collect::<Vec<u32>>();
                let grown = end + below(90);
                frames.extend(old.into_iter().chain(end..grown).map(|n| (n, commit as u8 + 1)));
                end = grown;
            }
            let mut file = database(19);
            // Not all of the last frames are committed.
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
