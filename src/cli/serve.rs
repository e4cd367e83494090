//! `acetate serve`: exports a session until it is told to stop.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::control::Control;
use super::detached::{self, LogFile};
use super::error::CliError;
use super::mount_help;
use super::output;
use super::{Ending, FAILED};
use crate::delta::PendingCopies;
use crate::overlay::Overlay;
use crate::server::limits::{Limits, MAX_CONNECTIONS};
use crate::server::rpcbind::Registration;
use crate::server::{Listeners, Server, ServerOptions, Service};
use crate::wire::{mount3, nfs3, nlm4, portmap};
use crate::workspace::layers::{self, Layers, Wanted};

/// Where clients are waited for if nothing else is said.
const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2049);

/// Part of the process's file descriptors that connections may have.
const SHARE_OF_DESCRIPTORS: u64 = 4;

/// Time for tasks that were given up to end.
const LEFTOVER_TIMEOUT: Duration = Duration::from_secs(1);

/// Export a session over NFSv3.
///
/// Creates the session if there is none. Without --base, the base recorded in the session is
/// used, or none. SIGTERM or SIGINT stops: requests are finished, everything is synced.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file: every change goes here.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The directory that shows through; it is never written.
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    /// Where to listen; may be given several times. Port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT", default_values_t = [DEFAULT_ADDRESS])]
    listen: Vec<SocketAddr>,

    /// Refuse every change.
    #[arg(long)]
    read_only: bool,

    /// What a reply promises: `commit` to survive the server's death (fsync the machine's),
    /// `strict` to survive the machine's.
    #[arg(long, value_enum, default_value_t = Durability::Commit)]
    durability: Durability,

    /// Allow clients with source ports above 1023 (refused on Linux otherwise).
    #[arg(long)]
    insecure: bool,

    /// Let `mount` find the port: register with rpcbind, or stand in for it on port 111.
    #[arg(long)]
    rpcbind: bool,

    /// Bytes per stored chunk of a file in a new session: a power of two [default: 65536].
    #[arg(long, value_name = "BYTES")]
    chunk_size: Option<u64>,

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

/// Serves until a signal comes.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(layers::network_threads())
        .thread_name("acetate-net")
        .build()
        .map_err(|error| CliError::caused("cannot start threads", &error))?;
    if args.detached {
        detached::leave_terminal();
    }
    let served = serve(&runtime, args);
    runtime.shutdown_timeout(LEFTOVER_TIMEOUT);
    served.map(|()| Ending::Done)
}

fn serve(runtime: &Runtime, args: &Args) -> Result<(), CliError> {
    // From the first on, a signal lets everything that was begun be taken back.
    let signals = runtime.block_on(async { Signals::new() })?;
    raise_descriptor_limit();
    // The network first, so that a port that is taken leaves no session behind.
    let listeners =
        runtime.block_on(Listeners::bind(&args.listen)).map_err(|error| CliError::bind(&error))?;
    let registration = match args.rpcbind {
        true => Some(runtime.block_on(register(&listeners.addresses()))?),
        false => None,
    };
    let served = serve_session(runtime, args, signals, listeners, registration.as_ref());
    if let Some(registration) = registration {
        runtime.block_on(registration.end());
    }
    served
}

fn serve_session(
    runtime: &Runtime,
    args: &Args,
    signals: Signals,
    listeners: Listeners,
    registration: Option<&Registration>,
) -> Result<(), CliError> {
    let layers = layers::open(&Wanted {
        session: &args.session,
        base: args.base.as_deref(),
        chunk_size: args.chunk_size,
        read_only: args.read_only,
        strict: args.durability == Durability::Strict,
    })?;
    let (path, worker) = (layers.session.clone(), layers.worker.clone());
    let overlay = Arc::clone(&layers.overlay);
    let copying = (!args.read_only).then(|| {
        let overlay = Arc::clone(&overlay);
        runtime.spawn(async move { overlay.copy_in_background().await })
    });
    let log = runtime.block_on(until_signal(args, signals, listeners, layers, registration));
    if let Some(copying) = copying {
        copying.abort();
        runtime.block_on(finish_copies(&overlay));
    }
    let closed = runtime.block_on(worker.shut_down());
    closed.map_err(|error| CliError::session(&path, &error))?;
    if let Some(log) = log {
        log.end();
    }
    Ok(())
}

/// Finishes what copy-up has left to the background: a session at rest is whole.
async fn finish_copies(overlay: &Overlay) {
    let left = |PendingCopies { files, bytes }| {
        let mib = bytes.div_ceil(1 << 20);
        output::line(format_args!("finishing the copy of {files} files, {mib} MiB left"));
    };
    let begin = overlay.pending_copies().await;
    let finished = match begin {
        Ok(PendingCopies { files: 0, .. }) => return,
        Ok(pending) => {
            left(pending);
            overlay.finish_copies(left).await
        }
        Err(error) => Err(error),
    };
    match finished {
        Ok(PendingCopies { files: 0, .. }) => {}
        Ok(PendingCopies { files, .. }) => output::line(format_args!(
            "{files} files are copied in part only: their base files changed (see the log)"
        )),
        Err(_) => output::line(format_args!("the copy goes on at the next start (see the log)")),
    }
}

async fn until_signal(
    args: &Args,
    signals: Signals,
    listeners: Listeners,
    layers: Layers,
    registration: Option<&Registration>,
) -> Option<LogFile> {
    let limits = Limits { connections: max_connections(), ..Limits::default() };
    let options = ServerOptions { insecure: args.insecure, limits };
    let watch = |program| match registration {
        Some(registration) => registration.watch(program),
        None => program,
    };
    let programs = layers.programs.iter().map(Arc::clone).map(watch).collect();
    let addresses = listeners.addresses();
    let server = Server::new(listeners, programs, options);
    // Whoever serves to be read only shares the session with others that do.
    let control = (!args.read_only).then(|| {
        let (session, base) = (&layers.session, layers.base.clone());
        Control::begin(session, base, &layers.overlay, addresses.clone(), server.peers())
    });
    announce(args, &layers, &addresses, registration);
    let log = match args.detached {
        true => Some(LogFile::take_stderr(&layers.session)?),
        false => None,
    };
    let stopped = signals.first(!args.detached);
    match &log {
        Some(log) => tokio::select! {
            () = server.run(stopped) => {}
            () = log.keep_short() => {}
        },
        None => server.run(stopped).await,
    }
    drop(control);
    log
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

/// Says what is served, and how to mount it; the last line says that clients can come.
fn announce(
    args: &Args,
    layers: &Layers,
    addresses: &[SocketAddr],
    registration: Option<&Registration>,
) {
    if !args.detached {
        tell_how_to_mount(args, layers, addresses, registration);
    }
    for address in addresses {
        output::line(format_args!("listening on {address}"));
    }
}

fn tell_how_to_mount(
    args: &Args,
    layers: &Layers,
    addresses: &[SocketAddr],
    registration: Option<&Registration>,
) {
    let session = layers.session.display();
    let changes = if args.read_only { "read-only, changes of" } else { "changes go to" };
    match layers.base.as_deref().map(Path::display) {
        Some(base) => {
            output::line(format_args!("serving {base}, never written; {changes} {session}"))
        }
        None => output::line(format_args!("serving {session}, without a base")),
    }
    if let Some(first) = addresses.first() {
        for command in mount_help::commands(*first) {
            output::line(format_args!("{command}"));
        }
        if let Some(registration) = registration {
            let how = if registration.is_stand_in() { "in rpcbind's place" } else { "by rpcbind" };
            let host = mount_help::host(*first);
            // Works without nolock too, but then needs rpc.statd, and a restart forgets locks.
            output::line(format_args!(
                "  or      sudo mount -t nfs -o nolock {host}:/ /mnt/agent (found {how})"
            ));
        }
    }
}

/// Asks for file descriptors for all connections; as few as there are do too.
fn raise_descriptor_limit() {
    let wanted = (MAX_CONNECTIONS as u64).saturating_mul(SHARE_OF_DESCRIPTORS);
    let mut limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if limit.current.is_some_and(|current| current < allowed) {
        limit.current = Some(allowed);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!(%error, "cannot raise the limit of open files");
        }
    }
}

/// Connections that the process has file descriptors for.
fn max_connections() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let share = limit.map_or(u64::MAX, |limit| (limit / SHARE_OF_DESCRIPTORS).max(1));
    usize::try_from(share).unwrap_or(usize::MAX).min(MAX_CONNECTIONS)
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, CliError> {
        let listen = |kind| {
            signal(kind).map_err(|error| CliError::caused("cannot listen for signals", &error))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Returns at the first signal; a second one ends the process at once.
    async fn first(mut self, is_told: bool) {
        self.next().await;
        if is_told {
            output::line(format_args!("stopping; a second signal stops at once"));
        }
        tokio::spawn(async move {
            self.next().await;
            process::exit(FAILED.into());
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
