//! Globs over paths whose names are bytes.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};

/// A glob over the paths of a tree, relative to its root.
///
/// `*` and `?` do not match a slash; `**` does. A pattern without a slash matches names in any
/// directory. A pattern with a slash is anchored at the root; a leading slash is optional then.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    glob: Glob,
    matcher: GlobMatcher,
}

/// Why a text is not a [`Pattern`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern is empty or `/`.
    #[error("an empty pattern matches nothing")]
    Empty,
    /// The pattern exceeds [`Pattern::MAX_BYTES`].
    #[error("a pattern may have {} bytes", Pattern::MAX_BYTES)]
    TooLong,
    /// The pattern has several lines.
    #[error("a pattern is one line; '?' stands for any byte of a name")]
    Lines,
    /// The pattern has a component that no path has.
    #[error("no path has an empty component, '.' or '..'")]
    Component,
    /// The pattern ends with a slash.
    #[error("a pattern does not end with '/': what is below a directory goes with it")]
    EndsWithSlash,
    /// The pattern begins with `!`, as exceptions in a `.gitignore` do.
    #[error("there are no exceptions with '!'; for a name that begins with it, write '\\!'")]
    Exception,
    /// The glob syntax is invalid.
    #[error("{0}")]
    Glob(String),
}

impl Pattern {
    /// The longest pattern, in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Parses a pattern.
    ///
    /// # Errors
    /// See [`PatternError`].
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > Self::MAX_BYTES {
            return Err(PatternError::TooLong);
        }
        if text.starts_with('!') {
            return Err(PatternError::Exception);
        }
        if text.contains(['\n', '\r']) {
            return Err(PatternError::Lines);
        }
        let below_root = text.strip_prefix('/').unwrap_or(text);
        if below_root.is_empty() {
            return Err(PatternError::Empty);
        }
        if below_root.ends_with('/') {
            return Err(PatternError::EndsWithSlash);
        }
        if below_root.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(PatternError::Component);
        }
        let anywhere = if text.contains('/') { "" } else { "**/" };
        // On a case-insensitive filesystem `.ENV` opens `.env`, so the pattern must match both.
        let glob = GlobBuilder::new(&format!("{anywhere}{below_root}"))
            .literal_separator(true)
            .backslash_escape(true)
            .case_insensitive(cfg!(target_os = "macos"))
            .build()
            .map_err(|error| PatternError::Glob(error.kind().to_string()))?;
        Ok(Self { text: text.to_owned(), matcher: glob.compile_matcher(), glob })
    }

    /// The text of the pattern.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches `path`: components joined by `/`, without a leading slash.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.matcher.is_match(Path::new(OsStr::from_bytes(path)))
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

/// Several patterns, matched together.
#[derive(Clone, Default)]
pub struct PatternSet {
    patterns: Vec<Pattern>,
    set: GlobSet,
}

impl PatternSet {
    /// Compiles `patterns` into a set.
    ///
    /// # Errors
    /// The compiled set is too large.
    pub fn new(patterns: Vec<Pattern>) -> Result<Self, PatternError> {
        let mut builder = GlobSetBuilder::new();
        for pattern in &patterns {
            builder.add(pattern.glob.clone());
        }
        let set = builder.build().map_err(|error| PatternError::Glob(error.kind().to_string()))?;
        Ok(Self { patterns, set })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The patterns, in the given order.
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// The union of both sets, without duplicates.
    ///
    /// # Errors
    /// The compiled set is too large.
    pub fn union(&self, other: &Self) -> Result<Self, PatternError> {
        let mut all: Vec<Pattern> = Vec::new();
        for pattern in self.patterns.iter().chain(&other.patterns) {
            if !all.contains(pattern) {
                all.push(pattern.clone());
            }
        }
        Self::new(all)
    }

    /// Whether this set contains all patterns of `other`.
    pub fn has_all(&self, other: &Self) -> bool {
        other.patterns.iter().all(|pattern| self.patterns.contains(pattern))
    }

    /// Whether a pattern matches `path` itself.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.set.is_match(Path::new(OsStr::from_bytes(path)))
    }

    /// Whether a pattern matches `path` or one of its parent directories.
    pub fn covers(&self, path: &[u8]) -> bool {
        let parents = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        !path.is_empty()
            && !self.is_empty()
            && (self.matches(path) || parents.into_iter().any(|(at, _)| self.matches(&path[..at])))
    }
}

/// Sets are equal if they have equal patterns in any order.
impl PartialEq for PatternSet {
    fn eq(&self, other: &Self) -> bool {
        let sorted = |set: &Self| {
            let mut texts: Vec<_> = set.patterns.iter().map(|p| p.text.clone()).collect();
            texts.sort_unstable();
            texts.dedup();
            texts
        };
        sorted(self) == sorted(other)
    }
}

impl Eq for PatternSet {}

impl fmt::Debug for PatternSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.patterns, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_anywhere_and_paths_from_the_root() {
        let check = |text: &str, matched: &[&str], others: &[&str]| {
            let pattern = Pattern::new(text).unwrap();
            for (paths, expected) in [(matched, true), (others, false)] {
                for path in paths {
                    assert_eq!(pattern.matches(path.as_bytes()), expected, "{text} and {path}");
                }
            }
        };
        check(".env", &[".env", "a/.env", "a/b/.env"], &["env", ".env.x", ".env/x"]);
        check("/.env", &[".env"], &["a/.env"]);
        check("a/*.pem", &["a/x.pem"], &["b/a/x.pem", "a/b/x.pem"]);
        check("**/.ssh/**", &[".ssh/id", "a/.ssh/b/c"], &[".ssh", "a/.ssh", "a.ssh/x"]);
        check("a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["a/b", "z"]);
        check("*.{pem,key}", &["x.pem", "d/x.key"], &["x.crt"]);
        check("\\!x", &["!x"], &["x"]);
        check("[ab]?", &["a1", "d/b2"], &["c1", "a/1"]);
        assert!(Pattern::new("a/*.pem").unwrap().matches(b"a/\xff.pem"), "names are bytes");
    }

    #[test]
    fn what_can_match_nothing_is_refused() {
        for (text, error) in [
            ("", PatternError::Empty),
            ("/", PatternError::Empty),
            ("a/", PatternError::EndsWithSlash),
            ("a//b", PatternError::Component),
            ("../a", PatternError::Component),
            ("a/./b", PatternError::Component),
            ("!a", PatternError::Exception),
            (&"a".repeat(1025), PatternError::TooLong),
            ("a\nb", PatternError::Lines),
        ] {
            assert_eq!(Pattern::new(text).unwrap_err(), error, "{text}");
        }
        assert!(matches!(Pattern::new("[a"), Err(PatternError::Glob(_))));
    }

    #[test]
    fn a_set_covers_what_is_below() {
        let set = |texts: &[&str]| {
            PatternSet::new(texts.iter().map(|t| Pattern::new(t).unwrap()).collect()).unwrap()
        };
        let both = set(&[".ssh", "/a/b"]);
        for path in [&b".ssh"[..], b".ssh/id", b"x/.ssh/y/z", b"a/b", b"a/b/c"] {
            assert!(both.covers(path), "{}", path.escape_ascii());
        }
        for path in [&b""[..], b"a", b"a/bc", b"x/a/b", b".sshx"] {
            assert!(!both.covers(path), "{}", path.escape_ascii());
        }
        assert!(!set(&[]).covers(b"a"));
        assert_eq!(both, set(&["/a/b", ".ssh", ".ssh"]));
        assert_ne!(both, set(&["/a/b"]));
        let union = set(&["/a/b", "x"]).union(&both).unwrap();
        assert_eq!(union, set(&["/a/b", "x", ".ssh"]));
        assert_eq!(union.patterns().len(), 3);
        assert!(union.has_all(&both) && !both.has_all(&union));
    }
}
