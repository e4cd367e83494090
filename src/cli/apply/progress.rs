//! Shows the progress of an apply on the terminal.

use std::io::IsTerminal;
use std::ops::ControlFlow;

use crate::cli::output::ProgressLine;
use crate::cli::signals::Interrupts;
use crate::cli::text;
use crate::delta::PendingCopies;
use crate::inspect::apply::ApplyEvent;

/// The progress lines, and the signals that break an apply off.
pub(super) struct ApplyProgress<'a> {
    interrupts: &'a Interrupts,
    making: ProgressLine,
    copying: ProgressLine,
    applying: ProgressLine,
}

impl<'a> ApplyProgress<'a> {
    pub fn new(interrupts: &'a Interrupts) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let progress = |what| ProgressLine::new(what, is_terminal);
        let (making, copying) = (progress("preparing"), progress("finishing copies"));
        Self { interrupts, making, copying, applying: progress("applying") }
    }

    /// Shows an event; `Break` after a signal that ends the process.
    pub fn tell(&mut self, event: ApplyEvent) -> ControlFlow<()> {
        match event {
            ApplyEvent::Making { done, all } => self.making.tell(done, all),
            ApplyEvent::Copying(PendingCopies { files, bytes }) => self
                .copying
                .say(|| format!("{}, {} left", text::count(files, "file"), text::bytes(bytes))),
            ApplyEvent::Step { done, all } => {
                if done == 0 {
                    self.copying.end();
                }
                self.applying.tell(done as u64, all as u64);
            }
        }
        // After the last step, there is nothing to break off.
        let is_done = matches!(event, ApplyEvent::Step { done, all } if done == all);
        match self.interrupts.came() && !is_done {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Clears the progress lines.
    pub fn end(&self) {
        self.making.end();
        self.copying.end();
        self.applying.end();
    }
}
