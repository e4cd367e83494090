//! All metrics. docs/OPERATIONS.md has the same table, which a test compares.

/// A metric, without its values.
#[derive(Debug)]
pub struct Metric {
    /// Its name, without the unit and the suffix `_total` of counters.
    pub name: &'static str,
    /// What its values are.
    pub kind: MetricKind,
    /// Its unit, which ends its name.
    pub unit: Option<&'static str>,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Its meaning.
    pub help: &'static str,
}

/// What the values of a metric are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows while the process runs.
    Counter,
    /// A number.
    Gauge,
    /// Observations in buckets.
    Histogram,
}

use MetricKind::{Counter, Gauge, Histogram};

/// Declares the metrics, and [`ALL`].
macro_rules! metrics {
    ($(
        $constant:ident: $kind:ident, $name:literal, $unit:expr, [$($label:literal),*],
            $help:literal;
    )*) => {
        $(
            #[doc = $help]
            pub static $constant: Metric = Metric {
                name: $name,
                kind: $kind,
                unit: $unit,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        /// All metrics, in the order of the output.
        pub static ALL: &[&Metric] = &[$(&$constant),*];
    };
}

const BYTES: Option<&str> = Some("bytes");
const SECONDS: Option<&str> = Some("seconds");

metrics! {
    BUILD_INFO: Gauge, "acetate_build_info", None, ["version"],
        "1, with the version of the program";
    READY: Gauge, "acetate_ready", None, [],
        "1 if /readyz answers 200, else 0";

    RPC_CALLS: Counter, "acetate_rpc_calls", None, ["program", "procedure", "status"],
        "Calls that were answered";
    RPC_DURATION: Histogram, "acetate_rpc_duration", SECONDS, ["program", "procedure"],
        "Time from a complete request to its reply";
    RPC_RETRANSMISSIONS: Counter, "acetate_rpc_retransmissions", None, [],
        "Retransmissions that were answered from the reply cache";
    RPC_REFUSALS: Counter, "acetate_rpc_refusals", None, ["reason"],
        "Records that led to no call of a procedure";
    THROTTLES: Counter, "acetate_throttles", None, ["reason"],
        "Requests and replies that waited for a bound, or were shortened by one";
    RECEIVED: Counter, "acetate_received", BYTES, [],
        "Bytes of requests";
    SENT: Counter, "acetate_sent", BYTES, [],
        "Bytes of replies";
    READ: Counter, "acetate_read", BYTES, [],
        "Bytes of content in replies to READ";
    WRITTEN: Counter, "acetate_written", BYTES, [],
        "Bytes of content that WRITE accepted";

    CONNECTIONS: Gauge, "acetate_connections", None, [],
        "Open connections";
    CONNECTIONS_LIMIT: Gauge, "acetate_connections_limit", None, [],
        "Limit of open connections";
    CONNECTIONS_OPENED: Counter, "acetate_connections_opened", None, [],
        "Connections that were accepted";
    CONNECTIONS_CLOSED: Counter, "acetate_connections_closed", None, ["reason"],
        "Connections that ended";
    REQUESTS: Gauge, "acetate_requests_in_flight", None, [],
        "Requests in flight";
    REQUESTS_LIMIT: Gauge, "acetate_requests_limit", None, [],
        "Limit of requests in flight";
    POOL_USED: Gauge, "acetate_pool_used", BYTES, ["pool"],
        "Memory of large requests and replies that connections share";
    POOL_LIMIT: Gauge, "acetate_pool_limit", BYTES, ["pool"],
        "Limit of that memory";
    REPLY_CACHE_ENTRIES: Gauge, "acetate_reply_cache_entries", None, [],
        "Replies in the reply cache";
    REPLY_CACHE_SIZE: Gauge, "acetate_reply_cache", BYTES, [],
        "Size of the replies in the reply cache";

    BATCH_OPERATIONS: Histogram, "acetate_batch_operations", None, [],
        "Operations of each batch that was committed";
    SYNC_DURATION: Histogram, "acetate_sync_duration", SECONDS, [],
        "Time of each commit with an fsync";
    WAL_CHECKPOINT_DURATION: Histogram, "acetate_wal_checkpoint_duration", SECONDS, [],
        "Time of each checkpoint of a WAL";
    WAL: Gauge, "acetate_wal", BYTES, [],
        "Size of the WALs of all open sessions";
    WAL_LEFT: Gauge, "acetate_wal_uncheckpointed", BYTES, [],
        "Part of the WALs that a checkpoint has yet to copy";
    CACHE_HITS: Counter, "acetate_cache_hits", None, ["cache"],
        "Look-ups that found a valid entry";
    CACHE_MISSES: Counter, "acetate_cache_misses", None, ["cache"],
        "Look-ups that found none";
    CACHE_ENTRIES: Gauge, "acetate_cache_entries", None, ["cache"],
        "Entries, of all open sessions";
    COPY_UPS: Counter, "acetate_copy_ups", None, [],
        "Changes that copied a base file up, or began its copy";
    COPY_UP_PENDING: Gauge, "acetate_copy_up_pending", BYTES, [],
        "Content of base files that is still to be copied";
    COPY_UP_PENDING_FILES: Gauge, "acetate_copy_up_pending_files", None, [],
        "Files with such content";

    SESSIONS: Gauge, "acetate_sessions", None, [],
        "Open sessions";
    SESSIONS_FAILED: Gauge, "acetate_sessions_failed", None, [],
        "Open sessions that became read-only after an error";
    SESSIONS_STUCK: Gauge, "acetate_sessions_stuck", None, [],
        "Open sessions whose writer has been in one operation for 2 seconds";
    EXPORTS: Gauge, "acetate_exports", None, [],
        "Exports that are served, open or closed";
    EXPORTS_OPEN: Gauge, "acetate_exports_open", None, [],
        "Exports that are served and open";
    EXPORTS_UNAVAILABLE: Gauge, "acetate_exports_unavailable", None, [],
        "Exports that cannot be opened, and are tried again";
    EXPORTS_EXPIRED: Counter, "acetate_exports_expired", None, [],
        "Instances of templates that were removed because nothing used them";
    QUOTA_USED_BYTES: Gauge, "acetate_quota_used", BYTES, ["export"],
        "Content that counts against a quota";
    QUOTA_LIMIT_BYTES: Gauge, "acetate_quota_limit", BYTES, ["export"],
        "Quota of content";
    QUOTA_USED_FILES: Gauge, "acetate_quota_used_files", None, ["export"],
        "Objects that count against a quota";
    QUOTA_LIMIT_FILES: Gauge, "acetate_quota_limit_files", None, ["export"],
        "Quota of objects";
    GUARD_REFUSALS: Counter, "acetate_guard_refusals", None, [],
        "Contents that a guard refused";

    LEASES: Gauge, "acetate_leases", None, [],
        "Sessions in databases that this server has";
    LEASES_INVALID: Gauge, "acetate_leases_invalid", None, [],
        "Those whose lease is not valid: their calls wait for the database";
    LEASE_SILENCE: Gauge, "acetate_lease_silence", SECONDS, [],
        "Longest time since a lease was renewed";
    LEASE_EPOCH: Gauge, "acetate_lease_epoch", None, [],
        "Largest epoch of a lease, which grows with each takeover";
    LEASE_RENEWALS_FAILED: Counter, "acetate_lease_renewals_failed", None, [],
        "Renewals of leases that failed";
    LEASES_LOST: Counter, "acetate_leases_lost", None, [],
        "Sessions that another server took, or whose rows went back";
    DATABASE_COMMIT_DURATION: Histogram, "acetate_database_commit_duration", SECONDS, [],
        "Time of each batch until the database had kept it";
    DATABASE_RETRIES: Counter, "acetate_database_retries", None, [],
        "Batches that were sent to the database again";
    DATABASE_DOUBTS: Counter, "acetate_database_doubts", None, [],
        "Batches without an answer, of whose commit the database was asked";
    HYDRATION: Gauge, "acetate_hydration", SECONDS, [],
        "Time of the last fetch of a whole replica; 0 if there was none";

    PROCESS_CPU: Counter, "process_cpu", SECONDS, [],
        "Processor time";
    PROCESS_RESIDENT: Gauge, "process_resident_memory", BYTES, [],
        "Resident memory";
    PROCESS_VIRTUAL: Gauge, "process_virtual_memory", BYTES, [],
        "Address space";
    PROCESS_OPEN_FDS: Gauge, "process_open_fds", None, [],
        "Open file descriptors";
    PROCESS_MAX_FDS: Gauge, "process_max_fds", None, [],
        "Limit of open file descriptors";
    PROCESS_THREADS: Gauge, "process_threads", None, [],
        "Threads";
    PROCESS_START: Gauge, "process_start_time", SECONDS, [],
        "Start of the process, since 1970";
}
