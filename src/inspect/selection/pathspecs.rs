//! Several pathspecs, asked at once.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Candidate, Glob, GlobSet};

use super::pathspec::Matcher;
use crate::delta::MergedPath;
use crate::inspect::error::{InspectError, Result};

/// What one of several pathspecs matches.
#[derive(Debug, Default)]
pub(super) struct Pathspecs {
    /// The paths, in the order in which they were given.
    paths: Vec<MergedPath>,
    sorted: BTreeSet<MergedPath>,
    /// One set, or more where that is too large to compile.
    globs: Vec<GlobSet>,
}

impl Pathspecs {
    /// Puts them together.
    ///
    /// # Errors
    /// A glob is too large to compile.
    pub fn new(matchers: impl IntoIterator<Item = Matcher>) -> Result<Self> {
        let (mut paths, mut globs) = (Vec::new(), Vec::new());
        for matcher in matchers {
            match matcher {
                Matcher::Path(path) => paths.push(path),
                Matcher::Globs(more) => globs.extend(more),
            }
        }
        let sorted = paths.iter().cloned().collect();
        Ok(Self { paths, sorted, globs: sets(&globs)? })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.has_globs()
    }

    /// Whether there are globs among them.
    pub fn has_globs(&self) -> bool {
        !self.globs.is_empty()
    }

    /// The paths that are named.
    pub fn paths(&self) -> &[MergedPath] {
        &self.paths
    }

    /// Whether this very path is named.
    pub fn names(&self, path: &MergedPath) -> bool {
        self.sorted.contains(path)
    }

    /// Whether one of them matches a path.
    pub fn matches(&self, path: &MergedPath, is_dir: bool) -> bool {
        if self.covers(path) {
            return true;
        }
        if !self.has_globs() {
            return false;
        }
        let below_root = &path.as_bytes()[1..];
        let is_match = |bytes: &[u8]| {
            let candidate = Candidate::new(Path::new(OsStr::from_bytes(bytes)));
            self.globs.iter().any(|set| set.is_match_candidate(&candidate))
        };
        // `dir/**` is about all that is in it, and so about the directory.
        is_match(below_root) || is_dir && is_match(&[below_root, b"/"].concat())
    }

    /// Whether one of them names a path, or a directory that it is in.
    pub fn covers(&self, path: &MergedPath) -> bool {
        let is_above = || path.above().any(|dir| self.sorted.contains(&dir));
        !self.sorted.is_empty() && (self.sorted.contains(path) || is_above())
    }

    /// Whether they may match some things below a directory and others not.
    pub fn may_split(&self, dir: &MergedPath) -> bool {
        self.has_globs() || dir.first_below(&self.sorted).is_some()
    }
}

/// Compiles globs: together, as one set takes the time of one glob.
fn sets(globs: &[Glob]) -> Result<Vec<GlobSet>> {
    if globs.is_empty() {
        return Ok(Vec::new());
    }
    let mut builder = GlobSet::builder();
    for glob in globs {
        builder.add(glob.clone());
    }
    match builder.build() {
        Ok(set) => Ok(vec![set]),
        Err(_) if globs.len() > 1 => {
            let (first, second) = globs.split_at(globs.len() / 2);
            Ok([sets(first)?, sets(second)?].concat())
        }
        Err(error) => Err(InspectError::Invalid { what: error.to_string() }),
    }
}
