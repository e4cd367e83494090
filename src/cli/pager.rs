//! A pager for long output on a terminal, chosen as git chooses it, and colours.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::{Child, ChildStdin, Command, Stdio};

use super::selecting::git_config;

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
            Self::Auto => std::io::stdout().is_terminal() && Self::is_allowed(),
        }
    }

    /// Whether a terminal gets colours.
    pub(super) fn is_allowed() -> bool {
        let is_set = |name| env::var_os(name).is_some_and(|value: OsString| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        !is_set("NO_COLOR") && !is_dumb
    }
}

/// A pager that shows what is written to it; it is waited for in the end.
#[derive(Debug)]
pub(super) struct Pager(Child);

impl Pager {
    /// Starts the pager of GIT_PAGER, of git's core.pager, or of PAGER; else `less`. None where
    /// stdout is no terminal, or the pager is empty or `cat`.
    pub(super) fn start() -> Option<(Self, ChildStdin)> {
        if !std::io::stdout().is_terminal() {
            return None;
        }
        let of_git = || git_config("core.pager");
        let pager = env::var_os("GIT_PAGER").or_else(of_git).or_else(|| env::var_os("PAGER"));
        let pager = pager.unwrap_or_else(|| "less".into());
        if pager.is_empty() || pager == "cat" {
            return None;
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(pager).stdin(Stdio::piped());
        for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        let mut child = command.spawn().ok()?;
        let input = child.stdin.take()?;
        Some((Self(child), input))
    }
}

impl Drop for Pager {
    fn drop(&mut self) {
        let _ended = self.0.wait();
    }
}
