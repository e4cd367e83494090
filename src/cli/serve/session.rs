//! Serves one session.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Runtime;

use super::admin::{Admin, ShownServer};
use super::{Args, Durability, Frontend, database};
use crate::cli::control::Control;
use crate::cli::detached::LogFile;
use crate::cli::error::CliError;
use crate::cli::{choosing, hiding, output, text};
use crate::delta::PendingCopies;
use crate::server::rpcbind::Registration;
use crate::server::{Monitor, ServerOptions};
use crate::workspace::accounts::LimitedUsage;
use crate::workspace::checkpoints::{automatic, keep_of};
use crate::workspace::database::HeldReplica;
use crate::workspace::figures::{ExportCounts, ShownSessions};
use crate::workspace::layers::{self, LayerOptions, SessionLayers};
use crate::workspace::running::{PendingAtEnd, RunningSession};

/// Serves a session until a signal arrives, then closes it. `held` is its replica, if it is in a
/// database.
pub(super) fn serve(
    runtime: &Runtime,
    args: &Args,
    (session, held): (&Path, Option<&Arc<HeldReplica>>),
    mut door: Frontend<'_>,
) -> Result<(), CliError> {
    let base = args.base.iter().cloned().collect();
    super::await_bases(runtime, &mut door, base)?;
    let wanted = LayerOptions {
        chunk_size: args.chunk_size,
        read_only: args.read_only,
        strict: args.durability == Durability::Strict,
        hide: Arc::new(args.hide.patterns()?),
        remember_hidden: true,
        existing: args.choosing.existing,
        moved: args.choosing.moved,
        keep_originals: args.choosing.keep_originals,
        keep_checkpoints: args.choosing.keep_checkpoints.map(keep_of),
        checkpoints: automatic(args.choosing.checkpoints.unwrap_or_default()),
        database: held.cloned(),
        ..LayerOptions::new(held.map_or(session, |held| &held.path), args.base.as_deref())
    };
    let layers = layers::open(&wanted, &layers::pool(runtime.handle()))?;
    let running = RunningSession::begin(layers, runtime.handle());
    let notifier = door.notifier;
    let addresses = door.listeners.addresses();
    let mut watching = held.map(|held| {
        runtime.block_on(database::announce(held, &addresses));
        vec![runtime.spawn(database::end_when_lost(Arc::clone(held), notifier.clone()))]
    });
    let log = runtime.block_on(until_signal(args, door, (&running.layers, held)));
    if let Some((held, watching)) = held.zip(watching.as_mut()) {
        watching.push(runtime.spawn(database::end_without_database(Arc::clone(held))));
    }
    let pending = args.pending_at_end();
    let progress = |left| super::tell_of_copies(notifier, left);
    let ended = runtime.block_on(running.end(pending, progress));
    // From here on, the lease is given back.
    watching.into_iter().flatten().for_each(|task| task.abort());
    match ended? {
        Ok(PendingCopies { files: 0, .. }) => {}
        Ok(left) if pending == PendingAtEnd::Leave => output::line(format_args!(
            "left to the next start: the copy of {}",
            super::copies_left(left),
        )),
        Ok(PendingCopies { files, .. }) => output::line(format_args!(
            "copied in part only: {}, as the base has changed (see the log)",
            text::count(files, "file"),
        )),
        Err(_) => output::line(format_args!("the copy continues at the next start (see the log)")),
    }
    if let Some(log) = log {
        log.end();
    }
    Ok(())
}

async fn until_signal(
    args: &Args,
    door: Frontend<'_>,
    (layers, held): (&Arc<SessionLayers>, Option<&Arc<HeldReplica>>),
) -> Option<LogFile> {
    let Frontend { signals, listeners, registration, admin, notifier } = door;
    let admin = admin.as_ref();
    let addresses = listeners.addresses();
    let squash_root = args.squash.applies_at(&addresses);
    let insecure = args.insecure;
    let options = ServerOptions {
        insecure,
        squash_root,
        // Another machine has the address, then.
        resets: held.is_some(),
        ..ServerOptions::default()
    };
    let programs = layers.programs();
    let programs = held.map(|held| held.guard(programs.clone())).unwrap_or(programs);
    let server = super::server(listeners, programs, registration, options);
    if let Some(admin) = admin {
        admin.state.serve(served(server.monitor(), layers, held.cloned()));
    }
    // A read-only server shares the session with others, so it has no control socket.
    let control = (!args.read_only).then(|| {
        let (session, base) = (&layers.session, layers.base.clone());
        let (addresses, peers) = (addresses.clone(), server.peers());
        Control::begin(session, base, &layers.overlay, addresses, peers, None, None)
    });
    announce(args, layers, &addresses, (registration, admin));
    let log = match args.detached {
        true => Some(LogFile::take_stderr(&layers.session)?),
        false => None,
    };
    notifier.ready(format_args!("serving {}", args.shown_session(&layers.session)));
    let (watched, of_watch) = (Arc::downgrade(&layers.overlay), held.cloned());
    // Without its database, a writer waits.
    let is_watched = move || of_watch.as_ref().is_none_or(|held| held.is_valid());
    super::start_watchdog(
        notifier,
        move || {
            if is_watched() { vec![watched.clone()] } else { Vec::new() }
        },
    );
    let stopped = async {
        super::stopped(signals, args.detached, admin).await;
        notifier.stopping("finishing requests");
    };
    let overlay = Arc::clone(&layers.overlay);
    let stuck = async {
        tokio::select! {
            () = super::stuck(move || vec![Arc::clone(&overlay)]) => {}
            () = database::away(held) => {}
        }
    };
    let serving = server.run_until(stopped, stuck);
    match &log {
        Some(log) => tokio::select! {
            () = serving => {}
            () = log.keep_short() => {}
        },
        None => serving.await,
    }
    if let Some(control) = control {
        control.end().await;
    }
    log
}

/// What `--admin` shows of a session.
fn served(
    monitor: Monitor,
    layers: &Arc<SessionLayers>,
    held: Option<Arc<HeldReplica>>,
) -> ShownServer {
    let exports = ExportCounts { served: 1, open: 1, unavailable: 0, expired: 0 };
    let shown = Arc::downgrade(layers);
    let sessions =
        ShownSessions::new(move || shown.upgrade().into_iter().collect(), move || exports);
    let overlay = Arc::downgrade(&layers.overlay);
    let limited = move || {
        let (usage, limits) = overlay.upgrade()?.counted();
        let (usage, export) = (usage?, "/".to_owned());
        Some(LimitedUsage { export, usage, limits })
    };
    let limited = Box::new(move || limited().into_iter().collect());
    let has_lease = Box::new(move || held.as_ref().map(|held| held.is_valid()));
    ShownServer { monitor, sessions, limited, has_lease }
}

/// Prints what is served, and how to mount it.
fn announce(
    args: &Args,
    layers: &SessionLayers,
    addresses: &[SocketAddr],
    (registration, admin): (Option<&Registration>, Option<&Admin>),
) {
    let hides = hiding::suffix(&layers.hidden);
    if !args.detached {
        let session = args.shown_session(&layers.session);
        let changes = if args.read_only { "read-only, changes of" } else { "changes go to" };
        match layers.base.as_deref().map(Path::display) {
            Some(base) => {
                let what = format!("serving {base}, never written; {changes} {session}{hides}");
                output::line(format_args!("{what}"));
            }
            None => output::line(format_args!("serving {session}, without a base{hides}")),
        }
        match args.url_text() {
            _ if !layers.is_new => {}
            Some(url) => output::line(format_args!("created {url}")),
            None => choosing::tell_created(&layers.session),
        }
        if let Some(address) = super::for_clients(addresses) {
            super::tell_how_to_mount(address, "/", registration, layers.lease_term());
        }
    }
    if args.json {
        let mut object = super::serving(addresses, admin);
        object.insert("session".to_owned(), args.shown_session(&layers.session).into());
        let base = layers.base.as_deref().map(|base| base.display().to_string());
        object.insert("base".to_owned(), base.into());
        object.insert("hide".to_owned(), hiding::texts(&layers.hidden).collect());
        output::json(object);
    }
    super::warnings::tell(addresses, args.insecure, args.squash.applies_at(addresses));
    super::warnings::tell_of_admin(admin.map(|admin| admin.address));
    super::tell_addresses(addresses, admin);
}
