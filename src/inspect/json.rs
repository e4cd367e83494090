//! JSON texts of the agent's tables.

use serde_json::Value;

use super::error::{InspectError, Result};
use crate::json;

/// The longest text that is stored, in bytes: a longer one belongs into a file.
pub const MOST_BYTES: usize = 64 << 20;

/// What a stored text says; `None` where it is no JSON.
pub fn parse(text: &[u8]) -> Option<Value> {
    json::value(text).ok()
}

/// The text as it is stored: as it is given, but for white space around it.
///
/// # Errors
/// `what` is no JSON, or too long.
pub fn checked<'a>(what: &'static str, text: &'a str) -> Result<&'a str> {
    limited(what, text)?;
    match json::value(text.as_bytes()) {
        // The white space of RFC 8259 §2.
        Ok(_) => Ok(text.trim_matches([' ', '\t', '\n', '\r'])),
        Err(source) => Err(InspectError::NotJson { what, source }),
    }
}

/// The same for a text that need not be JSON.
///
/// # Errors
/// `what` is too long.
pub fn limited<'a>(what: &'static str, text: &'a str) -> Result<&'a str> {
    if text.len() > MOST_BYTES {
        let (length, most) = (text.len(), MOST_BYTES >> 20);
        let what = format!("{what}: {length} bytes, and {most} MiB is the most; keep it in a file");
        return Err(InspectError::Invalid { what });
    }
    Ok(text)
}
