//! Paths below the base's root.

use std::borrow::Borrow;
use std::fmt;

use crate::vfs::Name;

/// A path relative to the base's root: components joined by `/`, empty for the root itself.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BasePath(Vec<u8>);

impl BasePath {
    /// The base's root.
    pub fn root() -> Self {
        Self::default()
    }

    /// Parses a stored path; `None` if it is not a relative path of valid components.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let valid = bytes.is_empty() || bytes.split(|&b| b == b'/').all(|c| Name::new(c).is_ok());
        valid.then(|| Self(bytes.to_vec()))
    }

    /// The path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the base's root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of the entry `name` in this directory.
    pub fn join(&self, name: &Name) -> Self {
        let mut path = Vec::with_capacity(self.0.len() + 1 + name.as_bytes().len());
        path.extend_from_slice(&self.0);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        Self(path)
    }

    /// The parent directory and the name in it; `None` for the root.
    pub fn split(&self) -> Option<(Self, Name)> {
        let (parent, name) = self.split_bytes();
        Some((Self(parent.to_vec()), Name::new(name).ok()?))
    }

    /// [`BasePath::split`] as bytes: the parent directory's path and the name.
    pub fn split_bytes(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|&b| b == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[], &self.0),
        }
    }

    /// The components from the root down.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|c| !c.is_empty())
    }
}

/// Allows maps to be queried with bytes, which have the same hash as the path.
impl Borrow<[u8]> for BasePath {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "base:/{}", self.0.escape_ascii())
    }
}
