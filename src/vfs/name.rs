//! A directory entry's name.

use std::fmt;

use super::FsError;

/// A valid entry name: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
///
/// Names are bytes; nothing is normalised or required to be UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

/// Why bytes are not a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or holds `/` or NUL.
    #[error("empty, or holds '/' or NUL")]
    Invalid,
    /// Over 255 bytes.
    #[error("longer than 255 bytes")]
    TooLong,
    /// `.` or `..`.
    #[error("'.' or '..'")]
    Dots,
}

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks `bytes`.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > Self::MAX_BYTES {
            return Err(NameError::TooLong);
        }
        if bytes.is_empty() || bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(NameError::Invalid);
        }
        if bytes == b"." || bytes == b".." {
            return Err(NameError::Dots);
        }
        Ok(Self(bytes.into()))
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl From<NameError> for FsError {
    fn from(error: NameError) -> Self {
        match error {
            NameError::TooLong => Self::NameTooLong,
            NameError::Invalid | NameError::Dots => Self::Invalid,
        }
    }
}
