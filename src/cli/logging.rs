//! The log of the library, from `tracing` to stderr.
//!
//! Each kind of line is limited per minute, so that a client cannot fill a disk with log lines.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::field::Field;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::{MakeExt, RecordFields};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::log_json::{self, JsonLines};
use super::{output, text};
use crate::request_id;

/// The default filter of commands that serve.
pub(super) const OF_SERVERS: &str = "warn";

/// The default filter of other commands. Warnings of slow operations are off: the user sees the
/// command wait. A failure is an error of the command.
pub(super) const OF_COMMANDS: &str = "warn,acetate::base::watched=error,acetate::worker=error";

/// The default filter of `mcp`. The client knows the errors that rmcp answers it with.
pub(super) const OF_MCP: &str =
    "warn,acetate::base::watched=error,acetate::worker=error,rmcp=error";

/// The most lines of one call site in one [`INTERVAL`].
const MAX_LINES: u32 = 60;

/// The interval in which lines are counted.
const INTERVAL: Duration = Duration::from_secs(60);

/// `--log-format`: the format of lines on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object in each line.
    Json,
}

/// Starts logging to stderr with this filter.
pub(super) fn start(filter: &str, format: LogFormat) {
    // By default, tracing reports a failed write by a print that panics. A closed stderr or a full
    // disk must not end the server.
    let lines = lines().with_writer(std::io::stderr).log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => {
            log_json::turn_on();
            // The default hook writes several lines.
            std::panic::set_hook(Box::new(|panic| output::line(format_args!("error: {panic}"))));
            lines.event_format(JsonLines).with_ansi(false).boxed()
        }
    };
    let registry = tracing_subscriber::registry().with(EnvFilter::new(filter));
    registry.with(RateLimit::default()).with(lines).init();
}

/// The format of lines.
fn lines<S>() -> fmt::Layer<S, impl for<'w> fmt::FormatFields<'w> + Send + Sync + 'static> {
    fmt::layer().with_target(false).fmt_fields(WithRequest(debug_fn(field).delimited(" ")))
}

/// Adds the number of the call that a line is about.
struct WithRequest<F>(F);

impl<'w, F: for<'a> fmt::FormatFields<'a>> fmt::FormatFields<'w> for WithRequest<F> {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'w>,
        fields: R,
    ) -> std::fmt::Result {
        self.0.format_fields(writer.by_ref(), fields)?;
        match request_id::current() {
            Some(id) => write!(writer, " request={id}"),
            None => Ok(()),
        }
    }
}

/// Writes a field, with control characters escaped: paths and messages of other programs must not
/// control a terminal or forge a line.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    let text = format!("{value:?}");
    let text = text::printable(&text);
    match field.name() {
        "message" => writer.write_str(&text),
        name => write!(writer, "{name}={text}"),
    }
}

/// Drops lines above the limit. Lines below INFO are not counted, because they appear only on
/// request.
#[derive(Debug, Default)]
struct RateLimit {
    /// Counts by call site; their number is fixed in the program.
    kinds: Mutex<HashMap<Identifier, LineKind>>,
}

/// The count of one kind of line.
#[derive(Debug)]
struct LineKind {
    since: Instant,
    lines: u32,
}

/// What happens to a line.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Say,
    /// Dropped, as the first of its kind in the interval.
    Last,
    LeaveOut,
}

impl LineKind {
    /// Counts a line at the time `now`.
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

impl<S: Subscriber> Layer<S> for RateLimit {
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
            output::line(format_args!(
                "note: {MAX_LINES} lines like the last one of {} in a minute; others are left out",
                event.metadata().target(),
            ));
        }
        verdict == Verdict::Say
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;
    use crate::base::WatchedBase;
    use crate::worker::WorkerOptions;

    /// A buffer for lines.
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
    fn a_line_about_a_call_has_its_number() {
        let written = Lines::default();
        let writer = written.clone();
        let layer = lines().without_time().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        let id = request_id::next();
        tracing::subscriber::with_default(subscriber, || {
            request_id::within(id, || tracing::warn!(step = "a", "of a call"));
            tracing::warn!("of none");
        });
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        let id = id.unwrap();
        assert_eq!(text, format!(" WARN of a call step=\"a\" request={id}\n WARN of none\n"));
    }

    #[test]
    fn a_line_of_json_has_each_field_with_its_type() {
        let written = Lines::default();
        let writer = written.clone();
        let layer = lines().event_format(JsonLines).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        let id = request_id::next();
        tracing::subscriber::with_default(subscriber, || {
            let path = std::path::Path::new("/a\u{1b}[2J\u{202e}\n");
            request_id::within(id, || {
                let shown = path.display();
                tracing::warn!(target: "t", path = %shown, n = 7, is = true, "cannot {}", "go");
            });
        });
        let text = String::from_utf8(written.0.lock().clone()).unwrap();
        assert!(text.ends_with('\n') && !text.trim_end().contains(char::is_control), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["level"], "WARN");
        assert_eq!(object["target"], "t");
        assert_eq!(object["message"], "cannot go");
        let fields = serde_json::json!({
            "path": "/a\u{1b}[2J\u{202e}\n", "n": 7, "is": true, "request": id.unwrap().get()
        });
        assert_eq!(object["fields"], fields);
    }

    /// The lines of a slow base and of a full disk with a filter.
    fn filtered(filter: &str) -> String {
        // The modules that warn of slow operations.
        assert!(std::any::type_name::<WatchedBase>().starts_with("acetate::base::watched::"));
        assert!(std::any::type_name::<WorkerOptions>().starts_with("acetate::worker::"));
        let written = Lines::default();
        let writer = written.clone();
        let layer = lines().without_time().with_ansi(false).with_writer(move || writer.clone());
        let registry = tracing_subscriber::registry().with(EnvFilter::new(filter));
        tracing::subscriber::with_default(registry.with(layer), || {
            tracing::warn!(target: "acetate::base::watched", "slow");
            tracing::warn!(target: "acetate::worker", "long");
            tracing::warn!(target: "acetate::worker::readers", "stuck");
            tracing::warn!(target: "acetate::workspace::layers", "readable");
            tracing::error!(target: "acetate::worker::job", "panic");
        });
        let text = written.0.lock().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn only_servers_say_that_an_operation_takes_long() {
        assert_eq!(filtered(OF_COMMANDS), " WARN readable\nERROR panic\n");
        assert_eq!(filtered(OF_SERVERS).lines().count(), 5);
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
