//! A session in a database: waits for its lease before the server listens, and ends the process
//! when the lease is lost.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::signals::ServeSignals;
use super::systemd::ServiceNotifier;
use super::{Args, Frontend};
use crate::cli::error::CliError;
use crate::cli::in_database::{self, TERM};
use crate::cli::{LOST, output, session_names};
use crate::config::{Config, ExportConfig};
use crate::delta::postgres::SessionUrl;
use crate::workspace::database::{self, DatabaseOptions, HeldReplica};
use crate::workspace::exports::DatabaseSettings;
use crate::workspace::old_replicas::remove_old_replicas;

/// How long a stop waits for the database while the lease is not valid.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// Options for a session in a database.
#[derive(Debug, clap::Args)]
pub(super) struct DatabaseArgs {
    /// Where replicas of sessions in databases are kept [default: the user's cache directory].
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    local: Option<PathBuf>,

    /// Of a new session in a database: seconds after which a server that is silent loses it
    /// [default: 3].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(TERM))]
    #[arg(requires = "session", hide_short_help = true)]
    lease: Option<u64>,

    /// Wait while another server has the session in the database, and listen once it is gone.
    #[arg(long, requires = "session", hide_short_help = true)]
    standby: bool,

    /// Run this program when the session in the database is this server's, before it listens.
    ///
    /// It may move an address here. ACETATE_SESSION has the URL. If it fails, the server ends.
    #[arg(long, value_name = "PROGRAM", requires = "session", hide_short_help = true)]
    on_lease: Option<PathBuf>,

    /// The session file is the replica of this session in a database: for `mount` and `run`, which
    /// know the server by it.
    #[arg(long, value_name = "URL", requires = "detached", hide = true)]
    replica_of: Option<String>,
}

impl Args {
    /// The session in a database, if one is named.
    pub(super) fn session_url(&self) -> Result<Option<SessionUrl>, CliError> {
        let Some(given) = self.url_text() else {
            let DatabaseArgs { local, lease, standby, on_lease, .. } = &self.database;
            let is_local = local.is_some() && self.config.is_none();
            if is_local || lease.is_some() || *standby || on_lease.is_some() {
                let what = "--local, --lease, --standby and --on-lease are for sessions in a \
                            database";
                let hint = "name the session as postgres://USER@HOST/DATABASE/NAME";
                return Err(CliError::new(what).with_hint(hint));
            }
            return Ok(None);
        };
        if self.read_only {
            let what = "--read-only does not work with a session in a database";
            return Err(CliError::new(what).with_hint("clients can mount it with `-o ro`"));
        }
        in_database::parse(given).map(Some)
    }

    /// How the sessions in databases of an exports file are opened.
    pub(super) fn database_settings(&self, door: &Frontend<'_>) -> DatabaseSettings {
        let addresses = door.listeners.addresses();
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        DatabaseSettings { local: self.database.local.clone(), address: addresses.join(", ") }
    }

    /// The URL of the session, if it is in a database.
    pub(super) fn url_text(&self) -> Option<&str> {
        let given = self.session.as_deref().and_then(Path::to_str);
        let given = given.filter(|given| SessionUrl::is_meant(given));
        self.database.replica_of.as_deref().or(given)
    }

    /// The replica of a server that `mount` or `run` starts: it has this path and no other.
    fn replica(&self) -> Option<&Path> {
        self.database.replica_of.as_ref().and(self.session.as_deref())
    }

    /// The session as the user knows it; `file` is the one that is open.
    pub(super) fn shown_session(&self, file: &Path) -> String {
        self.url_text().map_or_else(|| file.display().to_string(), str::to_owned)
    }
}

/// The term of the leases of an export's sessions, as far as it is known before they are opened;
/// `None` if none is in a database.
pub(super) fn lease_term(config: &Config, path: &str) -> Option<Duration> {
    let is_it =
        |it: &&ExportConfig| it.path.as_ref().is_some_and(|of_it| of_it.to_string() == path);
    let export = config.exports.iter().find(is_it)?;
    export.urls().next().map(|_| database::DEFAULT_TERM)
}

/// Waits for the lease of a session, and runs the program of `--on-lease`; `None` if a signal came
/// first.
pub(super) fn hold(
    runtime: &Runtime,
    args: &Args,
    url: &SessionUrl,
    signals: &mut ServeSignals,
    notifier: &ServiceNotifier,
) -> Result<Option<Arc<HeldReplica>>, CliError> {
    let given = &args.database;
    let hidden = args.hide.patterns()?;
    let addresses: Vec<_> = args.listen.iter().map(ToString::to_string).collect();
    let options = DatabaseOptions {
        local: given.local.as_deref().or(args.replica().and_then(Path::parent)),
        replica: args.replica(),
        base: args.base.as_deref(),
        chunk_size: args.chunk_size,
        hidden: &hidden,
        existing: args.choosing.existing,
        term: given.lease.map(Duration::from_secs),
        address: addresses.join(", "),
        is_standby: given.standby,
        is_moved: args.choosing.moved,
        ..DatabaseOptions::new(url)
    };
    notifier.status(match given.standby {
        true => "waiting for the session's lease",
        false => "taking the session's lease",
    });
    if given.standby {
        output::line(format_args!("waiting until {url} is free"));
    }
    let held = database::hold(&options, runtime.handle(), signals.next())?;
    let Some(held) = held.map(Arc::new) else { return Ok(None) };
    session_names::show_as(&held.path, &url.to_string());
    if let Some(program) = &given.on_lease
        && let Err(error) = run(program, url)
    {
        runtime.block_on(held.release());
        return Err(error);
    }
    if let Some(dir) = held.path.parent().map(Path::to_owned) {
        let (url, handle) = (url.clone(), runtime.handle().clone());
        runtime.spawn_blocking(move || remove_old_replicas(&dir, &url, &handle));
    }
    Ok(Some(held))
}

fn run(program: &Path, url: &SessionUrl) -> Result<(), CliError> {
    let shown = program.display();
    let hint = "it has to end with 0 once the address leads here; the session is free again";
    let ended = Command::new(program).env("ACETATE_SESSION", url.to_string()).status();
    let status = ended.map_err(|error| {
        CliError::caused(format_args!("{shown} of --on-lease"), &error).with_hint(hint)
    })?;
    match status.success() {
        true => Ok(()),
        false => {
            let what = format!("{shown} of --on-lease failed: {status}");
            Err(CliError::new(what).with_hint(hint))
        }
    }
}

/// Tells other servers where the session is served.
pub(super) async fn announce(held: &HeldReplica, addresses: &[SocketAddr]) {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    if let Err(error) = held.announce(&addresses.join(", ")).await {
        tracing::warn!(%error, "the database does not know where the session is served");
    }
}

/// Ends the process at once when the session is lost: another server answers now.
pub(super) async fn end_when_lost(held: Arc<HeldReplica>, notifier: ServiceNotifier) {
    let reason = held.until_lost().await;
    notifier.status(format_args!("lost the session: {reason}"));
    output::error(&CliError::new(format!("lost the session: {reason}")));
    process::exit(LOST);
}

/// Completes when requests are to be aborted at a shutdown: they wait for the database. Never
/// completes for a session in a file.
pub(super) async fn away(held: Option<&Arc<HeldReplica>>) {
    loop {
        tokio::time::sleep(super::STUCK_DRAIN_TIMEOUT).await;
        if held.is_some_and(|held| !held.is_valid()) {
            return;
        }
    }
}

/// Ends the process at a stop if the database stays away: what waits for it is never answered, and
/// the database, not this process, knows what was kept.
pub(super) async fn end_without_database(held: Arc<HeldReplica>) {
    loop {
        tokio::time::sleep(STOP_WAIT).await;
        if !held.is_valid() {
            let what = "stopped without the database, which does not answer";
            let hint = "calls that were not answered are repeated by the clients";
            output::error(&CliError::new(what).with_hint(hint));
            process::exit(LOST);
        }
    }
}
