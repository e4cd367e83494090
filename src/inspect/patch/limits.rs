//! The limits of a patch.

/// The largest file in a patch, in bytes: git's core.bigFileThreshold. `git apply` rejects a patch
/// of 1 GiB.
pub const MAX_FILE_BYTES: u64 = 512 << 20;

/// Larger texts are treated as binary, because the lines of a text are held in memory.
pub const MAX_TEXT_BYTES: u64 = 16 << 20;

/// Texts with more lines are treated as binary, and `apply` does not merge them.
pub const MAX_LINES: usize = 400_000;

/// The largest content for which a delta is computed in a binary patch, in bytes.
pub const MAX_DELTA_BYTES: u64 = 8 << 20;

/// The largest file that is compared for similarity, in bytes.
pub const MAX_SIMILAR_BYTES: u64 = 4 << 20;

/// The most deleted files, and the most new ones, that are compared for similarity: git's
/// diff.renameLimit.
pub const MAX_RENAME_CANDIDATES: usize = 1000;

/// Bytes of a file that are in memory at a time.
pub const PIECE_BYTES: usize = 256 << 10;

/// Bytes at the start of a file that git searches for a NUL, to tell binary files from text.
pub const PROBE_BYTES: usize = 8000;
