//! Finds the paths that a discard must include so that the base shows again.
//!
//! A rename changes two paths. Reverting one of them would show an object twice or not at all, so
//! both are reverted, with everything below each, and so on transitively.

use std::collections::HashSet;

use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::vfs::{FileKind, FsError};

use super::changes::{Change, DeniedChange};
use super::tree::{TreeObject, TreeView};
use crate::overlay::moved_out::recorded_dir;
use crate::overlay::node::Node;

/// Extent of a discard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiscardExtent {
    /// Paths that will show the base again; none is below another.
    pub paths: Vec<MergedPath>,
    /// Changed objects at and below these paths.
    pub changes: u64,
    /// Requested paths without anything to discard, or that cannot be discarded alone.
    pub idle: Vec<Idle>,
}

/// A requested path that the discard leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// The requested path.
    pub path: MergedPath,
    /// The directory above that must be discarded instead: it no longer shows its base directory,
    /// or was moved with all in it.
    pub gone_with: Option<MergedPath>,
}

/// Paths of one change, which must be discarded together.
struct DiscardGroup {
    /// The object's path, and the path at which the base object would show. Another object may be
    /// there now; it is discarded too.
    paths: Vec<MergedPath>,
    /// The path at which a former base ancestor would show, if that ancestor shows nowhere. The
    /// object there is unrelated, but discarding it brings the ancestor back, and this object with
    /// it.
    gone_at: Option<MergedPath>,
}

impl TreeView<'_> {
    /// The extent of a discard of the paths `asked`.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn discard_extent(&self, asked: &[MergedPath]) -> Result<DiscardExtent, FsError> {
        let all = self.discard_groups()?;
        let touched = touched(&all);
        let (mut chosen, mut idle) = (HashSet::new(), Vec::new());
        for path in asked {
            let mut found = self.idle(path)?;
            let is_alone = found.gone_with.is_none();
            let is_touched = match *path == MergedPath::root() {
                true => !all.is_empty() || self.has_other_top()?,
                false => touched.contains(path),
            };
            if !(is_alone && is_touched) {
                if is_alone {
                    found.gone_with = self.moved_with(path).map_err(|error| error.into_fs())?;
                }
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
        Ok(DiscardExtent { paths, changes, idle })
    }

    /// The paths of all changes.
    fn discard_groups(&self) -> Result<Vec<DiscardGroup>, FsError> {
        let mut all = Vec::new();
        let (mut failed, mut denied) = (None, Vec::new());
        let mut each = |change: Change| {
            let from = change.base_path().filter(|_| !change.is_link).cloned();
            match self.ends(change.path, from) {
                Ok(ends) => {
                    all.push(ends);
                    true
                }
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        };
        self.changes_past_denied(&mut each, &mut |change| denied.push(change)).map_err(
            |failed| {
                tracing::warn!(path = ?failed.path, error = %failed.source, "cannot read a change");
                failed.source
            },
        )?;
        if let Some(error) = failed {
            return Err(error.into_fs());
        }
        // The base has to be seen for a comparison, and not to show again.
        for DeniedChange { path, from } in denied {
            all.push(self.ends(path, from).map_err(|error| error.into_fs())?);
        }
        // Whiteouts whose base objects are missing: the base may have these again.
        let missing = match self.hidden_without_base() {
            Err(FsError::Access) => Vec::new(),
            missing => missing?,
        };
        let known: HashSet<_> = all.iter().flat_map(|change| &change.paths).cloned().collect();
        let missing = missing.into_iter().map(|(path, _)| path);
        all.extend(missing.filter(|path| !known.contains(path)).map(DiscardGroup::of));
        Ok(all)
    }

    /// The paths that a discard of a change changes: its own, and for a move that at which the base
    /// object would show again.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn discard_ends(&self, change: &Change) -> Result<Vec<MergedPath>, FsError> {
        let from = change.base_path().filter(|_| !change.is_link).cloned();
        let DiscardGroup { mut paths, gone_at } =
            self.ends(change.path.clone(), from).map_err(|error| error.into_fs())?;
        paths.extend(gone_at);
        Ok(paths)
    }

    /// Whether the root's mode or owner differs from the base's.
    fn has_other_top(&self) -> Result<bool, FsError> {
        let root = self.root()?;
        let (attr, base) = (root.attr(), self.view.base_attr_at(&BasePath::root()));
        let base = base.map_err(|error| error.into_fs())?;
        Ok(base
            .is_none_or(|base| (base.mode, base.uid, base.gid) != (attr.mode, attr.uid, attr.gid)))
    }

    /// The paths of the change at `path` of an object that has, or had, the base path `from`.
    fn ends(
        &self,
        path: MergedPath,
        from: Option<BasePath>,
    ) -> crate::overlay::error::Result<DiscardGroup> {
        let mut ends = DiscardGroup::of(path);
        let Some(mut base) = from else { return Ok(ends) };
        let mut is_gone = false;
        while let Some((parent, name)) = base.split() {
            // Not the base path: if an ancestor was renamed, another object may be there.
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
                // If the base has nothing there either, a discard restores nothing.
                None => self.base_has(&above).map_err(|error| error.into_fs())?,
            } {
                gone_with = Some(above);
            }
        }
        Ok(Idle { path: path.clone(), gone_with })
    }

    /// The outermost moved directory with which an object of the base came to this path.
    fn moved_with(&self, path: &MergedPath) -> crate::overlay::error::Result<Option<MergedPath>> {
        let found = match self.find(path) {
            Err(FsError::NotDirectory) => None,
            found => found?,
        };
        let from = found.as_ref().and_then(|object| match &object.node {
            Node::Base { path, .. } => Some(MergedPath::of_base(path)),
            Node::Delta(_) => None,
        });
        let mut outermost = None;
        if from.is_some_and(|from| from != *path) {
            for above in path.above() {
                let dir = self.find(&above)?.map(|dir| self.view.place(&dir.node)).transpose()?;
                if let Some(place) = dir
                    && place.base.as_ref().is_some_and(|base| MergedPath::of_base(base) != above)
                {
                    outermost = Some(above);
                }
            }
        }
        Ok(outermost)
    }

    /// Whether the base has an object at this path, ignoring renames.
    fn base_has(&self, path: &MergedPath) -> crate::overlay::error::Result<bool> {
        let path = path.as_bytes().strip_prefix(b"/").and_then(BasePath::from_bytes);
        Ok(path.map(|path| self.view.base_attr_at(&path)).transpose()?.flatten().is_some())
    }

    /// Whether a directory was renamed and `acetate seal` copied up everything below it, so that
    /// nothing of the base shows through. Not one that the base lost, and may get again.
    fn is_folded(&self, dir: &TreeObject) -> crate::overlay::error::Result<bool> {
        let Some((row, origin)) = dir.row().zip(dir.origin()) else { return Ok(false) };
        let place = self.view.place(&dir.node)?;
        if place.base.as_ref() == Some(&origin.path) {
            return Ok(false);
        }
        Ok(recorded_dir(&self.view, row.ino)?.as_ref() != Some(&origin.path))
    }
}

impl DiscardGroup {
    fn of(path: MergedPath) -> Self {
        Self { paths: vec![path], gone_at: None }
    }

    fn is_in(&self, chosen: &HashSet<MergedPath>) -> bool {
        self.paths.iter().chain(&self.gone_at).any(|end| is_in(end, chosen))
    }
}

/// Adds the other paths of the chosen changes; returns whether any was added.
fn grow(chosen: &mut HashSet<MergedPath>, all: &[DiscardGroup]) -> bool {
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

/// All paths at or below which something changed.
fn touched(all: &[DiscardGroup]) -> HashSet<MergedPath> {
    let mut touched = HashSet::new();
    for end in all.iter().flat_map(|change| change.paths.iter().chain(&change.gone_at)) {
        // Once a path is in the set, so are its ancestors.
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

/// Whether a path or one of its ancestors is in `paths`.
pub(super) fn is_in(path: &MergedPath, paths: &HashSet<MergedPath>) -> bool {
    paths.contains(path) || path.above().any(|above| paths.contains(&above))
}
