//! What is wrong with an exports file, where, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

/// A place in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Counted from 1.
    pub line: usize,
    /// Characters, counted from 1.
    pub column: usize,
}

impl Position {
    /// The place of byte `at` in `text`.
    pub(super) fn of(text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        let line_at = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_at..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A fault of an exports file, or of the file of tokens beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    position: Option<Position>,
    what: String,
    hint: Option<String>,
}

impl ConfigError {
    /// A fault of the whole file.
    pub(super) fn of_file(file: &Path, what: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), position: None, what: what.to_string(), hint: None }
    }

    /// Says where it is.
    pub(super) fn at(mut self, position: Position) -> Self {
        self.position = Some(position);
        self
    }

    /// Says what to do.
    pub(super) fn with_hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// What is wrong, without the place.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Where it is; `None` where it is no place in the file.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// What to do about it.
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

/// A result of this module.
pub type Result<T> = std::result::Result<T, ConfigError>;
