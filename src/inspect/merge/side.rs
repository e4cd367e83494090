//! What one side of a merge changed since the fork point.

use std::collections::{BTreeMap, BTreeSet};

use crate::delta::MergedPath;
use crate::inspect::between::TreeDifferences;
use crate::inspect::diff::{ChangedFields, Difference, DifferenceKind, at};
use crate::inspect::error::Result;
use crate::overlay::{Change, TreeObject, TreeView};
use crate::vfs::{FileId, FileKind, FsError};

/// An object, as both sides know it: by its path at the fork point, or by the path on the one side
/// that made it since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ObjectId {
    Old(MergedPath),
    New(MergedPath),
}

/// A side's tree at the fork point, and now.
type Views<'a> = (&'a TreeView<'a>, &'a TreeView<'a>);

/// One side: its tree at the fork point and now, and the differences.
pub(super) struct Side<'a> {
    pub old: &'a TreeView<'a>,
    pub new: &'a TreeView<'a>,
    pub differences: Vec<Difference>,
    by_old: BTreeMap<MergedPath, usize>,
    by_new: BTreeMap<MergedPath, usize>,
    /// Names at the fork point that are gone, by the numbers of their objects.
    gone_names: BTreeMap<FileId, MergedPath>,
}

/// A name of a file at the fork point, and now.
type ChangedName = (Option<MergedPath>, Option<MergedPath>);

impl<'a> Side<'a> {
    /// Both sides of a merge.
    ///
    /// # Errors
    /// A side cannot be read.
    pub fn both(
        ours: (Views<'a>, TreeDifferences),
        theirs: (Views<'a>, TreeDifferences),
    ) -> Result<(Self, Self)> {
        let (ours, theirs) = (Self::new(ours.0, ours.1.all), Self::new(theirs.0, theirs.1.all));
        let names = [ours.changed_names(), theirs.changed_names()];
        let mut linked = BTreeSet::new();
        for difference in ours.differences.iter().chain(&theirs.differences) {
            let Some(before) = difference.old.as_ref() else { continue };
            let old = MergedPath::of_base(&before.path);
            let number = before.attr.fileid;
            // Where one side alone changed the names, or both alike, the file moves with its name.
            let is_open = names.iter().all(|names| names.contains_key(&number))
                && names[0].get(&number) != names[1].get(&number);
            if difference.kind == DifferenceKind::Renamed
                && is_open
                && (ours.is_linked(&old)? || theirs.is_linked(&old)?)
            {
                linked.insert(old);
            }
        }
        let with_names = |side: Self| {
            let names = |difference| of_names(difference, &linked);
            let mut all: Vec<_> = side.differences.into_iter().flat_map(names).collect();
            all.sort_by(|a, b| a.path.cmp(&b.path));
            Self::new((side.old, side.new), all)
        };
        Ok((with_names(ours), with_names(theirs)))
    }

    fn new((old, new): Views<'a>, differences: Vec<Difference>) -> Self {
        let (mut by_old, mut by_new) = (BTreeMap::new(), BTreeMap::new());
        let mut gone_names = BTreeMap::new();
        for (at, difference) in differences.iter().enumerate() {
            if let Some(before) = difference.old.as_ref().filter(|_| is_gone(difference)) {
                gone_names.insert(before.attr.fileid, MergedPath::of_base(&before.path));
            }
            if let Some(old) = old_path(difference) {
                by_old.insert(old, at);
            }
            if difference.kind != DifferenceKind::Deleted {
                by_new.insert(difference.path.clone(), at);
            }
        }
        Self { old, new, differences, by_old, by_new, gone_names }
    }

    /// The names that files lost and got, by their numbers: pairs of a path at the fork point and
    /// one now.
    fn changed_names(&self) -> BTreeMap<FileId, BTreeSet<ChangedName>> {
        let mut all: BTreeMap<FileId, BTreeSet<ChangedName>> = BTreeMap::new();
        for difference in &self.differences {
            let (old, new) = (old_path(difference), Some(difference.path.clone()));
            let before = difference.old.as_ref().map(|old| old.attr.fileid);
            let after = difference.change.after.as_ref().map(|after| after.attr().fileid);
            let mut add = |number: Option<FileId>, name| {
                if let Some(number) = number {
                    all.entry(number).or_default().insert(name);
                }
            };
            if difference.kind == DifferenceKind::Renamed {
                add(before, (old, new));
                continue;
            }
            if is_gone(difference) {
                add(before, (old, None));
            }
            if is_new(difference) {
                add(after, (None, new));
            }
        }
        all
    }

    /// A name at the fork point that a file lost which is still there: the file is an older one,
    /// though the name by which it is looked at is new.
    pub fn lost_name(&self, object: &TreeObject) -> Option<&MergedPath> {
        self.gone_names.get(&object.attr().fileid)
    }

    /// Whether a file of the fork point had or has several names.
    fn is_linked(&self, old: &MergedPath) -> Result<bool> {
        let now = self.new_path(old).map(|path| self.find(&path)).transpose()?.flatten();
        let both = [self.find_old(old)?, now];
        let is_linked = |object: &TreeObject| {
            object.attr().kind != FileKind::Directory && object.attr().nlink > 1
        };
        Ok(both.iter().flatten().any(is_linked))
    }

    /// What the side changed of an object of the fork point itself; that another time was set is no
    /// change.
    pub fn change(&self, old: &MergedPath) -> Option<&Difference> {
        let change = self.by_old.get(old).map(|at| &self.differences[*at]);
        change.filter(|change| !is_time_only(change))
    }

    /// What the side added at a path, also in place of an object of another type.
    pub fn added(&self, new: &MergedPath) -> Option<&Difference> {
        let change = self.by_new.get(new).map(|at| &self.differences[*at]);
        change.filter(|change| is_new(change))
    }

    /// The path that an object of the fork point has now; `None` if it is gone.
    pub fn new_path(&self, old: &MergedPath) -> Option<MergedPath> {
        match self.by_old.get(old).map(|at| &self.differences[*at]) {
            Some(change) if is_gone(change) => None,
            Some(change) => Some(change.path.clone()),
            None => match old.name() {
                Some(name) => Some(self.new_path(&old.parent())?.join(&name)),
                None => Some(old.clone()),
            },
        }
    }

    /// The path to which this side moved an object itself, and not only a directory above.
    pub fn moved_to(&self, old: &MergedPath) -> Option<MergedPath> {
        let moved = self.by_old.get(old).map(|at| &self.differences[*at]);
        let moved = moved.filter(|change| change.kind == DifferenceKind::Renamed);
        moved.map(|change| change.path.clone())
    }

    /// The object that is at a path now.
    pub fn id_of(&self, new: &MergedPath) -> ObjectId {
        if let Some(at) = self.by_new.get(new) {
            let change = &self.differences[*at];
            return match old_path(change) {
                Some(old) if !is_new(change) => ObjectId::Old(old),
                _ => ObjectId::New(new.clone()),
            };
        }
        let Some(name) = new.name() else { return ObjectId::Old(new.clone()) };
        match self.id_of(&new.parent()) {
            ObjectId::Old(dir) => ObjectId::Old(dir.join(&name)),
            ObjectId::New(dir) => ObjectId::New(dir.join(&name)),
        }
    }

    pub fn find(&self, new: &MergedPath) -> Result<Option<TreeObject>> {
        find(self.new, new)
    }

    pub fn find_old(&self, old: &MergedPath) -> Result<Option<TreeObject>> {
        find(self.old, old)
    }
}

/// A difference as those of names: where both sides changed the names of a file, it is open which
/// one moved, so one went and another came.
fn of_names(difference: Difference, linked: &BTreeSet<MergedPath>) -> Vec<Difference> {
    let old = old_path(&difference).filter(|_| difference.kind == DifferenceKind::Renamed);
    let Some(old) = old.filter(|old| linked.contains(old)) else { return vec![difference] };
    let gone = Difference {
        kind: DifferenceKind::Deleted,
        differs: ChangedFields::default(),
        old: difference.old.clone(),
        path: old.clone(),
        change: Change::at(old),
    };
    vec![gone, Difference { kind: DifferenceKind::Added, old: None, ..difference }]
}

fn find(view: &TreeView<'_>, path: &MergedPath) -> Result<Option<TreeObject>> {
    match view.find(path) {
        Ok(found) => Ok(found),
        Err(FsError::NotDirectory | FsError::NotFound) => Ok(None),
        Err(source) => Err(at(path, source)),
    }
}

/// The path of a difference's object at the fork point.
pub(super) fn old_path(difference: &Difference) -> Option<MergedPath> {
    difference.old.as_ref().map(|old| MergedPath::of_base(&old.path))
}

/// Whether the object is another one than at the fork point, or was not there.
pub(super) fn is_new(difference: &Difference) -> bool {
    difference.kind == DifferenceKind::Added || is_replaced(difference)
}

/// Whether the object of the fork point is not there any more.
pub(super) fn is_gone(difference: &Difference) -> bool {
    difference.kind == DifferenceKind::Deleted || is_replaced(difference)
}

/// Whether the object has the place of one of another type, or of a file with several names, or is
/// a further name of another file. Else a new file in place of another is taken for new content.
fn is_replaced(difference: &Difference) -> bool {
    let (before, after) = (difference.old.as_ref(), difference.change.after.as_ref());
    match (difference.kind, before, after) {
        (DifferenceKind::Retyped, ..) => true,
        (DifferenceKind::Modified, Some(before), Some(after)) => {
            let is_linked = before.attr.nlink > 1 || after.attr().nlink > 1;
            before.attr.fileid != after.attr().fileid && is_linked
        }
        _ => false,
    }
}

pub(super) fn is_time_only(difference: &Difference) -> bool {
    let differs = difference.differs;
    difference.kind == DifferenceKind::Modified
        && !differs.content
        && !differs.mode
        && !differs.owner
}

/// What a conflict says of one side's change.
pub(super) fn describe(difference: &Difference) -> String {
    let differs = difference.differs;
    let kind = match difference.kind {
        _ if is_replaced(difference) => "replaced by another object",
        DifferenceKind::Added => "added",
        DifferenceKind::Deleted => "deleted",
        DifferenceKind::Renamed => return format!("moved to {}", difference.path.display()),
        DifferenceKind::Modified if differs.content => "content changed",
        DifferenceKind::Modified if differs.mode => "mode changed",
        DifferenceKind::Modified if differs.owner => "owner changed",
        DifferenceKind::Modified | DifferenceKind::Retyped => "changed",
    };
    kind.to_owned()
}
