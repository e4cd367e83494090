//! Writes to stdout and stderr. A closed pipe is not an error.

use std::io::{BufWriter, StdoutLock, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Map, Value};

use super::pager::Pager;
use super::{CliError, log_json, session_names, text};
use crate::config::ConfigError;
use crate::delta::MergedPath;

/// The shortest interval between two updates of a progress line.
const SAY_INTERVAL: Duration = Duration::from_millis(100);

/// Prints a failure and its hint.
pub(super) fn error(error: &CliError) {
    line(format_args!("error: {error}"));
    if let Some(hint) = error.hint() {
        line(format_args!("hint: {hint}"));
    }
}

/// Prints a line to stderr in one write, so that a reader gets it whole; as JSON with
/// `--log-format json`.
pub(super) fn line(text: std::fmt::Arguments<'_>) {
    let text = text.to_string();
    let text = session_names::in_message(&text);
    let line = match log_json::is_on() {
        true => log_json::printed(&text),
        false => printable_line(&text),
    };
    let _written = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Warns of files of `exports.d` that are at fault, and that a command does without.
pub(super) fn warn_of_broken(broken: Option<&ConfigError>) {
    for fault in broken.into_iter().flat_map(ConfigError::faults) {
        line(format_args!("warning: {fault}"));
    }
}

/// Says on stderr what is not there because the base denies access to it.
pub(super) fn tell_of_denied(denied: &[MergedPath], there: &str) {
    for path in denied {
        let path = text::name(path.as_bytes());
        line(format_args!("warning: not {there}: {path}: the base denies access to it"));
    }
}

/// Prints a line of data to stdout.
pub(super) fn data(text: std::fmt::Arguments<'_>) {
    let _written = std::io::stdout().lock().write_all(printable_line(&text.to_string()).as_bytes());
}

/// Prints a JSON object to stdout, on one line.
pub(super) fn json(mut object: Map<String, Value>) {
    session_names::in_object(&mut object);
    let line = json_text(&Value::Object(object)) + "\n";
    let _written = std::io::stdout().lock().write_all(line.as_bytes());
}

/// Formats a JSON value on one line, without control characters.
pub(super) fn json_text(value: &Value) -> String {
    text::printable_json(&value.to_string()).into_owned()
}

fn printable_line(text: &str) -> String {
    let mut line = text::printable(text).into_owned();
    line.push('\n');
    line
}

/// Buffered output of many lines to stdout; the reader may close the pipe at any time.
pub(super) struct Out(BufWriter<OutputSink>);

/// The destination of the output.
#[derive(Debug)]
enum OutputSink {
    Stdout(StdoutLock<'static>),
    Pager(Box<Pager>),
}

impl Write for OutputSink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes),
            Self::Pager(pager) => pager.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.flush(),
            Self::Pager(pager) => pager.flush(),
        }
    }
}

impl AsFd for OutputSink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stdout(stdout) => stdout.as_fd(),
            Self::Pager(pager) => pager.as_fd(),
        }
    }
}

impl Out {
    /// Output to stdout.
    pub(super) fn new() -> Self {
        Self(BufWriter::new(OutputSink::Stdout(std::io::stdout().lock())))
    }

    /// Output to a pager; [`Out::end`] waits for it.
    pub(super) fn to_pager(pager: Pager) -> Self {
        Self(BufWriter::new(OutputSink::Pager(Box::new(pager))))
    }

    /// Prints a line that is already escaped and may have colours.
    pub(super) fn raw_line(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), CliError> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Prints a line.
    pub(super) fn line(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), CliError> {
        self.bytes(printable_line(&session_names::in_data(&text.to_string())).as_bytes())
    }

    /// Prints a JSON object on one line.
    pub(super) fn json(&mut self, mut object: Map<String, Value>) -> Result<(), CliError> {
        session_names::in_object(&mut object);
        self.bytes((json_text(&Value::Object(object)) + "\n").as_bytes())
    }

    /// Prints a JSON value over several lines, indented.
    pub(super) fn pretty(&mut self, value: &Value) -> Result<(), CliError> {
        self.bytes(text::printable_json(&format!("{value:#}\n")).as_bytes())
    }

    /// Prints bytes unchanged.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.0.write_all(bytes).map_err(|error| CliError::stdout(&error))
    }

    /// Flushes, and sleeps for `time`.
    ///
    /// # Errors
    /// As the other methods; also if the reader closed the pipe.
    pub(super) fn wait(&mut self, time: Duration) -> Result<(), CliError> {
        self.0.flush().map_err(|error| CliError::stdout(&error))?;
        std::thread::sleep(time);
        // No events are requested: poll(2) always reports that the reader has closed the pipe.
        let mut stdout = [PollFd::new(self.0.get_ref(), PollFlags::empty())];
        let polled = rustix::event::poll(&mut stdout, Some(&Timespec::default()));
        let gone = PollFlags::ERR | PollFlags::HUP;
        if polled.is_ok() && stdout[0].revents().intersects(gone) {
            return Err(CliError::stdout(&std::io::ErrorKind::BrokenPipe.into()));
        }
        Ok(())
    }

    /// Flushes, and waits for the pager.
    pub(super) fn end(mut self) -> Result<(), CliError> {
        let flushed = self.0.flush();
        let ended = match self.0.get_mut() {
            OutputSink::Stdout(_) => Ok(()),
            OutputSink::Pager(pager) => pager.end(),
        };
        flushed.and(ended).map_err(|error| CliError::stdout(&error))
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// The width of a line: COLUMNS, the width of the terminal, or 80.
pub(super) fn columns() -> usize {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let of_terminal = || {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col))
    };
    given.or_else(of_terminal).filter(|columns| *columns > 0).unwrap_or(80)
}

/// A progress line that overwrites itself; shown only on a terminal.
pub(super) struct ProgressLine {
    what: &'static str,
    is_shown: bool,
    percent: Option<u64>,
    said: Option<Instant>,
}

impl ProgressLine {
    /// Reports on the work `what`, if stderr is a terminal.
    pub(super) fn new(what: &'static str, is_terminal: bool) -> Self {
        Self { what, is_shown: is_terminal, percent: None, said: None }
    }

    /// Shows the percentage of `done` in `all`.
    pub(super) fn tell(&mut self, done: u64, all: u64) {
        let percent = done.saturating_mul(100) / all.max(1);
        if self.is_shown && self.percent < Some(percent) {
            self.percent = Some(percent);
            self.write(&format!("\r{}: {percent} %", self.what));
        }
    }

    /// Shows a text, for work of unknown size.
    pub(super) fn say(&mut self, text: impl FnOnce() -> String) {
        if self.is_shown && self.said.is_none_or(|said| said.elapsed() >= SAY_INTERVAL) {
            self.said = Some(Instant::now());
            self.write(&format!("\r{}: {}\x1b[K", self.what, text()));
        }
    }

    /// Clears the line.
    pub(super) fn end(&self) {
        if self.percent.is_some() || self.said.is_some() {
            // "Erase in line" of ECMA-48.
            self.write("\r\x1b[K");
        }
    }

    fn write(&self, text: &str) {
        let _written = std::io::stderr().lock().write_all(text.as_bytes());
    }
}
