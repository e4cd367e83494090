//! What guards take at most: every bound with its unit.

use std::time::Duration;

/// The content of a guarded file, in bytes: it is in memory as a whole while it is changed.
pub const MAX_DRAFT_BYTES: u64 = 4 << 20;

/// A line of JSON Lines, in bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// A JSON Schema, in bytes.
pub(super) const MAX_SCHEMA_BYTES: u64 = 1 << 20;

/// Runs of bytes that arrived in a draft and do not touch; with more, its lines are checked at
/// the end only.
pub(super) const MAX_RUNS: usize = 256;

/// Characters of the reason for which content is refused.
pub(super) const MAX_REASON_CHARS: usize = 300;

/// How long the rest of a program's output is waited for once it has ended: a child of it may
/// keep the pipe open.
pub(super) const OUTPUT_GRACE: Duration = Duration::from_millis(100);

/// How much of a program's output is kept for the reason, in bytes of each stream.
pub(super) const KEPT_OUTPUT_BYTES: usize = 4 << 10;

/// How often a draft is validated anew because the file moved or changed meanwhile.
pub(super) const MAX_ATTEMPTS: usize = 5;

/// Drafts in one server.
pub const MAX_DRAFTS: usize = 256;

/// Drafts of one client address, in one export.
pub const MAX_CLIENT_DRAFTS: usize = 64;

/// Content of all drafts in one server, in bytes.
pub const MAX_DRAFTS_BYTES: u64 = 64 << 20;

/// Programs of guards that run at a time, in one server.
pub const MAX_PROGRAMS: usize = 4;

/// How much drafts may take, in one server.
#[derive(Debug, Clone, Copy)]
pub struct RoomLimits {
    /// Drafts.
    pub drafts: usize,
    /// Those of one client address, in one export.
    pub client_drafts: usize,
    /// Content of all of them, in bytes.
    pub bytes: u64,
    /// Content that is validated at a time, in bytes, at least [`MAX_DRAFT_BYTES`]: as parsed
    /// JSON it takes up to thirty times as much.
    pub checked_bytes: u64,
    /// Programs that run at a time.
    pub programs: usize,
}

impl Default for RoomLimits {
    fn default() -> Self {
        Self {
            drafts: MAX_DRAFTS,
            client_drafts: MAX_CLIENT_DRAFTS,
            bytes: MAX_DRAFTS_BYTES,
            checked_bytes: MAX_DRAFT_BYTES,
            programs: MAX_PROGRAMS,
        }
    }
}

/// When what happens to a draft that nobody changes.
#[derive(Debug, Clone, Copy)]
pub struct Periods {
    /// A file that was only cut or grown is published, if it is valid.
    pub quiet: Duration,
    /// After a refusal, further pieces of the same content are expected no more.
    pub refused: Duration,
    /// A draft is given up, or, of a file that was cut to nothing, kept as no more than that.
    pub idle: Duration,
    /// That it was cut to nothing is forgotten.
    pub cut: Duration,
    /// How often that is looked at.
    pub tick: Duration,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            quiet: Duration::from_secs(1),
            refused: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            cut: Duration::from_secs(24 * 60 * 60),
            tick: Duration::from_millis(250),
        }
    }
}
