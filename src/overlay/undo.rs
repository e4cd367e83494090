//! What has to be given up so that paths show the base again.
//!
//! A change has two ends where something moved: giving up one alone would show an object twice,
//! or not at all. So both are given up, and with an end all that is in it, and so on.

use std::collections::HashSet;

use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::vfs::{FileKind, FsError};

use super::changes::Change;
use super::tree::{TreeObject, TreeView};

/// What giving up changes at some paths takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undo {
    /// The paths that show the base again, none within another.
    pub paths: Vec<MergedPath>,
    /// Objects that are in the session, or gone from the base, at and below these.
    pub changes: u64,
    /// What was asked for, and is as in the base already or cannot be.
    pub idle: Vec<Idle>,
}

/// A path at which there is nothing to give up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// The path.
    pub path: MergedPath,
    /// The path above it that shows no directory of the base any more: that has to be given up.
    pub gone_with: Option<MergedPath>,
}

/// What has to go back together.
struct UndoGroup {
    /// Where the object is, and where the base would show it: there may be another one by now,
    /// and it is given up too.
    paths: Vec<MergedPath>,
    /// Where the base would show a directory that was above it and shows nowhere. What is there
    /// instead has nothing to do with it, but when that goes back, the object does too.
    gone_at: Option<MergedPath>,
}

impl TreeView<'_> {
    /// What it takes that `asked` show the base again.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn undo(&self, asked: &[MergedPath]) -> Result<Undo, FsError> {
        let mut all = Vec::new();
        let mut failed = None;
        self.changes(&mut |change| match self.ends(change) {
            Ok(ends) => {
                all.push(ends);
                true
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        })
        .map_err(|failed| {
            tracing::warn!(path = ?failed.path, error = %failed.source, "undo");
            failed.source
        })?;
        if let Some(error) = failed {
            return Err(error.into_fs());
        }
        let touched = touched(&all);
        let (mut chosen, mut idle) = (HashSet::new(), Vec::new());
        for path in asked {
            let found = self.idle(path)?;
            let is_alone = found.gone_with.is_none();
            let is_touched = match *path == MergedPath::root() {
                true => !all.is_empty() || self.has_other_top()?,
                false => touched.contains(path),
            };
            if !(is_alone && is_touched) {
                idle.push(found);
            } else {
                chosen.insert(path.clone());
            }
        }
        while grow(&mut chosen, &all) {}
        let changes = all.iter().filter(|change| change.is_in(&chosen)).count() as u64;
        let is_outermost = |path: &&MergedPath| !path.above().any(|above| chosen.contains(&above));
        let mut paths: Vec<_> = chosen.iter().filter(is_outermost).cloned().collect();
        paths.sort_unstable();
        Ok(Undo { paths, changes, idle })
    }

    /// Whether the top has another mode or owner than in the base.
    fn has_other_top(&self) -> Result<bool, FsError> {
        let root = self.root()?;
        let (attr, base) = (root.attr(), self.view.base_attr_at(&BasePath::root()));
        let base = base.map_err(|error| error.into_fs())?;
        Ok(base
            .is_none_or(|base| (base.mode, base.uid, base.gid) != (attr.mode, attr.uid, attr.gid)))
    }

    fn ends(&self, change: Change) -> super::error::Result<UndoGroup> {
        let mut ends = UndoGroup { paths: vec![change.path], gone_at: None };
        let Some(before) = change.before.filter(|_| !change.is_link) else { return Ok(ends) };
        let (mut base, mut is_gone) = (before.path, false);
        while let Some((parent, name)) = base.split() {
            // Not its path in the base: where a directory moved, that may lead to anything else.
            if let Some(place) = self.view.place_of_base(&parent)? {
                let path = place.merged.join(&name);
                if is_gone {
                    ends.gone_at = Some(path);
                } else if path != ends.paths[0] {
                    ends.paths.push(path);
                }
                break;
            }
            (base, is_gone) = (parent, true);
        }
        Ok(ends)
    }

    fn idle(&self, path: &MergedPath) -> Result<Idle, FsError> {
        let mut gone_with = None;
        for above in path.above() {
            let found = self.find(&above)?;
            let found = found.filter(|found| found.attr().kind == FileKind::Directory);
            if match &found {
                Some(dir) => self.is_folded(dir).map_err(|error| error.into_fs())?,
                // Where the base has nothing either, nothing would come back.
                None => self.base_has(&above).map_err(|error| error.into_fs())?,
            } {
                gone_with = Some(above);
            }
        }
        Ok(Idle { path: path.clone(), gone_with })
    }

    /// Whether the base has something at a path, were nothing moved.
    fn base_has(&self, path: &MergedPath) -> super::error::Result<bool> {
        let path = path.as_bytes().strip_prefix(b"/").and_then(BasePath::from_bytes);
        Ok(path.map(|path| self.view.base_attr_at(&path)).transpose()?.flatten().is_some())
    }

    /// Whether nothing of the base shows through a directory that was moved with all below it
    /// copied up (`acetate seal`).
    fn is_folded(&self, dir: &TreeObject) -> super::error::Result<bool> {
        let Some(origin) = dir.origin() else { return Ok(false) };
        let place = self.view.place(&dir.node)?;
        Ok(place.base.as_ref() != Some(&origin.path))
    }
}

impl UndoGroup {
    fn is_in(&self, chosen: &HashSet<MergedPath>) -> bool {
        self.paths.iter().chain(&self.gone_at).any(|end| is_in(end, chosen))
    }
}

/// Adds the other ends of what is chosen; whether there were any.
fn grow(chosen: &mut HashSet<MergedPath>, all: &[UndoGroup]) -> bool {
    let before = chosen.len();
    for change in all {
        if change.is_in(chosen) {
            let missing: Vec<_> =
                change.paths.iter().filter(|end| !is_in(end, chosen)).cloned().collect();
            chosen.extend(missing);
        }
    }
    chosen.len() > before
}

/// The paths at or below which there is any change.
fn touched(all: &[UndoGroup]) -> HashSet<MergedPath> {
    let mut touched = HashSet::new();
    for end in all.iter().flat_map(|change| change.paths.iter().chain(&change.gone_at)) {
        // With a path, those above it were put in too.
        if touched.insert(end.clone()) {
            for above in end.above() {
                if !touched.insert(above) {
                    break;
                }
            }
        }
    }
    touched
}

/// Whether a path, or one above it, is among these.
pub(super) fn is_in(path: &MergedPath, paths: &HashSet<MergedPath>) -> bool {
    paths.contains(path) || path.above().any(|above| paths.contains(&above))
}
