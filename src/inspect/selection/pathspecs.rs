//! Matches several pathspecs at once.

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

/// The union of several pathspecs.
#[derive(Debug, Default)]
pub(super) struct Pathspecs {
    /// The plain paths, in the order of the arguments.
    paths: Vec<MergedPath>,
    sorted: BTreeSet<MergedPath>,
    /// One set, or several where one would be too large to compile.
    globs: Vec<GlobSet>,
    /// For each glob, in the order of the sets, the index of its pathspec in `specs`.
    owners: Vec<usize>,
    specs: Vec<GlobSpec>,
    /// The number of `specs` without a match so far.
    unmatched: AtomicUsize,
}

/// A pathspec with globs, as the user wrote it.
#[derive(Debug)]
struct GlobSpec {
    text: String,
    has_matched: AtomicBool,
}

impl Pathspecs {
    /// Compiles the pathspecs.
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

    /// The pathspecs with globs without a match so far, as the user wrote them.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        let unmatched = self.specs.iter().filter(|spec| !spec.has_matched.load(Relaxed));
        unmatched.map(|spec| spec.text.as_str())
    }

    /// Whether there are no pathspecs.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && !self.has_globs()
    }

    /// Whether any pathspec is a glob.
    pub fn has_globs(&self) -> bool {
        !self.globs.is_empty()
    }

    /// The plain paths.
    pub fn paths(&self) -> &[MergedPath] {
        &self.paths
    }

    /// Whether exactly this path is named.
    pub fn names(&self, path: &MergedPath) -> bool {
        self.sorted.contains(path)
    }

    /// Whether any pathspec matches a path.
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
        // `dir/**` matches everything in the directory, and thus the directory.
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

    /// Whether a plain path names `path` or a directory above it.
    pub fn covers(&self, path: &MergedPath) -> bool {
        let is_above = || path.above().any(|dir| self.sorted.contains(&dir));
        !self.sorted.is_empty() && (self.sorted.contains(path) || is_above())
    }

    /// Whether the pathspecs may match some paths below a directory and not others.
    pub fn may_split(&self, dir: &MergedPath) -> bool {
        self.has_globs() || dir.first_below(&self.sorted).is_some()
    }
}

/// Compiles globs into as few sets as possible: matching a set takes about as long as one glob.
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
