//! What `--admin` shows: the figures of the server and its sessions, and whether they are healthy.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Runtime;

use super::admin_exports::AdminExports;
use crate::admin::metrics as m;
use crate::admin::{
    AdminDoor, AdminSite, AdminToken, Collecting, ExportsSite, FigureSource, HealthSource,
    ProcessFigures, Samples,
};
use crate::cli::error::CliError;
use crate::counters::{self, COUNTERS, Cache, DatabaseCounts};
use crate::delta::postgres::{LeaseFigures, lease_figures};
use crate::delta::{Limits, Usage};
use crate::server::{Monitor, ServerFigures};
use crate::workspace::accounts::LimitedUsage;
use crate::workspace::figures::{SessionsFigures, ShownSessions};

/// A server as `--admin` shows it, from the start of the program to its end.
#[derive(Default)]
pub(super) struct AdminState {
    served: OnceLock<ShownServer>,
    is_draining: AtomicBool,
}

/// What the figures of a server that serves come from.
pub(super) struct ShownServer {
    /// The server.
    pub(super) monitor: Monitor,
    /// Its sessions.
    pub(super) sessions: ShownSessions,
    /// The usage of what has a quota. Must not wait.
    pub(super) limited: Box<dyn Fn() -> Vec<LimitedUsage> + Send + Sync>,
    /// Whether the lease of a session in a database is valid; `None` if it is in a file.
    pub(super) has_lease: Box<dyn Fn() -> Option<bool> + Send + Sync>,
}

impl ShownServer {
    /// A server of sessions in files.
    pub(super) fn over_files(
        monitor: Monitor,
        sessions: ShownSessions,
        limited: Box<dyn Fn() -> Vec<LimitedUsage> + Send + Sync>,
    ) -> Self {
        Self { monitor, sessions, limited, has_lease: Box::new(|| None) }
    }
}

/// The listener of `--admin`.
pub(super) struct Admin {
    /// Its address.
    pub(super) address: SocketAddr,
    /// The state that it shows.
    pub(super) state: Arc<AdminState>,
    /// The exports that it changes, with a token.
    pub(super) exports: Option<Arc<AdminExports>>,
}

impl Admin {
    /// Listens at `address`, and shows from now on that the server starts.
    ///
    /// With the file of a token and an exports file, the exports of that can be changed.
    pub(super) fn begin(
        runtime: &Runtime,
        address: SocketAddr,
        changed: Option<(&Path, &Path)>,
    ) -> Result<Self, CliError> {
        counters::turn_on();
        let changed = changed.map(|(token_file, file)| {
            let token = AdminToken::read(token_file);
            let token = token.map_err(|error| CliError::admin_token(token_file, &error))?;
            let exports = AdminExports::new(file.to_owned(), runtime.handle().clone());
            Ok::<_, CliError>((token, Arc::new(exports)))
        });
        let (token, exports) = changed.transpose()?.unzip();
        let bound = runtime.block_on(AdminDoor::bind(address));
        let door = bound.map_err(|error| CliError::bind_admin(address, &error))?;
        let (address, state) = (door.address(), Arc::<AdminState>::default());
        let site = AdminSite {
            figures: Box::new(Arc::clone(&state)),
            health: Box::new(Arc::clone(&state)),
            exports: token
                .zip(exports.clone())
                .map(|(token, exports)| ExportsSite { token, exports: Box::new(exports) }),
        };
        runtime.spawn(door.serve(Arc::new(site)));
        Ok(Self { address, state, exports })
    }
}

impl AdminState {
    /// From now on, shows the figures of `served`.
    pub(super) fn serve(&self, served: ShownServer) {
        // Called once.
        let _first = self.served.set(served);
    }

    /// From now on, shows that the server stops.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}

impl HealthSource for Arc<AdminState> {
    fn fault(&self) -> Option<String> {
        let served = self.served.get()?;
        let health = served.sessions.health();
        // Without its database, a writer waits.
        let is_away = (served.has_lease)() == Some(false);
        if health.stuck > 0 && !is_away {
            return Some("the writer of a session is stuck in one operation".to_owned());
        }
        // While it stops, sessions are closed.
        let has_ended = health.ended > 0 && !self.is_draining();
        has_ended.then(|| "the writer of a session has ended".to_owned())
    }

    fn unready(&self) -> Option<String> {
        if self.is_draining() {
            return Some("draining: the server stops".to_owned());
        }
        let Some(served) = self.served.get() else {
            return Some("starting: sessions are being opened".to_owned());
        };
        if (served.has_lease)() == Some(false) {
            return Some("the database does not answer: changes wait for it".to_owned());
        }
        let has_failed = served.sessions.health().failed > 0;
        has_failed.then(|| "a session became read-only after an error; see the log".to_owned())
    }
}

impl FigureSource for Arc<AdminState> {
    fn collect<'a>(&'a self, samples: &'a mut Samples) -> Collecting<'a> {
        Box::pin(async move {
            samples.add(&m::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
            let is_ready = self.fault().or_else(|| self.unready()).is_none();
            samples.add(&m::READY, &[], is_ready.into());
            add_counters(samples);
            add_process(samples, &ProcessFigures::now());
            let Some(served) = self.served.get() else { return };
            add_server(samples, served.monitor.figures());
            add_sessions(samples, &served.sessions.figures().await);
            (served.limited)().iter().for_each(|limited| add_quota(samples, limited));
        })
    }
}

fn add_counters(samples: &mut Samples) {
    samples.add(&m::READ, &[], COUNTERS.read_bytes.value());
    samples.add(&m::WRITTEN, &[], COUNTERS.written_bytes.value());
    samples.add_observed(&m::BATCH_OPERATIONS, COUNTERS.batches.value());
    samples.add_times(&m::SYNC_DURATION, &[], COUNTERS.syncs.value());
    samples.add_times(&m::WAL_CHECKPOINT_DURATION, &[], COUNTERS.wal_checkpoints.value());
    samples.add(&m::COPY_UPS, &[], COUNTERS.copy_ups.value());
    samples.add(&m::GUARD_REFUSALS, &[], COUNTERS.guard_refusals.value());
    add_database(samples);
    for cache in Cache::ALL {
        let counts = COUNTERS.cache(cache);
        samples.add(&m::CACHE_HITS, &[cache.name()], counts.hits.value());
        samples.add(&m::CACHE_MISSES, &[cache.name()], counts.misses.value());
    }
}

fn add_database(samples: &mut Samples) {
    let LeaseFigures { held, invalid, silence, epoch } = lease_figures();
    samples.add_len(&m::LEASES, &[], held);
    samples.add_len(&m::LEASES_INVALID, &[], invalid);
    samples.add_real(&m::LEASE_SILENCE, &[], silence.as_secs_f64());
    samples.add(&m::LEASE_EPOCH, &[], epoch.unsigned_abs());
    let DatabaseCounts { commits, retries, doubts, failed_renewals, lost_leases, .. } =
        &COUNTERS.database;
    samples.add(&m::LEASE_RENEWALS_FAILED, &[], failed_renewals.value());
    samples.add(&m::LEASES_LOST, &[], lost_leases.value());
    samples.add_times(&m::DATABASE_COMMIT_DURATION, &[], commits.value());
    samples.add(&m::DATABASE_RETRIES, &[], retries.value());
    samples.add(&m::DATABASE_DOUBTS, &[], doubts.value());
    samples.add_real(&m::HYDRATION, &[], COUNTERS.database.last_fetch().as_secs_f64());
}

fn add_server(samples: &mut Samples, server: ServerFigures) {
    for call in server.calls {
        for (status, count) in call.statuses {
            samples.add(&m::RPC_CALLS, &[call.program, call.procedure, status], count);
        }
        samples.add_times(&m::RPC_DURATION, &[call.program, call.procedure], call.times);
    }
    samples.add(&m::RPC_RETRANSMISSIONS, &[], server.retransmissions);
    let by_reason = [
        (&m::RPC_REFUSALS, server.refused),
        (&m::THROTTLES, server.throttled),
        (&m::CONNECTIONS_CLOSED, server.ended),
    ];
    for (metric, counts) in by_reason {
        counts.into_iter().for_each(|(reason, count)| samples.add(metric, &[reason], count));
    }
    samples.add(&m::RECEIVED, &[], server.received_bytes);
    samples.add(&m::SENT, &[], server.sent_bytes);
    samples.add_len(&m::CONNECTIONS, &[], server.connections);
    samples.add_len(&m::CONNECTIONS_LIMIT, &[], server.max_connections);
    samples.add(&m::CONNECTIONS_OPENED, &[], server.opened);
    samples.add_len(&m::REQUESTS, &[], server.requests);
    samples.add_len(&m::REQUESTS_LIMIT, &[], server.max_requests);
    for pool in server.pools {
        samples.add_len(&m::POOL_USED, &[pool.name], pool.used);
        samples.add_len(&m::POOL_LIMIT, &[pool.name], pool.max);
    }
    samples.add_len(&m::REPLY_CACHE_ENTRIES, &[], server.cached_replies);
    samples.add_len(&m::REPLY_CACHE_SIZE, &[], server.cached_reply_bytes);
}

fn add_sessions(samples: &mut Samples, sessions: &SessionsFigures) {
    samples.add_len(&m::SESSIONS, &[], sessions.open);
    samples.add_len(&m::SESSIONS_FAILED, &[], sessions.health.failed);
    samples.add_len(&m::SESSIONS_STUCK, &[], sessions.health.stuck);
    samples.add_len(&m::EXPORTS, &[], sessions.exports.served);
    samples.add_len(&m::EXPORTS_OPEN, &[], sessions.exports.open);
    samples.add_len(&m::EXPORTS_UNAVAILABLE, &[], sessions.exports.unavailable);
    samples.add(&m::EXPORTS_EXPIRED, &[], sessions.exports.expired);
    samples.add(&m::WAL, &[], sessions.wal.file_bytes);
    samples.add(&m::WAL_LEFT, &[], sessions.wal.left_bytes);
    for (cache, entries) in &sessions.cache_entries {
        samples.add_len(&m::CACHE_ENTRIES, &[cache], *entries);
    }
    if let Some(pending) = sessions.pending {
        samples.add(&m::COPY_UP_PENDING, &[], pending.bytes);
        samples.add(&m::COPY_UP_PENDING_FILES, &[], pending.files);
    }
}

fn add_quota(samples: &mut Samples, limited: &LimitedUsage) {
    let LimitedUsage { export, usage: Usage { bytes, files }, limits } = limited;
    let Limits { bytes: max_bytes, files: max_files, .. } = *limits;
    if let Some(max) = max_bytes {
        samples.add(&m::QUOTA_USED_BYTES, &[export], *bytes);
        samples.add(&m::QUOTA_LIMIT_BYTES, &[export], max);
    }
    if let Some(max) = max_files {
        samples.add(&m::QUOTA_USED_FILES, &[export], *files);
        samples.add(&m::QUOTA_LIMIT_FILES, &[export], max);
    }
}

fn add_process(samples: &mut Samples, process: &ProcessFigures) {
    let integers = [
        (&m::PROCESS_RESIDENT, process.resident_bytes),
        (&m::PROCESS_VIRTUAL, process.virtual_bytes),
        (&m::PROCESS_THREADS, process.threads),
        (&m::PROCESS_OPEN_FDS, process.open_fds),
        (&m::PROCESS_MAX_FDS, process.max_fds),
    ];
    let reals =
        [(&m::PROCESS_CPU, process.cpu_seconds), (&m::PROCESS_START, process.start_seconds)];
    for (metric, value) in integers {
        value.into_iter().for_each(|value| samples.add(metric, &[], value));
    }
    for (metric, value) in reals {
        value.into_iter().for_each(|value| samples.add_real(metric, &[], value));
    }
}
