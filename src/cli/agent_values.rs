//! Texts and times of the agent's tables, as arguments and in output.

use std::borrow::Cow;
use std::io::Read;

use serde_json::{Map, Value};

use super::error::CliError;
use super::text;
use crate::inspect::{InspectError, json};
use crate::vfs::Time;

/// The text of an argument; of `-`, what stdin has.
pub(super) fn read_argument(text: &str) -> Result<Cow<'_, str>, CliError> {
    if text != "-" {
        return Ok(text.into());
    }
    let mut read = String::new();
    let most = json::MAX_VALUE_BYTES as u64 + 1;
    std::io::stdin()
        .take(most)
        .read_to_string(&mut read)
        .map_err(|error| CliError::caused("cannot read stdin", &error))?;
    Ok(read.into())
}

/// Whether the error is that a text is not JSON.
pub(super) fn is_no_json(error: &InspectError) -> bool {
    matches!(error, InspectError::NotJson { .. })
}

/// Adds a stored JSON text. One that is not JSON becomes a string, and its key is listed in
/// `not_json`.
pub(super) fn put(object: &mut Map<String, Value>, key: &str, stored: Option<&[u8]>) {
    let Some(stored) = stored else {
        object.insert(key.to_owned(), Value::Null);
        return;
    };
    let value = json::parse(stored).unwrap_or_else(|| {
        if let Value::Array(keys) =
            object.entry("not_json").or_insert_with(|| Vec::<Value>::new().into())
        {
            keys.push(key.into());
        }
        String::from_utf8_lossy(stored).into()
    });
    object.insert(key.to_owned(), value);
}

/// Adds a time, in seconds since 1970.
pub(super) fn put_time(object: &mut Map<String, Value>, key: &str, secs: Option<i64>) {
    object.insert(key.to_owned(), secs.map_or(Value::Null, |_| time(secs).into()));
}

/// Formats a time in seconds since 1970; `-` for `None`.
pub(super) fn time(secs: Option<i64>) -> String {
    secs.map_or_else(|| "-".to_owned(), |secs| text::time(Time { secs, nanos: 0 }))
}
