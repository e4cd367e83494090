//! Runs a command for the user, and lives until it has ended: signals for us are passed on.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::process::{Child, Command};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal as Arriving, SignalKind, signal};

use super::error::CliError;
use super::mounting::user::{User, acting_as};
use super::output;
use super::signals::is_ignored;

/// The exit code for a command that cannot be run, and for one that is not there, as shells have
/// them.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What a shell adds to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;

/// How a command ended.
pub(super) struct Ended {
    /// What kept it from success: what it says about itself, or why it could not be run.
    pub(super) outcome: Result<(), String>,
    /// The exit code that says the same.
    pub(super) code: u8,
}

/// Runs a command. From its making on, signals end us no more.
pub(super) struct Runner {
    runtime: Runtime,
    signals: ChildSignals,
    /// Set where orphans come to this process: as they end, they are waited for.
    orphans: Option<Arriving>,
    /// Whether the terminal's signals come to this process alone.
    passes_all: bool,
    /// Whether programs that the command runs gain no privileges.
    is_unprivileged: bool,
}

impl Runner {
    /// Catches the signals that are for the command.
    pub(super) fn new() -> Result<Self, CliError> {
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let signals = runtime.block_on(async { ChildSignals::catch() }).map_err(failed)?;
        Ok(Self { runtime, signals, orphans: None, passes_all: false, is_unprivileged: false })
    }

    /// The same for a process that orphans come to.
    #[cfg(target_os = "linux")]
    pub(super) fn reaping() -> Result<Self, CliError> {
        let runner = Self::new()?;
        let ended = runner.runtime.block_on(async { signal(SignalKind::child()) });
        Ok(Self { orphans: Some(ended.map_err(failed)?), ..runner })
    }

    /// Passes the terminal's signals on, too: for a command that has left the terminal.
    #[cfg(target_os = "linux")]
    pub(super) fn pass_on_all(&mut self, all: bool) {
        self.passes_all = all;
    }

    /// Lets setuid programs give the command nothing: for one that runs as another user.
    #[cfg(target_os = "linux")]
    pub(super) fn keep_from_privileges(&mut self, keep: bool) {
        self.is_unprivileged = keep;
    }

    /// The exit code for a signal that has come, before any command was run.
    pub(super) fn interrupted(&mut self) -> Option<u8> {
        let Self { runtime, signals, .. } = self;
        let arrived = runtime.block_on(signals.arrived())?;
        u8::try_from(SIGNALLED + arrived.as_raw()).ok()
    }

    /// Runs `command` as `user`, or as who we are, until its end.
    pub(super) fn run(
        &mut self,
        command: std::process::Command,
        user: Option<&User>,
    ) -> Result<Ended, CliError> {
        let Self { runtime, signals, orphans, passes_all, is_unprivileged } = self;
        let mut command = Command::from(command);
        let spawned = acting_as(user, || {
            #[cfg(target_os = "linux")]
            if *is_unprivileged {
                rustix::thread::set_no_new_privs(true)?;
            }
            let _inside = runtime.enter();
            command.spawn()
        });
        match spawned {
            Ok(mut child) => {
                let waiting = signals.wait_for(&mut child, orphans, *passes_all);
                Ok(ended(runtime.block_on(waiting).map_err(failed)?))
            }
            Err(error) => Ok(not_run(command.as_std().get_program(), &error)),
        }
    }
}

fn failed(error: std::io::Error) -> CliError {
    CliError::caused("cannot wait for a command", &error)
}

fn not_run(program: &OsStr, error: &std::io::Error) -> Ended {
    let what = format!("cannot run {}: {error}", program.display());
    output::error(&CliError::new(&what));
    let is_missing = error.kind() == ErrorKind::NotFound;
    Ended { outcome: Err(what), code: if is_missing { NOT_FOUND } else { CANNOT_RUN } }
}

fn ended(status: ExitStatus) -> Ended {
    let code = status.code().or_else(|| Some(SIGNALLED + status.signal()?));
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
    let outcome = if code == 0 { Ok(()) } else { Err(status.to_string()) };
    Ended { outcome, code }
}

/// The signals that would end us before the command.
struct ChildSignals {
    /// From the terminal, which sends them to the command too: nothing is left to be done.
    interrupt: Option<Arriving>,
    quit: Option<Arriving>,
    /// To us alone, maybe: they are passed on.
    terminate: Option<Arriving>,
    hang_up: Option<Arriving>,
}

impl ChildSignals {
    /// Catches them, but for those that are ignored (`nohup`, jobs in the background): what is
    /// caught here is not ignored in the command either.
    fn catch() -> std::io::Result<Self> {
        let catch = |kind| (!is_ignored(kind)).then(|| signal(kind)).transpose();
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            quit: catch(SignalKind::quit())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    /// Waits until the command has ended, and passes on what comes meanwhile.
    async fn wait_for(
        &mut self,
        child: &mut Child,
        orphans: &mut Option<Arriving>,
        passes_all: bool,
    ) -> std::io::Result<ExitStatus> {
        loop {
            let signal = tokio::select! {
                status = child.wait() => return status,
                () = arrival(orphans) => {
                    reap_all_but(child.id());
                    continue;
                }
                () = arrival(&mut self.terminate) => Signal::TERM,
                () = arrival(&mut self.hang_up) => Signal::HUP,
                () = arrival(&mut self.interrupt), if passes_all => Signal::INT,
                () = arrival(&mut self.quit), if passes_all => Signal::QUIT,
            };
            // Nobody has waited for it yet, so the number is still its own.
            let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            if let Some(pid) = pid {
                let _gone = kill_process(pid, signal);
            }
        }
    }

    /// The signal that has come, if one has.
    async fn arrived(&mut self) -> Option<Signal> {
        // What has come is seen when tasks have had their turn.
        tokio::task::yield_now().await;
        tokio::select! {
            biased;
            () = arrival(&mut self.terminate) => Some(Signal::TERM),
            () = arrival(&mut self.hang_up) => Some(Signal::HUP),
            () = arrival(&mut self.interrupt) => Some(Signal::INT),
            () = arrival(&mut self.quit) => Some(Signal::QUIT),
            () = tokio::time::sleep(std::time::Duration::from_millis(1)) => None,
        }
    }
}

/// Waits for the children of this process that have ended, but for the one that is waited for
/// elsewhere.
fn reap_all_but(kept: Option<u32>) {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        for child in children.filter(|pid: &u32| Some(*pid) != kept) {
            let pid = Pid::from_raw(child.cast_signed());
            let _status = waitpid(pid, WaitOptions::NOHANG);
        }
    }
}

async fn arrival(signal: &mut Option<Arriving>) {
    let came = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending().await
    }
}
