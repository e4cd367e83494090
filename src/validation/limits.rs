//! What guards take at most: every bound with its unit.

use std::num::NonZero;
use std::thread;
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

/// The same in a frame, in bytes: control characters are escaped.
pub(super) const MAX_REASON_BYTES: usize = 16 * MAX_REASON_CHARS;

/// Characters of the place of a fault in a reason: of a longer one, the middle is left out.
pub(super) const MAX_PLACE_CHARS: usize = 80;

/// Characters of what a schema says of a value, in a reason.
pub(super) const MAX_FAULT_CHARS: usize = 100;

/// Bytes of the value at fault in a reason.
pub(super) const MAX_SHOWN_VALUE_BYTES: usize = 60;

/// How long the rest of a program's output is waited for once it has ended: a child of it may
/// keep the pipe open.
pub(super) const OUTPUT_GRACE: Duration = Duration::from_millis(100);

/// How much of a program's output is kept for the reason, in bytes of each stream.
pub(super) const KEPT_OUTPUT_BYTES: usize = 4 << 10;

/// How often a draft is validated anew because the file moved or changed meanwhile.
pub(super) const MAX_ATTEMPTS: usize = 5;

/// Drafts of all exports together, beyond those that each has for itself.
pub const MAX_DRAFTS: usize = 256;

/// Drafts of one client address, in one export.
pub const MAX_CLIENT_DRAFTS: usize = 64;

/// Content of the drafts of all exports together, beyond what each has for itself, in bytes.
pub const MAX_DRAFTS_BYTES: u64 = 64 << 20;

/// Drafts that an export with guards can always have, whatever others do; where there are several
/// exports with guards, one takes at most half of what all share beyond this.
pub const OWN_DRAFTS: usize = 8;

/// Content of drafts that an export with guards can always have, in bytes; else as for drafts.
pub const OWN_DRAFTS_BYTES: u64 = MAX_DRAFT_BYTES;

/// Programs of guards that run at a time, in one server; the last turn is for an export that has
/// none, where there are several.
pub const MAX_PROGRAMS: usize = 4;

/// Memory of each process of a guard's program, in bytes (RLIMIT_DATA; Linux only).
pub(super) const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Contents that are checked at a time in one server, and so validator processes: as many as there
/// are processors, but at most this many; the last turn is as for programs.
pub const MAX_CHECKS: usize = 8;

/// Wall-clock time to check a content against a schema; a content that takes longer is refused.
pub const MAX_CHECK_TIME: Duration = Duration::from_secs(5);

/// Wall-clock time to find the reason, once a content is refused; without it, the refusal names
/// the line only.
pub const MAX_REASON_TIME: Duration = Duration::from_millis(500);

/// Wall-clock time to check all files of a directory that a RENAME brings to guarded paths; past
/// it, nothing is moved.
pub const MAX_ARRIVAL_CHECK_TIME: Duration = Duration::from_secs(60);

/// Address space of a validator process, in bytes (RLIMIT_AS); a content that takes more is
/// refused.
pub const MAX_CHILD_BYTES: u64 = 512 << 20;

/// A validator process that has checked a larger content, in bytes, is not used again: its memory
/// stays at a hundred times the content.
pub(super) const MAX_KEPT_CONTENT_BYTES: usize = 512 << 10;

/// Schemas that a validator process keeps compiled, in bytes of their texts.
pub(super) const KEPT_SCHEMA_BYTES: usize = MAX_SCHEMA_BYTES as usize;

/// Nice increment of a validator process.
pub(super) const CHILD_NICE: i32 = 5;

/// Wait for a killed validator process to exit.
pub(super) const KILL_TIME: Duration = Duration::from_secs(1);

/// How long a content waits for its turn to be checked; past it, JUKEBOX.
pub const MAX_TURN_WAIT: Duration = Duration::from_secs(10);

/// What the guards of all exports of a server may take.
#[derive(Debug, Clone, Copy)]
pub struct GuardLimits {
    /// Drafts of all exports, beyond those that each has for itself.
    pub drafts: usize,
    /// Those of one client address, in one export.
    pub client_drafts: usize,
    /// Content of drafts, beyond what each export has for itself, in bytes.
    pub bytes: u64,
    /// Drafts that each export has for itself.
    pub own_drafts: usize,
    /// Content of drafts that each export has for itself, in bytes.
    pub own_bytes: u64,
    /// Contents that are checked at a time.
    pub checks: usize,
    /// Programs that run at a time.
    pub programs: usize,
    /// How long a content waits for its turn.
    pub wait: Duration,
    /// What a validator process may take.
    pub child: ChildLimits,
}

/// What a validator process may take for each content.
#[derive(Debug, Clone, Copy)]
pub struct ChildLimits {
    /// Wall-clock time, and processor time, to check it.
    pub check_time: Duration,
    /// Wall-clock time to find the reason of a refusal.
    pub reason_time: Duration,
    /// Address space of the process, in bytes.
    pub memory_bytes: u64,
}

impl Default for GuardLimits {
    fn default() -> Self {
        Self {
            drafts: MAX_DRAFTS,
            client_drafts: MAX_CLIENT_DRAFTS,
            bytes: MAX_DRAFTS_BYTES,
            own_drafts: OWN_DRAFTS,
            own_bytes: OWN_DRAFTS_BYTES,
            checks: thread::available_parallelism().map_or(1, NonZero::get).min(MAX_CHECKS),
            programs: MAX_PROGRAMS,
            wait: MAX_TURN_WAIT,
            child: ChildLimits::default(),
        }
    }
}

impl Default for ChildLimits {
    fn default() -> Self {
        Self {
            check_time: MAX_CHECK_TIME,
            reason_time: MAX_REASON_TIME,
            memory_bytes: MAX_CHILD_BYTES,
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
