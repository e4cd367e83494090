//! Texts and times of the agent's tables, on the command line and in what is printed.

use std::borrow::Cow;
use std::io::Read;

use serde_json::{Map, Value};

use super::error::CliError;
use super::text;
use crate::inspect::{InspectError, json};
use crate::vfs::Time;

/// A text that was given: stdin where it is `-`.
pub(super) fn given(text: &str) -> Result<Cow<'_, str>, CliError> {
    if text != "-" {
        return Ok(text.into());
    }
    let mut read = String::new();
    let most = json::MOST_BYTES as u64 + 1;
    std::io::stdin()
        .take(most)
        .read_to_string(&mut read)
        .map_err(|error| CliError::caused("cannot read stdin", &error))?;
    Ok(read.into())
}

/// Whether a text was not the JSON that it should be.
pub(super) fn is_no_json(error: &InspectError) -> bool {
    matches!(error, InspectError::NotJson { .. })
}

/// Adds what a stored JSON text says. What is no JSON comes as a string, and `not_json` names
/// it.
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

/// Adds a moment, given in seconds since 1970.
pub(super) fn put_time(object: &mut Map<String, Value>, key: &str, secs: Option<i64>) {
    object.insert(key.to_owned(), secs.map_or(Value::Null, |_| time(secs).into()));
}

/// A moment, given in seconds since 1970; `-` where it is not known.
pub(super) fn time(secs: Option<i64>) -> String {
    secs.map_or_else(|| "-".to_owned(), |secs| text::time(Time { secs, nanos: 0 }))
}
