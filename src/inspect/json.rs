//! JSON texts in the agent's tables.

use serde_json::Value;

use super::error::{InspectError, Result};
use crate::json;

/// The longest text that is stored, in bytes; larger data belongs in a file.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// Parses a stored text; `None` if it is not JSON.
pub fn parse(text: &[u8]) -> Option<Value> {
    json::value(text).ok()
}

/// Checks a JSON text and returns it without surrounding white space.
///
/// # Errors
/// `what` is not JSON, or is longer than [`MAX_VALUE_BYTES`].
pub fn checked<'a>(what: &'static str, text: &'a str) -> Result<&'a str> {
    limited(what, text)?;
    match json::value(text.as_bytes()) {
        // The white space of RFC 8259, section 2.
        Ok(_) => Ok(text.trim_matches([' ', '\t', '\n', '\r'])),
        Err(source) => Err(InspectError::NotJson { what, source }),
    }
}

/// Checks the length of a text that need not be JSON.
///
/// # Errors
/// `what` is longer than [`MAX_VALUE_BYTES`].
pub fn limited<'a>(what: &'static str, text: &'a str) -> Result<&'a str> {
    if text.len() > MAX_VALUE_BYTES {
        let (length, most) = (text.len(), MAX_VALUE_BYTES >> 20);
        let what = format!("{what}: {length} bytes, more than {most} MiB; keep it in a file");
        return Err(InspectError::Invalid { what });
    }
    Ok(text)
}
