//! `acetate tool run`: runs a command, and records it as a tool call.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::runtime;
use tokio::signal::unix::{Signal as Arriving, SignalKind, signal};

use crate::cli::error::CliError;
use crate::cli::{Ending, output, stored};
use crate::delta::sqlite::{Access, NewCall};
use crate::inspect::json;
use crate::inspect::tool::ToolCalls;

/// The exit code for a command that cannot be run, and for one that is not there, as shells have
/// them.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What a shell adds to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;

/// Run a command, and record it as a tool call.
///
/// Exits as the command does: with its exit code, or with 128 and the number of the signal that
/// ended it. The result is {"exit_code":0}; any other end is an error. Nothing is run if the
/// session cannot be written.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session file.
    #[arg(value_name = "SESSION.db")]
    session: PathBuf,

    /// The tool's name.
    name: String,

    /// What to record as its parameters, in JSON [default: {"command":[CMD...]}].
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    parameters: Option<String>,

    /// The command with its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How the command ended.
struct Ended {
    /// What it says about itself, or what kept it from running.
    outcome: Result<String, String>,
    code: u8,
}

/// Runs it and records it.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let parameters = match &args.parameters {
        Some(text) => json::checked("parameters", &stored::given(text)?)?.to_owned(),
        None => command_line(&args.command),
    };
    // The session is not kept open meanwhile: the command may be one that wants it for itself.
    ToolCalls::open(&args.session, Access::Write)?.require_writable()?;
    let started_at = Timestamp::now().as_second();
    let ended = run_command(&args.command)?;
    // The clock may have been set back.
    let completed_at = Timestamp::now().as_second().max(started_at);
    let outcome = ended.outcome.as_ref().map(String::as_str).map_err(String::as_str);
    let call = NewCall {
        name: &args.name,
        parameters: Some(&parameters),
        outcome,
        started_at,
        completed_at,
    };
    let recorded =
        ToolCalls::open(&args.session, Access::Write).and_then(|calls| calls.record(&call));
    match recorded {
        Err(error) if ended.code == 0 => Err(error.into()),
        Err(error) => {
            output::error(&error.into());
            Ok(Ending::Exit(ended.code))
        }
        Ok(_) => Ok(Ending::Exit(ended.code)),
    }
}

fn command_line(command: &[OsString]) -> String {
    let words: Vec<Value> = command.iter().map(|word| word.to_string_lossy().into()).collect();
    serde_json::json!({ "command": words }).to_string()
}

fn run_command(command: &[OsString]) -> Result<Ended, CliError> {
    let failed = |error: std::io::Error| CliError::caused("cannot wait for a command", &error);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        // Before the command runs: from then on we live until it has ended.
        let mut signals = Signals::catch().map_err(failed)?;
        let [program, words @ ..] = command else {
            return Err(CliError::new("no command"));
        };
        match Command::new(program).args(words).spawn() {
            Ok(mut child) => Ok(ended(signals.wait_for(&mut child).await.map_err(failed)?)),
            Err(error) => {
                let what = format!("cannot run {}: {error}", program.display());
                output::error(&CliError::new(&what));
                let is_missing = error.kind() == ErrorKind::NotFound;
                let code = if is_missing { NOT_FOUND } else { CANNOT_RUN };
                Ok(Ended { outcome: Err(what), code })
            }
        }
    })
}

fn ended(status: ExitStatus) -> Ended {
    let code = status.code().or_else(|| Some(SIGNALLED + status.signal()?));
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX);
    let outcome = match code {
        0 => Ok(serde_json::json!({ "exit_code": 0 }).to_string()),
        _ => Err(status.to_string()),
    };
    Ended { outcome, code }
}

/// The signals that would end us before the command.
struct Signals {
    /// From the terminal, which sends them to the command too: nothing is left to be done.
    _keyboard: Vec<Arriving>,
    /// To us alone, maybe: they are passed on.
    terminate: Option<Arriving>,
    hang_up: Option<Arriving>,
}

impl Signals {
    /// Catches them, but for those that are ignored (`nohup`, jobs in the background): what is
    /// caught here is not ignored in the command either.
    fn catch() -> std::io::Result<Self> {
        let ignored = ignored();
        let catch = |kind: SignalKind| {
            let bit = 1u64.checked_shl(kind.as_raw_value().cast_unsigned() - 1).unwrap_or(0);
            (ignored & bit == 0).then(|| signal(kind)).transpose()
        };
        let keyboard = [catch(SignalKind::interrupt())?, catch(SignalKind::quit())?];
        Ok(Self {
            _keyboard: keyboard.into_iter().flatten().collect(),
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    /// Waits until the command has ended, and passes on what comes meanwhile.
    async fn wait_for(&mut self, child: &mut Child) -> std::io::Result<ExitStatus> {
        loop {
            let signal = tokio::select! {
                status = child.wait() => return status,
                () = arrival(&mut self.terminate) => Signal::TERM,
                () = arrival(&mut self.hang_up) => Signal::HUP,
            };
            // Nobody has waited for it yet, so the number is still its own.
            let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            if let Some(pid) = pid {
                let _gone = kill_process(pid, signal);
            }
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

/// The signals that this process ignores, a bit each; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
