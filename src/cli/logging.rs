//! The log: what the library says through `tracing`, on stderr.
//!
//! No client fills a disk with it: of each kind of line there are so many a minute, and no more.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Lines of one kind, said at one place in the code, in one [`INTERVAL`].
const MAX_LINES: u32 = 60;

/// For how long lines are counted together.
const INTERVAL: Duration = Duration::from_secs(60);

/// Sends what `filter` lets through to stderr.
pub(super) fn start(filter: &str) {
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        // A log that nobody takes, or whose disk is full, must not end what is being served:
        // these would be reported by a print that panics.
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(EnvFilter::new(filter));
    registry.with(Sparing::default()).with(lines).init();
}

/// Leaves out what was said too often. What only those see who asked for it (debug, trace) is
/// not counted.
#[derive(Debug, Default)]
struct Sparing {
    /// Each kind of line, of which the program has a fixed number.
    kinds: Mutex<HashMap<Identifier, Kind>>,
}

/// Lines of one kind.
#[derive(Debug)]
struct Kind {
    since: Instant,
    lines: u32,
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Say,
    /// Left out, the first of its kind.
    Last,
    LeaveOut,
}

impl Kind {
    /// Counts a line that comes `now`.
    fn count(&mut self, now: Instant) -> Verdict {
        if now.saturating_duration_since(self.since) >= INTERVAL {
            *self = Self { since: now, lines: 0 };
        }
        self.lines = self.lines.saturating_add(1);
        match self.lines {
            0..=MAX_LINES => Verdict::Say,
            lines if lines == MAX_LINES + 1 => Verdict::Last,
            _ => Verdict::LeaveOut,
        }
    }
}

impl<S: Subscriber> Layer<S> for Sparing {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::INFO {
            return true;
        }
        let now = Instant::now();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = kinds.entry(event.metadata().callsite());
        let verdict = kind.or_insert(Kind { since: now, lines: 0 }).count(now);
        drop(kinds);
        if verdict == Verdict::Last {
            // Where stderr takes nothing, there is nobody to tell.
            let _said = writeln!(
                std::io::stderr(),
                "note: {MAX_LINES} lines like the last one of {} in a minute; others are left out",
                event.metadata().target(),
            );
        }
        verdict == Verdict::Say
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_of_a_kind_and_not_more() {
        let begun = Instant::now();
        let mut kind = Kind { since: begun, lines: 0 };
        for _ in 0..MAX_LINES {
            assert_eq!(kind.count(begun), Verdict::Say);
        }
        assert_eq!(kind.count(begun), Verdict::Last);
        assert_eq!(kind.count(begun + INTERVAL / 2), Verdict::LeaveOut);
        assert_eq!(kind.count(begun + INTERVAL), Verdict::Say);
    }
}
