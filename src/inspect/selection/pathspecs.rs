//! Several pathspecs, asked at once.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

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
    /// Which of `specs` each glob is of, in the order of the sets.
    owners: Vec<usize>,
    specs: Vec<GlobSpec>,
    /// How many of `specs` have matched nothing yet.
    unmatched: AtomicUsize,
}

/// A pathspec with globs, as it was written.
#[derive(Debug)]
struct GlobSpec {
    text: String,
    has_matched: AtomicBool,
}

impl Pathspecs {
    /// Puts them together.
    ///
    /// # Errors
    /// A glob is too large to compile.
    pub fn new(matchers: impl IntoIterator<Item = (Matcher, String)>) -> Result<Self> {
        let (mut paths, mut globs, mut new) = (Vec::new(), Vec::new(), Self::default());
        for (matcher, text) in matchers {
            match matcher {
                Matcher::Path(path) => paths.push(path),
                Matcher::Globs(more) => {
                    new.owners.extend(more.iter().map(|_| new.specs.len()));
                    new.specs.push(GlobSpec { text, has_matched: AtomicBool::new(false) });
                    globs.extend(more);
                }
            }
        }
        let (sorted, globs) = (paths.iter().cloned().collect(), sets(&globs)?);
        let unmatched = AtomicUsize::new(new.specs.len());
        Ok(Self { paths, sorted, globs, unmatched, ..new })
    }

    /// The pathspecs with globs that have matched nothing so far, as they were written.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        let unmatched = self.specs.iter().filter(|spec| !spec.has_matched.load(Relaxed));
        unmatched.map(|spec| spec.text.as_str())
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
            let is_match = self.globs.iter().any(|set| set.is_match_candidate(&candidate));
            if is_match && self.unmatched.load(Relaxed) > 0 {
                self.note_matched(&candidate);
            }
            is_match
        };
        // `dir/**` is about all that is in it, and so about the directory.
        is_match(below_root) || is_dir && is_match(&[below_root, b"/"].concat())
    }

    fn note_matched(&self, candidate: &Candidate<'_>) {
        let mut owners = self.owners.as_slice();
        for set in &self.globs {
            for glob in set.matches_candidate(candidate) {
                let spec = &self.specs[owners[glob]];
                if !spec.has_matched.swap(true, Relaxed) {
                    self.unmatched.fetch_sub(1, Relaxed);
                }
            }
            owners = &owners[set.len()..];
        }
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
