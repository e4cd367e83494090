//! Prepares differences for review: sorted by path, with one entry for a directory that is new or
//! deleted as a whole, and one for files that git or context nodes own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use super::diff::{
    ChangedFields, DiffOptions, Difference, DifferenceKind, at, base_error, diff_past_denied,
    differences,
};
use super::error::Result;
use super::opened::OpenSession;
use super::split::walk_base_past_denied;
use super::tool_owned::{OwnedBy, ToolOwnedFiles};
use crate::base::{BaseError, BasePath};
use crate::delta::MergedPath;
use crate::overlay::{BaseObject, Change, TreeView};
use crate::vfs::FileKind;

/// Which differences are folded into one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldOptions {
    /// New and deleted directories, unless the selection names a path in them.
    pub dirs: bool,
    /// git's own files, and context nodes.
    pub own: bool,
}

/// One line of a review.
#[derive(Debug, Clone)]
pub enum FoldedLine {
    /// One difference.
    One(Box<Difference>),
    /// Several differences.
    Folded(Folded),
}

/// Why differences are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Their directory is new.
    Added,
    /// Their directory is deleted.
    Deleted,
    /// git or a context node owns them.
    Own(OwnedBy),
}

/// Differences in one entry.
#[derive(Debug, Clone)]
pub struct Folded {
    /// The directory that contains them.
    pub path: MergedPath,
    /// Why they are folded.
    pub reason: Reason,
    /// The number of paths, those in removed directories included.
    pub paths: u64,
    /// The number of objects that are not directories.
    pub files: u64,
    /// Of these, the files in which only the modification time differs.
    pub only_times: u64,
    /// The sum of the sizes of the other files.
    pub bytes: u64,
    /// The differences.
    pub differences: Vec<Difference>,
}

/// The differences, sorted by path, and the paths of objects that the base denies access to.
///
/// # Errors
/// The session or the base cannot be read, for another reason.
pub fn sorted_past_denied(
    opened: &OpenSession,
    options: &DiffOptions,
) -> Result<(Vec<Difference>, Vec<MergedPath>)> {
    let mut all = Vec::new();
    let denied = diff_past_denied(opened, options, &mut |_, difference| {
        all.push(difference);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok((sorted(opened, options, all, &HashMap::new())?, denied))
}

/// Sorts differences by path. `moved` maps current paths to earlier ones: each such pair becomes
/// one rename instead of an addition and a deletion.
///
/// # Errors
/// The session or the base cannot be read.
pub fn sorted(
    opened: &OpenSession,
    options: &DiffOptions,
    mut all: Vec<Difference>,
    moved: &HashMap<MergedPath, MergedPath>,
) -> Result<Vec<Difference>> {
    if !moved.is_empty() {
        let gone: BTreeSet<_> = moved.values().collect();
        all.retain(|d| d.kind != DifferenceKind::Deleted || !gone.contains(&d.path));
        for difference in
            all.iter_mut().filter(|difference| difference.kind == DifferenceKind::Added)
        {
            if let Some(from) = moved.get(&difference.path)
                && let Some(base) = base_object(opened, from)?
                && let Some(after) = &difference.change.after
            {
                let differs =
                    opened.with_tree(|view| differences(opened, view, options, &base, after))?;
                difference.kind = DifferenceKind::Renamed;
                difference.differs = differs;
                difference.old = Some(base.clone());
                difference.change.before = Some(base);
                difference.change.is_link = false;
            }
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

fn base_object(opened: &OpenSession, path: &MergedPath) -> Result<Option<BaseObject>> {
    let Some(path) = BasePath::from_bytes(&path.as_bytes()[1..]) else { return Ok(None) };
    match opened.base().stat(&path) {
        Ok(attr) => Ok(Some(BaseObject { path, attr })),
        Err(BaseError::NotFound) => Ok(None),
        Err(source) => Err(base_error(opened, &path, source)),
    }
}

/// Folds the differences into entries, sorted by path.
///
/// # Errors
/// The session or the base cannot be read.
pub fn entries(
    opened: &OpenSession,
    options: &DiffOptions,
    folding: FoldOptions,
    differences: Vec<Difference>,
) -> Result<Vec<FoldedLine>> {
    opened.with_tree(|view| {
        let mut folder = Folder::new(opened, view, options, folding, &differences);
        let rest = folder.dirs(differences)?;
        let rest = if folding.own { folder.own(rest)? } else { rest };
        let mut entries = folder.entries;
        entries.extend(rest.into_iter().map(|difference| FoldedLine::One(Box::new(difference))));
        entries.sort_by(|a, b| a.path().cmp(b.path()));
        Ok(entries)
    })
}

/// Expands the differences to one per path, sorted by path: each object in a deleted directory gets
/// its own.
///
/// # Errors
/// The session or the base cannot be read.
pub fn each_path(
    opened: &OpenSession,
    options: &DiffOptions,
    differences: Vec<Difference>,
) -> Result<Vec<Difference>> {
    let lines = entries(opened, options, FoldOptions { dirs: false, own: false }, differences)?;
    let one = |line| match line {
        FoldedLine::One(difference) => Some(*difference),
        FoldedLine::Folded(_) => None,
    };
    Ok(lines.into_iter().filter_map(one).collect())
}

impl FoldedLine {
    /// The path of the difference or of the folded directory.
    pub fn path(&self) -> &MergedPath {
        match self {
            Self::One(difference) => &difference.path,
            Self::Folded(folded) => &folded.path,
        }
    }

    /// The differences in the entry.
    fn differences(&self) -> &[Difference] {
        match self {
            Self::One(difference) => std::slice::from_ref(difference),
            Self::Folded(folded) => &folded.differences,
        }
    }
}

struct Folder<'a> {
    opened: &'a OpenSession,
    view: &'a TreeView<'a>,
    options: &'a DiffOptions,
    folding: FoldOptions,
    /// Base objects that were renamed.
    moved: BTreeSet<BasePath>,
    entries: Vec<FoldedLine>,
}

impl<'a> Folder<'a> {
    fn new(
        opened: &'a OpenSession,
        view: &'a TreeView<'a>,
        options: &'a DiffOptions,
        folding: FoldOptions,
        differences: &[Difference],
    ) -> Self {
        let moved =
            differences.iter().filter(|difference| difference.kind == DifferenceKind::Renamed);
        let moved = moved.filter_map(|d| Some(d.old.as_ref()?.path.clone())).collect();
        Self { opened, view, options, folding, moved, entries: Vec::new() }
    }

    /// Folds new and deleted directories; returns the other differences.
    fn dirs(&mut self, mut all: Vec<Difference>) -> Result<Vec<Difference>> {
        all.sort_by(by_components);
        let mut rest = Vec::new();
        let mut left = std::collections::VecDeque::from(all);
        while let Some(first) = left.pop_front() {
            let is_named = self.options.selection.paths().any(|path| path.is_within(&first.path));
            let is_folded = self.folding.dirs && !is_named;
            if is_removed_dir(&first) {
                self.removed(first, is_folded, &mut rest)?;
                continue;
            }
            let inside = left.iter().take_while(|d| d.path.is_within(&first.path)).count();
            let is_alike = |d: &Difference| d.kind == first.kind && d.change.replaced.is_none();
            let is_whole = is_alike(&first) && left.iter().take(inside).all(is_alike);
            let reason = match first.kind {
                DifferenceKind::Added => Some(Reason::Added),
                DifferenceKind::Deleted => Some(Reason::Deleted),
                _ => None,
            };
            let reason = reason.filter(|_| is_folded && inside > 0 && is_whole);
            let Some(reason) = reason else {
                rest.push(first);
                continue;
            };
            let path = first.path.clone();
            let differences: Vec<_> = std::iter::once(first).chain(left.drain(..inside)).collect();
            self.entries.push(FoldedLine::Folded(folded(path, reason, differences)));
        }
        Ok(rest)
    }

    /// Folds a deleted directory with its content, or adds one entry for each object in it.
    fn removed(
        &mut self,
        dir: Difference,
        is_folded: bool,
        rest: &mut Vec<Difference>,
    ) -> Result<()> {
        let Some(base) = dir.change.before.clone() else { return Ok(()) };
        let (mut paths, mut files, mut bytes, mut below) = (0, 0, 0, Vec::new());
        walk_base_past_denied(self.opened, &base, &mut |path, attr| {
            let is_dir = attr.kind == FileKind::Directory;
            let object = BaseObject { path: path.clone(), attr: attr.clone() };
            if self.is_elsewhere(&object)? {
                return Ok(false);
            }
            paths += 1;
            files += u64::from(!is_dir);
            bytes += if attr.kind == FileKind::Regular { attr.size } else { 0 };
            if !is_folded && *path != base.path {
                let path = MergedPath::of_base(path);
                let old = Some(object.clone());
                // A directory that has not drifted holds nothing that has.
                let change = match dir.change.has_drifted() {
                    true => self.view.gone(object, path.clone()).map_err(|e| at(&path, e))?,
                    false => Change::gone(object, path.clone()),
                };
                let (kind, differs) = (DifferenceKind::Deleted, ChangedFields::default());
                below.push(Difference { kind, differs, path, old, change });
            }
            Ok(true)
        })?;
        let (path, reason) = (dir.path.clone(), Reason::Deleted);
        match is_folded && files > 0 {
            true => {
                let differences = vec![dir];
                let only_times = 0;
                let folded = Folded { path, reason, paths, files, only_times, bytes, differences };
                self.entries.push(FoldedLine::Folded(folded));
            }
            false => {
                rest.push(dir);
                rest.append(&mut below);
            }
        }
        Ok(())
    }

    fn is_elsewhere(&self, object: &BaseObject) -> Result<bool> {
        if self.options.selection.is_everything() {
            return Ok(self.moved.contains(&object.path));
        }
        let path = MergedPath::of_base(&object.path);
        self.view.is_moved_away(object).map_err(|source| at(&path, source))
    }

    /// Folds files that git or context nodes own; returns the other differences.
    fn own(&mut self, all: Vec<Difference>) -> Result<Vec<Difference>> {
        let outside = self.opened.base_path().map(|path| path.as_os_str().as_bytes());
        let inside = self.entries.iter().flat_map(FoldedLine::differences);
        let paths = all.iter().chain(inside).map(|difference| &difference.path);
        let own = ToolOwnedFiles::find(self.view, outside, paths)?;
        let mut groups: BTreeMap<MergedPath, Folded> = BTreeMap::new();
        let mut rest = Vec::new();
        let group = |path: &MergedPath| {
            let (owner, root) = own.owner(path)?;
            Some((
                root.clone(),
                Folded {
                    path: root,
                    reason: Reason::Own(owner),
                    paths: 0,
                    files: 0,
                    only_times: 0,
                    bytes: 0,
                    differences: Vec::new(),
                },
            ))
        };
        for entry in std::mem::take(&mut self.entries) {
            match (group(entry.path()), entry) {
                (Some((root, new)), FoldedLine::Folded(folded)) => {
                    groups.entry(root).or_insert(new).take(folded);
                }
                (_, entry) => self.entries.push(entry),
            }
        }
        for difference in all {
            match group(&difference.path) {
                Some((root, new)) => {
                    let one = folded(root.clone(), new.reason, vec![difference]);
                    groups.entry(root).or_insert(new).take(one);
                }
                None => rest.push(difference),
            }
        }
        self.entries.extend(groups.into_values().map(FoldedLine::Folded));
        Ok(rest)
    }
}

impl Folded {
    fn take(&mut self, mut other: Self) {
        self.paths += other.paths;
        self.files += other.files;
        self.only_times += other.only_times;
        self.bytes += other.bytes;
        self.differences.append(&mut other.differences);
    }
}

/// Compares paths by their components: a directory comes right before everything in it.
fn by_components(a: &Difference, b: &Difference) -> std::cmp::Ordering {
    fn names(d: &Difference) -> impl Iterator<Item = &[u8]> {
        d.path.as_bytes().split(|&b| b == b'/')
    }
    names(a).cmp(names(b))
}

/// Whether a difference is a deleted base directory without a replacement at its path. It stands
/// for all that is in the directory.
fn is_removed_dir(difference: &Difference) -> bool {
    let before = difference.old.as_ref().filter(|_| difference.change.before.is_some());
    difference.kind == DifferenceKind::Deleted
        && before.is_some_and(|base| base.attr.kind == FileKind::Directory)
}

fn folded(path: MergedPath, reason: Reason, differences: Vec<Difference>) -> Folded {
    let paths = differences.len() as u64;
    let (mut files, mut only_times, mut bytes) = (0, 0, 0_u64);
    for difference in &differences {
        let (kind, size) = match (&difference.change.after, &difference.old) {
            (Some(after), _) => (after.attr().kind, after.attr().size),
            (None, Some(before)) => (before.attr.kind, before.attr.size),
            (None, None) => continue,
        };
        files += u64::from(kind != FileKind::Directory);
        if kind != FileKind::Directory && has_only_time(difference) {
            only_times += 1;
        } else if kind == FileKind::Regular {
            bytes = bytes.saturating_add(size);
        }
    }
    Folded { path, reason, paths, files, only_times, bytes, differences }
}

/// Whether an object differs only in its modification time.
fn has_only_time(difference: &Difference) -> bool {
    let ChangedFields { content, mode, owner, mtime } = difference.differs;
    difference.kind == DifferenceKind::Modified && mtime && !(content || mode || owner)
}
