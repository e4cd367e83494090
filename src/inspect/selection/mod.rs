//! The paths that a command applies to, with one syntax for all commands that take several.
//!
//! Paths and pathspecs select, or everything is selected; exclusions remove. A move changes two
//! paths, and is selected or left out as a whole: see [`Selection::has_change`].

mod ignored;
mod pathspec;
mod pathspecs;
mod quoting;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use ignored::Ignored;
use parking_lot::Mutex;
use pathspec::{Matcher, Pathspec};
use pathspecs::Pathspecs;
pub use quoting::unquoted;

use super::error::{InspectError, Result};
use super::opened::{OpenSession, is_known};
use crate::delta::MergedPath;
use crate::overlay::{Change, TreeView};
use crate::pattern::{Pattern, PatternSet};
use crate::vfs::FileKind;

/// The most changes that are noted as left out by the ignore rules, and the most moves that are
/// noted as left out by one of their paths.
pub const MAX_NOTED: usize = 10_000;

/// The arguments of a selection, as the user wrote them.
#[derive(Debug, Clone, Default)]
pub struct SelectionText {
    /// Paths and pathspecs.
    pub paths: Vec<OsString>,
    /// Globs that exclude paths and everything below them: see [`Pattern`].
    pub exclude: Vec<String>,
    /// Exclude what git ignores; the value is the content of the user's core.excludesFile.
    pub gitignore: Option<Vec<u8>>,
    /// The directory of the tree that relative paths start from; the root if `None`.
    pub current: Option<MergedPath>,
}

/// The selected part of a tree; everything by default.
#[derive(Debug, Clone, Default)]
pub struct Selection(Option<Arc<SelectionParts>>);

#[derive(Debug, Default)]
struct SelectionParts {
    includes: Pathspecs,
    excludes: Pathspecs,
    patterns: PatternSet,
    ignored: Option<Ignored>,
    /// Changes of base files that only the ignore rules left out so far, by path.
    left_to_rules: Mutex<BTreeMap<MergedPath, Change>>,
    /// Selected moves that were left out so far because one of their paths is excluded: that path,
    /// by the new path.
    excluded_moves: Mutex<BTreeMap<MergedPath, MergedPath>>,
}

impl Selection {
    /// Selects these paths and everything below them; everything if there are none.
    pub fn of(paths: impl IntoIterator<Item = MergedPath>) -> Self {
        // Plain paths cannot fail to compile.
        let named = paths.into_iter().map(|path| (Matcher::Path(path), String::new()));
        let includes = Pathspecs::new(named).unwrap_or_default();
        if includes.is_empty() {
            return Self::default();
        }
        Self(Some(Arc::new(SelectionParts { includes, ..SelectionParts::default() })))
    }

    /// Parses the arguments of a selection.
    ///
    /// # Errors
    /// An argument is invalid, or names a path at which neither the session nor its base has or had
    /// an object.
    pub fn read(opened: &OpenSession, asked: &SelectionText) -> Result<Self> {
        opened.with_tree(|view| Self::parse(asked, &|path| is_known(opened, view, path)))
    }

    /// Like [`Selection::read`], with `is_known` to say whether a path has or had an object.
    ///
    /// # Errors
    /// As [`Selection::read`].
    pub fn parse(
        asked: &SelectionText,
        is_known: &dyn Fn(&MergedPath) -> Result<bool>,
    ) -> Result<Self> {
        let current = asked.current.clone().unwrap_or_else(MergedPath::root);
        let (mut includes, mut excludes) = (Vec::new(), Vec::new());
        for text in &asked.paths {
            let spec = Pathspec::parse(text.as_bytes(), &current, is_known)?;
            let list = if spec.is_exclude { &mut excludes } else { &mut includes };
            list.push((spec.matcher, text.to_string_lossy().into_owned()));
        }
        let (includes, excludes) = (Pathspecs::new(includes)?, Pathspecs::new(excludes)?);
        let mut parts = SelectionParts { includes, excludes, ..SelectionParts::default() };
        let invalid = |text: &str, why: &dyn std::fmt::Display| InspectError::Invalid {
            what: format!("excluded path {text}: {why}"),
        };
        let patterns = asked.exclude.iter().map(|text| {
            // A pattern always excludes everything below a directory, so the slash has no meaning.
            let trimmed = text.strip_suffix('/').unwrap_or(text);
            Pattern::new(trimmed).map_err(|error| invalid(text, &error))
        });
        parts.patterns = PatternSet::new(patterns.collect::<Result<_>>()?)
            .map_err(|error| invalid("", &error))?;
        parts.ignored = asked.gitignore.as_deref().map(Ignored::new);
        let is_everything = parts.includes.is_empty() && !parts.leaves_out();
        Ok(if is_everything { Self::default() } else { Self(Some(Arc::new(parts))) })
    }

    /// The globs that have not matched any path so far, as the user wrote them.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|parts| parts.includes.unmatched())
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.0.is_none()
    }

    /// Whether there are exclusions.
    pub fn leaves_out(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.leaves_out())
    }

    /// The selected paths that are not globs.
    pub fn paths(&self) -> impl Iterator<Item = &MergedPath> {
        self.0.iter().flat_map(|parts| parts.includes.paths())
    }

    /// Whether the selection consists of plain paths, without exclusions.
    pub fn is_of_paths(&self) -> bool {
        self.0.as_ref().is_none_or(|parts| !parts.leaves_out() && !parts.includes.has_globs())
    }

    /// Whether exactly this path is named.
    pub fn names(&self, path: &MergedPath) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.includes.names(path))
    }

    /// Whether a path is selected.
    pub fn has(&self, view: &TreeView<'_>, path: &MergedPath, is_dir: bool) -> bool {
        let rules = self.0.as_ref().and_then(|parts| parts.ignored.as_ref());
        self.has_by_name(path, is_dir)
            && !rules.is_some_and(|rules| rules.covers(view, path, is_dir))
    }

    fn has_by_name(&self, path: &MergedPath, is_dir: bool) -> bool {
        let Some(parts) = &self.0 else { return true };
        (parts.includes.is_empty() || parts.includes.matches(path, is_dir))
            && !self.is_excluded_by_name(path, is_dir)
    }

    fn is_excluded_by_name(&self, path: &MergedPath, is_dir: bool) -> bool {
        self.0.as_ref().is_some_and(|parts| {
            parts.excludes.matches(path, is_dir) || parts.patterns.covers(&path.as_bytes()[1..])
        })
    }

    /// Whether a path is excluded.
    pub fn is_excluded(&self, view: &TreeView<'_>, path: &MergedPath, is_dir: bool) -> bool {
        let rules = self.0.as_ref().and_then(|parts| parts.ignored.as_ref());
        self.is_excluded_by_name(path, is_dir)
            || rules.is_some_and(|rules| rules.covers(view, path, is_dir))
    }

    /// Like [`Selection::has`], also for a deleted name, with the ignore rules of `opened`.
    pub fn has_name(&self, opened: Option<&OpenSession>, path: &MergedPath) -> bool {
        let has_rules = self.0.as_ref().is_some_and(|parts| parts.ignored.is_some());
        match opened.filter(|_| has_rules) {
            Some(opened) => {
                opened.with_tree(|view| Ok(self.has(view, path, false))).unwrap_or(true)
            }
            None => self.has_by_name(path, false),
        }
    }

    /// Whether some paths below a directory may be selected and others not.
    pub fn may_split(&self, dir: &MergedPath) -> bool {
        let Some(parts) = &self.0 else { return false };
        !parts.patterns.is_empty()
            || parts.ignored.is_some()
            || parts.includes.may_split(dir)
            || parts.excludes.may_split(dir)
    }

    /// Whether something below a directory may be selected though the directory is not.
    pub fn may_hold(&self, dir: &MergedPath) -> bool {
        let Some(parts) = &self.0 else { return true };
        let is_out = parts.excludes.covers(dir) || parts.patterns.covers(&dir.as_bytes()[1..]);
        !is_out && (parts.includes.may_split(dir) || parts.includes.covers(dir))
    }

    /// Whether a change is selected by its path or by the path before a move. A move is not if
    /// either path is excluded: that path stays as it is.
    pub fn has_change(&self, view: &TreeView<'_>, change: &Change) -> bool {
        if self.is_everything() {
            return true;
        }
        let is_dir = |kind| kind == FileKind::Directory;
        let before = change.before.as_ref().filter(|_| !change.is_link);
        let after_is_dir = change.after.as_ref().map(|after| is_dir(after.attr().kind));
        let before_is_dir = before.map(|base| is_dir(base.attr.kind)).or(after_is_dir);
        let before_is_dir = before_is_dir.unwrap_or(false);
        // A deletion below a renamed directory has the old path as its name, but the user may also
        // name it by the new path.
        let new = (&change.path, after_is_dir.unwrap_or(before_is_dir));
        let from = change.base_path().filter(|_| !change.is_link).map(MergedPath::of_base);
        let old = from.as_ref().map(|from| (from, before_is_dir));
        let paths = [Some(new), old].into_iter().flatten();
        // The old path does not select a move of what the base lost: nothing is there.
        let selecting = paths.clone().take(1 + usize::from(before.is_some()));
        let is_selected = selecting.into_iter().any(|(path, is_dir)| self.has(view, path, is_dir));
        if !is_selected {
            if !before_is_dir && before.is_some() {
                self.note_ignored(change);
            }
            return false;
        }
        let Some(path) = self.excluded_end(change) else { return true };
        if !change.moved_with_parent {
            self.note_excluded_move(change, &path);
        }
        false
    }

    /// The path of a change that is excluded by its name: the new path, or the one before a move.
    pub fn excluded_end(&self, change: &Change) -> Option<MergedPath> {
        let before = change.before.as_ref().map(|base| base.attr.kind);
        let after = change.after.as_ref().map(|after| after.attr().kind);
        let is_dir = |kind: Option<FileKind>| kind == Some(FileKind::Directory);
        let from = change.base_path().filter(|_| !change.is_link).map(MergedPath::of_base);
        let new = (change.path.clone(), is_dir(after.or(before)));
        let old = from.map(|from| (from, is_dir(before.or(after))));
        let mut ends = [Some(new), old].into_iter().flatten();
        ends.find(|(path, is_dir)| self.is_excluded_by_name(path, *is_dir)).map(|(path, _)| path)
    }

    /// Notes a selected move that is left out because `path`, one of its two, is excluded.
    fn note_excluded_move(&self, change: &Change, path: &MergedPath) {
        let Some(parts) = &self.0 else { return };
        let mut noted = parts.excluded_moves.lock();
        if noted.len() < MAX_NOTED {
            noted.insert(change.path.clone(), path.clone());
        }
    }

    /// The excluded path of the move to `path`, if that was left out because of it.
    pub fn excluded_path_of_move(&self, path: &MergedPath) -> Option<MergedPath> {
        self.0.as_ref()?.excluded_moves.lock().get(path).cloned()
    }

    /// The selected moves, [`MAX_NOTED`] at most, that were left out so far because one of their
    /// paths is excluded: the path of each, and the excluded one.
    pub fn excluded_moves(&self) -> Vec<(MergedPath, MergedPath)> {
        let noted = self.0.iter().map(|parts| parts.excluded_moves.lock());
        let pairs = |(to, path): (&MergedPath, &MergedPath)| (to.clone(), path.clone());
        noted.flat_map(|noted| noted.iter().map(pairs).collect::<Vec<_>>()).collect()
    }

    /// Notes a change of a base file that the ignore rules alone leave out.
    fn note_ignored(&self, change: &Change) {
        let Some(parts) = self.0.as_ref().filter(|parts| parts.ignored.is_some()) else { return };
        let mut noted = parts.left_to_rules.lock();
        if noted.len() < MAX_NOTED && self.has_by_name(&change.path, false) {
            noted.insert(change.path.clone(), change.clone());
        }
    }

    /// The changes of base files, [`MAX_NOTED`] at most, that only the ignore rules have left out
    /// so far.
    pub(super) fn ignored(&self) -> Vec<Change> {
        let noted = self.0.iter().map(|parts| parts.left_to_rules.lock());
        noted.flat_map(|noted| noted.values().cloned().collect::<Vec<_>>()).collect()
    }
}

impl SelectionParts {
    fn leaves_out(&self) -> bool {
        !self.excludes.is_empty() || !self.patterns.is_empty() || self.ignored.is_some()
    }
}
