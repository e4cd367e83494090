//! Lines on stderr as JSON objects (`--log-format json`): those of the log, and those that a
//! command prints itself.
//!
//! A line is `{"time":…,"level":…,"target":…,"message":…,"fields":{…}}`, without control characters
//! in it: names of files may hold any.

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use super::text;
use crate::request_id::{self, RequestId};
use crate::vfs::Time;

/// The target of lines that a command prints.
const PRINTED: &str = "acetate::cli";

/// Whether lines are JSON objects in this process.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Prints lines as JSON objects from now on.
pub(super) fn turn_on() {
    IS_ON.store(true, Ordering::Relaxed);
}

/// Whether lines are JSON objects.
pub(super) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The line for a text that a command prints; a prefix like `warning: ` becomes the level.
pub(super) fn printed(text: &str) -> String {
    let prefixes = [("error: ", Level::ERROR), ("warning: ", Level::WARN), ("note: ", Level::INFO)];
    let found =
        prefixes.iter().find_map(|(prefix, level)| Some((*level, text.strip_prefix(prefix)?)));
    let (level, message) = found.unwrap_or((Level::INFO, text));
    line(level, PRINTED, message, Map::new(), None)
}

/// The format of the log's lines.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut found = EventFields::default();
        event.record(&mut found);
        let (metadata, request) = (event.metadata(), request_id::current());
        let EventFields { message, fields } = found;
        writer.write_str(&line(*metadata.level(), metadata.target(), &message, fields, request))
    }
}

/// A line with its end; `request` becomes a field.
fn line(
    level: Level,
    target: &str,
    message: &str,
    mut fields: Map<String, Value>,
    request: RequestId,
) -> String {
    if let Some(id) = request {
        fields.insert("request".to_owned(), id.get().into());
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let secs = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let time = text::time_millis(Time { secs, nanos: since.subsec_nanos() });
    let [time, level, target, message] =
        [time.as_str(), level.as_str(), target, message].map(Value::from);
    let fields = Value::Object(fields);
    let object = format!(
        "{{\"time\":{time},\"level\":{level},\"target\":{target},\"message\":{message},\
         \"fields\":{fields}}}"
    );
    let mut line = text::printable_json(&object).into_owned();
    line.push('\n');
    line
}

/// The message and the other fields of an event.
#[derive(Default)]
struct EventFields {
    message: String,
    fields: Map<String, Value>,
}

impl EventFields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.fields.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            _ => self.put(field, text),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.put(field, value),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Value {
        assert!(line.ends_with('\n') && !line.trim_end().contains(char::is_control), "{line}");
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn the_prefix_of_a_printed_line_is_its_level() {
        for (text, level, message) in [
            ("error: no", "ERROR", "no"),
            ("warning: a: b", "WARN", "a: b"),
            ("hint: do", "INFO", "hint: do"),
            ("listening on [::1]:2", "INFO", "listening on [::1]:2"),
        ] {
            let object = parsed(&printed(text));
            assert_eq!((&object["level"], &object["message"]), (&level.into(), &message.into()));
            assert_eq!(object["target"], "acetate::cli");
            assert_eq!(object["fields"], Value::Object(Map::new()));
            assert!(object["time"].as_str().unwrap().ends_with('Z'), "{object}");
        }
    }

    #[test]
    fn no_text_ends_the_line_or_steers_a_terminal() {
        let text = "a\u{1b}[2J\u{9b}\u{202e}b\n\"\\";
        assert_eq!(parsed(&printed(text))["message"], text);
    }
}
