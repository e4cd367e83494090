//! What an exports file may ask for at most: every bound with its unit.

use std::time::Duration;

/// The exports file, in bytes.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// The file of tokens, in bytes: a line of about 100 for each export that there ever was.
pub const MAX_TOKENS_BYTES: u64 = 1 << 20;

/// Exports in a file.
pub const MAX_EXPORTS: usize = 1024;

/// Mounts in an export.
pub const MAX_MOUNTS: usize = 64;

/// Guards in an export.
pub const MAX_GUARDS: usize = 256;

/// Patterns in an export's `hide`.
pub const MAX_HIDES: usize = 1024;

/// The largest `keep_originals` of a mount, in bytes.
pub const MAX_KEEP_ORIGINALS_BYTES: u64 = 16 << 20;

/// Addresses and networks in an export's `clients`.
pub const MAX_CLIENTS: usize = 1024;

/// Ranges in each of an export's maps of ids.
pub const MAX_ID_RANGES: usize = 340;

/// Words in a list of options.
pub const MAX_OPTIONS: usize = 64;

/// A path in an export, in bytes (RFC 1813 §5.1.4, MNTPATHLEN).
pub const MAX_PATH_BYTES: usize = 1024;

/// An export's name that is given, in bytes: with a token it still is a name in a path.
pub const MAX_NAME_BYTES: usize = 64;

/// Words of a guard's program.
pub const MAX_PROGRAM_WORDS: usize = 256;

/// How long a guard's program may be given.
pub const MAX_GUARD_TIME: Duration = Duration::from_secs(600);

/// How long a guard's program has if nothing is said.
pub const DEFAULT_GUARD_TIME: Duration = Duration::from_secs(5);
