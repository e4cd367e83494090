//! Runs a command for the user and waits for its end; signals to this process are passed on.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::process::{Child, Command};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use super::error::CliError;
use super::output;
use super::signals::is_ignored;
use crate::mounting::user::{User, acting_as};
use crate::system_error::words;

/// The exit codes of a shell for a command that cannot be run, and for one that is not found.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A shell's exit code is this plus the number of the signal that ended the command.
const SIGNALLED: i32 = 128;

/// How a command ended.
pub(super) struct Ended {
    /// Why the command did not succeed: its exit status, or why it could not be run.
    pub(super) outcome: Result<(), String>,
    /// The exit code for this process.
    pub(super) code: u8,
}

/// Runs a command. While a runner exists, signals do not end this process.
pub(super) struct Runner {
    runtime: Runtime,
    signals: ChildSignals,
    /// SIGCHLD, if this process reaps orphans.
    orphans: Option<SignalStream>,
    /// Whether the terminal sends its signals to this process alone.
    passes_all: bool,
    /// Whether the command runs with no_new_privs.
    is_unprivileged: bool,
}

impl Runner {
    /// Catches the signals that are for the command.
    pub(super) fn new() -> Result<Self, CliError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| CliError::caused("cannot start a runtime", &error))?;
        let signals = runtime.block_on(async { ChildSignals::catch() }).map_err(not_caught)?;
        Ok(Self { runtime, signals, orphans: None, passes_all: false, is_unprivileged: false })
    }

    /// Like [`Runner::new`], for a process that inherits orphans.
    #[cfg(target_os = "linux")]
    pub(super) fn reaping() -> Result<Self, CliError> {
        let runner = Self::new()?;
        let ended = runner.runtime.block_on(async { signal(SignalKind::child()) });
        Ok(Self { orphans: Some(ended.map_err(not_caught)?), ..runner })
    }

    /// Whether to pass on the terminal's signals as well: for a command in another session.
    #[cfg(target_os = "linux")]
    pub(super) fn pass_on_all(&mut self, all: bool) {
        self.passes_all = all;
    }

    /// Whether to set no_new_privs, so that the command gains nothing from setuid programs.
    #[cfg(target_os = "linux")]
    pub(super) fn set_no_new_privs(&mut self, enabled: bool) {
        self.is_unprivileged = enabled;
    }

    /// The exit code for a signal that arrived before a command was run.
    pub(super) fn interrupted(&mut self) -> Option<u8> {
        let Self { runtime, signals, .. } = self;
        let arrived = runtime.block_on(signals.arrived())?;
        u8::try_from(SIGNALLED + arrived.as_raw()).ok()
    }

    /// Runs `command` to its end, as `user` or as the user of this process.
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
                let status = runtime.block_on(waiting);
                Ok(ended(
                    status
                        .map_err(|error| CliError::caused("cannot wait for a command", &error))?,
                ))
            }
            Err(error) => Ok(not_run(command.as_std().get_program(), &error)),
        }
    }
}

fn not_caught(error: std::io::Error) -> CliError {
    CliError::caused("cannot catch signals", &error)
}

fn not_run(program: &OsStr, error: &std::io::Error) -> Ended {
    let what = format!("cannot run {}: {}", program.display(), words(error));
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

/// The signals that would end this process before the command.
struct ChildSignals {
    /// The terminal sends these to the command too, so they need no action.
    interrupt: Option<SignalStream>,
    quit: Option<SignalStream>,
    /// These may arrive at this process alone, so they are passed on.
    terminate: Option<SignalStream>,
    hang_up: Option<SignalStream>,
}

impl ChildSignals {
    /// Catches the signals except those that are ignored (`nohup`, background jobs): a caught
    /// signal would no longer be ignored in the command.
    fn catch() -> std::io::Result<Self> {
        let catch = |kind| (!is_ignored(kind)).then(|| signal(kind)).transpose();
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            quit: catch(SignalKind::quit())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    /// Waits for the end of the command, and passes signals on.
    async fn wait_for(
        &mut self,
        child: &mut Child,
        orphans: &mut Option<SignalStream>,
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
            // The child is not reaped yet, so its pid cannot have been reused.
            let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            if let Some(pid) = pid {
                let _gone = kill_process(pid, signal);
            }
        }
    }

    /// A signal that has arrived, if any.
    async fn arrived(&mut self) -> Option<Signal> {
        // The runtime delivers signals when this task yields.
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

/// Reaps the children of this process that have ended, except `kept`, which is awaited elsewhere.
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

async fn arrival(signal: &mut Option<SignalStream>) {
    let came = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending().await
    }
}
