//! Limits of an exports file.

use std::time::Duration;

/// Size of the exports file, in bytes.
pub const MAX_FILE_BYTES: u64 = 4 << 20;

/// Size of the token file, in bytes: about 100 for each export that ever had a token.
pub const MAX_TOKENS_BYTES: u64 = 1 << 20;

/// Size of a file of `exports.d`, in bytes.
pub const MAX_ADDED_BYTES: u64 = 256 << 10;

/// Exports of a server, of the exports file and `exports.d` together.
pub const MAX_EXPORTS: usize = 16_384;

/// Templates per file.
pub const MAX_TEMPLATES: usize = 256;

/// Memory for the compiled expression of a parameter's `allow`, in bytes.
pub const MAX_ALLOW_BYTES: usize = 1 << 20;

/// The default of `max_open`: sessions that may be open at once.
pub const DEFAULT_MAX_OPEN: usize = 2048;

/// Largest `max_open`.
pub const MAX_MAX_OPEN: u64 = 65_536;

/// The default of `idle_close`: time without calls after which an export is closed.
pub const DEFAULT_IDLE_CLOSE: Duration = Duration::from_secs(60);

/// Longest `idle_close`.
pub const MAX_IDLE_CLOSE: Duration = Duration::from_secs(24 * 60 * 60);

/// Shortest `expire` of a template.
pub const MIN_EXPIRE: Duration = Duration::from_secs(1);

/// Longest `expire` of a template, and longest `ephemeral_expire`.
pub const MAX_EXPIRE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// The default of `ephemeral_expire`: time without calls after which changes in memory are gone.
pub const DEFAULT_EPHEMERAL_EXPIRE: Duration = Duration::from_secs(24 * 60 * 60);

/// Mounts per export.
pub const MAX_MOUNTS: usize = 64;

/// Guards per export.
pub const MAX_GUARDS: usize = 256;

/// Patterns per export in `hide`.
pub const MAX_HIDES: usize = 1024;

/// Largest `keep_originals` of a mount, in bytes.
pub const MAX_KEEP_ORIGINALS_BYTES: u64 = 16 << 20;

/// The gap of `checkpoints = "idle"`.
pub const DEFAULT_IDLE_GAP: Duration = Duration::from_secs(2);

/// Shortest gap of `checkpoints = "idle:SECONDS"`.
pub const MIN_IDLE_GAP: Duration = Duration::from_secs(1);

/// Longest gap of `checkpoints = "idle:SECONDS"`.
pub const MAX_IDLE_GAP: Duration = Duration::from_secs(3600);

/// Largest `newest` of `keep_checkpoints`.
pub const MAX_KEPT_CHECKPOINTS: u64 = 10_000;

/// Largest `hourly` of `keep_checkpoints`, in seconds.
pub const MAX_HOURLY_SECS: u64 = 366 * 24 * 60 * 60;

/// Addresses and networks per export in `clients`.
pub const MAX_CLIENTS: usize = 1024;

/// Ranges in each id map of an export.
pub const MAX_ID_RANGES: usize = 340;

/// Elements of an `options` list.
pub const MAX_OPTIONS: usize = 64;

/// Length of a path in an export, in bytes (RFC 1813 §5.1.4, MNTPATHLEN).
pub const MAX_PATH_BYTES: usize = 1024;

/// Length of an export's `name`, in bytes: with a token it must fit into a path component.
pub const MAX_NAME_BYTES: usize = 64;

/// Arguments of a guard's program, including the program itself.
pub const MAX_PROGRAM_WORDS: usize = 256;

/// Longest timeout of a guard's program.
pub const MAX_GUARD_TIME: Duration = Duration::from_secs(600);

/// Default timeout of a guard's program.
pub const DEFAULT_GUARD_TIME: Duration = Duration::from_secs(5);
