//! The content of a file that is about to be placed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Zeros of this many bytes, where they begin at a multiple of it, are left out.
const HOLE_BYTES: usize = 4096;

/// A file that is written from its beginning to its end; zeros become holes.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    written: u64,
}

impl StagedFile {
    pub(super) fn new(file: File) -> Self {
        Self { file, written: 0 }
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut at = 0;
        while at < bytes.len() {
            let is_zero = |block: &[u8]| block.iter().all(|&byte| byte == 0);
            let end_of = |at: usize| bytes.len().min(at + HOLE_BYTES);
            let end = end_of(at);
            if !is_zero(&bytes[at..end]) {
                let mut data_end = end;
                while data_end < bytes.len() && !is_zero(&bytes[data_end..end_of(data_end)]) {
                    data_end = end_of(data_end);
                }
                self.file.write_all_at(&bytes[at..data_end], self.written + at as u64)?;
                at = data_end;
            } else {
                at = end;
            }
        }
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Ends the file at what was appended.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub fn end(self) -> io::Result<()> {
        self.file.set_len(self.written)?;
        // Elsewhere the whole filesystem is synced, once.
        #[cfg(not(target_os = "linux"))]
        self.file.sync_all()?;
        Ok(())
    }
}
