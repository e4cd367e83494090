//! Plans for a copy of the base: at a path, the copy may have the session's original, the base's
//! present object, or an object of its own.

mod only_in_copy;

use super::merge::Merge;
use super::plan::target_path;
use super::planner::Planner;
use super::target_dir::{base_error, stat_in};
use crate::base::{Base, BaseAttr, BasePath};
use crate::delta::{MergedPath, Original};
use crate::inspect::diff::{self, Difference};
use crate::inspect::error::Result;
use crate::overlay::{BaseObject, BlobDigest, Change};
use crate::vfs::FileKind;

/// The size of the pieces in which two files are compared, in bytes.
const PIECE_BYTES: usize = 256 << 10;

impl Planner<'_> {
    /// Whether the copy differs from the base at a change. With a known original, `before` is not
    /// compared.
    pub(super) fn is_other_in_copy(&self, difference: &Difference) -> Result<bool> {
        let change = &difference.change;
        let before = change.before.as_ref().filter(|_| original_in_copy(true, change).is_none());
        self.differs_in_copy(difference, [before, change.replaced.as_ref()])
    }

    /// Notes drift in the copy, for a change whose original is known. Returns the merge if the file
    /// can be merged.
    pub(super) fn note_drift_from(
        &mut self,
        original: &Original,
        difference: &Difference,
    ) -> Result<Option<Merge>> {
        // A further name of a file has the original of the first one.
        let before = difference.change.before.as_ref();
        let path = before.map_or(&original.path, |base| &base.path).clone();
        match self.target.stat(&path)? {
            Some(attr) if self.is_original(original, &path, &attr)? => Ok(None),
            there => {
                let there = there.map(|attr| BaseObject { path, attr });
                self.merge_or_note(difference, there.as_ref())
            }
        }
    }

    /// Whether the target is a copy that differs from the base at the path of a change.
    pub(super) fn differs_from_base(
        &self,
        change: &Change,
        there: Option<&BaseObject>,
    ) -> Result<bool> {
        let original = change.original.as_ref().map(|original| &original.path);
        let path = there.or(change.before.as_ref()).map(|base| &base.path).or(original);
        let Some(path) = path.filter(|_| self.target.is_copy()) else { return Ok(false) };
        match self.base_stat(path)? {
            Some(attr) => self.is_other(&BaseObject { path: path.clone(), attr }),
            None => Ok(there.is_some()),
        }
    }

    /// Whether the copy's object at `path`, with the attributes `there`, is the original.
    pub(super) fn is_original(
        &self,
        original: &Original,
        path: &BasePath,
        there: &BaseAttr,
    ) -> Result<bool> {
        let copy = self.target.reader();
        let failed = |source| base_error(&self.target.shown(path), source);
        if original.kind != there.kind {
            return Ok(false);
        }
        if there.kind == FileKind::Symlink {
            let target = copy.read_link(path).map_err(failed)?;
            return Ok(original.digest == Some(BlobDigest::of(&target)));
        }
        if (original.size, original.mode) != (there.size, there.mode) {
            return Ok(false);
        }
        let mut digest = BlobDigest::new(there.size);
        let (mut piece, mut at) = (vec![0; PIECE_BYTES], 0);
        while at < there.size {
            let (got, _) = copy.read(path, there.fileid, at, &mut piece).map_err(failed)?;
            if got == 0 {
                return Ok(false);
            }
            digest.update(&piece[..got]);
            at += got as u64;
        }
        Ok(original.digest == Some(digest.finish()))
    }

    /// Whether the copy differs from one of these base objects, or has an object at a destination
    /// where the base has none.
    fn differs_in_copy(
        &self,
        difference: &Difference,
        objects: [Option<&BaseObject>; 2],
    ) -> Result<bool> {
        for base in objects.into_iter().flatten() {
            if !self.is_only_in_copy(&base.path)? && self.is_other(base)? {
                return Ok(true);
            }
        }
        let Some(after) = &difference.change.after else { return Ok(false) };
        let to = target_path(after.path());
        if difference.change.before.as_ref().is_some_and(|base| base.path == to) {
            return Ok(false);
        }
        Ok(self.base_stat(&to)?.is_none() && self.target.stat(&to)?.is_some())
    }

    /// Whether the copy differs from this base object. Directories are compared by type alone.
    pub(super) fn is_other(&self, base: &BaseObject) -> Result<bool> {
        let Some(there) = self.target.stat(&base.path)? else { return Ok(true) };
        let (ours, copy) = (&base.attr, self.target.reader());
        if ours.kind == FileKind::Directory || there.kind == FileKind::Directory {
            return Ok(ours.kind != there.kind);
        }
        let same = (ours.kind, ours.size, ours.rdev) == (there.kind, there.size, there.rdev);
        if !same || (ours.kind != FileKind::Symlink && ours.mode != there.mode) {
            return Ok(true);
        }
        let path = &base.path;
        let failed = |source| base_error(&self.target.shown(path), source);
        match ours.kind {
            FileKind::Symlink => {
                let target = copy.read_link(path).map_err(failed)?;
                Ok(target != diff::base_target(self.opened, path)?)
            }
            FileKind::Regular => self.bytes_differ(path, ours, &there),
            _ => Ok(false),
        }
    }

    /// How the copy differs from the base at a change, or at `path` in a directory that the change
    /// removes. Called where a difference is known; `None` if neither has an object there.
    pub(super) fn difference_in_copy(
        &self,
        change: usize,
        path: &MergedPath,
    ) -> Result<Option<String>> {
        let from = self.plan.changes.get(change).filter(|change| change.path == *path);
        let path = target_path(from.and_then(|change| change.from.as_ref()).unwrap_or(path));
        let base = match (self.base_stat(&path)?, self.target.stat(&path)?) {
            (Some(_), None) => return Ok(Some("it is not there".to_owned())),
            (None, Some(_)) => return Ok(Some("the base has nothing there".to_owned())),
            (None, None) => return Ok(None),
            (Some(base), Some(there)) if base.kind != there.kind => {
                return Ok(Some("another type".to_owned()));
            }
            (Some(base), Some(there)) if base.mode != there.mode && !is_link(&base) => {
                let (has, not) = (there.mode, base.mode);
                return Ok(Some(format!("mode {has:04o}, not {not:04o}")));
            }
            (Some(base), Some(_)) => base,
        };
        let what = match base.kind {
            FileKind::Directory => "entries are missing",
            FileKind::Symlink => "another target",
            _ => "another content",
        };
        Ok(Some(what.to_owned()))
    }

    /// Attributes of the base's object at a path, also if the target is a copy.
    pub(super) fn base_stat(&self, path: &BasePath) -> Result<Option<BaseAttr>> {
        stat_in(self.opened.base(), path)
            .map_err(|source| diff::base_error(self.opened, path, source))
    }

    fn bytes_differ(&self, path: &BasePath, ours: &BaseAttr, there: &BaseAttr) -> Result<bool> {
        let (mut old, mut new) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        let mut offset = 0;
        loop {
            // Holes in both files need no comparison.
            let data = |tree: &dyn Base, attr: &BaseAttr| {
                let found = tree.next_data(path, attr.fileid, offset);
                let found = found.map_err(|source| base_error(&self.target.shown(path), source))?;
                Ok(found.map_or(ours.size, |(start, _)| start))
            };
            let first: Result<u64> = data(self.opened.base(), ours);
            offset = first?.min(data(self.target.reader(), there)?);
            if offset >= ours.size {
                break;
            }
            let got = diff::read_base(self.opened, path, ours, offset, &mut old)?;
            let copy = self.target.reader().read(path, there.fileid, offset, &mut new);
            let (read, _) = copy.map_err(|source| base_error(&self.target.shown(path), source))?;
            if got == 0 || old[..got] != new[..read] {
                return Ok(true);
            }
            offset += got as u64;
        }
        Ok(false)
    }
}

fn is_link(attr: &BaseAttr) -> bool {
    attr.kind == FileKind::Symlink
}

/// The original with a digest, if the target is a copy: the copy may still have that object.
pub(super) fn original_in_copy(is_copy: bool, change: &Change) -> Option<&Original> {
    change.original.as_ref().filter(|original| is_copy && original.digest.is_some())
}
