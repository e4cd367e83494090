//! `acetate serve`: exports a session, or the exports of a file, until it is stopped.

mod admin;
mod admin_exports;
mod commands;
mod controls;
mod database;
mod exports;
mod limits;
mod reload_changes;
mod session;
mod signals;
mod systemd;
mod warnings;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Map, Value};
use tokio::runtime::{self, Runtime};

use super::choosing::SessionOptions;
use super::detached;
use super::error::CliError;
use super::hiding::Hide;
use super::squash::{RootSquash, is_beyond_loopback};
use super::{Ending, mount_help, output, text};
use crate::delta::PendingCopies;
use crate::mounting::address::host;
use crate::overlay::Overlay;
use crate::server::limits::Limits;
use crate::server::rpcbind::Registration;
use crate::server::{Listeners, RpcProgram, Server, ServerOptions, Service};
use crate::wire::{mount3, nfs3, nlm4, portmap};
use crate::workspace::database::HeldReplica;
use crate::workspace::exports::until_any_stuck;
use crate::workspace::layers;
use crate::workspace::running::PendingAtEnd;

use admin::Admin;
use database::DatabaseArgs;
use limits::{max_connections, raise_descriptor_limit};
use signals::ServeSignals;
use systemd::{ServiceNotifier, inherited_listeners, keep_watchdog, watchdog_period};

/// The default address to listen at.
const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);

/// The time for aborted tasks to end.
const LEFTOVER_TIMEOUT: Duration = Duration::from_secs(1);

/// The time to finish requests at a shutdown while a base hangs.
const STUCK_DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Export a session over NFSv3, or several as an exports file says.
///
/// Creates the session if there is none. Without --base, the base recorded in the session is
/// used, or none. SIGTERM or SIGINT stops: requests are finished, everything is synced.
///
/// With --config, serves the exports of that file (docs/EXPORTS.md; `acetate config check` checks
/// it). SIGHUP reads it again: mounts of exports that are still in it continue.
///
/// A server that systemd starts uses the sockets that systemd passes instead of --listen, and
/// notifies systemd of its state (docs/OPERATIONS.md).
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file, or postgres://USER@HOST/DATABASE/NAME: every change goes here.
    #[arg(value_name = "SESSION.db", required_unless_present = "config")]
    session: Option<PathBuf>,

    /// Serve the exports of this file, instead of one session.
    #[arg(
        long,
        value_name = "EXPORTS.toml",
        conflicts_with_all = [
            "session", "base", "read_only", "insecure", "root_squash", "no_root_squash",
            "chunk_size", "detached", "hide", "hide_secrets", "existing", "moved",
            "keep_originals", "checkpoints",
            "keep_checkpoints",
        ]
    )]
    config: Option<PathBuf>,

    /// Fail if one export of the file cannot be opened, instead of serving the others.
    #[arg(long, requires = "config", hide_short_help = true)]
    strict: bool,

    /// The directory that shows through; it is never written.
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    /// Where to listen; repeatable.
    ///
    /// A port alone is on 127.0.0.1, an address or name alone has port 2049. Port 0 takes a free
    /// one. Beyond loopback, the clients' root is squashed unless --no-root-squash is given.
    #[arg(long, value_name = "ADDR:PORT", default_values_t = [DEFAULT_ADDRESS])]
    #[arg(value_parser = super::listen::parse)]
    listen: Vec<SocketAddr>,

    /// Refuse every change.
    #[arg(long)]
    read_only: bool,

    /// What a reply promises: `commit` to survive the server's death (fsync the machine's),
    /// `strict` to survive the machine's.
    #[arg(long, value_enum, default_value_t = Durability::Commit)]
    durability: Durability,

    /// Allow source ports above 1023 (refused on Linux otherwise).
    #[arg(long)]
    insecure: bool,

    #[command(flatten)]
    squash: RootSquash,

    /// Let `mount` find the port: by rpcbind, or in its place on port 111.
    #[arg(long)]
    rpcbind: bool,

    /// At the stop, leave large files that are copied in part to the next start.
    #[arg(long, hide_short_help = true)]
    leave_copies: bool,

    /// Bytes per stored chunk in a new session, a power of two [default: 65536].
    #[arg(long, value_name = "BYTES", hide_short_help = true)]
    chunk_size: Option<u64>,

    #[command(flatten)]
    hide: Hide,

    #[command(flatten)]
    choosing: SessionOptions,

    #[command(flatten)]
    database: DatabaseArgs,

    /// Serve figures for Prometheus at /metrics here, over HTTP, and /healthz and /readyz.
    ///
    /// Without a password: docs/SECURITY.md says what they show. Port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT", hide_short_help = true)]
    #[arg(value_parser = super::listen::parse_admin)]
    admin: Option<SocketAddr>,

    /// Let clients of --admin that know the token in this file list and change exports.
    ///
    /// Only the file's owner may be able to read it; clients send `Authorization: Bearer TOKEN`
    /// (docs/OPERATIONS.md).
    #[arg(long, value_name = "FILE", requires_all = ["admin", "config"],
        conflicts_with = "session", hide_short_help = true)]
    admin_token_file: Option<PathBuf>,

    /// Print a JSON object once clients can connect: addresses, and session, base and hide, or
    /// config and exports (their paths, secret ones left out); admin with --admin.
    #[arg(long, hide_short_help = true)]
    json: bool,

    /// Leave the terminal, and log to SESSION.db.log when clients can come.
    #[arg(long, hide = true)]
    detached: bool,
}

/// `--durability`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Durability {
    Commit,
    Strict,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    // Before anything is opened.
    let inherited = inherited_listeners()?;
    // A server in the background is a part of another command, for which the manager waits.
    let notifier = match args.detached {
        true => ServiceNotifier::silent(),
        false => ServiceNotifier::from_environment(),
    };
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(layers::network_threads())
        .thread_name("acetate-net")
        .build()
        .map_err(|error| CliError::caused("cannot start threads", &error))?;
    if args.detached {
        detached::leave_terminal();
    }
    let served = serve(&runtime, args, inherited, &notifier);
    runtime.shutdown_timeout(LEFTOVER_TIMEOUT);
    if let Err(error) = &served {
        notifier.status(format_args!("failed: {error}"));
    }
    served.map(|()| Ending::Done)
}

fn serve(
    runtime: &Runtime,
    args: &Args,
    inherited: Vec<TcpListener>,
    notifier: &ServiceNotifier,
) -> Result<(), CliError> {
    // From here on, a signal leads to an orderly shutdown.
    let mut signals = runtime.block_on(async { ServeSignals::new() })?;
    raise_descriptor_limit();
    let held = match args.session_url()? {
        Some(url) => match database::hold(runtime, args, &url, &mut signals, notifier)? {
            Some(held) => Some(held),
            None => return Ok(()),
        },
        None => None,
    };
    let served = serve_at(runtime, args, inherited, (signals, notifier), held.as_ref());
    if let Some(held) = held {
        runtime.block_on(held.release());
    }
    served
}

fn serve_at(
    runtime: &Runtime,
    args: &Args,
    inherited: Vec<TcpListener>,
    (signals, notifier): (ServeSignals, &ServiceNotifier),
    held: Option<&Arc<HeldReplica>>,
) -> Result<(), CliError> {
    // The network first, so that a port in use does not leave a new session behind.
    let listeners = runtime.block_on(listen(args, inherited))?;
    let admin = args.begin_admin(runtime)?;
    let registration = match args.rpcbind {
        true => Some(runtime.block_on(register(&listeners.addresses()))?),
        false => None,
    };
    let registered = registration.as_ref();
    let door = Frontend { signals, listeners, registration: registered, admin, notifier };
    let served = match (&args.session, &args.config) {
        (Some(session), _) => session::serve(runtime, args, (session, held), door),
        (None, Some(file)) => exports::serve(runtime, args, file, door),
        (None, None) => Err(CliError::new("neither a session nor an exports file to serve")),
    };
    if let Some(registration) = registration {
        runtime.block_on(registration.end());
    }
    served
}

/// The listening side of a server.
struct Frontend<'a> {
    signals: ServeSignals,
    listeners: Listeners,
    registration: Option<&'a Registration>,
    admin: Option<Admin>,
    notifier: &'a ServiceNotifier,
}

impl Args {
    /// The listener of `--admin`.
    fn begin_admin(&self, runtime: &Runtime) -> Result<Option<Admin>, CliError> {
        let changed = self.admin_token_file.as_deref().zip(self.config.as_deref());
        self.admin.map(|address| Admin::begin(runtime, address, changed)).transpose()
    }

    /// What the stop does about content that is copied in part.
    fn pending_at_end(&self) -> PendingAtEnd {
        if self.leave_copies { PendingAtEnd::Leave } else { PendingAtEnd::Finish }
    }
}

/// The sockets of the service manager, or else new ones at the addresses of `--listen`.
async fn listen(args: &Args, inherited: Vec<TcpListener>) -> Result<Listeners, CliError> {
    if inherited.is_empty() {
        return Listeners::bind(&args.listen).await.map_err(|error| CliError::bind(&error));
    }
    if args.listen != [DEFAULT_ADDRESS] {
        output::line(format_args!("--listen is not used: the service manager passed sockets"));
    }
    let failed = |error| CliError::caused("cannot use the sockets of the service manager", &error);
    Listeners::inherit(inherited).map_err(failed)
}

/// Starts the watchdog's task, if the service manager has one. `overlays` returns those that are
/// served; it must not block.
fn start_watchdog(
    notifier: &ServiceNotifier,
    mut overlays: impl FnMut() -> Vec<Weak<Overlay>> + Send + 'static,
) {
    let Some(period) = watchdog_period().filter(|_| notifier.is_heard()) else { return };
    let is_hung = |overlay: &Weak<Overlay>| overlay.upgrade().is_some_and(|it| it.is_writer_hung());
    let is_live = move || !overlays().iter().any(is_hung);
    tokio::spawn(keep_watchdog(notifier.clone(), period, is_live));
}

/// Reports how much is left to copy at a stop.
fn tell_of_copies(notifier: &ServiceNotifier, left: PendingCopies) {
    let text = format!("finishing the copy of {}", copies_left(left));
    output::line(format_args!("{text} left"));
    notifier.still_stopping(format_args!("{text} left"));
}

/// `2 files, 30 MiB`.
fn copies_left(PendingCopies { files, bytes }: PendingCopies) -> String {
    format!("{}, {} MiB", text::count(files, "file"), bytes.div_ceil(1 << 20))
}

/// A server of `programs`, with as many connections as there are file descriptors for.
fn server(
    listeners: Listeners,
    programs: Vec<Arc<dyn RpcProgram>>,
    registration: Option<&Registration>,
    options: ServerOptions,
) -> Server {
    let limits = Limits { connections: max_connections(), ..options.limits };
    let watch = |program| match registration {
        Some(registration) => registration.watch(program),
        None => program,
    };
    let programs = programs.into_iter().map(watch).collect();
    Server::new(listeners, programs, ServerOptions { limits, ..options })
}

/// Waits until all `bases` have answered or failed: while a base hangs, opening it would delay the
/// handling of signals.
///
/// # Errors
/// A signal arrived first.
fn await_bases(
    runtime: &Runtime,
    door: &mut Frontend<'_>,
    bases: Vec<PathBuf>,
) -> Result<(), CliError> {
    door.notifier.status("opening the bases");
    let signals = &mut door.signals;
    let ask = move || bases.iter().for_each(|base| drop(layers::probe(base)));
    let asking = runtime.spawn_blocking(ask);
    runtime.block_on(async {
        tokio::select! {
            _ = asking => Ok(()),
            () = signals.next() => Err(CliError::new("stopped while a base did not answer")),
        }
    })
}

/// Completes when requests are to be aborted at a shutdown: the base of one of `overlays` hangs.
async fn stuck(overlays: impl Fn() -> Vec<Arc<Overlay>>) {
    tokio::time::sleep(STUCK_DRAIN_TIMEOUT).await;
    until_any_stuck(&overlays()).await;
}

/// The address for mount commands: one beyond loopback, if there is any.
fn for_clients(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let far = addresses.iter().find(|address| is_beyond_loopback(address));
    far.or(addresses.first()).copied()
}

/// Prints how to mount an export, with a short form if rpcbind is used.
fn tell_how_to_mount(
    address: SocketAddr,
    path: &str,
    registration: Option<&Registration>,
    term: Option<Duration>,
) {
    for command in mount_help::commands(address, path, term) {
        output::line(format_args!("{command}"));
    }
    if let Some(registration) = registration {
        let how = if registration.is_builtin() { "in rpcbind's place" } else { "by rpcbind" };
        let host = host(address);
        // Without `nolock`, it would need rpc.statd, and a restart of the server would lose locks.
        let more = mount_help::takeover_option(term);
        output::line(format_args!(
            "  or      sudo mount -t nfs -o nolock{more} {host}:{path} /mnt/agent (found {how})"
        ));
    }
}

/// The common fields of the JSON object of a server.
fn serving(addresses: &[SocketAddr], admin: Option<&Admin>) -> Map<String, Value> {
    let mut object = text::json("serving");
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    object.insert("addresses".to_owned(), addresses.into());
    object.insert("pid".to_owned(), std::process::id().into());
    if let Some(admin) = admin {
        object.insert("admin".to_owned(), admin.address.to_string().into());
    }
    object
}

/// Completes at the first signal, and shows from then on that the server stops.
async fn stopped(signals: ServeSignals, is_detached: bool, admin: Option<&Admin>) {
    signals.first(is_detached).await;
    if let Some(admin) = admin {
        admin.state.drain();
    }
}

/// The last line of output says that clients can connect.
fn tell_addresses(addresses: &[SocketAddr], admin: Option<&Admin>) {
    if let Some(admin) = admin {
        output::line(format_args!("figures at http://{}/metrics", admin.address));
    }
    for address in addresses {
        output::line(format_args!("listening on {address}"));
    }
}

async fn register(addresses: &[SocketAddr]) -> Result<Registration, CliError> {
    let service = |(program, version)| move |&address| Service { program, version, address };
    let programs = [
        (nfs3::PROGRAM, nfs3::VERSION),
        (mount3::PROGRAM, mount3::VERSION),
        (nlm4::PROGRAM, nlm4::VERSION),
    ];
    let at_each = |program| addresses.iter().map(service(program));
    let services: Vec<Service> = programs.into_iter().flat_map(at_each).collect();
    let registered = Registration::begin(&services, portmap::PORT).await;
    registered.map_err(|error| CliError::rpcbind(&error))
}
