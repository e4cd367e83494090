//! Starts and stops servers in the background.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::error::{MountError, ServerAdvice};
use super::event::{MountEvent, Observer};
use super::user::{User, acting_as};
use crate::config::{CheckpointsConfig, KeepCheckpointsConfig};
use crate::delta::PendingCopies;
use crate::inspect::opened::open_session;
use crate::pattern::{Pattern, PatternSet};

/// A free port that only this machine can reach.
pub(super) const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The hidden option of `serve` that marks a server in the background.
pub(super) const DETACHED: &str = "--detached";

/// The most output that is read until a server listens, in bytes.
const MAX_SAID_BYTES: u64 = 64 << 10;

/// The interval of checks whether a server has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The interval of messages about progress.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of a server from its start: options of `acetate serve`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerSettings {
    /// Whether the clients' root is squashed; `None` for the server's default.
    pub(crate) root_squash: Option<bool>,
    /// Refuse to create a session.
    pub(crate) existing: bool,
    /// The base is the tree of the session at another place.
    pub(crate) moved: bool,
    /// The largest original that is kept, in bytes.
    pub(crate) keep_originals: Option<u64>,
    /// Which checkpoints the server makes.
    pub(crate) checkpoints: Option<CheckpointsConfig>,
    /// Which automatic checkpoints the session keeps.
    pub(crate) keep_checkpoints: Option<KeepCheckpointsConfig>,
}

impl ServerSettings {
    /// The settings as words of the server's command line.
    fn words(self) -> impl Iterator<Item = String> {
        let flags = [
            ("--root-squash", self.root_squash == Some(true)),
            ("--no-root-squash", self.root_squash == Some(false)),
            ("--existing", self.existing),
            ("--moved", self.moved),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set);
        let size = self.keep_originals.map(|bytes| format!("--keep-originals={bytes}"));
        let checkpoints = self.checkpoints.map(|mode| format!("--checkpoints={mode}"));
        let keep = self.keep_checkpoints.map(|keep| format!("--keep-checkpoints={keep}"));
        flags.map(|(flag, _)| flag.to_owned()).chain(size).chain(checkpoints).chain(keep)
    }
}

/// What to serve, and as which user.
#[derive(Debug)]
pub(super) struct StartOptions<'a> {
    pub(super) session: &'a Path,
    /// The URL of the session in a database that it is a replica of.
    pub(super) url: Option<&'a str>,
    pub(super) base: Option<&'a Path>,
    pub(super) listen: SocketAddr,
    pub(super) read_only: bool,
    pub(super) hide: &'a PatternSet,
    pub(super) settings: ServerSettings,
    pub(super) user: Option<&'a User>,
}

/// A server that listens.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) child: Child,
    pub(super) address: SocketAddr,
}

/// Starts `acetate serve`; returns when it listens. Its stderr is a pipe to this process until
/// then, and its log file afterwards.
pub(super) fn start(wanted: &StartOptions<'_>, tell: Observer<'_>) -> Result<Started, MountError> {
    let failed = |error: std::io::Error| MountError::caused("cannot start the server", &error);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("serve").arg(DETACHED).arg("--listen").arg(wanted.listen.to_string());
    if let Some(base) = wanted.base {
        command.arg("--base").arg(base);
    }
    match wanted.url {
        Some(url) => drop(command.arg("--replica-of").arg(url)),
        // The mount alone is read-only if the session is in a database.
        None if wanted.read_only => drop(command.arg("--read-only")),
        None => {}
    }
    command.args(wanted.settings.words());
    let hidden = wanted.hide.patterns().iter().map(Pattern::as_str);
    command.args(hidden.map(|pattern| format!("--hide={pattern}")));
    command.arg("--").arg(wanted.session);
    if let Some(user) = wanted.user {
        // The environment of a login session of the user.
        let runtime = format!("/run/user/{}", user.uid);
        match Path::new(&runtime).is_dir() {
            true => command.env("XDG_RUNTIME_DIR", runtime),
            false => command.env_remove("XDG_RUNTIME_DIR"),
        };
        if let (Some(home), Some(_)) = (&user.home, wanted.url) {
            // Passwords are there.
            command.env("HOME", home);
        }
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = acting_as(wanted.user, || command.spawn()).map_err(failed)?;
    let said = child.stderr.take().map(listen_to).unwrap_or_default();
    let ended = child.try_wait().map_err(failed)?;
    match (said.address, ended) {
        (Some(address), None) => {
            said.lines.into_iter().map(MountEvent::ServerSaid).for_each(tell);
            Ok(Started { child, address })
        }
        _ => {
            // The server closed its stderr without listening: it is ending, or stuck.
            let _gone = child.kill();
            let _reaped = child.wait();
            Err(said.failure(wanted.user))
        }
    }
}

/// The output of a server until it listens or ends.
#[derive(Debug, Default)]
struct ServerOutput {
    address: Option<SocketAddr>,
    lines: Vec<String>,
}

fn listen_to(stderr: ChildStderr) -> ServerOutput {
    let mut said = ServerOutput::default();
    for line in BufReader::new(stderr.take(MAX_SAID_BYTES)).lines().map_while(Result::ok) {
        match line.strip_prefix("listening on ").and_then(|address| address.parse().ok()) {
            Some(address) => said.address = Some(address),
            None => said.lines.push(line),
        }
    }
    said
}

impl ServerOutput {
    /// The error that the server printed.
    fn failure(&self, user: Option<&User>) -> MountError {
        let after = |prefix: &str| self.lines.iter().find_map(|line| line.strip_prefix(prefix));
        let what = match after("error: ") {
            Some(error) => error.to_owned(),
            None => format!("the server ended: {}", self.lines.join("; ")),
        };
        let printed = after("hint: ").map(|hint| ServerAdvice::Printed(hint.to_owned()));
        let denied = user.filter(|_| what.contains("denied"));
        let error = MountError::new(what);
        match printed.or_else(|| Some(ServerAdvice::RunsAs(denied?.name.clone()))) {
            Some(advice) => error.with_advice(advice),
            None => error,
        }
    }
}

/// Stops the server `pid` of `session`, and waits until it has closed the session.
pub(super) fn stop(
    pid: u32,
    session: &Path,
    child: Option<Child>,
    tell: Observer<'_>,
) -> Result<(), MountError> {
    let Some(number) = as_pid(pid) else {
        return Ok(());
    };
    match kill_process(number, Signal::TERM) {
        // ESRCH: the server has already ended.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => {
            let what = format!("cannot stop the server (process {pid})");
            return Err(MountError::caused(what, &error));
        }
    }
    wait(pid, session, child, tell)
}

/// Waits until the server `pid` of `session` has ended, after a signal.
pub(super) fn wait(
    pid: u32,
    session: &Path,
    mut child: Option<Child>,
    tell: Observer<'_>,
) -> Result<(), MountError> {
    let Some(number) = as_pid(pid) else {
        return Ok(());
    };
    let mut told = Instant::now();
    while is_running(number, child.as_mut()) {
        thread::sleep(LOOK_INTERVAL);
        if told.elapsed() >= TELL_INTERVAL {
            told = Instant::now();
            tell(MountEvent::WaitsForServer { pid, left: left(session) });
        }
    }
    match child.and_then(|mut child| child.wait().ok()) {
        Some(status) if !status.success() => {
            let what = format!("{}: the server ended with {status}", session.display());
            Err(MountError::new(what).with_advice(ServerAdvice::ReadLog(session.to_owned())))
        }
        _ => Ok(()),
    }
}

fn as_pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

/// The rest of pending copy-ups, as far as it is known.
pub(super) fn left(session: &Path) -> PendingCopies {
    let figures = open_session(session).ok().and_then(|session| session.stats().ok());
    figures.map(|figures| figures.pending).unwrap_or_default()
}

/// Checks that an ended server closed the session, and reports copy-ups that it could not finish (a
/// changed base, a full disk).
///
/// # Errors
/// The server was killed, or failed.
pub(super) fn check_closed(session: &Path, tell: Observer<'_>) -> Result<(), MountError> {
    let Ok(opened) = open_session(session) else {
        return Ok(());
    };
    let Ok(figures) = opened.stats() else {
        return Ok(());
    };
    if opened.served_by().is_some() {
        // Another server has the session now.
        return Ok(());
    }
    let (session, left) = (session.to_owned(), figures.pending);
    if !figures.is_closed {
        return Err(MountError::NotClosed { session, left });
    }
    if left.files > 0 {
        tell(MountEvent::CopiesLeft { session, left });
    }
    Ok(())
}

/// Whether a process is running; a zombie is not.
fn is_running(pid: Pid, child: Option<&mut Child>) -> bool {
    if let Some(child) = child {
        return matches!(child.try_wait(), Ok(None));
    }
    // EPERM: a process of another user, which has reused the pid or cannot be waited for.
    if test_kill_process(pid).is_err() {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    !stat.is_ok_and(|stat| has_ended(&stat))
}

/// Whether `stat` (see proc_pid_stat(5)) is of a process that has ended: a zombie without other
/// threads. Those of a killed process may still hold its files when its first one is a zombie.
fn has_ended(stat: &str) -> bool {
    // The fields from the third on follow the name in parentheses.
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let threads = fields.get(17).and_then(|threads| threads.parse::<u32>().ok());
    fields.first() == Some(&"Z") && threads.unwrap_or(0) <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_gets_the_settings_that_are_given() {
        let words = |settings: ServerSettings| settings.words().collect::<Vec<_>>().join(" ");
        assert_eq!(words(ServerSettings::default()), "");
        let settings =
            ServerSettings { moved: true, keep_originals: Some(0), ..Default::default() };
        assert_eq!(words(settings), "--moved --keep-originals=0");
        let checkpoints = Some(CheckpointsConfig::Off);
        let keep_checkpoints = KeepCheckpointsConfig::parse("5,hourly=1h,daily=2d").ok();
        let settings =
            ServerSettings { root_squash: Some(false), checkpoints, keep_checkpoints, ..settings };
        let expected = "--no-root-squash --moved --keep-originals=0 --checkpoints=off \
                        --keep-checkpoints=newest=5,hourly=3600s,daily=172800s";
        assert_eq!(words(settings), expected);
    }

    #[test]
    fn a_killed_process_has_ended_once_all_of_its_threads_have() {
        let stat = |state: &str, threads: &str| {
            format!("7 (a) b) {state} 1 7 7 0 -1 4227084 9 0 0 0 0 0 0 0 20 0 {threads} 0 99 0")
        };
        assert!(has_ended(&stat("Z", "1")));
        assert!(!has_ended(&stat("Z", "5")));
        assert!(!has_ended(&stat("S", "1")));
    }

    #[test]
    fn what_a_server_printed_is_passed_on() {
        let failure = |lines: &[&str]| {
            let lines = lines.iter().map(ToString::to_string).collect();
            let error = ServerOutput { address: None, lines }.failure(None);
            (error.to_string(), error.advice().cloned())
        };
        let advice = ServerAdvice::Printed("use another".to_owned()).into();
        assert_eq!(
            failure(&["error: the port is taken", "hint: use another"]),
            ("the port is taken".to_owned(), Some(advice))
        );
        assert_eq!(failure(&["odd", "end"]), ("the server ended: odd; end".to_owned(), None));
    }
}
