//! One validator process, as the server sees it.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::Signal;
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::frame::{ValidatorReply, read_reply, send_check, send_schema};
use crate::validation::limits::{ChildLimits, KILL_TIME};
use crate::validation::lines::Form;
use crate::validation::schema::JsonSchema;
use crate::validation::violation::Violation;

/// The subcommand of `acetate` that runs a validator process.
const SUBCOMMAND: &str = "validator-child";

/// How to start validator processes.
#[derive(Debug, Clone)]
pub struct ValidatorCommand {
    program: PathBuf,
}

/// A validator process; dropping it kills the process.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    limits: ChildLimits,
    /// Whether the process has completed a check.
    pub(super) has_answered: bool,
}

/// The result of a check.
pub(super) enum CheckVerdict {
    Accepted,
    Refused(Violation),
    /// The process ended; the exit status decides the violation.
    Ended(ExitStatus),
    /// The check exceeded its time, and the process was killed.
    TooSlow,
}

impl ValidatorCommand {
    /// Starts the `acetate` program at this path.
    pub fn new(acetate: impl Into<PathBuf>) -> Self {
        Self { program: acetate.into() }
    }

    /// Starts the running program, which must be `acetate`.
    ///
    /// # Errors
    /// The path of the running program is unknown.
    pub fn this_program() -> io::Result<Self> {
        // Refers to the running program even if its file was replaced.
        let running = Path::new("/proc/self/exe");
        match running.exists() {
            true => Ok(Self::new(running)),
            false => Ok(Self::new(std::env::current_exe()?)),
        }
    }
}

impl Process {
    /// Starts a process; takes milliseconds.
    pub(super) async fn start(command: &ValidatorCommand, limits: ChildLimits) -> io::Result<Self> {
        let program = command.program.clone();
        let args = [
            OsString::from(SUBCOMMAND),
            limits.memory_bytes.to_string().into(),
            limits.check_time.as_millis().to_string().into(),
        ];
        let started = tokio::task::spawn_blocking(move || {
            Command::new(program)
                .arg0("acetate")
                .args(args)
                .env_clear()
                .current_dir("/")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                // Keeps signals of the terminal, such as Ctrl-C, from the process.
                .process_group(0)
                .kill_on_drop(true)
                .spawn()
        });
        let mut child = started.await.map_err(io::Error::other)??;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(io::Error::other("a pipe is missing"));
        };
        let stdout = BufReader::new(stdout);
        Ok(Self { child, stdin, stdout, limits, has_answered: false })
    }

    /// Checks content. Returns the process if it can be reused.
    pub(super) async fn check(
        mut self,
        schema: &JsonSchema,
        form: Form,
        content: &[u8],
    ) -> (CheckVerdict, Option<Self>) {
        let answered = timeout(self.limits.check_time, self.answer(schema, form, content)).await;
        let line = match answered {
            Ok(Ok(ValidatorReply::Accepted)) => {
                self.has_answered = true;
                return (CheckVerdict::Accepted, Some(self));
            }
            Ok(Ok(ValidatorReply::Refused(line))) => line,
            Ok(Ok(_) | Err(_)) => return (CheckVerdict::Ended(self.kill().await), None),
            Err(_) => {
                self.kill().await;
                return (CheckVerdict::TooSlow, None);
            }
        };
        match timeout(self.limits.reason_time, read_reply(&mut self.stdout)).await {
            Ok(Ok(ValidatorReply::Reason(violation))) => {
                self.has_answered = true;
                (CheckVerdict::Refused(violation), Some(self))
            }
            // Finding the reason exceeded its time or the memory limit.
            _ => {
                self.kill().await;
                let reason = Violation::new("does not fit the schema");
                (CheckVerdict::Refused(reason.in_line(line)), None)
            }
        }
    }

    /// The first reply to a check.
    async fn answer(
        &mut self,
        schema: &JsonSchema,
        form: Form,
        content: &[u8],
    ) -> io::Result<ValidatorReply> {
        send_check(&mut self.stdin, schema.id(), form, content).await?;
        let reply = read_reply(&mut self.stdout).await?;
        if reply != ValidatorReply::WantsSchema {
            return Ok(reply);
        }
        send_schema(&mut self.stdin, schema.id(), schema.text()).await?;
        read_reply(&mut self.stdout).await
    }

    /// Kills the process and returns its exit status: the original one, if it had ended before.
    async fn kill(&mut self) -> ExitStatus {
        // Fails only if the process has ended.
        let _ = self.child.start_kill();
        let ended = timeout(KILL_TIME, self.child.wait()).await;
        let status = ended.ok().and_then(Result::ok);
        status.unwrap_or_else(|| ExitStatus::from_raw(Signal::KILL.as_raw()))
    }
}

impl CheckVerdict {
    /// Maps the outcome to a [`Violation`].
    pub(super) fn into_result(self, limits: &ChildLimits) -> Result<(), Violation> {
        let time = limits.check_time;
        match self {
            Self::Accepted => Ok(()),
            Self::Refused(violation) => Err(violation),
            Self::TooSlow => Err(Violation::new(format_args!("cannot be checked within {time:?}"))),
            Self::Ended(status) => {
                let signal = status.signal().unwrap_or_default();
                let mib = limits.memory_bytes >> 20;
                Err(Violation::new(match Signal::from_named_raw(signal) {
                    Some(Signal::XCPU) => format!("cannot be checked within {time:?}"),
                    Some(Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::KILL) => {
                        format!("cannot be checked within {mib} MiB of memory")
                    }
                    _ => format!("cannot be checked: the validator process ended ({status})"),
                }))
            }
        }
    }
}
