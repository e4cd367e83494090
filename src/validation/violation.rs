//! Why content is rejected.

use std::fmt::{self, Write};

use super::limits::MAX_REASON_CHARS;

/// Why content is rejected, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Line number, from 1; `None` if unknown.
    pub line: Option<u64>,
    /// The reason: one line, without control characters.
    pub reason: String,
}

impl Violation {
    /// A violation without a line.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { line: None, reason: cleaned(reason) }
    }

    /// A violation in a line.
    pub fn at(line: u64, reason: impl fmt::Display) -> Self {
        Self { line: Some(line), reason: cleaned(reason) }
    }

    /// Sets the line, if one is given.
    pub(super) fn in_line(self, line: Option<u64>) -> Self {
        Self { line: line.or(self.line), ..self }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

fn cleaned(reason: impl fmt::Display) -> String {
    cut(reason, MAX_REASON_CHARS, |_| 1)
}

/// Formats at most `most` units of a text and escapes control characters. The rest is not even
/// formatted. `weight` is the number of units of a character.
pub(super) fn cut(text: impl fmt::Display, most: usize, weight: fn(char) -> usize) -> String {
    let mut bounded = Bounded { text: String::new(), left: most, weight };
    // The formatting stops with an error when the limit is reached.
    if write!(bounded, "{text}").is_err() {
        bounded.text.push('…');
    }
    bounded.text
}

struct Bounded {
    text: String,
    left: usize,
    weight: fn(char) -> usize,
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for character in part.chars() {
            self.left = self.left.checked_sub((self.weight)(character)).ok_or(fmt::Error)?;
            if character.is_control() {
                self.text.extend(character.escape_default());
            } else {
                self.text.push(character);
            }
        }
        Ok(())
    }
}
