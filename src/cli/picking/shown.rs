//! Shows changes at the terminal at which the questions are asked.

use std::io::{self, Write};

use crate::cli::error::CliError;
use crate::cli::pager::Colour;
use crate::cli::{diff, text};
use crate::inspect::diff::Difference;
use crate::inspect::hunks::Sign;
use crate::inspect::opened::OpenSession;
use crate::inspect::patch::{Escape, Style, write_difference};

/// The most lines of a patch that are shown.
const SHOWN_LINES: usize = 200;

/// The largest file that is shown as a patch, in bytes.
const SHOWN_BYTES: u64 = 1 << 20;

const RESET: &str = "\x1b[m";

/// The terminal at stderr.
pub(super) struct Screen {
    has_colour: bool,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { has_colour: Colour::is_allowed() }
    }

    fn put(&self, colour: &str, line: &str) {
        let line = match self.has_colour && !colour.is_empty() {
            true => format!("{colour}{line}{RESET}\n"),
            false => format!("{line}\n"),
        };
        // An unreadable terminal gives no answers either, which ends the questions.
        let _written = io::stderr().lock().write_all(line.as_bytes());
    }

    /// Prints one or more lines.
    pub(super) fn line(&self, text: &str) {
        text.lines().for_each(|line| self.put("", &text::printable(line)));
    }

    /// Prints the title above the hunks of a file.
    pub(super) fn title(&self, text: &str) {
        self.put("\x1b[1m", &text::printable(text));
    }

    /// Prints the header of a hunk.
    pub(super) fn header(&self, text: &str) {
        self.put("\x1b[36m", text);
    }

    /// Prints a line of a hunk.
    pub(super) fn hunk_line(&self, sign: Sign, line: &[u8]) {
        let colour = match sign {
            Sign::Context => "",
            Sign::Old => "\x1b[31m",
            Sign::New => "\x1b[32m",
        };
        let sign = sign.as_char();
        let text = line.strip_suffix(b"\n");
        let shown = String::from_utf8_lossy(&diff::escaped(text.unwrap_or(line))).into_owned();
        self.put(colour, &format!("{sign}{shown}"));
        if text.is_none() {
            self.put("", "\\ No newline at end of file");
        }
    }

    /// A question in its colour.
    pub(super) fn prompt(&self, question: &str) -> String {
        match self.has_colour {
            true => format!("\x1b[1;34m{question}{RESET}"),
            false => question.to_owned(),
        }
    }

    /// Shows the patch of a change without hunks, if its files are small.
    pub(super) fn whole(
        &self,
        opened: &OpenSession,
        difference: &Difference,
    ) -> Result<(), CliError> {
        let sizes = [
            difference.old.as_ref().map(|old| old.attr.size),
            difference.change.after.as_ref().map(|after| after.attr().size),
        ];
        if sizes.into_iter().flatten().any(|size| size > SHOWN_BYTES) {
            return Ok(());
        }
        let (has_colour, escape) = (self.has_colour, Some(diff::escaped as Escape));
        let style = Style { has_colour, escape, has_binary: false, ..Style::default() };
        let mut patch = Vec::new();
        opened
            .with_tree(|view| write_difference((opened, view), difference, &style, &mut patch))?;
        let patch = String::from_utf8_lossy(&patch);
        let lines: Vec<_> = patch.lines().collect();
        for line in lines.iter().take(SHOWN_LINES) {
            self.put("", line);
        }
        if let more @ 1.. = lines.len().saturating_sub(SHOWN_LINES) {
            self.line(&format!("and {}", text::count(more, "more line")));
        }
        Ok(())
    }
}
