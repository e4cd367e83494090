//! Errors in an exports file: message, position and hint.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A position in a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Position {
    /// The position of byte `at` in `text`.
    pub(super) fn of(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line_at = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_at..].chars().count() + 1,
        }
    }
}

/// An object of a file, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePosition {
    pub file: Arc<Path>,
    pub position: Position,
}

impl FilePosition {
    /// The line, and the file if it is another one than `seen_from`.
    pub fn line_words(&self, seen_from: &Path) -> String {
        let line = self.position.line;
        match *self.file == *seen_from {
            true => format!("line {line}"),
            false => format!("{}, line {line}", self.file.display()),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// An error in an exports file, or in its token file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    position: Option<Position>,
    what: String,
    hint: Option<String>,
}

impl ConfigError {
    /// An error without a position.
    pub(super) fn of_file(file: &Path, what: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), position: None, what: what.to_string(), hint: None }
    }

    /// Sets the position.
    pub(super) fn at(mut self, position: Position) -> Self {
        self.position = Some(position);
        self
    }

    /// Sets the hint.
    pub(super) fn with_hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// How to fix the error.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(position) = self.position {
            write!(f, "{position}:")?;
        }
        write!(f, " {}", self.what)
    }
}

impl std::error::Error for ConfigError {}

/// Result type of this module.
pub type Result<T> = std::result::Result<T, ConfigError>;
