//! Which paths of an export are guarded, and by which validators.

use std::sync::Arc;

use crate::pattern::{Pattern, PatternError, PatternSet};

use super::validator::Validator;

/// The guards of an export, in order. Paths are absolute paths of the export.
#[derive(Clone, Default)]
pub struct Guards {
    patterns: PatternSet,
    rules: Vec<Rule>,
}

#[derive(Clone)]
struct Rule {
    pattern: Pattern,
    validator: Arc<Validator>,
    /// The literal names with which every matching path begins.
    stem: Vec<Vec<u8>>,
}

/// Characters that make a component of a pattern a glob.
const SPECIAL: &[char] = &['*', '?', '[', '{', '\\'];

impl Guards {
    /// Compiles path patterns with their validators.
    ///
    /// # Errors
    /// The patterns exceed the limits of the glob compiler.
    pub fn new(
        rules: impl IntoIterator<Item = (Pattern, Validator)>,
    ) -> Result<Self, PatternError> {
        let rules: Vec<Rule> = rules.into_iter().map(Rule::new).collect();
        let patterns = rules.iter().map(|rule| rule.pattern.clone()).collect();
        Ok(Self { patterns: PatternSet::new(patterns)?, rules })
    }

    /// Whether there are no guards.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether any guard has a schema.
    pub fn has_schema(&self) -> bool {
        self.rules.iter().any(|rule| rule.validator.schema().is_some())
    }

    /// The validators of the file at a path: all must accept it.
    pub fn of(&self, path: &[u8]) -> Vec<Arc<Validator>> {
        let path = below_root(path);
        let found = self.rules.iter().filter(|rule| rule.pattern.matches(path));
        found.map(|rule| Arc::clone(&rule.validator)).collect()
    }

    /// Whether a file at this path is guarded.
    pub fn is_guarded(&self, path: &[u8]) -> bool {
        !self.is_empty() && self.patterns.matches(below_root(path))
    }

    /// Whether a path below this directory may be guarded.
    pub fn may_guard_below(&self, dir: &[u8]) -> bool {
        self.rules.iter().any(|rule| {
            let stem = rule.stem.iter().map(Vec::as_slice);
            names(dir).zip(stem).all(|(name, of_stem)| name == of_stem)
        })
    }

    /// Whether only a directory or a regular file may be at this path. A symbolic link there would
    /// redirect clients away from guarded files.
    pub fn bars_links(&self, path: &[u8]) -> bool {
        let is_above = |rule: &Rule| {
            let mut stem = rule.stem.iter();
            names(path).all(|name| stem.next().is_some_and(|of_stem| of_stem == name))
        };
        self.rules.iter().any(is_above) || self.is_guarded(path)
    }
}

impl Rule {
    fn new((pattern, validator): (Pattern, Validator)) -> Self {
        let text = pattern.as_str();
        let names = text.split('/').filter(|name| !name.is_empty());
        let stem = names.take_while(|name| text.contains('/') && !name.contains(SPECIAL));
        let stem = stem.map(|name| name.as_bytes().to_vec()).collect();
        Self { pattern, validator: Arc::new(validator), stem }
    }
}

fn below_root(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"/").unwrap_or(path)
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}
