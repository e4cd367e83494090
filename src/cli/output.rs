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
