//! Serving what an exports file says.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};

use super::{Args, Door, Durability};
use crate::cli::control::Control;
use crate::cli::error::CliError;
use crate::cli::{choosing, hiding, output, text};
use crate::config::{self, Config, ExportConfig, Missing};
use crate::server::rpcbind::Registration;
use crate::server::{Peers, ServerOptions};
use crate::validation::ValidatorCommand;
use crate::vfs::PatternSet;
use crate::workspace::exports::{self, ServedExports};
use crate::workspace::layers::SessionLayers;
use crate::workspace::unavailable::{FIRST_RETRY, MAX_RETRY};

/// Time for the exports file to be read when the server ends.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the exports of `file` until a signal comes, and closes all sessions.
pub(super) fn serve(
    runtime: &Runtime,
    args: &Args,
    file: &Path,
    mut door: Door<'_>,
) -> Result<(), CliError> {
    let strict = args.durability == Durability::Strict;
    let validators = ValidatorCommand::this_program()
        .inspect_err(
            |error| tracing::warn!(%error, "this program is not found: a schema is refused"),
        )
        .ok();
    let mut served = ServedExports::new(file, strict, runtime.handle().clone(), validators);
    if !args.strict {
        served = served.lenient();
    }
    let config = config::read(file, Missing::Make)?;
    super::await_bases(runtime, &mut door.signals, exports::bases(&config).collect())?;
    let none = served.load(&config)?;
    served.close(none);
    let served = Arc::new(Mutex::new(served));
    runtime.block_on(until_signal(args, file, config, door, &served))?;
    Ok(locked(&served).end()?)
}

async fn until_signal(
    args: &Args,
    file: &Path,
    mut config: Config,
    door: Door<'_>,
    served: &Arc<Mutex<ServedExports>>,
) -> Result<(), CliError> {
    let Door { signals, listeners, registration } = door;
    let mut hang_ups = signal(SignalKind::hangup())
        .map_err(|error| CliError::caused("cannot listen for signals", &error))?;
    let addresses = listeners.addresses();
    // Each export says which ports it takes, and who is squashed.
    let options = ServerOptions { insecure: true, ..ServerOptions::default() };
    let server = super::server(listeners, locked(served).programs(), registration, options);
    let mut controls =
        Controls { of: HashMap::new(), addresses: addresses.clone(), peers: server.peers() };
    let none = controls.follow(&locked(served));
    end_all(none).await;
    let controls = Arc::new(tokio::sync::Mutex::new(controls));
    announce(file, &config, &mut locked(served), &addresses, (registration, args.json));
    let overlays = {
        let served = Arc::clone(served);
        move || locked(&served).sessions().map(|layers| Arc::clone(&layers.overlay)).collect()
    };
    let serving = server.run_until(signals.first(false), super::stuck(overlays));
    tokio::pin!(serving);
    // One at a time; a signal that comes meanwhile is heard behind it.
    let mut reload: Option<Reload> = None;
    let mut wait = FIRST_RETRY;
    loop {
        tokio::select! {
            () = &mut serving => break,
            _ = hang_ups.recv(), if reload.is_none() => {
                reload = Some(begin(file, args.strict, served, &controls));
            }
            () = tokio::time::sleep(wait),
                if reload.is_none() && locked(served).unavailable() > 0 =>
            {
                wait = MAX_RETRY.min(wait * 2);
                reload = Some(begin_retry(config.clone(), served, &controls));
            }
            loaded = end_of(&mut reload) => {
                reload = None;
                if let Some(read) = tell(file, loaded, served) {
                    (config, wait) = (read, FIRST_RETRY);
                }
            }
        }
    }
    if let Some(reload) = reload {
        // It may have a part in what is closed now, unless it waits for a base.
        match tokio::time::timeout(RELOAD_TIMEOUT, reload).await {
            Ok(loaded) => drop(tell(file, loaded, served)),
            Err(_) => output::line(format_args!("still reading {}: given up", file.display())),
        }
    }
    let all = std::mem::take(&mut controls.lock().await.of);
    end_all(all.into_values().collect()).await;
    Ok(())
}

/// Reading the file anew, which may take long: what is served no more is finished and closed.
type Reload = JoinHandle<Result<Loaded, CliError>>;

/// What was loaded.
enum Loaded {
    /// The file, as it is now.
    File(Box<Config>),
    /// These exports, which could not be opened before.
    Retried(Vec<String>),
}

fn begin(
    file: &Path,
    strict: bool,
    served: &Arc<Mutex<ServedExports>>,
    controls: &Arc<tokio::sync::Mutex<Controls>>,
) -> Reload {
    let (file, served, controls) = (file.to_owned(), Arc::clone(served), Arc::clone(controls));
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let config = config::read(&file, Missing::Make)?;
        // A base that hangs is waited for before anything is locked.
        let probed = exports::probe(&config);
        if strict {
            probed?;
        }
        let mut served = locked(&served);
        let gone = served.load(&config)?;
        // First the commands that are under way there come to an end.
        runtime.block_on(async {
            let mut controls = controls.lock().await;
            super::warnings::tell_of_exports(&file, &config, &controls.addresses);
            let gone = controls.follow(&served);
            drop(controls);
            end_all(gone).await;
        });
        served.close(gone);
        Ok(Loaded::File(Box::new(config)))
    })
}

/// Tries to open what could not be opened.
fn begin_retry(
    config: Config,
    served: &Arc<Mutex<ServedExports>>,
    controls: &Arc<tokio::sync::Mutex<Controls>>,
) -> Reload {
    let (served, controls) = (Arc::clone(served), Arc::clone(controls));
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        // A base that hangs is waited for before anything is locked.
        let _missing = exports::probe(&config);
        let mut served = locked(&served);
        let Some((names, gone)) = served.retry(&config)? else {
            return Ok(Loaded::Retried(Vec::new()));
        };
        runtime.block_on(async {
            let gone = controls.lock().await.follow(&served);
            end_all(gone).await;
        });
        served.close(gone);
        Ok(Loaded::Retried(names))
    })
}

/// What came of it; nothing where there is none.
async fn end_of(reload: &mut Option<Reload>) -> Result<Result<Loaded, CliError>, JoinError> {
    match reload {
        Some(reload) => reload.await,
        None => std::future::pending().await,
    }
}

/// Says what came of it, and returns the file that was read; what is wrong with it leaves all as
/// it is.
fn tell(
    file: &Path,
    loaded: Result<Result<Loaded, CliError>, JoinError>,
    served: &Arc<Mutex<ServedExports>>,
) -> Option<Config> {
    match loaded {
        Ok(Ok(Loaded::Retried(names))) => {
            for name in names {
                output::line(format_args!("export {name}: is served now"));
            }
        }
        Ok(Ok(Loaded::File(config))) => {
            let count = text::count(locked(served).exports().all().len(), "export");
            output::line(format_args!("read {} anew: {count}", file.display()));
            tell_failures(&mut locked(served));
            return Some(*config);
        }
        Ok(Err(error)) => {
            output::line(format_args!("error: {error}; all is served as before"));
            if let Some(hint) = error.hint() {
                output::line(format_args!("hint: {hint}"));
            }
        }
        Err(error) => tracing::error!(%error, "the exports file was not read"),
    }
    None
}

/// Says which exports cannot be served, and why.
fn tell_failures(served: &mut ServedExports) {
    for (name, error) in served.take_failures() {
        let error = CliError::from(error);
        output::line(format_args!("export {name}: not served, and tried again: {error}"));
        if let Some(hint) = error.hint() {
            output::line(format_args!("hint: {hint}"));
        }
    }
}

/// The control sockets of the sessions that are served.
struct Controls {
    of: HashMap<PathBuf, Control>,
    addresses: Vec<SocketAddr>,
    peers: Arc<Peers>,
}

impl Controls {
    /// Opens those of new sessions, and returns those of sessions that are gone.
    fn follow(&mut self, served: &ServedExports) -> Vec<Control> {
        let mut kept = HashMap::new();
        // Whoever serves to be read only shares the session with others that do.
        for layers in served.sessions().filter(|layers| !layers.read_only) {
            let session = &layers.session;
            let control = self.of.remove(session).unwrap_or_else(|| {
                let (base, addresses) = (layers.base.clone(), self.addresses.clone());
                let peers = Arc::clone(&self.peers);
                let accounts = Some(served.accounts());
                Control::begin(session, base, &layers.overlay, addresses, peers, accounts)
            });
            kept.insert(session.clone(), control);
        }
        std::mem::replace(&mut self.of, kept).into_values().collect()
    }
}

/// Ends them together.
async fn end_all(mut controls: Vec<Control>) {
    controls.iter_mut().for_each(Control::stop);
    for control in controls {
        control.end().await;
    }
}

/// Says what is served, and how to mount it.
fn announce(
    file: &Path,
    config: &Config,
    served: &mut ServedExports,
    addresses: &[SocketAddr],
    (registration, is_json): (Option<&Registration>, bool),
) {
    let mut exports = served.exports().all();
    exports.sort_unstable_by(|a, b| a.path().cmp(b.path()));
    let secret = exports.iter().filter(|export| export.is_secret()).count();
    let count = text::count(exports.len(), "export");
    output::line(format_args!("serving {count} of {}", file.display()));
    for export in exports.iter().filter(|export| !export.is_secret()) {
        let path = String::from_utf8_lossy(export.path());
        output::line(format_args!("{path}{}", hides(config, export.path(), served)));
        if let Some(address) = super::for_clients(addresses) {
            super::tell_how_to_mount(address, &path, registration);
        }
    }
    if secret > 0 {
        // What is printed here ends up in logs.
        let which = format!("{secret} with a secret path: `acetate config check` shows it");
        output::line(format_args!("{which}"));
        for export in exports.iter().filter(|export| export.is_secret()) {
            let hides = hides(config, export.path(), served);
            if !hides.is_empty() {
                output::line(format_args!("  one with a secret path{hides}"));
            }
        }
    }
    let created = served.sessions().filter(|layers| layers.is_new && layers.memory.is_none());
    let created: BTreeSet<&Path> = created.map(|layers| layers.session.as_path()).collect();
    created.into_iter().for_each(choosing::tell_created);
    tell_failures(served);
    if is_json {
        let mut object = super::serving(addresses);
        object.insert("config".to_owned(), file.display().to_string().into());
        let shown = exports.iter().filter(|export| !export.is_secret());
        let shown = shown.map(|export| String::from_utf8_lossy(export.path()).into_owned());
        object.insert("exports".to_owned(), shown.collect::<Vec<_>>().into());
        output::json(object);
    }
    super::warnings::tell_of_exports(file, config, addresses);
    super::tell_addresses(addresses);
}

/// What an export hides, because of the file or because a session of it remembers it; as
/// [`hiding::suffix`].
fn hides(config: &Config, path: &[u8], served: &ServedExports) -> String {
    let is_it = |export: &&ExportConfig| {
        export.path.as_ref().is_some_and(|known| known.as_str().as_bytes() == path)
    };
    let Some(export) = config.exports.iter().find(is_it) else { return String::new() };
    let is_of_export = |layers: &&SessionLayers| {
        export.mounts.iter().any(|mount| mount.session() == Some(&layers.session))
    };
    let mut hidden = PatternSet::clone(&export.hide);
    for layers in served.sessions().filter(is_of_export) {
        // They are together in what is served: there cannot be too many.
        hidden = hidden.union(&layers.hidden).unwrap_or(hidden);
    }
    hiding::suffix(&hidden)
}

/// A panic while the file was read leaves what was served before.
fn locked(served: &Mutex<ServedExports>) -> MutexGuard<'_, ServedExports> {
    served.lock()
}
