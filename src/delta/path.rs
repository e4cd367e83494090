//! Paths in the merged tree, the keys of whiteouts and of the audit log.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;

use crate::base::BasePath;
use crate::vfs::Name;

/// The longest path, in bytes, that a change may create and that the audit log stores (Linux's
/// PATH_MAX).
pub const MAX_PATH_BYTES: usize = 4096;

/// A normalized absolute path in the merged tree: `/` for the root, else `/a/b`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MergedPath(Vec<u8>);

impl MergedPath {
    /// The root.
    pub fn root() -> Self {
        Self(b"/".to_vec())
    }

    /// Parses a stored path; `None` if it is not normalized.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(b"/")?;
        let valid = rest.is_empty() || rest.split(|&b| b == b'/').all(|c| Name::new(c).is_ok());
        valid.then(|| Self(bytes.to_vec()))
    }

    /// The path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path of the entry `name` in this directory.
    pub fn join(&self, name: &Name) -> Self {
        let mut path = self.0.clone();
        if path != b"/" {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        Self(path)
    }

    /// The components from the root down.
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.0.split(|&byte| byte == b'/').filter_map(|name| Name::new(name).ok())
    }

    /// Parses a path that a user typed, from the root: see [`Self::resolve`].
    pub fn from_user(text: &[u8]) -> Option<Self> {
        Self::root().resolve(text)
    }

    /// Parses a path that a user typed. One without a first slash begins at this directory. Accepts
    /// extra slashes, `.`, and `..`, which names the directory above whatever links lead there.
    /// Returns `None` for a path that leads out of the tree or has an invalid name.
    pub fn resolve(&self, text: &[u8]) -> Option<Self> {
        let from = if text.starts_with(b"/") { Self::root() } else { self.clone() };
        text.split(|&byte| byte == b'/').try_fold(from, |path, name| match name {
            b"" | b"." => Some(path),
            b".." => (path != Self::root()).then(|| path.parent()),
            name => Some(path.join(&Name::new(name).ok()?)),
        })
    }

    /// The directory that holds this path; the root holds itself (specification 0.4,
    /// "Whiteouts").
    pub fn parent(&self) -> Self {
        match self.0.iter().rposition(|&b| b == b'/') {
            None | Some(0) => Self::root(),
            Some(at) => Self(self.0[..at].to_vec()),
        }
    }

    /// The last component; `None` for the root.
    pub fn name(&self) -> Option<Name> {
        let at = self.0.iter().rposition(|&b| b == b'/')?;
        Name::new(&self.0[at + 1..]).ok()
    }

    /// The merged path of a base object that the session has not moved.
    pub fn of_base(path: &BasePath) -> Self {
        Self([b"/", path.as_bytes()].concat())
    }

    /// Whether this is `dir`, or below it.
    pub fn is_within(&self, dir: &Self) -> bool {
        let Some(rest) = self.0.strip_prefix(dir.as_bytes()) else { return false };
        rest.is_empty() || rest[0] == b'/' || dir.0 == b"/"
    }

    /// Whether this is one of these paths, or below one.
    pub fn is_within_any(&self, paths: &BTreeSet<Self>) -> bool {
        paths.contains(self) || self.above().any(|above| paths.contains(&above))
    }

    /// The paths of all directories above this one, the closest first.
    pub fn above(&self) -> impl Iterator<Item = Self> {
        let up = |path: &Self| (path.0 != b"/").then(|| path.parent());
        std::iter::successors(up(self), move |path| up(path))
    }

    /// The first of `paths` below this directory. It need not directly follow the directory: `/a.b`
    /// sorts between `/a` and `/a/b`.
    pub fn first_below<'p>(&self, paths: &'p BTreeSet<Self>) -> Option<&'p Self> {
        let mut before = self.0.clone();
        if before != b"/" {
            before.push(b'/');
        }
        let after = (Bound::Excluded(Self(before)), Bound::Unbounded);
        paths.range(after).next().filter(|path| path.is_within(self))
    }

    /// The path as text; invalid UTF-8 is replaced.
    pub fn display(&self) -> impl fmt::Display {
        String::from_utf8_lossy(&self.0)
    }
}

impl fmt::Debug for MergedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}
