//! Paths in an export: of the export itself, of mount points, of subtrees.

use std::fmt;

use super::limits::MAX_PATH_BYTES;
use crate::vfs::{Name, NameError};

/// A normalized absolute path: `/`, or components that each start with a slash.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreePath(String);

/// Why a text is not a [`TreePath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start with `/`.
    #[error("a path must begin with '/'")]
    Relative,
    /// It ends with `/`, or contains `//`.
    #[error("a path cannot contain an empty name or end with '/'")]
    Empty,
    /// It contains `.` or `..`.
    #[error("a path cannot contain '.' or '..'")]
    Dots,
    /// It is too long.
    #[error("a path has at most {MAX_PATH_BYTES} bytes, and each name in it {}", Name::MAX_BYTES)]
    TooLong,
    /// It contains control characters.
    #[error("a path cannot contain control characters")]
    Control,
}

impl TreePath {
    /// The root.
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// Checks a path.
    ///
    /// # Errors
    /// See [`PathError`].
    pub fn new(text: &str) -> Result<Self, PathError> {
        let Some(below) = text.strip_prefix('/') else { return Err(PathError::Relative) };
        if text.len() > MAX_PATH_BYTES {
            return Err(PathError::TooLong);
        }
        if text.chars().any(char::is_control) {
            return Err(PathError::Control);
        }
        if !below.is_empty() {
            for name in below.split('/') {
                Name::check(name.as_bytes()).map_err(|error| match error {
                    NameError::Invalid => PathError::Empty,
                    NameError::TooLong => PathError::TooLong,
                    NameError::Dots => PathError::Dots,
                })?;
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0 == "/"
    }

    /// The components, from the root down.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
