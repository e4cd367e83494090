//! JSON texts as values: what `serde_json` reads, but for its mistake.
//!
//! To keep every digit of a number, `serde_json` hands numbers on as objects with one key of its
//! own (`NUMBER`), and takes a text's object with that key for a number too. A schema then sees
//! a number where every other reader sees an object; so no such text becomes a value.

use serde::de::Error as _;
use serde_json::{Error, Value};

/// The key with which `serde_json` marks a number.
const NUMBER: &str = "$serde_json::private::Number";

/// The longest way to write a character of that key in JSON, `\u0024`, in bytes.
const ESCAPE_BYTES: usize = 6;

/// Reads one JSON value.
///
/// # Errors
/// The text is none, or has the key in it that `serde_json` marks numbers with.
pub fn value(text: &[u8]) -> Result<Value, Error> {
    match find_mark(text) {
        None => serde_json::from_slice(text),
        Some(at) => {
            let before = &text[..at];
            let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let (line, column) =
                (before.iter().filter(|byte| **byte == b'\n').count() + 1, at - start + 1);
            // `serde_json` takes the place out of the message again.
            let what = format_args!("`{NUMBER}` is not taken as a key");
            Err(Error::custom(format_args!("{what} at line {line} column {column}")))
        }
    }
}

/// Where the first object key begins that `serde_json` takes for a number's mark.
///
/// In a text that is no JSON it may find none, or one that is no key.
fn find_mark(text: &[u8]) -> Option<usize> {
    let mut behind = 0;
    while let Some(start) = text[behind..].iter().position(|byte| *byte == b'"') {
        let start = behind + start;
        behind = string_end(text, start)?;
        if is_mark(&text[start..behind]) && is_key(&text[behind..]) {
            return Some(start);
        }
    }
    None
}

/// Where the string that begins at `start` is over: behind its closing quote.
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

/// Whether a string, in its quotes, stands for the mark, with escapes or without.
fn is_mark(string: &[u8]) -> bool {
    let may_be = matches!(string, [_, b'$' | b'\\', ..])
        && (NUMBER.len() + 2..=NUMBER.len() * ESCAPE_BYTES + 2).contains(&string.len());
    may_be && serde_json::from_slice::<String>(string).is_ok_and(|string| string == NUMBER)
}

/// Whether the string before `rest` is an object's key.
fn is_key(rest: &[u8]) -> bool {
    rest.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) == Some(&b':')
}
