//! A directory entry's name.

use std::fmt;

use bytes::Bytes;

use super::FsError;

/// A valid entry name: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`.
///
/// Names are bytes; nothing is normalised or required to be UTF-8. A clone shares memory that may
/// also hold other data. To keep a name for long, keep a [`Name::detached`] one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Bytes);

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

    /// Prefix of files whose content is still being written; 16 hexadecimal digits follow.
    pub const STAGED: &str = ".acetate-write-";

    /// Checks and copies `bytes`.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        Self::check(bytes)?;
        Ok(Self(Bytes::copy_from_slice(bytes)))
    }

    /// Checks `bytes` and shares their memory.
    pub fn shared(bytes: Bytes) -> Result<Self, NameError> {
        Self::check(&bytes)?;
        Ok(Self(bytes))
    }

    /// Checks whether `bytes` are a valid name.
    pub fn check(bytes: &[u8]) -> Result<(), NameError> {
        if bytes.len() > Self::MAX_BYTES {
            return Err(NameError::TooLong);
        }
        if bytes.is_empty() || bytes.iter().any(|&b| b == b'/' || b == 0) {
            return Err(NameError::Invalid);
        }
        if bytes == b"." || bytes == b".." {
            return Err(NameError::Dots);
        }
        Ok(())
    }

    /// A copy of the name in its own memory.
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// The name's bytes, without a copy.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
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
