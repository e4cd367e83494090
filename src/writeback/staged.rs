//! [`StagedFile`]: writes the content of a file in the staging.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Size and alignment of blocks that become holes if they are zero, in bytes.
const HOLE_BYTES: u64 = 4096;

/// A file that is written piece by piece; blocks of zeros become holes.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
}

impl StagedFile {
    pub(super) fn new(file: File) -> Self {
        Self { file }
    }

    /// Writes `bytes` at byte `offset`, where nothing has been written before.
    ///
    /// # Errors
    /// The disk is full or fails, or the file would be too large.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
        let end_of = |at: usize| {
            let here = offset + at as u64;
            let next = (here / HOLE_BYTES + 1) * HOLE_BYTES;
            bytes.len().min(at + (next - here) as usize)
        };
        let mut at = 0;
        while at < bytes.len() {
            let mut end = end_of(at);
            if !is_zero(&bytes[at..end]) {
                while end < bytes.len() && !is_zero(&bytes[end..end_of(end)]) {
                    end = end_of(end);
                }
                self.file.write_all_at(&bytes[at..end], offset + at as u64)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Sets the file's size, in bytes.
    ///
    /// # Errors
    /// The disk is full or fails, or the file would be too large.
    pub fn end(self, size: u64) -> io::Result<()> {
        self.file.set_len(size)?;
        // On Linux, the whole filesystem is synced once (syncfs).
        #[cfg(not(target_os = "linux"))]
        self.file.sync_all()?;
        Ok(())
    }
}
