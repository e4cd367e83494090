//! How far an apply is, on the terminal.

use std::io::IsTerminal;
use std::ops::ControlFlow;

use crate::cli::output::ProgressLine;
use crate::cli::signals::Interrupts;
use crate::cli::text;
use crate::delta::PendingCopies;
use crate::inspect::apply::ApplyEvent;

/// How far it is, and whether to go on.
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

    /// Shows an event; Break, once a signal asks to end.
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
        // What is done to its end has not been interrupted.
        let is_done = matches!(event, ApplyEvent::Step { done, all } if done == all);
        match self.interrupts.came() && !is_done {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Leaves the terminal as it was.
    pub fn end(&self) {
        self.making.end();
        self.copying.end();
        self.applying.end();
    }
}
