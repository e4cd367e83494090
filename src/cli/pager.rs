//! Colours, and a pager for long output on a terminal, chosen as git chooses it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Stdout, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::output;
use super::selecting::git_config;
use crate::system_error::{ending_words, words};

/// When output has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Also elsewhere.
    Always,
    /// Not at all.
    Never,
}

impl Colour {
    /// Whether stdout gets colours.
    pub(super) fn is_on(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => io::stdout().is_terminal() && Self::is_allowed(),
        }
    }

    /// Whether a terminal gets colours.
    pub(super) fn is_allowed() -> bool {
        let is_set = |name| env::var_os(name).is_some_and(|value: OsString| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        !is_set("NO_COLOR") && !is_dumb
    }
}

/// The most output that is kept until the pager ends, in bytes. More than a pager that never reads
/// can have received: a pipe holds 64 KiB on Linux, and one write is smaller than that.
const KEPT_BYTES: usize = 128 << 10;

/// The characters for which git runs the pager in a shell (run-command.c).
const SHELL_CHARS: &str = "|&;<>()$`\\\"' \t\n*?[#~=%";

/// A running pager. If it fails, the output it received goes to stdout.
#[derive(Debug)]
pub(super) struct Pager {
    name: OsString,
    child: Child,
    /// `None` after the pager has ended.
    input: Option<ChildStdin>,
    /// The output so far, unless it is longer than [`KEPT_BYTES`].
    kept: Option<Vec<u8>>,
    /// The pager failed, and output goes to stdout.
    has_failed: bool,
    stdout: Stdout,
}

impl Pager {
    /// Starts the pager of GIT_PAGER, git's core.pager or PAGER, or `less`. `None` if stdout is not
    /// a terminal, the pager is empty or `cat`, or (reported) it cannot be started.
    pub(super) fn start() -> Option<Self> {
        if !io::stdout().is_terminal() {
            return None;
        }
        let of_git = || git_config("core.pager");
        let pager = env::var_os("GIT_PAGER").or_else(of_git).or_else(|| env::var_os("PAGER"));
        let name = pager.unwrap_or_else(|| "less".into());
        if name.is_empty() || name == "cat" {
            return None;
        }
        let mut command = command(&name);
        command.stdin(Stdio::piped());
        for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                tell_failed(&name, &words(&error));
                return None;
            }
        };
        let input = child.stdin.take();
        let (kept, stdout) = (Some(Vec::new()), io::stdout());
        Some(Self { name, child, input, kept, has_failed: false, stdout })
    }

    /// Waits for the end of the pager.
    ///
    /// # Errors
    /// The pager failed, and stdout cannot be written.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if self.input.take().is_none() {
            return Ok(());
        }
        let status = self.child.wait()?;
        // A signal is not a failure: the user ended a running pager.
        if let (Some(1..), Some(kept)) = (status.code(), self.kept.take()) {
            tell_failed(&self.name, &ending_words(status));
            self.has_failed = true;
            self.stdout.write_all(&kept)?;
        }
        Ok(())
    }
}

/// The command of the pager, in a shell only if it is more than a program name.
fn command(pager: &OsStr) -> Command {
    let is_of_shell = |text: &str| text.contains(|char| SHELL_CHARS.contains(char));
    if pager.to_str().is_some_and(|text| !is_of_shell(text)) {
        return Command::new(pager);
    }
    let mut command = Command::new("sh");
    command.arg("-c").arg(pager);
    command
}

fn tell_failed(pager: &OsStr, why: &str) {
    let pager = pager.display();
    output::line(format_args!("cannot show this with the pager {pager}: {why}"));
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &mut self.input {
            Some(input) => input.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        match written {
            Ok(count) => {
                if let Some(kept) = &mut self.kept {
                    kept.extend_from_slice(&bytes[..count]);
                }
                self.kept.take_if(|kept| kept.len() > KEPT_BYTES);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.end()?;
                if self.has_failed { self.stdout.write(bytes) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.input {
            Some(input) => input.flush(),
            None => self.stdout.flush(),
        }
    }
}

impl AsFd for Pager {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.input.as_ref().map_or_else(|| self.stdout.as_fd(), AsFd::as_fd)
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        let _ended = self.end();
    }
}
