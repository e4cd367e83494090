//! What the control socket may take.

/// Connections at a time; further ones wait. Each may stay for as long as it likes: they are the
/// owner's own.
pub const MAX_CONNECTIONS: usize = 16;

/// Length of one message, in bytes: some ten thousand paths.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Content in one message, in bytes.
pub const PIECE_BYTES: usize = 1 << 20;

/// Content that replaces another in one transaction, in bytes: larger content is staged in a file
/// of its own. Each connection may hold that much, and a piece.
pub const WHOLE_BYTES: usize = 8 << 20;

/// Paths in one request.
pub const MAX_PATHS: usize = 8192;

/// Entries of a directory that are removed before it is listed again.
pub const REMOVE_PAGE: usize = 1024;

/// How long a server that stops waits for a command to take its answer, in seconds.
pub const LAST_WORD_SECS: u64 = 2;

/// How long a command waits until it is alone, in seconds: until those that asked before it have
/// ended.
pub const ALONE_SECS: u64 = 30;

/// Objects that are made, or removed, in one transaction.
pub const BULK_ITEMS: usize = 256;

/// How long a server copies, or removes, for one request, in milliseconds: so often a command can
/// say how far it is, and be interrupted.
pub const TURN_MS: u64 = 500;
