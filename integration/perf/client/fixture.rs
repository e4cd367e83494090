//! The tree that is served, and what its files hold: a function of place, so that every piece
//! that is read can be checked.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use super::rpc::Result;

/// Small files, in directories of [`SMALL_PER_DIR`].
pub const SMALL_FILES: usize = 2000;
/// Small files in each directory.
pub const SMALL_PER_DIR: usize = 100;
/// Bytes of a small file.
pub const SMALL_BYTES: usize = 4096;
/// Entries of the wide directory, without `.` and `..`.
pub const WIDE_ENTRIES: usize = 10_000;
/// Bytes of the large file.
pub const LARGE_BYTES: u64 = 256 << 20;
/// The name of the large file, in the root.
pub const LARGE: &str = "large.bin";
/// The name of the wide directory, in the root.
pub const WIDE: &str = "wide";
/// The name of the directory of the small files' directories, in the root.
pub const SMALL: &str = "small";
/// Seeds the large file's content; a small file's seed is its number.
pub const LARGE_SEED: u64 = 1 << 32;

/// The directory and the name of a small file.
pub fn small_name(number: usize) -> (String, String) {
    (format!("d{:02}", number / SMALL_PER_DIR), format!("f{:02}", number % SMALL_PER_DIR))
}

/// Eight bytes of a file, at the byte `offset`, a multiple of eight (splitmix64).
fn word(seed: u64, offset: u64) -> [u8; 8] {
    let z = (seed << 20).wrapping_add(offset / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_be_bytes()
}

/// `count` bytes of a file from the byte `offset` on; both are multiples of eight.
pub fn content(seed: u64, offset: u64, count: usize) -> Vec<u8> {
    (offset..offset + count as u64).step_by(8).flat_map(|at| word(seed, at)).collect()
}

/// Compares the first and the last eight bytes of a piece with what they must be.
pub fn check_content(seed: u64, offset: u64, data: &[u8]) -> Result<()> {
    let last = offset + data.len() as u64 - 8;
    if data.starts_with(&word(seed, offset)) && data.ends_with(&word(seed, last)) {
        return Ok(());
    }
    Err(format!("what was read at byte {offset} is not what the file holds").into())
}

/// Makes the tree in the directory `root`, which must not be there.
pub fn make(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join(SMALL))?;
    for number in 0..SMALL_FILES {
        let (dir, name) = small_name(number);
        let dir = root.join(SMALL).join(dir);
        if number % SMALL_PER_DIR == 0 {
            fs::create_dir(&dir)?;
        }
        fs::write(dir.join(name), content(number as u64, 0, SMALL_BYTES))?;
    }
    let wide = root.join(WIDE);
    fs::create_dir(&wide)?;
    for number in 0..WIDE_ENTRIES {
        File::create(wide.join(format!("entry-{number:05}")))?;
    }
    let mut large = BufWriter::with_capacity(1 << 20, File::create(root.join(LARGE))?);
    for offset in (0..LARGE_BYTES).step_by(1 << 20) {
        large.write_all(&content(LARGE_SEED, offset, 1 << 20))?;
    }
    large.into_inner()?.sync_all()?;
    Ok(())
}
