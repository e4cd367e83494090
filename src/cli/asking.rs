//! Asks the user at the terminal.

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Write};

use super::error::CliError;
use super::text;

/// Whether stdin and stderr, which carry the answer and the question, are terminals.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question; returns whether the answer is yes.
///
/// # Errors
/// The terminal cannot be written or read.
pub(super) fn ask(question: &dyn Display) -> Result<bool, CliError> {
    let question = format!("{question} [y/N] ");
    let answer = answer(&text::printable(&question))?.unwrap_or_default();
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Prints a question unchanged and reads a line; `None` at the end of the input.
///
/// # Errors
/// The terminal cannot be written or read.
pub(super) fn answer(question: &str) -> Result<Option<String>, CliError> {
    let mut stderr = io::stderr();
    let asked = stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush());
    let mut answer = Vec::new();
    let answered = asked.and_then(|()| io::stdin().lock().read_until(b'\n', &mut answer));
    let bytes = answered.map_err(|error| CliError::caused("cannot ask", &error))?;
    Ok((bytes > 0).then(|| String::from_utf8_lossy(&answer).into_owned()))
}
