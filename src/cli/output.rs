//! Writing to the terminal. A reader that went away is no reason to fail.

use std::io::Write;

use super::CliError;

/// Prints a failure: what happened, and what to do about it.
pub(super) fn error(error: &CliError) {
    line(format_args!("error: {error}"));
    if let Some(hint) = error.hint() {
        line(format_args!("hint: {hint}"));
    }
}

/// Prints a line to stderr, in one write: whoever waits for it sees it whole.
pub(super) fn line(text: std::fmt::Arguments<'_>) {
    let _written = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Prints a line of what was asked for to stdout.
pub(super) fn data(text: std::fmt::Arguments<'_>) {
    let _written = std::io::stdout().lock().write_all(format!("{text}\n").as_bytes());
}

/// How far a long work is: one line that is written over, on a terminal, and nothing elsewhere.
pub(super) struct Progress {
    what: &'static str,
    is_shown: bool,
    percent: Option<u64>,
}

impl Progress {
    /// Of the work `what`, shown where stderr `is_terminal`.
    pub(super) fn new(what: &'static str, is_terminal: bool) -> Self {
        Self { what, is_shown: is_terminal, percent: None }
    }

    /// `done` of `all` is done.
    pub(super) fn tell(&mut self, done: u64, all: u64) {
        let percent = done.saturating_mul(100) / all.max(1);
        if self.is_shown && self.percent < Some(percent) {
            self.percent = Some(percent);
            self.write(&format!("\r{}: {percent} %", self.what));
        }
    }

    /// Leaves an empty line to whatever comes next.
    pub(super) fn end(&self) {
        if self.percent.is_some() {
            // "Erase in line" of ECMA-48.
            self.write("\r\x1b[K");
        }
    }

    fn write(&self, text: &str) {
        let _written = std::io::stderr().lock().write_all(text.as_bytes());
    }
}
