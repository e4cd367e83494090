//! Rewrites the WAL unchanged, so that the next fsync writes it to the disk.
//!
//! The kernel reports a failed fsync to the process that called it, and then treats the pages as
//! clean: other processes read them, and no later fsync writes them. Rewriting makes them dirty
//! again. Sectors that have already reached the disk keep their content, so after a power loss the
//! WAL is as long as before, or longer.

use super::PIECE_BYTES;
use super::read_ahead::Get;
use super::wal_write_buffer::{HEADER_BYTES, WriteAt};

/// Length of the WAL's header, in bytes: magic number, version, page size, checkpoint sequence
/// number, salts and checksums (<https://www.sqlite.org/fileformat2.html#the_write_ahead_log>).
const WAL_HEADER_BYTES: usize = 32;

/// The WAL's magic number; the last bit is the byte order of the checksums.
const MAGIC: u32 = 0x377f_0682;

/// Valid page sizes, in bytes.
const PAGES: std::ops::RangeInclusive<usize> = 512..=64 << 10;

/// Rewrites the WAL's header and all frames that belong to it. No other connection may append
/// frames during the call.
///
/// # Errors
/// SQLite's code of a failed read or write.
pub(super) fn rewrite(wal: &mut (impl Get + WriteAt)) -> Result<(), i32> {
    let length = Get::length(wal).unwrap_or(0);
    let mut header = [0; WAL_HEADER_BYTES];
    if length < header.len() as u64 {
        return Ok(());
    }
    wal.get(&mut header, 0)?;
    let number = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
    let page_bytes = number(8) as usize;
    if number(0) & !1 != MAGIC || !PAGES.contains(&page_bytes) {
        // SQLite would not read this as a WAL.
        return Ok(());
    }
    wal.put(&header, 0)?;
    let frame_bytes = HEADER_BYTES + page_bytes;
    let most = (PIECE_BYTES / frame_bytes).max(1);
    let mut room = vec![0; most * frame_bytes];
    let mut at = header.len() as u64;
    loop {
        let there = length.saturating_sub(at) / frame_bytes as u64;
        let piece = &mut room[..there.min(most as u64) as usize * frame_bytes];
        wal.get(piece, at)?;
        // Beyond the WAL's end are frames of an earlier WAL.
        let belongs = |frame: &&[u8]| frame[8..16] == header[16..24];
        let frames = piece.chunks_exact(frame_bytes).take_while(belongs).count();
        if frames > 0 {
            wal.put(&piece[..frames * frame_bytes], at)?;
        }
        if frames < most {
            return Ok(());
        }
        at += (frames * frame_bytes) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;
    const FRAME: usize = HEADER_BYTES + PAGE;

    /// A file that records which of its bytes were written.
    struct File {
        bytes: Vec<u8>,
        written: Vec<bool>,
        fails: bool,
    }

    impl Get for File {
        fn get(&mut self, to: &mut [u8], offset: u64) -> Result<(), i32> {
            to.copy_from_slice(&self.bytes[offset as usize..][..to.len()]);
            Ok(())
        }

        fn length(&mut self) -> Option<u64> {
            Some(self.bytes.len() as u64)
        }
    }

    impl WriteAt for File {
        fn put(&mut self, bytes: &[u8], offset: u64) -> Result<(), i32> {
            let range = offset as usize..offset as usize + bytes.len();
            assert_eq!(self.bytes[range.clone()], *bytes, "another content");
            self.written[range].fill(true);
            if self.fails { Err(10) } else { Ok(()) }
        }

        fn length(&mut self) -> Option<u64> {
            Get::length(self)
        }

        fn cut(&mut self, _length: u64) {
            panic!("it is not to be cut");
        }
    }

    /// A WAL of `frames` frames, followed by `earlier` frames of an earlier WAL and a partial
    /// frame.
    fn wal(frames: usize, earlier: usize) -> File {
        let mut bytes = vec![0; WAL_HEADER_BYTES];
        bytes[..4].copy_from_slice(&(MAGIC + 1).to_be_bytes());
        bytes[8..12].copy_from_slice(&(PAGE as u32).to_be_bytes());
        bytes[16..24].copy_from_slice(b"saltsalt");
        for number in 0..frames + earlier {
            let salt = if number < frames { b"saltsalt" } else { b"earliers" };
            let mut frame = vec![number as u8; FRAME];
            frame[8..16].copy_from_slice(salt);
            bytes.extend(frame);
        }
        bytes.extend([7; 100]);
        let written = vec![false; bytes.len()];
        File { bytes, written, fails: false }
    }

    #[test]
    fn all_of_a_log_is_written_once_more_and_nothing_else() {
        for (frames, earlier) in [(0, 0), (0, 3), (1, 0), (15, 0), (15, 2), (31, 1), (40, 20)] {
            let mut wal = wal(frames, earlier);
            rewrite(&mut wal).unwrap();
            let end = WAL_HEADER_BYTES + frames * FRAME;
            assert!(wal.written[..end].iter().all(|&written| written), "{frames}, {earlier}");
            assert!(!wal.written[end..].iter().any(|&written| written), "{frames}, {earlier}");
        }
    }

    #[test]
    fn what_is_no_log_is_left_alone_and_failures_are_told() {
        for spoil in [0, 8] {
            let mut wal = wal(2, 0);
            wal.bytes[spoil..spoil + 4].fill(0);
            rewrite(&mut wal).unwrap();
            assert!(!wal.written.contains(&true));
        }
        let mut short = wal(0, 0);
        short.bytes.truncate(WAL_HEADER_BYTES - 1);
        rewrite(&mut short).unwrap();
        let mut broken = wal(2, 0);
        broken.fails = true;
        assert_eq!(rewrite(&mut broken), Err(10));
    }
}
