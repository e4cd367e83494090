//! External programs as validators.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

#[cfg(target_os = "linux")]
use super::limits::MAX_PROGRAM_BYTES;
use super::limits::{KEPT_OUTPUT_BYTES, OUTPUT_GRACE};
use super::violation::Violation;

use crate::system_error::words;

/// Environment variable with the path of the file in the export.
const PATH_VARIABLE: &str = "ACETATE_GUARDED_PATH";

/// Environment variables that the service manager sets for the server alone (sd_notify(3),
/// sd_listen_fds(3)): a program must not answer in the server's place.
const SERVICE_VARIABLES: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// A program that reads the content on stdin and accepts it by exit status 0.
#[derive(Debug, Clone)]
pub struct ValidatorProgram {
    /// Program and arguments, without a shell.
    argv: Vec<OsString>,
    /// Wall-clock limit.
    timeout: Duration,
}

/// The first bytes of a program's output.
#[derive(Default)]
struct ProgramOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl ValidatorProgram {
    /// `None` if the program's name is missing or empty.
    pub fn new(argv: Vec<OsString>, timeout: Duration) -> Option<Self> {
        let is_named = argv.first().is_some_and(|program| !program.is_empty());
        is_named.then_some(Self { argv, timeout })
    }

    /// Runs the program on `content` for the file at `path`.
    ///
    /// # Errors
    /// The program rejects the content, cannot be run, or exceeds its timeout.
    pub async fn check(&self, path: &[u8], content: &[u8]) -> Result<(), Violation> {
        // Yields first: spawning a process takes long, and this thread may have a reply to send.
        tokio::task::yield_now().await;
        let name = self.argv[0].to_string_lossy();
        let mut child = self.start(path).map_err(|error| {
            tracing::error!(program = ?self.argv[0], %error, "cannot run the program of a guard");
            Violation::new(format_args!("`{name}` cannot be run: {}", words(&error)))
        })?;
        let mut said = ProgramOutput::default();
        let ended = timeout(self.timeout, talk(&mut child, content, &mut said)).await;
        match ended {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(said.refusal(&name, status)),
            Ok(Err(error)) => {
                Err(Violation::new(format_args!("`{name}` is lost: {}", words(&error))))
            }
            Err(_) => {
                end(&mut child).await;
                let limit = self.timeout;
                Err(Violation::new(format_args!("`{name}` took longer than {limit:?}")))
            }
        }
    }

    /// Starts the program in a process group of its own, with a memory limit.
    fn start(&self, path: &[u8]) -> std::io::Result<Child> {
        let mut command = Command::new(&self.argv[0]);
        for variable in SERVICE_VARIABLES {
            command.env_remove(variable);
        }
        let child = command
            .args(&self.argv[1..])
            .env(PATH_VARIABLE, OsStr::from_bytes(path))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        limit_memory(&child);
        Ok(child)
    }
}

/// Limits the memory of a program that was just started, and of each process that it starts later.
/// Does not limit the address space: runtimes reserve more than they use.
#[cfg(target_os = "linux")]
fn limit_memory(child: &Child) {
    use rustix::process::{Resource, Rlimit, getrlimit, prlimit};

    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let most = getrlimit(Resource::Data)
        .maximum
        .map_or(MAX_PROGRAM_BYTES, |maximum| maximum.min(MAX_PROGRAM_BYTES));
    let limit = Rlimit { current: Some(most), maximum: Some(most) };
    // Fails if the program has exited or has changed its user.
    if let Some(pid) = pid
        && let Err(error) = prlimit(Some(pid), Resource::Data, limit)
    {
        tracing::debug!(%error, "cannot bound the memory of a guard's program");
    }
}

/// macOS cannot limit the memory of another process.
#[cfg(not(target_os = "linux"))]
fn limit_memory(_: &Child) {}

/// Feeds stdin and collects the output until the program exits.
async fn talk(
    child: &mut Child,
    content: &[u8],
    said: &mut ProgramOutput,
) -> std::io::Result<ExitStatus> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A program may exit without reading all input.
            let _ = stdin.write_all(content).await;
        }
    };
    let heard = async {
        tokio::join!(feed, hear(stdout, &mut said.stdout), hear(stderr, &mut said.stderr));
    };
    let mut heard = std::pin::pin!(heard);
    tokio::select! {
        status = child.wait() => {
            let _ = timeout(OUTPUT_GRACE, heard).await;
            status
        }
        () = &mut heard => child.wait().await,
    }
}

/// Keeps the beginning of a stream and discards the rest, so that the program does not block.
async fn hear(output: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>) {
    let Some(mut output) = output else { return };
    let mut buffer = vec![0; KEPT_OUTPUT_BYTES];
    while let Ok(got @ 1..) = output.read(&mut buffer).await {
        let room = KEPT_OUTPUT_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..got.min(room)]);
    }
}

/// Kills the program's process group and reaps the program.
async fn end(child: &mut Child) {
    // The pid cannot be reused before the process is reaped.
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(pid) = pid
        && let Err(error) = kill_process_group(pid, Signal::KILL)
    {
        tracing::warn!(%error, "cannot end the program of a guard");
    }
    let _ = child.wait().await;
}

impl ProgramOutput {
    /// The reason of a rejection: the first line of output, or the exit status.
    fn refusal(&self, name: &str, status: ExitStatus) -> Violation {
        if let Some(line) = first_line(&self.stderr).or_else(|| first_line(&self.stdout)) {
            return Violation::new(line);
        }
        match (status.code(), status.signal()) {
            (Some(code), _) => Violation::new(format_args!("`{name}` exited with {code}")),
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                Violation::new(format_args!("`{name}` was ended by signal {signal}"))
            }
        }
    }
}

/// The first non-blank line.
fn first_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}
