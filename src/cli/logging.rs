//! The log: what the library says through `tracing`, on stderr.
//!
//! No client fills a disk with it: of each kind of line there are so many a minute, and no more.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::text;

/// Lines of one kind, said at one place in the code, in one [`INTERVAL`].
const MAX_LINES: u32 = 60;

/// For how long lines are counted together.
const INTERVAL: Duration = Duration::from_secs(60);

/// Sends what `filter` lets through to stderr.
pub(super) fn start(filter: &str) {
    let lines = lines()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // A log that nobody takes, or whose disk is full, must not end what is being served:
        // these would be reported by a print that panics.
        .log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(EnvFilter::new(filter));
    registry.with(Sparing::default()).with(lines).init();
}

/// How a line looks.
fn lines<S>() -> fmt::Layer<S, impl for<'w> fmt::FormatFields<'w> + 'static> {
    fmt::layer().with_target(false).fmt_fields(debug_fn(field).delimited(" "))
}

/// Writes a field of a line. Paths and the texts of other programs are in them: nothing there may
/// steer a terminal, or end the line and begin another.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    let text = text::printable(&text);
    match field.name() {
        "message" => writer.write_str(&text),
        name => write!(writer, "{name}={text}"),
    }
}

/// Leaves out what was said too often. What only those see who asked for it (debug, trace) is
/// not counted.
#[derive(Debug, Default)]
struct Sparing {
    /// Each kind of line, of which the program has a fixed number.
    kinds: Mutex<HashMap<Identifier, LineKind>>,
}

/// Lines of one kind.
#[derive(Debug)]
struct LineKind {
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

impl LineKind {
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
        let mut kinds = self.kinds.lock();
        let kind = kinds.entry(event.metadata().callsite());
        let verdict = kind.or_insert(LineKind { since: now, lines: 0 }).count(now);
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
    use std::sync::Arc;

    use super::*;

    /// A place for lines.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_path_in_a_line_steers_the_terminal_or_ends_the_line() {
        let written = Lines::default();
        let writer = written.clone();
        let layer = lines().without_time().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let path = std::path::Path::new("/a\u{1b}[2J\u{9b}\u{202e}b\nWARN forged");
            tracing::warn!(path = %path.display(), count = 2, "cannot \u{2066}open");
        });
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        assert_eq!(
            text,
            " WARN cannot \\u{2066}open path=/a\\u{1b}[2J\\u{9b}\\u{202e}b\\nWARN forged count=2\n"
        );
    }

    #[test]
    fn so_many_lines_of_a_kind_and_not_more() {
        let begun = Instant::now();
        let mut kind = LineKind { since: begun, lines: 0 };
        for _ in 0..MAX_LINES {
            assert_eq!(kind.count(begun), Verdict::Say);
        }
        assert_eq!(kind.count(begun), Verdict::Last);
        assert_eq!(kind.count(begun + INTERVAL / 2), Verdict::LeaveOut);
        assert_eq!(kind.count(begun + INTERVAL), Verdict::Say);
    }
}
