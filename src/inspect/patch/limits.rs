//! The bounds of what a patch takes.

/// The largest file that goes into a patch, in bytes: git's core.bigFileThreshold. `git apply`
/// takes no patch of 1 GiB.
pub const MAX_FILE_BYTES: u64 = 512 << 20;

/// Text beyond this, in bytes, is treated as binary: its lines are held in memory.
pub const MAX_TEXT_BYTES: u64 = 16 << 20;

/// Text of more lines is treated as binary, before or after the change; `apply` does not merge it.
pub const MAX_LINES: usize = 400_000;

/// The largest content of which a binary patch may have the difference only, in bytes.
pub const MAX_DELTA_BYTES: u64 = 8 << 20;

/// The largest file that is looked at for similarity, in bytes.
pub const MAX_SIMILAR_BYTES: u64 = 4 << 20;

/// As many files that are gone, and as many new ones, are compared for similarity: git's
/// diff.renameLimit.
pub const MAX_RENAME_CANDIDATES: usize = 1000;

/// How much of a file is in memory at a time, in bytes.
pub const PIECE_BYTES: usize = 256 << 10;

/// Bytes at the beginning of a file in which git looks for a NUL, to tell binary from text.
pub const PROBE_BYTES: usize = 8000;
