//! Asking the person at the terminal.

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Write};

use super::error::CliError;
use super::text;

/// Whether there is a terminal to ask at: stdin for the answer, and stderr for the question.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks, and says whether the answer is yes.
///
/// # Errors
/// The terminal cannot be written or read.
pub(super) fn ask(question: &dyn Display) -> Result<bool, CliError> {
    let mut stderr = io::stderr();
    let question = format!("{question} [y/N] ");
    let asked =
        stderr.write_all(text::printable(&question).as_bytes()).and_then(|()| stderr.flush());
    let mut answer = String::new();
    let answered = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
    answered.map_err(|error| CliError::caused("cannot ask", &error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
