//! Pairs the files and links of the base with those of the merged tree that a patch compares.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::PatchOmissions;
use super::blob::{Blob, base_blob, blob, has_blob};
use super::cached_lookup::CachedLookup;
use super::file::PatchSide;
use super::similar::most_similar;
use super::style::Style;
use crate::base::{BaseError, BasePath};
use crate::delta::{MergedPath, Original};
use crate::inspect::diff::{
    DiffOptions, Difference, DifferenceKind, at, base_error, diff_past_denied, drifted_original,
};
use crate::inspect::error::{InspectError, Result};
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::Selection;
use crate::inspect::tool_owned::ToolOwnedFiles;
use crate::inspect::walk::{WalkControl, walk_past_denied};
use crate::overlay::{BaseObject, Change, TreeObject, TreeView};
use crate::vfs::{FileKind, Time};

/// The paths that may have changed.
#[derive(Default)]
pub(super) struct Pairs {
    /// Paths of files and links in the merged tree.
    pub(super) new: BTreeSet<MergedPath>,
    /// Paths of files and links in the base that the merged tree may lack.
    pub(super) old: BTreeSet<MergedPath>,
    /// The old path of each renamed file, by its new path.
    pub(super) moved: BTreeMap<MergedPath, MergedPath>,
    /// The old path of each file that still has its content, by its new path.
    unchanged: BTreeMap<MergedPath, MergedPath>,
    /// New and deleted directories: a patch does not show empty ones.
    dirs: Vec<MergedPath>,
    /// What drifted base files were when the session changed them, by path.
    pub(super) originals: BTreeMap<MergedPath, Start>,
    selection: Selection,
    /// Larger files are left out, in bytes.
    pub largest: u64,
    pub left_out: PatchOmissions,
}

/// What a change of the session started from, where the base has another object now.
pub(super) enum Start {
    /// An object whose content was kept.
    Kept(Box<Original>),
    /// An object whose content is not known.
    Unknown,
    /// No object: the base got one after the session had added its own.
    Free,
}

impl Start {
    fn of(original: Original) -> Self {
        if original.has_content { Self::Kept(Box::new(original)) } else { Self::Unknown }
    }
}

/// Called with the old path and content, and the new path and content.
pub(in crate::inspect) type EachPair<'e> =
    dyn FnMut(PatchSide<'_, '_>, PatchSide<'_, '_>) -> super::PatchResult + 'e;

impl Pairs {
    /// Collects the pairs of all differences, and calls `each` for each difference.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn find(
        opened: &OpenSession,
        options: &DiffOptions,
        style: &Style,
        each: &mut dyn FnMut(Difference),
    ) -> Result<Self> {
        let (selection, largest) = (options.selection.clone(), u64::MAX);
        let mut pairs = Self { selection, largest, ..Self::default() };
        let denied = diff_past_denied(opened, options, &mut |view, difference| {
            pairs.left_out.differences += 1;
            pairs.add(opened, view, &difference)?;
            each(difference);
            Ok(ControlFlow::Continue(()))
        })?;
        pairs.left_out.denied.extend(denied);
        opened.with_tree(|view| {
            pairs.drop_existing_targets(view)?;
            if !style.has_git {
                pairs.leave_out_own(opened, view)?;
            }
            match style.similarity {
                Some(percent) => pairs.find_similar(opened, view, percent),
                None => Ok(()),
            }
        })?;
        pairs.count_empty_dirs();
        Ok(pairs)
    }

    /// Leaves out files that git or context nodes own.
    fn leave_out_own(&mut self, opened: &OpenSession, view: &TreeView<'_>) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let outside = opened.base_path().map(|path| path.as_os_str().as_bytes());
        let own = ToolOwnedFiles::find(view, outside, self.old.iter().chain(&self.new))?;
        let left_out = &mut self.left_out;
        let mut is_kept = |path: &MergedPath| match own.owner(path) {
            Some(whose) => {
                *left_out.own.entry(whose).or_default() += 1;
                false
            }
            None => true,
        };
        self.old.retain(&mut is_kept);
        self.new.retain(&mut is_kept);
        self.moved.retain(|to, from| own.owner(to).is_none() && own.owner(from).is_none());
        self.dirs.retain(|path| own.owner(path).is_none());
        Ok(())
    }

    /// Turns new files into renames of deleted ones with similar content.
    fn find_similar(
        &mut self,
        opened: &OpenSession,
        view: &TreeView<'_>,
        percent: u8,
    ) -> Result<()> {
        let sources: BTreeSet<_> = self.moved.values().cloned().collect();
        let mut gone = Vec::new();
        for path in self.old.iter().filter(|path| !sources.contains(*path)) {
            let old = self.old_blob(opened, view, path)?;
            if let Some(old) = old.flatten().filter(|old| !old.is_link()) {
                gone.push((path, old));
            }
        }
        let (mut finder, mut objects) = (CachedLookup::new(view), Vec::new());
        for path in self.new.iter().filter(|path| !self.moved.contains_key(*path)) {
            if matches!(self.old_blob(opened, view, path)?, Some(None))
                && let Some(object) = finder.find(path)?
                && object.attr().kind == FileKind::Regular
            {
                objects.push((path, object));
            }
        }
        let mut come = Vec::new();
        for (path, object) in &objects {
            come.push((*path, blob(view, object)?));
        }
        let similar = most_similar(gone, come, percent)?;
        self.moved.extend(similar.pairs);
        self.left_out.renames_not_looked_for = similar.not_compared;
        Ok(())
    }

    fn count_empty_dirs(&mut self) {
        let used: BTreeSet<_> = self.old.iter().chain(&self.new).map(MergedPath::parent).collect();
        let is_empty = |dir: &&MergedPath| !used.contains(dir) && dir.first_below(&used).is_none();
        self.left_out.empty_dirs = self.dirs.iter().filter(is_empty).count() as u64;
    }

    fn add(
        &mut self,
        opened: &OpenSession,
        view: &TreeView<'_>,
        difference: &Difference,
    ) -> Result<()> {
        let change = &difference.change;
        if change.after.is_some() && self.leave_out_hidden(opened, &difference.path) {
            return Ok(());
        }
        self.note_attributes(difference);
        self.note_original(view, difference)?;
        self.note_unchanged(difference);
        let before = difference.old.as_ref().filter(|_| difference.kind != DifferenceKind::Added);
        for base in before.into_iter().chain(&change.replaced) {
            let is_dir = base.attr.kind == FileKind::Directory;
            let stays = difference.kind == DifferenceKind::Modified;
            if !(is_dir && stays) {
                let is_replaced = change.replaced.as_ref().is_some_and(|r| r.path == base.path);
                let since = match &change.after {
                    _ if !is_dir => None,
                    None => Some(view.gone_since(base, &change.path)),
                    Some(after) if is_replaced || difference.kind == DifferenceKind::Retyped => {
                        Some(Ok(after.attr().ctime))
                    }
                    Some(_) => None,
                };
                let since = since.transpose().map_err(|source| at(&change.path, source))?;
                self.add_old(opened, view, base, since)?;
            }
            if is_dir && difference.kind == DifferenceKind::Deleted {
                self.dirs.push(MergedPath::of_base(&base.path));
            }
        }
        let Some(after) = &change.after else {
            if before.is_none() {
                self.left_out.deleted_unknown.insert(difference.path.clone());
                self.left_out.unknown.push(difference.path.clone());
            }
            return Ok(());
        };
        let from = before.filter(|_| difference.kind == DifferenceKind::Renamed);
        if after.attr().kind != FileKind::Directory {
            let from = from.map(|base| MergedPath::of_base(&base.path));
            self.add_new(difference.path.clone(), after.clone(), from);
            return Ok(());
        }
        if difference.kind == DifferenceKind::Added {
            self.dirs.push(difference.path.clone());
        }
        let Some(from) = from else { return Ok(()) };
        // Unchanged files that moved with the directory; changed ones have their own differences.
        let mut denied = Vec::new();
        walk_past_denied(view, after, &|_| true, &mut denied, &mut |_, object, _| {
            let is_file = object.attr().kind != FileKind::Directory;
            if is_file
                && !self.new.contains(object.path())
                && let Some(base) = moved_along(opened, &from.path, after.path(), object)?
                && (self.selection.has(view, object.path(), false)
                    || self.selection.has(view, &MergedPath::of_base(&base), false))
            {
                let (path, from) = (object.path().clone(), MergedPath::of_base(&base));
                match self.leave_out_hidden(opened, &path) {
                    true => drop(self.old.remove(&from)),
                    // Whichever of its names is selected, the rename is whole.
                    false => {
                        self.old.insert(from.clone());
                        if object.base_path().is_some() {
                            self.unchanged.insert(path.clone(), from.clone());
                        }
                        self.add_new(path, object.clone(), Some(from));
                    }
                }
            }
            Ok(WalkControl::Deeper)
        })?;
        self.left_out.denied.append(&mut denied);
        Ok(())
    }

    /// Leaves out an object at a path that the session hides, as `apply` does: the base may have an
    /// object there, which git would not replace. Returns whether the object is left out.
    fn leave_out_hidden(&mut self, opened: &OpenSession, path: &MergedPath) -> bool {
        let hidden = opened.session().hidden();
        let is_hidden = |path: &MergedPath| hidden.covers(&path.as_bytes()[1..]);
        if !is_hidden(path) {
            return false;
        }
        let top = path.above().take_while(is_hidden).last();
        self.left_out.hidden.insert(top.unwrap_or_else(|| path.clone()));
        true
    }

    fn add_new(&mut self, path: MergedPath, object: TreeObject, from: Option<MergedPath>) {
        if !has_blob(object.attr().kind) {
            self.left_out.special += 1;
            return;
        }
        // A rename without changes does not say in a patch that the object is a link, and git then
        // refuses files below its old path.
        let is_file = object.attr().kind == FileKind::Regular;
        if let Some(from) = from.filter(|from| is_file && *from != path) {
            self.moved.insert(path.clone(), from);
        }
        self.new.insert(path);
    }

    /// Records attributes of a modified object that the format cannot represent.
    fn note_attributes(&mut self, difference: &Difference) {
        let change = &difference.change;
        let (Some(before), Some(after)) = (&difference.old, &change.after) else { return };
        let (old, new) = (before.attr.mode, after.attr().mode);
        let is_file = after.attr().kind == FileKind::Regular;
        let is_said = is_file && (old ^ new) & !0o111 == 0 && (old ^ new) & 0o100 != 0;
        if difference.differs.owner || difference.differs.mode && !is_said {
            self.left_out.attributes.push(difference.path.clone());
        }
    }

    /// Records a file with its old content.
    fn note_unchanged(&mut self, difference: &Difference) {
        let stays = matches!(difference.kind, DifferenceKind::Modified | DifferenceKind::Renamed);
        if let Some(before) = difference.old.as_ref()
            && before.attr.kind == FileKind::Regular
            && stays
            && !difference.differs.content
        {
            let from = MergedPath::of_base(&before.path);
            self.unchanged.insert(difference.path.clone(), from);
        }
    }

    /// Records the original of a changed base object that drifted.
    fn note_original(&mut self, view: &TreeView<'_>, difference: &Difference) -> Result<()> {
        let change = &difference.change;
        if let Some(replaced) = change.replaced.as_ref().filter(|_| change.is_replaced_drifted) {
            // What a rename replaced has an original: without one, the name was free.
            let none = if has_blob(replaced.attr.kind) { Start::Free } else { Start::Unknown };
            self.note_kept(view, replaced, none)?;
        }
        if let Some(original) = drifted_original(change) {
            // A further name of a base file has the original of the name that was copied up.
            let name = change.before.as_ref().map_or(&original.path, |base| &base.path);
            self.originals.insert(MergedPath::of_base(name), Start::of(original.clone()));
            return Ok(());
        }
        let base = change.before.as_ref().filter(|base| has_blob(base.attr.kind));
        if let Some(base) = base.filter(|_| change.is_drifted && !change.is_link) {
            let start = if is_added_on_both_sides(change) { Start::Free } else { Start::Unknown };
            self.originals.insert(MergedPath::of_base(&base.path), start);
        }
        Ok(())
    }

    /// Records the original of a base object that changed after the session hid it; `none` without
    /// one.
    fn note_kept(&mut self, view: &TreeView<'_>, base: &BaseObject, none: Start) -> Result<()> {
        let path = MergedPath::of_base(&base.path);
        let original = view.original_of(base).map_err(|source| at(&path, source))?;
        let start = original.map_or(none, |(original, _)| Start::of(original));
        self.originals.insert(path, start);
        Ok(())
    }

    /// The content that the session's change started from: `Some(None)` if the path was free,
    /// `None` if the content is unknown.
    pub(super) fn old_blob<'a>(
        &self,
        opened: &'a OpenSession,
        view: &TreeView<'_>,
        path: &MergedPath,
    ) -> Result<Option<Option<Blob<'a>>>> {
        let original = match self.originals.get(path) {
            None => return base_blob(opened, path).map(Some),
            Some(Start::Kept(original)) => original,
            Some(Start::Unknown) => return Ok(None),
            Some(Start::Free) => return Ok(Some(None)),
        };
        let content = view.original_content(original).map_err(|source| at(path, source))?;
        Ok(content.map(|content| {
            Some(match original.kind {
                FileKind::Symlink => Blob::link(content),
                _ => Blob::loaded(content, original.mode),
            })
        }))
    }

    /// Adds a base object, and for a directory all selected files below it. `since` is when the
    /// session hid the directory: of files that changed later, the originals are used.
    fn add_old(
        &mut self,
        opened: &OpenSession,
        view: &TreeView<'_>,
        top: &BaseObject,
        since: Option<Time>,
    ) -> Result<()> {
        let mut open = vec![(top.path.clone(), top.attr.kind)];
        while let Some((path, kind)) = open.pop() {
            let shown = MergedPath::of_base(&path);
            let is_top = path == top.path;
            if has_blob(kind) && (is_top || self.selection.has(view, &shown, false)) {
                if let Some(since) = since.filter(|_| !is_top)
                    && let Ok(attr) = opened.base().stat(&path)
                {
                    let object = BaseObject { path: path.clone(), attr };
                    let is_late = view.is_changed_since_hidden(&object, since);
                    if is_late.map_err(|source| at(&shown, source))? {
                        self.note_kept(view, &object, Start::Unknown)?;
                    }
                }
                self.old.insert(shown.clone());
            }
            if kind != FileKind::Directory {
                continue;
            }
            let listing = match opened.base().list(&path) {
                Ok(listing) => listing,
                Err(BaseError::NotFound) => continue,
                Err(BaseError::Denied) => {
                    self.left_out.denied.push(shown);
                    continue;
                }
                Err(source) => return Err(base_error(opened, &path, source)),
            };
            if listing.entries.is_empty() && !is_top {
                self.note_empty_dir(view, &shown)?;
            }
            for entry in &listing.entries {
                let path = path.join(&entry.name);
                match entry.kind.map_or_else(|| opened.base().stat(&path).map(|a| a.kind), Ok) {
                    Ok(kind) => open.push((path, kind)),
                    Err(BaseError::NotFound) => {}
                    Err(source) => return Err(base_error(opened, &path, source)),
                }
            }
        }
        Ok(())
    }

    /// Notes an empty directory of the base that the merged tree lacks.
    fn note_empty_dir(&mut self, view: &TreeView<'_>, path: &MergedPath) -> Result<()> {
        let now = view.find(path).map_err(|source| InspectError::at(path, source))?;
        let is_there = now.is_some_and(|now| now.attr().kind == FileKind::Directory);
        if !is_there && self.selection.has(view, path, true) {
            self.dirs.push(path.clone());
        }
        Ok(())
    }

    /// Keeps only old paths that the merged tree lacks. Keeps one rename from each of them, to a
    /// path that the base lacks: git does not rename over another file.
    fn drop_existing_targets(&mut self, view: &TreeView<'_>) -> Result<()> {
        let mut gone = BTreeSet::new();
        let mut finder = CachedLookup::new(view);
        for path in self.old.iter().filter(|path| !self.new.contains(*path)) {
            let now = finder.find(path)?;
            if now.is_none_or(|now| !has_blob(now.attr().kind)) {
                gone.insert(path.clone());
            }
        }
        let mut free = gone.clone();
        let old = std::mem::replace(&mut self.old, gone);
        self.moved.retain(|path, from| !old.contains(path) && free.remove(from));
        Ok(())
    }

    /// Calls `each` for all pairs, in the order of their paths.
    pub fn each(
        &mut self,
        opened: &OpenSession,
        view: &TreeView<'_>,
        each: &mut EachPair<'_>,
    ) -> super::PatchResult {
        let sources: BTreeSet<&MergedPath> = self.moved.values().collect();
        let mut finder = CachedLookup::new(view);
        let both = self.old.iter().chain(&self.new).collect::<BTreeSet<_>>();
        for path in both {
            if !self.new.contains(path) && sources.contains(path) {
                continue;
            }
            let now = match self.new.contains(path) {
                true => finder.find(path)?.filter(|now| has_blob(now.attr().kind)),
                false => None,
            };
            let from = self.moved.get(path).unwrap_or(path);
            let Some(old) = self.old_blob(opened, view, from)? else {
                if now.is_none() {
                    self.left_out.deleted_unknown.insert(path.clone());
                }
                self.left_out.unknown.push(path.clone());
                continue;
            };
            let new = now.as_ref().map(|now| blob(view, now)).transpose()?;
            // Equal contents are neither written nor counted, and so not read.
            if self.unchanged.get(path) == Some(from)
                && let (Some(old), Some(new)) = (&old, &new)
                && old.size() == new.size()
            {
                let (old, new) = (old.without_content(), new.without_content());
                each((from, Some(old)), (path, Some(new)))?;
                continue;
            }
            if [&old, &new].into_iter().flatten().any(|blob| blob.size() > self.largest) {
                self.left_out.too_large.push(path.clone());
                continue;
            }
            each((from, old), (path, new))?;
        }
        Ok(())
    }
}

/// The base path of an object that moved along with its directory from `from` to `to`; `None` if it
/// came there in another way.
fn moved_along(
    opened: &OpenSession,
    from: &BasePath,
    to: &MergedPath,
    object: &TreeObject,
) -> Result<Option<BasePath>> {
    if let Some(base) = object.base_path() {
        return Ok(Some(base.clone()));
    }
    let rest = object.path().as_bytes().strip_prefix(to.as_bytes()).unwrap_or_default();
    let Some(base) = BasePath::from_bytes(&[from.as_bytes(), rest].concat()) else {
        return Ok(None);
    };
    match opened.base().stat(&base) {
        Ok(attr) => Ok((attr.fileid == object.attr().fileid).then_some(base)),
        Err(BaseError::NotFound) => Ok(None),
        Err(source) => Err(base_error(opened, &base, source)),
    }
}

/// Whether a file or link of the session has a path at which the base had nothing. Had it replaced
/// or followed something, that would be its origin, or have an original.
fn is_added_on_both_sides(change: &Change) -> bool {
    let made = change.after.as_ref().filter(|o| o.row().is_some() && o.origin().is_none());
    let is_made = made.is_some_and(|object| has_blob(object.attr().kind));
    change.original.is_none() && !change.is_moved && is_made
}
