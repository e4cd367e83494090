//! Limits of guards.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

/// Size of a guarded file, in bytes: a draft is kept in memory as a whole.
pub const MAX_DRAFT_BYTES: u64 = 4 << 20;

/// Length of a line of JSON Lines, in bytes.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// Size of a JSON Schema, in bytes.
pub(super) const MAX_SCHEMA_BYTES: u64 = 1 << 20;

/// Disjoint runs of written bytes in a draft. Beyond that, its lines are checked only when it is
/// published.
pub(super) const MAX_RUNS: usize = 256;

/// Length of a violation's reason, in characters.
pub(super) const MAX_REASON_CHARS: usize = 300;

/// Length of a reason in a frame, in bytes: control characters are escaped.
pub(super) const MAX_REASON_BYTES: usize = 16 * MAX_REASON_CHARS;

/// Length of a fault's location in a reason, in characters; the middle of a longer one is cut out.
pub(super) const MAX_PLACE_CHARS: usize = 80;

/// Length of a schema's message about a value, in characters.
pub(super) const MAX_FAULT_CHARS: usize = 100;

/// Length of the faulty value in a reason, in bytes.
pub(super) const MAX_SHOWN_VALUE_BYTES: usize = 60;

/// Time to wait for the rest of a program's output after its exit: a child of the program may keep
/// the pipe open.
pub(super) const OUTPUT_GRACE: Duration = Duration::from_millis(100);

/// Output of a program that is kept for the reason, in bytes per stream.
pub(super) const KEPT_OUTPUT_BYTES: usize = 4 << 10;

/// Validations of a draft, if its file is renamed or changed in between.
pub(super) const MAX_ATTEMPTS: usize = 5;

/// Drafts of all exports, in addition to their reserved ones.
pub const MAX_DRAFTS: usize = 256;

/// Drafts of one client address in one export.
pub const MAX_CLIENT_DRAFTS: usize = 64;

/// Content of the drafts of all exports, in addition to their reserved bytes.
pub const MAX_DRAFTS_BYTES: u64 = 64 << 20;

/// Drafts reserved for each export with guards. With several such exports, one gets at most half of
/// the shared drafts.
pub const OWN_DRAFTS: usize = 8;

/// Content of drafts reserved for each export with guards, in bytes. The rest is shared as above.
pub const OWN_DRAFTS_BYTES: u64 = MAX_DRAFT_BYTES;

/// Concurrent programs per server. With several exports, the last permit is reserved for an export
/// that holds none.
pub const MAX_PROGRAMS: usize = 4;

/// Memory of each process of a program, in bytes (RLIMIT_DATA; Linux only).
pub(super) const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Upper bound of concurrent checks per server, and so of validator processes: the number of CPUs,
/// up to this limit. The last permit is reserved as above.
pub const MAX_CHECKS: usize = 8;

/// Wall-clock time to check content against a schema; slower content is rejected.
pub const MAX_CHECK_TIME: Duration = Duration::from_secs(5);

/// Wall-clock time to find the reason of a rejection; without it, only the line is reported.
pub const MAX_REASON_TIME: Duration = Duration::from_millis(500);

/// Wall-clock time to check all files that a RENAME of a directory, a restore or a merge brings to
/// guarded paths; beyond that, it fails.
pub const MAX_ARRIVAL_CHECK_TIME: Duration = Duration::from_secs(60);

/// Address space of a validator process, in bytes (RLIMIT_AS); content that needs more is rejected.
pub const MAX_CHILD_BYTES: u64 = 512 << 20;

/// Largest content, in bytes, after which a validator process is reused: its allocator keeps about
/// a hundred times the content's size.
pub(super) const MAX_KEPT_CONTENT_BYTES: usize = 512 << 10;

/// Schemas that a validator process caches, in bytes of their text.
pub(super) const KEPT_SCHEMA_BYTES: usize = MAX_SCHEMA_BYTES as usize;

/// Nice increment of a validator process.
pub(super) const CHILD_NICE: i32 = 5;

/// Wait for a killed validator process to exit.
pub(super) const KILL_TIME: Duration = Duration::from_secs(1);

/// Wait for a permit to check content; beyond that, the reply is JUKEBOX.
pub const MAX_TURN_WAIT: Duration = Duration::from_secs(10);

/// Limits of the guards of all exports.
#[derive(Debug, Clone, Copy)]
pub struct GuardLimits {
    /// Drafts of all exports, in addition to their reserved ones.
    pub drafts: usize,
    /// Drafts of one client address in one export.
    pub client_drafts: usize,
    /// Content of drafts, in addition to the reserved bytes, in bytes.
    pub bytes: u64,
    /// Drafts reserved for each export.
    pub own_drafts: usize,
    /// Content of drafts reserved for each export, in bytes.
    pub own_bytes: u64,
    /// Concurrent checks.
    pub checks: usize,
    /// Concurrent programs.
    pub programs: usize,
    /// Wait for a permit to check content.
    pub wait: Duration,
    /// Limits of a validator process.
    pub child: ChildLimits,
}

/// Limits of a validator process, for each content.
#[derive(Debug, Clone, Copy)]
pub struct ChildLimits {
    /// Wall-clock time, and CPU time, of a check.
    pub check_time: Duration,
    /// Wall-clock time to find the reason of a rejection.
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

/// Timeouts of drafts that no client changes.
#[derive(Debug, Clone, Copy)]
pub struct Periods {
    /// After this, a draft that was only truncated or extended is published, if valid.
    pub quiet: Duration,
    /// Time after a rejection in which further pieces of the same content are rejected, too.
    pub refused: Duration,
    /// After this, a draft is discarded; if it only truncated the file, a mark of that remains.
    pub idle: Duration,
    /// After this, the mark of a truncated file is discarded.
    pub cut: Duration,
    /// Interval at which these timeouts are checked.
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
