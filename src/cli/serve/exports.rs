//! Serves the exports of an exports file.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinError, JoinHandle};

use super::admin::{Admin, ShownServer};
use super::commands::{ExportsCommands, ReloadAnswer};
use super::controls::Controls;
use super::database::lease_term;
use super::limits::max_sessions;
use super::reload_changes;
use super::{Args, Durability, Frontend, ServiceNotifier};
use crate::cli::error::CliError;
use crate::cli::{choosing, hiding, output, text};
use crate::config::{self, Config, ExportConfig, Missing};
use crate::control::{ExportsAnswer, Refusal};
use crate::overlay::Overlay;
use crate::pattern::PatternSet;
use crate::server::rpcbind::Registration;
use crate::server::{Monitor, ServerOptions};
use crate::validation::ValidatorCommand;
use crate::workspace::exports::base_probes::BaseProbes;
use crate::workspace::exports::closing::CopyProgress;
use crate::workspace::exports::unavailable::{ExportFailure, FIRST_RETRY, MAX_RETRY};
use crate::workspace::exports::{self, ServedExports};
use crate::workspace::layers::SessionLayers;

/// The number of exports whose mount commands are printed.
const SHOWN_COMMANDS: usize = 16;

/// The time that a reload in progress gets when the server ends.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the exports of `file` until a signal arrives, then closes all sessions.
pub(super) fn serve(
    runtime: &Runtime,
    args: &Args,
    file: &Path,
    mut door: Frontend<'_>,
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
    served = served.with_room_for(max_sessions()).with_databases(args.database_settings(&door));
    // From here on SIGHUP does not end the server: a start can take long.
    let hang_ups = runtime.block_on(async { signal(SignalKind::hangup()) });
    let hang_ups =
        hang_ups.map_err(|error| CliError::caused("cannot listen for signals", &error))?;
    let added = added_changed(file);
    let (config, mut hanging) = read(file, &served.probes(), args.strict)?;
    hanging.extend(await_bases(runtime, &mut door, &served, &config)?);
    let none = served.load(&config, &hanging).map_err(CliError::export)?;
    served.close(none);
    let served = Arc::new(Mutex::new(served));
    let notifier = door.notifier.clone();
    let read = FilesRead { config, added };
    runtime.block_on(until_signal(args, file, read, (door, hang_ups), &served))?;
    let progress: CopyProgress = Arc::new(move |_, left| super::tell_of_copies(&notifier, left));
    Ok(locked(&served).end(args.pending_at_end(), &progress)?)
}

/// The files that a start has read.
struct FilesRead {
    config: Config,
    /// When `exports.d` was last changed.
    added: Option<SystemTime>,
}

/// When the directory `exports.d` was last changed; `None` without one.
fn added_changed(file: &Path) -> Option<SystemTime> {
    config::added_dir(file).metadata().ok()?.modified().ok()
}

async fn until_signal(
    args: &Args,
    file: &Path,
    FilesRead { mut config, added }: FilesRead,
    (door, mut hang_ups): (Frontend<'_>, Signal),
    served: &Arc<Mutex<ServedExports>>,
) -> Result<(), CliError> {
    let Frontend { signals, listeners, registration, admin, notifier } = door;
    let admin = admin.as_ref();
    let addresses = listeners.addresses();
    // Source ports and squashing are checked per export.
    let options = ServerOptions { insecure: true, ..ServerOptions::default() };
    let server = super::server(listeners, locked(served).programs(), registration, options);
    let controls = Controls::new(&locked(served), &addresses, server.peers(), Handle::current());
    locked(served).observe(Arc::new(controls));
    let (commands, mut orders) = ExportsCommands::begin(file, locked(served).view(), admin);
    locked(served).know_peers(server.peers());
    if let Some(admin) = admin {
        admin.state.serve(shown(server.monitor(), &locked(served)));
    }
    let announced = Announced { addresses: &addresses, registration, admin, is_json: args.json };
    announce(file, &config, &mut locked(served), &announced);
    notifier.ready(status(&locked(served)));
    super::start_watchdog(notifier, watched(served));
    let stopped = async {
        super::stopped(signals, false, admin).await;
        notifier.stopping("finishing requests");
    };
    let serving = server.run_until(stopped, super::stuck(overlays(served)));
    tokio::pin!(serving);
    // One reload at a time; a signal or order during a reload starts the next one afterwards.
    let mut reload: Option<Reload> = None;
    let begin =
        |added| begin(file, served, ReloadOptions { added, strict: args.strict }, &addresses);
    if added_changed(file) != added {
        // A command changed it before this server could be asked.
        reload = Some(begin(None));
    }
    let mut answer: Option<ReloadAnswer> = None;
    let mut wait = FIRST_RETRY;
    loop {
        tokio::select! {
            () = &mut serving => break,
            _ = hang_ups.recv(), if reload.is_none() => {
                notifier.reloading(format_args!("reading {}", file.display()));
                reload = Some(begin(None));
            }
            Some(order) = orders.recv(), if reload.is_none() => {
                notifier.reloading(format_args!("reading {}", file.display()));
                answer = Some(order.answer);
                reload = Some(begin(order.added));
            }
            () = tokio::time::sleep(wait),
                if reload.is_none() && locked(served).unavailable() > 0 =>
            {
                wait = MAX_RETRY.min(wait * 2);
                reload = Some(begin_retry(config.clone(), served));
            }
            loaded = end_of(&mut reload) => {
                reload = None;
                let report = ReloadReport { file, before: &config, served, notifier };
                if let Some(read) = report.tell(loaded, answer.take()) {
                    (config, wait) = (read, FIRST_RETRY);
                }
            }
        }
    }
    if let Some(reload) = reload {
        // The reload may use sessions that are closed next, unless it still waits for a base.
        match tokio::time::timeout(RELOAD_TIMEOUT, reload).await {
            Ok(loaded) => {
                let report = ReloadReport { file, before: &config, served, notifier };
                drop(report.tell(loaded, answer));
            }
            Err(_) => output::line(format_args!("still reading {}: given up", file.display())),
        }
    }
    drop(orders);
    commands.end().await;
    Ok(())
}

/// Asks the bases whether they answer; returns those that hang. With `--strict`, waits for them:
/// while a base hangs, opening it would delay the handling of signals.
///
/// # Errors
/// A signal arrived first.
fn await_bases(
    runtime: &Runtime,
    door: &mut Frontend<'_>,
    served: &ServedExports,
    config: &Config,
) -> Result<BTreeSet<PathBuf>, CliError> {
    let bases = served.bases(config);
    if served.is_strict() {
        super::await_bases(runtime, door, bases.into_iter().collect())?;
        return Ok(BTreeSet::new());
    }
    door.notifier.status("opening the bases");
    let probes = served.probes();
    let asking = runtime.spawn_blocking(move || probes.hanging(&bases));
    let signals = &mut door.signals;
    runtime.block_on(async {
        tokio::select! {
            hanging = asking => Ok(hanging.unwrap_or_default()),
            () = signals.next() => Err(CliError::new("stopped while a base did not answer")),
        }
    })
}

/// The overlays of the sessions that are open when it is called.
fn overlays(served: &Arc<Mutex<ServedExports>>) -> impl Fn() -> Vec<Arc<Overlay>> + use<> {
    let served = Arc::clone(served);
    move || {
        let sessions = locked(&served).sessions();
        sessions.iter().map(|layers| Arc::clone(&layers.overlay)).collect()
    }
}

/// A reload in progress. It can take long, because it closes sessions that are no longer served.
type Reload = JoinHandle<Result<Loaded, CliError>>;

/// The result of a reload.
enum Loaded {
    /// The exports file was read.
    File(Box<Config>),
    /// These exports can be opened now.
    Retried(Vec<String>),
}

/// How a reload opens exports.
struct ReloadOptions {
    /// The name of an export that was added: it is opened, or the reload fails.
    added: Option<String>,
    /// Whether it waits for bases that hang.
    strict: bool,
}

fn begin(
    file: &Path,
    served: &Arc<Mutex<ServedExports>>,
    ReloadOptions { added, strict }: ReloadOptions,
    addresses: &[SocketAddr],
) -> Reload {
    let (file, served, addresses) = (file.to_owned(), Arc::clone(served), addresses.to_vec());
    tokio::task::spawn_blocking(move || {
        // Directories are asked before the lock is taken.
        let probes = locked(&served).probes();
        let (config, mut hanging) = read(&file, &probes, strict)?;
        let bases = locked(&served).bases(&config);
        hanging.extend(probes.hanging(&bases));
        if strict {
            exports::probe(&config).map_err(CliError::export)?;
        }
        let mut served = locked(&served);
        let gone = served.load_added(&config, &hanging, added.as_deref());
        let gone = gone.map_err(CliError::export)?;
        super::warnings::tell_of_exports(&config, &addresses);
        served.close(gone);
        Ok(Loaded::File(Box::new(config)))
    })
}

/// Reads the exports file, and finds the directories of sessions that do not answer; if `waits`, it
/// waits for them.
fn read(
    file: &Path,
    probes: &BaseProbes,
    waits: bool,
) -> config::Result<(Config, BTreeSet<PathBuf>)> {
    if waits {
        return Ok((config::read(file, Missing::Make)?, BTreeSet::new()));
    }
    let mut hanging = BTreeSet::new();
    let config = config::read_known(file, Missing::Make, None, |paths| {
        let known = probes.real_paths(paths);
        hanging.clone_from(known.hanging());
        known
    })?;
    Ok((config, hanging))
}

/// Tries again to open exports that could not be opened.
fn begin_retry(config: Config, served: &Arc<Mutex<ServedExports>>) -> Reload {
    let served = Arc::clone(served);
    tokio::task::spawn_blocking(move || {
        // Directories are asked before the lock is taken.
        let probes = locked(&served).probes();
        let mut hanging = probes.real_paths(&exports::sessions(&config)).hanging().clone();
        hanging.extend(probes.hanging(&exports::bases(&config).collect()));
        let mut served = locked(&served);
        served.avoid(&hanging);
        let retried = served.retry(&config, &hanging).map_err(CliError::export)?;
        Ok(Loaded::Retried(retried))
    })
}

/// Waits for the reload in progress; pending forever if there is none.
async fn end_of(reload: &mut Option<Reload>) -> Result<Result<Loaded, CliError>, JoinError> {
    match reload {
        Some(reload) => reload.await,
        None => std::future::pending().await,
    }
}

/// What the report of a reload needs.
struct ReloadReport<'a> {
    file: &'a Path,
    /// What was served before.
    before: &'a Config,
    served: &'a Mutex<ServedExports>,
    notifier: &'a ServiceNotifier,
}

impl ReloadReport<'_> {
    /// Reports a reload, also to the command that ordered it, and returns the file if it was read.
    /// After an error, everything is served as before.
    fn tell(
        &self,
        loaded: Result<Result<Loaded, CliError>, JoinError>,
        ordered: Option<ReloadAnswer>,
    ) -> Option<Config> {
        let Self { file, before, served, notifier } = *self;
        let answer = |answer: Result<ExportsAnswer, Refusal>| {
            // The command may have ended.
            let _sent = ordered.map(|ordered| ordered.send(answer));
        };
        match loaded {
            Ok(Ok(Loaded::Retried(names))) => {
                for name in &names {
                    output::line(format_args!("export {name}: now served"));
                }
                if !names.is_empty() {
                    notifier.status(status(&locked(served)));
                }
            }
            Ok(Ok(Loaded::File(config))) => {
                let exports = locked(served).exports().all().len();
                let (count, file) = (text::count(exports, "export"), file.display());
                let changes = reload_changes::summary(before, &config);
                output::line(format_args!("read {file} again: {count}{changes}"));
                tell_failures(&mut locked(served));
                answer(Ok(ExportsAnswer::Reloaded { exports }));
                notifier.ready(status(&locked(served)));
                return Some(*config);
            }
            Ok(Err(error)) => {
                output::line(format_args!("error: {error}; all is served as before"));
                let hint = error.hint().map(str::to_owned);
                if let Some(hint) = &hint {
                    output::line(format_args!("hint: {hint}"));
                }
                answer(Err(Refusal { hint, ..Refusal::new(error.to_string()) }));
                let status = status(&locked(served));
                notifier.ready(format_args!("{status}; the file was not read: {error}"));
            }
            Err(error) => {
                tracing::error!(%error, "the exports file was not read");
                answer(Err(Refusal::new("the server failed to read the file; see its log")));
                notifier.ready(status(&locked(served)));
            }
        }
        None
    }
}

/// What is served, for the service manager.
fn status(served: &ServedExports) -> String {
    let count = text::count(served.exports().all().len(), "export");
    match served.unavailable() {
        0 => format!("serving {count}"),
        failed => format!("serving {count}; not served, and tried again: {failed}"),
    }
}

/// The overlays of the served sessions; during a reload, those of the last call.
fn watched(
    served: &Arc<Mutex<ServedExports>>,
) -> impl FnMut() -> Vec<Weak<Overlay>> + Send + 'static {
    let (served, mut seen) = (Arc::clone(served), Vec::new());
    move || {
        if let Some(served) = served.try_lock() {
            // Without its database, a writer waits.
            let sessions = served.sessions().into_iter().filter(|it| it.overlay.has_lease());
            seen = sessions.map(|layers| Arc::downgrade(&layers.overlay)).collect();
        }
        seen.clone()
    }
}

/// Reports the exports that cannot be served.
fn tell_failures(served: &mut ServedExports) {
    for ExportFailure { name, error } in served.take_failures() {
        let error = CliError::export(error);
        output::line(format_args!("export {name}: not served, and tried again: {error}"));
        if let Some(hint) = error.hint() {
            output::line(format_args!("hint: {hint}"));
        }
    }
}

/// What `--admin` shows of exports.
fn shown(monitor: Monitor, served: &ServedExports) -> ShownServer {
    let accounts = served.accounts();
    let limited = Box::new(move || accounts.limited());
    ShownServer::over_files(monitor, served.shown_sessions(), limited)
}

/// Where a server can be reached, and how to say so.
struct Announced<'a> {
    addresses: &'a [SocketAddr],
    registration: Option<&'a Registration>,
    admin: Option<&'a Admin>,
    is_json: bool,
}

/// Prints what is served, and how to mount it.
fn announce(file: &Path, config: &Config, served: &mut ServedExports, at: &Announced<'_>) {
    let Announced { addresses, registration, admin, is_json } = *at;
    let all = served.exports().all();
    let paths: BTreeSet<&[u8]> = config
        .exports
        .iter()
        .filter_map(|export| Some(export.path.as_ref()?.as_str().as_bytes()))
        .collect();
    let (mut exports, made): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|entry| paths.contains(entry.path().as_ref()));
    exports.sort_unstable_by(|a, b| a.path().cmp(b.path()));
    let sessions = served.sessions();
    let hidden = HiddenByExport::new(config, &sessions);
    let secret = exports.iter().filter(|export| export.is_secret()).count();
    let count = text::count(exports.len(), "export");
    output::line(format_args!("serving {count} of {}", file.display()));
    for (index, export) in exports.iter().filter(|export| !export.is_secret()).enumerate() {
        let path = String::from_utf8_lossy(export.path());
        output::line(format_args!("{path}{}", hidden.suffix(export.path())));
        if let Some(address) = super::for_clients(addresses).filter(|_| index < SHOWN_COMMANDS) {
            super::tell_how_to_mount(address, &path, registration, lease_term(config, &path));
        }
    }
    if secret > 0 {
        // The output often ends up in logs, so secret paths are not printed.
        let which = format!("{secret} with a secret path: `acetate config check` shows it");
        output::line(format_args!("{which}"));
        for export in exports.iter().filter(|export| export.is_secret()) {
            let hides = hidden.suffix(export.path());
            if !hides.is_empty() {
                output::line(format_args!("  one with a secret path{hides}"));
            }
        }
    }
    let templates: Vec<String> = config.templates.iter().map(ToString::to_string).collect();
    for template in &templates {
        output::line(format_args!("template {template}: mounting such a path makes its export"));
    }
    if !made.is_empty() {
        let count = text::count(made.len(), "export");
        output::line(format_args!("{count} made by templates, not listed here"));
    }
    let created = sessions.iter().filter(|it| it.is_new && it.is_only_in_file());
    let created: BTreeSet<&Path> = created.map(|layers| layers.session.as_path()).collect();
    let known: BTreeSet<&Path> = sessions.iter().map(|layers| layers.session.as_path()).collect();
    created.into_iter().for_each(|it| choosing::tell_created_of_export(it, &known));
    tell_failures(served);
    if is_json {
        let mut object = super::serving(addresses, admin);
        object.insert("config".to_owned(), file.display().to_string().into());
        let shown = exports.iter().filter(|export| !export.is_secret());
        let shown = shown.map(|export| String::from_utf8_lossy(export.path()).into_owned());
        object.insert("exports".to_owned(), shown.collect::<Vec<_>>().into());
        object.insert("templates".to_owned(), templates.into());
        output::json(object);
    }
    super::warnings::tell_of_exports(config, addresses);
    super::warnings::tell_of_admin(admin.map(|admin| admin.address));
    super::tell_addresses(addresses, admin);
}

/// What exports hide, by the file or by their sessions.
struct HiddenByExport<'a> {
    exports: HashMap<&'a [u8], &'a ExportConfig>,
    sessions: HashMap<&'a Path, &'a SessionLayers>,
}

impl<'a> HiddenByExport<'a> {
    fn new(config: &'a Config, sessions: &'a [Arc<SessionLayers>]) -> Self {
        let path = |export: &'a ExportConfig| Some((export.path.as_ref()?.as_str(), export));
        let exports = config.exports.iter().filter_map(path);
        Self {
            exports: exports.map(|(path, export)| (path.as_bytes(), export)).collect(),
            sessions: sessions.iter().map(|it| (it.session.as_path(), &**it)).collect(),
        }
    }

    /// A suffix as of [`hiding::suffix`] for the export at this path.
    fn suffix(&self, path: &[u8]) -> String {
        let Some(export) = self.exports.get(path) else { return String::new() };
        let mut hidden = PatternSet::clone(&export.hide);
        for session in export.mounts.iter().filter_map(|mount| mount.session()) {
            if let Some(layers) = self.sessions.get(session.as_path()) {
                // The served export has the same union, so it cannot exceed the limit.
                hidden = hidden.union(&layers.hidden).unwrap_or(hidden);
            }
        }
        hiding::suffix(&hidden)
    }
}

/// A panic during a reload leaves the earlier state.
fn locked(served: &Mutex<ServedExports>) -> MutexGuard<'_, ServedExports> {
    served.lock()
}
