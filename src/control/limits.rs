//! Limits of the control socket.

/// Concurrent connections; further ones wait. There is no timeout: all belong to the session's
/// owner.
pub const MAX_CONNECTIONS: usize = 16;

/// Length of a frame, in bytes: about ten thousand paths.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Content per frame, in bytes.
pub const PIECE_BYTES: usize = 1 << 20;

/// Largest content that replaces a file's content in one transaction, in bytes; larger content is
/// staged in a separate file. Each connection may buffer this much and one piece.
pub const WHOLE_BYTES: usize = 8 << 20;

/// Paths per request; a restore of paths, with all that must go along, is one request.
pub const MAX_PATHS: usize = 8192;

/// Directory entries that are removed before the directory is listed again.
pub const REMOVE_PAGE: usize = 1024;

/// Time that a stopping server waits for a command to read its answer, in seconds.
pub const LAST_WORD_SECS: u64 = 2;

/// Time that a command waits for exclusive access, in seconds.
pub const ALONE_SECS: u64 = 30;

/// Checks of a restore by guards, if the session changes in between.
pub const MAX_RESTORE_CHECKS: u32 = 5;

/// Objects that are created or removed in one transaction.
pub const BULK_ITEMS: usize = 256;

/// Time per request for copying or removing, in milliseconds. Afterwards the command can report
/// progress or be interrupted.
pub const TURN_MS: u64 = 500;
