//! Reads the WAL in larger pieces while a checkpoint extends the database.
//!
//! A checkpoint copies pages in their order, and new content has the same order in the WAL: 256
//! reads per MiB. So the frames that follow are read along with a frame, and
//! [`db_extender`](super::db_extender) knows their pages before SQLite requests them.
//!
//! Frames that a checkpoint copies do not change until it ends: the WAL restarts only after it was
//! copied completely. Frames beyond them may be appended at the same time, or be left from an
//! earlier WAL. A piece may contain any state of those, but SQLite does not request them.
//!
//! SQLite informs the database's file when a checkpoint begins and ends. In between, one thread
//! reads the WAL and writes the database, and does nothing else. So the state is thread-local.

use std::cell::RefCell;
use std::ops::Range;

use super::PIECE_BYTES;
use super::read_ahead::{Get, ReadAhead};
use super::wal_write_buffer::HEADER_BYTES;

/// Bytes read at once: three pieces of the database, with pages of 4 KiB. A thread allocates them
/// only while it checkpoints.
const MAX_WAL_PIECE_BYTES: usize = 3 * PIECE_BYTES / 4096 * (HEADER_BYTES + 4096);

/// The WAL that a thread checkpoints.
struct WalPrefetch {
    frames: ReadAhead,
    /// Offset of the last frame read, in bytes.
    last: u64,
    /// Offsets of the frames whose pages are already in the database.
    known: Range<u64>,
}

thread_local! {
    static COPIED: RefCell<Option<WalPrefetch>> = const { RefCell::new(None) };
}

/// Begins: this thread checkpoints a WAL and has reached new pages.
pub(super) fn begin() {
    COPIED.set(Some(WalPrefetch {
        frames: ReadAhead::new(MAX_WAL_PIECE_BYTES),
        last: 0,
        known: 0..0,
    }));
}

/// Ends the prefetch on this thread.
pub(super) fn finish() {
    COPIED.set(None);
}

/// Passes to `take` the `count` bytes of a page at `offset` of the WAL. Returns `false` if the page
/// must be read from the file: this thread runs no checkpoint, or the reads are not sequential.
pub(super) fn read(
    offset: u64,
    count: usize,
    file: &mut impl Get,
    take: impl FnOnce(&[u8]),
) -> bool {
    let page = |wal: &mut WalPrefetch| {
        let frame = offset.checked_sub(HEADER_BYTES as u64)?;
        // A run may begin here: the piece should hold all of the run.
        if !wal.known.contains(&frame) && wal.frames.held_from(frame).len() < PIECE_BYTES {
            wal.frames.begin_at(frame);
        }
        let held = wal.frames.read(frame, HEADER_BYTES + count, file)?;
        take(held.get(HEADER_BYTES..)?);
        wal.last = frame;
        Some(())
    };
    // Fails while the thread exits and closes its connections.
    let taken = COPIED.try_with(|wal| wal.borrow_mut().as_mut().and_then(page));
    taken.is_ok_and(|taken| taken.is_some())
}

/// Appends `page` to `to`, if it is the last page that this thread read, and the pages that follow
/// it both in the WAL and in the database. `offset` is the page's place in the database; only pages
/// that end at or before `end` are appended. Later frames may replace some of them.
pub(super) fn following(page: &[u8], offset: u64, end: u64, to: &mut Vec<u8>) {
    COPIED.with_borrow_mut(|wal| {
        let Some(wal) = wal else { return };
        let frame_bytes = HEADER_BYTES + page.len();
        let mut at = offset;
        wal.known = wal.last..wal.last;
        for frame in wal.frames.held_from(wal.last).chunks_exact(frame_bytes) {
            let (header, content) = frame.split_at(HEADER_BYTES);
            let next = at + page.len() as u64;
            let is_other = at == offset && content != page;
            if is_other || place(header, page.len()) != Some(at) || next > end {
                return;
            }
            to.extend_from_slice(content);
            at = next;
            wal.known.end += frame_bytes as u64;
        }
    });
}

/// The offset of a frame's page in the database, in bytes.
fn place(header: &[u8], page_bytes: usize) -> Option<u64> {
    let number = u32::from_be_bytes(*header.first_chunk()?);
    Some(u64::from(number.checked_sub(1)?) * page_bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of pages 1 to 40, of 512 bytes each, filled with the page number.
    struct TestWal;

    impl Get for TestWal {
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

    /// Reads a page as a checkpoint does; returns whether it was prefetched.
    fn read_page(number: u64) -> bool {
        let take = |held: &[u8]| assert_eq!(held, [number as u8; 512]);
        read((number - 1) * 536 + 24, 512, &mut TestWal, take)
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
