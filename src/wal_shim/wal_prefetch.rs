//! The log, read in larger pieces while a checkpoint makes the database grow by it.
//!
//! SQLite copies the pages in their order, and content that is new has the same order in the log:
//! 256 calls a MiB. So the frames that follow are read along with one, and what they hold is known
//! before SQLite asks for it ([`db_extender`](super::db_extender)).
//!
//! Frames that a checkpoint copies stay as they are until it has ended: the log starts over only
//! where all of it was copied before. Behind them others may be appended meanwhile, or be left of
//! a log before: of those a piece may have anything, and SQLite does not ask for them.
//!
//! SQLite tells the database's file when a checkpoint begins and ends; in between it reads the log
//! and writes the database, on one thread, and does nothing else: so the thread has the piece.

use std::cell::RefCell;
use std::ops::Range;

use super::PIECE_BYTES;
use super::read_ahead::{Get, ReadAhead};
use super::wal_write_buffer::HEADER_BYTES;

/// What is read at once, in bytes: three pieces of the database, with pages of 4 KiB. A thread has
/// room for it while it copies a log.
const MAX_LOG_PIECE_BYTES: usize = 3 * PIECE_BYTES / 4096 * (HEADER_BYTES + 4096);

/// The log that a thread copies.
struct WalPrefetch {
    frames: ReadAhead,
    /// Where the frame begins that was read last, in bytes.
    last: u64,
    /// Where the frames are of which the database has the pages.
    known: Range<u64>,
}

thread_local! {
    static COPIED: RefCell<Option<WalPrefetch>> = const { RefCell::new(None) };
}

/// Begins: this thread copies a log, and has come to pages that are new.
pub(super) fn begin() {
    COPIED.set(Some(WalPrefetch {
        frames: ReadAhead::new(MAX_LOG_PIECE_BYTES),
        last: 0,
        known: 0..0,
    }));
}

/// Ends: it copies no more of it.
pub(super) fn finish() {
    COPIED.set(None);
}

/// Gives `take` the `count` bytes of a page that the log has at `offset`; `false`, and they are to
/// be read from the file, where this thread copies no log, or reads it here and there.
pub(super) fn read(
    offset: u64,
    count: usize,
    file: &mut impl Get,
    take: impl FnOnce(&[u8]),
) -> bool {
    let page = |log: &mut WalPrefetch| {
        let frame = offset.checked_sub(HEADER_BYTES as u64)?;
        // Where a run may begin, all of it should be there.
        if !log.known.contains(&frame) && log.frames.held_from(frame).len() < PIECE_BYTES {
            log.frames.begin_at(frame);
        }
        let held = log.frames.read(frame, HEADER_BYTES + count, file)?;
        take(held.get(HEADER_BYTES..)?);
        log.last = frame;
        Some(())
    };
    // Not where a thread ends, and its connections with it.
    let taken = COPIED.try_with(|log| log.borrow_mut().as_mut().and_then(page));
    taken.is_ok_and(|taken| taken.is_some())
}

/// Appends `page`, if it is what this thread has read last, and the pages that follow it both in
/// the log and in the database, where it has its place at `offset`; those that end at `end` or
/// before. Later frames may have some of them again.
pub(super) fn following(page: &[u8], offset: u64, end: u64, to: &mut Vec<u8>) {
    COPIED.with_borrow_mut(|log| {
        let Some(log) = log else { return };
        let frame_bytes = HEADER_BYTES + page.len();
        let mut at = offset;
        log.known = log.last..log.last;
        for frame in log.frames.held_from(log.last).chunks_exact(frame_bytes) {
            let (header, content) = frame.split_at(HEADER_BYTES);
            let next = at + page.len() as u64;
            let is_other = at == offset && content != page;
            if is_other || place(header, page.len()) != Some(at) || next > end {
                return;
            }
            to.extend_from_slice(content);
            at = next;
            log.known.end += frame_bytes as u64;
        }
    });
}

/// Where the page of a frame has its place in the database, in bytes.
fn place(header: &[u8], page_bytes: usize) -> Option<u64> {
    let number = u32::from_be_bytes(*header.first_chunk()?);
    Some(u64::from(number.checked_sub(1)?) * page_bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of pages 1 to 40, of 512 bytes that have the page's number.
    struct Log;

    impl Get for Log {
        fn get(&mut self, to: &mut [u8], offset: u64) -> Result<(), i32> {
            for (at, byte) in (offset as usize..).zip(to) {
                let (frame, at) = (at / 536, at % 536);
                *byte = if at == 3 || at >= HEADER_BYTES { frame as u8 + 1 } else { 0 };
            }
            Ok(())
        }

        fn length(&mut self) -> Option<u64> {
            Some(40 * 536)
        }
    }

    /// Reads a page as a checkpoint does; whether it was read ahead.
    fn read_page(number: u64) -> bool {
        let take = |held: &[u8]| assert_eq!(held, [number as u8; 512]);
        read((number - 1) * 536 + 24, 512, &mut Log, take)
    }

    fn run(content: u8, number: u64, end: u64) -> Vec<u8> {
        let mut pages = Vec::new();
        following(&[content; 512], (number - 1) * 512, end * 512, &mut pages);
        pages.chunks(512).map(|page| page[511]).collect()
    }

    #[test]
    fn what_follows_is_known_of_the_page_that_was_read() {
        begin();
        let ahead: Vec<bool> = (3..=22).map(read_page).collect();
        assert_eq!(ahead, [vec![false; 2], vec![true; 18]].concat());
        assert_eq!(run(22, 22, 60), (22..=40).collect::<Vec<u8>>());
        assert_eq!(run(22, 22, 25), [22, 23, 24, 25]);
        assert!(run(21, 22, 60).is_empty(), "another page");
        assert!(run(22, 23, 60).is_empty(), "another place");
        finish();
        assert!(run(22, 22, 60).is_empty());
        assert!((3..=22).map(read_page).all(|ahead| !ahead), "nothing is copied");
    }
}
