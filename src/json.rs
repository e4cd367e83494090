//! Parses JSON, and works around a confusion in `serde_json`.
//!
//! To keep every digit of a number, `serde_json` represents numbers as objects with one special key
//! (`NUMBER`). It also parses a text's own object with that key as a number. A schema would then
//! see a number where every other parser sees an object, so such texts are refused.

use serde::de::Error as _;
use serde_json::{Error, Value};

/// The key by which `serde_json` marks a number.
const NUMBER: &str = "$serde_json::private::Number";

/// The longest JSON encoding of a character of that key, `\u0024`, in bytes.
const ESCAPE_BYTES: usize = 6;

/// Parses one JSON value.
///
/// # Errors
/// The text is not valid JSON, or uses the special key of `serde_json`.
pub fn value(text: &[u8]) -> Result<Value, Error> {
    match find_number_key(text) {
        None => serde_json::from_slice(text),
        Some(at) => {
            let before = &text[..at];
            let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let (line, column) =
                (before.iter().filter(|byte| **byte == b'\n').count() + 1, at - start + 1);
            // `serde_json` parses the position from the end of the message.
            let what = format_args!("`{NUMBER}` is not taken as a key");
            Err(Error::custom(format_args!("{what} at line {line} column {column}")))
        }
    }
}

/// The offset of the first object key that `serde_json` takes for a number's mark.
///
/// In invalid JSON it may miss a key or return a string that is no key.
fn find_number_key(text: &[u8]) -> Option<usize> {
    let mut behind = 0;
    while let Some(start) = text[behind..].iter().position(|byte| *byte == b'"') {
        let start = behind + start;
        behind = string_end(text, start)?;
        if is_number_key(&text[start..behind]) && is_key(&text[behind..]) {
            return Some(start);
        }
    }
    None
}

/// The offset after the closing quote of the string that begins at `start`.
fn string_end(text: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Whether a quoted string is the mark, with or without escapes.
fn is_number_key(string: &[u8]) -> bool {
    let may_be = matches!(string, [_, b'$' | b'\\', ..])
        && (NUMBER.len() + 2..=NUMBER.len() * ESCAPE_BYTES + 2).contains(&string.len());
    may_be && serde_json::from_slice::<String>(string).is_ok_and(|string| string == NUMBER)
}

/// Whether the string before `rest` is an object's key.
fn is_key(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) == Some(&b':')
}
