//! Errors in an exports file: message, position and hint.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::added::added_name;

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

/// Faults that a message names; the others are counted.
const MAX_SHOWN_FAULTS: usize = 16;

/// An error in an exports file, in a file of its `exports.d`, or in its token file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: PathBuf,
    position: Option<Position>,
    what: String,
    hint: Option<String>,
    /// Set if only files of `exports.d` are at fault. Boxed to keep errors small.
    added: Option<Box<AddedFaults>>,
}

/// What is known if files of `exports.d` are at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AddedFaults {
    /// The exports file beside it.
    exports_file: PathBuf,
    /// The faults of all other files.
    others: Vec<ConfigError>,
}

impl ConfigError {
    /// An error without a position.
    pub(super) fn of_file(file: &Path, what: impl fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            position: None,
            what: what.to_string(),
            hint: None,
            added: None,
        }
    }

    /// All of these faults, which files in the `exports.d` of the exports file `main` have; `None`
    /// without one.
    pub(super) fn of_added(main: &Path, faults: Vec<Self>) -> Option<Self> {
        let mut faults = faults.into_iter();
        let first = faults.next()?;
        let added = AddedFaults { exports_file: main.to_owned(), others: faults.collect() };
        Some(Self { added: Some(Box::new(added)), ..first })
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

    /// The file at fault.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The position in the file, if one is known.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The fault, without file and position.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The exports file whose `exports.d` has the files at fault, if only they are at fault.
    pub fn broken_of(&self) -> Option<&Path> {
        self.added.as_ref().map(|added| &*added.exports_file)
    }

    /// The names of the exports whose files in `exports.d` are at fault; empty if others are.
    pub fn broken_exports(&self) -> Vec<String> {
        let Some(added) = &self.added else { return Vec::new() };
        let faults = std::iter::once(self).chain(&added.others);
        faults.filter_map(|fault| added_name(&fault.file)).collect()
    }

    /// How to fix the error.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl ConfigError {
    /// The faults of all files, each in one line.
    pub fn faults(&self) -> impl Iterator<Item = String> + '_ {
        let others = self.added.as_ref().map_or(&[][..], |added| &added.others);
        std::iter::once(self).chain(others).map(Self::line)
    }

    /// This fault without those of other files.
    fn line(&self) -> String {
        let file = self.file.display();
        match self.position {
            Some(position) => format!("{file}:{position}: {}", self.what),
            None => format!("{file}: {}", self.what),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        let others = self.added.as_ref().map_or(&[][..], |added| &added.others);
        for other in others.iter().take(MAX_SHOWN_FAULTS - 1) {
            write!(f, "; {other}")?;
        }
        match others.len().saturating_sub(MAX_SHOWN_FAULTS - 1) {
            0 => Ok(()),
            left => write!(f, "; and {left} more"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Result type of this module.
pub type Result<T> = std::result::Result<T, ConfigError>;
