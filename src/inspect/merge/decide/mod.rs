//! Decides, object by object, what a merge takes from the fork, and what is a conflict.

mod additions;

use std::collections::{BTreeMap, BTreeSet};

use super::content::{has_same_content, is_equal, merge_text};
use super::side::{ObjectId, Side, describe, is_gone, is_new, is_time_only, old_path};
use super::{MergeChoice, MergeConflict, MergeSide};
use crate::delta::MergedPath;
use crate::inspect::content::content;
use crate::inspect::diff::{Difference, DifferenceKind};
use crate::inspect::error::Result;
use crate::overlay::TreeObject;
use crate::vfs::{SetAttr, SetTime};

/// What a merge changes in the session.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    /// Objects to remove, with everything in them, by their paths at the fork point.
    pub removed: BTreeSet<MergedPath>,
    /// Objects of the session that give place to one of the fork, by their paths now.
    pub replaced: BTreeSet<MergedPath>,
    /// Objects to move: the path at the fork point, and the one in the fork.
    pub moved: BTreeMap<MergedPath, MergedPath>,
    /// Objects to change, by their paths at the fork point.
    pub edits: BTreeMap<MergedPath, ObjectEdit>,
    /// Objects to make, by their paths in the fork.
    pub added: BTreeMap<MergedPath, Addition>,
    /// Directories that both sides made: the path in the fork, and the one in the session.
    pub joined: BTreeMap<MergedPath, MergedPath>,
    pub conflicts: Vec<MergeConflict>,
    /// Choices at which the fork changed nothing.
    pub unused: Vec<MergedPath>,
}

/// What changes of an object.
#[derive(Debug)]
pub(super) struct ObjectEdit {
    /// The object in the fork.
    pub theirs: TreeObject,
    pub content: Option<NewContent>,
    pub set: SetAttr,
}

/// Where changed content comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewContent {
    /// The fork.
    Theirs,
    /// Both sides: the text is merged.
    Both,
}

/// How an object is made.
#[derive(Debug, Clone)]
pub(super) enum Addition {
    /// As a new object like the one of the fork.
    Object(Box<TreeObject>),
    /// As a hard link.
    Link(ObjectId),
}

/// Compares both sides.
///
/// # Errors
/// A side cannot be read.
pub(super) fn decide(
    ours: &Side<'_>,
    theirs: &Side<'_>,
    takes: &[MergeChoice],
) -> Result<Decisions> {
    let mut decider = Decider {
        ours,
        theirs,
        takes,
        used: BTreeSet::new(),
        kept: BTreeSet::new(),
        unchecked: Vec::new(),
        made: Decisions::default(),
    };
    for difference in &theirs.differences {
        decider.old_object(difference)?;
    }
    decider.keep_our_additions();
    decider.check_moves()?;
    for difference in theirs.differences.iter().filter(|difference| is_new(difference)) {
        decider.addition(difference)?;
    }
    // A choice may have added moves.
    decider.check_moves()?;
    decider.finish()
}

struct Decider<'a> {
    ours: &'a Side<'a>,
    theirs: &'a Side<'a>,
    takes: &'a [MergeChoice],
    /// The choices that decided anything.
    used: BTreeSet<usize>,
    /// Objects of the fork point that stay, though the fork removed them or what they are in.
    kept: BTreeSet<MergedPath>,
    /// Moves whose targets were not looked at.
    unchecked: Vec<(MergedPath, MergedPath)>,
    made: Decisions,
}

impl Decider<'_> {
    /// The side that the user took for a path: the choice for the path itself, or for the closest
    /// directory above.
    fn taken(&mut self, paths: &[&MergedPath]) -> Option<MergeSide> {
        let chosen = self.takes.iter().enumerate();
        let chosen = chosen.filter(|(_, take)| paths.iter().any(|path| path.is_within(&take.path)));
        let (at, take) = chosen.max_by_key(|(_, take)| take.path.as_bytes().len())?;
        self.used.insert(at);
        Some(take.side)
    }

    /// Whether the user wants the fork's side in a conflict; without a choice, notes it.
    fn takes_theirs(
        &mut self,
        (path, old): (&MergedPath, Option<&MergedPath>),
        (ours, theirs): (String, String),
    ) -> bool {
        let paths: Vec<_> = [path].into_iter().chain(old).collect();
        match self.taken(&paths) {
            Some(side) => side == MergeSide::Theirs,
            None => {
                let path = path.clone();
                self.made.conflicts.push(MergeConflict { path, ours, theirs });
                false
            }
        }
    }

    /// Decides what becomes of an object of the fork point that the fork changed.
    fn old_object(&mut self, theirs: &Difference) -> Result<()> {
        let Some(old) = old_path(theirs) else { return Ok(()) };
        if self.taken(&[&theirs.path, &old]) == Some(MergeSide::Ours) {
            self.kept.insert(old);
            return Ok(());
        }
        let ours = self.ours.change(&old);
        let is_deleted_here = ours.is_some_and(|ours| ours.kind == DifferenceKind::Deleted);
        match is_gone(theirs) {
            true => {
                let is_deleted = theirs.kind == DifferenceKind::Deleted;
                let removes = match ours {
                    None => true,
                    Some(_) if is_deleted_here && is_deleted => false,
                    Some(ours) if is_new(ours) && self.is_alike(ours, theirs)? => false,
                    Some(ours) => {
                        let both = (describe(ours), describe(theirs));
                        self.takes_theirs((&ours.path, Some(&old)), both)
                    }
                };
                if removes && !is_deleted_here {
                    self.made.removed.insert(old);
                }
                Ok(())
            }
            false => match ours {
                Some(ours) if is_gone(ours) => self.change_of_gone(theirs, ours),
                ours => self.change_of_both(theirs, ours, old),
            },
        }
    }

    /// Whether both sides have put equal objects in the place of one.
    fn is_alike(&self, ours: &Difference, theirs: &Difference) -> Result<bool> {
        match (&ours.change.after, &theirs.change.after) {
            (Some(a), Some(b)) => is_equal((self.ours, a), (self.theirs, b)),
            _ => Ok(false),
        }
    }

    /// The session removed or replaced an object that the fork changed.
    fn change_of_gone(&mut self, theirs: &Difference, ours: &Difference) -> Result<()> {
        if is_time_only(theirs) {
            return Ok(());
        }
        let both = (describe(ours), describe(theirs));
        if self.takes_theirs((&ours.path, Some(&theirs.path)), both) {
            self.remake(&theirs.path)?;
        }
        Ok(())
    }

    /// Makes an object as it is in the fork, with the directories above that the session removed.
    fn remake(&mut self, path: &MergedPath) -> Result<()> {
        let mut path = path.clone();
        while !self.made.added.contains_key(&path) {
            let Some(object) = self.theirs.find(&path)? else { return Ok(()) };
            if let Some(place) = self.place_now(&path)
                && self.ours.find(&place)?.is_some()
            {
                self.clear_place(place);
            }
            self.made.added.insert(path.clone(), Addition::Object(Box::new(object)));
            path = path.parent();
            match self.theirs.id_of(&path) {
                ObjectId::Old(dir) if self.ours.new_path(&dir).is_none() => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Frees a place for an object of the fork: what the session moved there moves to where the
    /// fork has it, and anything else goes.
    fn clear_place(&mut self, place: MergedPath) {
        if let ObjectId::Old(old) = self.ours.id_of(&place) {
            if self.made.removed.contains(&old) {
                return;
            }
            if let Some(theirs) = self.theirs.new_path(&old) {
                self.add_move(old, theirs);
                return;
            }
        }
        self.made.replaced.insert(place);
    }

    /// Both sides have an object that the fork changed.
    fn change_of_both(
        &mut self,
        theirs: &Difference,
        ours: Option<&Difference>,
        old: MergedPath,
    ) -> Result<()> {
        if theirs.kind == DifferenceKind::Renamed && self.moves(theirs, ours, &old) {
            self.add_move(old.clone(), theirs.path.clone());
        }
        let Some(after) = theirs.change.after.clone() else { return Ok(()) };
        let Some(path) = self.ours.new_path(&old) else { return Ok(()) };
        let Some(here) = self.ours.find(&path)? else { return Ok(()) };
        let ours = ours.map(|ours| ours.differs).unwrap_or_default();
        let (differs, their, our) = (theirs.differs, after.attr(), here.attr());
        let mut edit = ObjectEdit { theirs: after.clone(), content: None, set: SetAttr::default() };
        let is_same = || has_same_content((self.ours.new, &here), (self.theirs.new, &after));
        if differs.content && !(ours.content && is_same()?) {
            edit.content = match ours.content {
                false => Some(NewContent::Theirs),
                true => match self.text(&old, &here, &after)? {
                    Some(changes) => changes.then_some(NewContent::Both),
                    None => {
                        let both = ("content changed".to_owned(), "content changed".to_owned());
                        self.takes_theirs((&path, Some(&old)), both).then_some(NewContent::Theirs)
                    }
                },
            };
        }
        if differs.mode && their.mode != our.mode {
            let both = (format!("mode {:o}", our.mode), format!("mode {:o}", their.mode));
            if !ours.mode || self.takes_theirs((&path, Some(&old)), both) {
                edit.set.mode = Some(their.mode);
            }
        }
        if differs.owner && (their.uid, their.gid) != (our.uid, our.gid) {
            let owner = |uid, gid| format!("owner {uid}:{gid}");
            let both = (owner(our.uid, our.gid), owner(their.uid, their.gid));
            if !ours.owner || self.takes_theirs((&path, Some(&old)), both) {
                (edit.set.uid, edit.set.gid) = (Some(their.uid), Some(their.gid));
            }
        }
        let is_theirs = edit.content == Some(NewContent::Theirs);
        let is_touched = differs.mtime && edit.content.is_none() && !ours.content && !ours.mtime;
        if is_theirs || is_touched && their.mtime != our.mtime {
            edit.set.mtime = SetTime::To(their.mtime);
        }
        if edit.content.is_some() || edit.set != SetAttr::default() {
            self.made.edits.insert(old, edit);
        }
        Ok(())
    }

    /// Whether the text that both sides' changes make is another one than the session's; `None` if
    /// they do not merge.
    fn text(
        &self,
        old: &MergedPath,
        ours: &TreeObject,
        theirs: &TreeObject,
    ) -> Result<Option<bool>> {
        let Some(before) = self.ours.find_old(old)? else { return Ok(None) };
        let merged =
            merge_text((self.ours.old, &before), (self.ours.new, ours), (self.theirs.new, theirs));
        let Some(merged) = merged? else { return Ok(None) };
        Ok(Some(merged != content(self.ours.new, ours)?))
    }

    /// Whether an object moves to where the fork has it.
    fn moves(&mut self, theirs: &Difference, ours: Option<&Difference>, old: &MergedPath) -> bool {
        let Some(ours) = ours.filter(|ours| ours.kind == DifferenceKind::Renamed) else {
            return true;
        };
        let is_same = self.is_same_place(&ours.path, &theirs.path);
        let both = (describe(ours), describe(theirs));
        !is_same && self.takes_theirs((&ours.path, Some(old)), both)
    }

    /// Whether a path of the session and one of the fork are the same place, also in a directory
    /// that both made.
    fn is_same_place(&self, ours: &MergedPath, theirs: &MergedPath) -> bool {
        if ours.name() != theirs.name() {
            return false;
        }
        let (our_dir, their_dir) = (ours.parent(), theirs.parent());
        match (self.ours.id_of(&our_dir), self.theirs.id_of(&their_dir)) {
            (ObjectId::Old(ours), ObjectId::Old(theirs)) => ours == theirs,
            (ObjectId::New(ours), ObjectId::New(theirs)) => self.is_same_place(&ours, &theirs),
            _ => false,
        }
    }

    /// Keeps directories that the fork removed if the session added something to them.
    fn keep_our_additions(&mut self) {
        for ours in &self.ours.differences {
            if !is_new(ours) && ours.kind != DifferenceKind::Renamed {
                continue;
            }
            for dir in ours.path.above() {
                let ObjectId::Old(old) = self.ours.id_of(&dir) else { continue };
                if self.made.removed.contains(&old) {
                    let both = (describe(ours), format!("deleted {}", old.display()));
                    if !self.takes_theirs((&ours.path, None), both) {
                        self.kept.insert(old);
                    }
                }
                break;
            }
        }
        for kept in &self.kept {
            self.made.removed.remove(kept);
            for dir in kept.above() {
                self.made.removed.remove(&dir);
            }
        }
    }

    /// Looks at the places to which objects move.
    fn check_moves(&mut self) -> Result<()> {
        while let Some((old, to)) = self.unchecked.pop() {
            let theirs = format!("moved to {}", to.display());
            if self.is_circle(&old, &to) {
                let ours = "what would hold it was moved into it".to_owned();
                if self.takes_theirs((&to, Some(&old)), (ours, theirs)) {
                    self.give_up_moves_above(&to);
                }
                continue;
            }
            if !self.ensure_dir(&to, &theirs)? {
                continue;
            }
            let Some(place) = self.place_now(&to) else { continue };
            if self.ours.new_path(&old).as_ref() != Some(&place)
                && self.ours.find(&place)?.is_some()
                && !self.is_vacated(&place)
            {
                let both = ("another object is there".to_owned(), theirs);
                if self.takes_theirs((&place, Some(&to)), both) {
                    self.clear_place(place);
                }
            }
        }
        Ok(())
    }

    fn add_move(&mut self, old: MergedPath, to: MergedPath) {
        if self.made.moved.insert(old.clone(), to.clone()).as_ref() != Some(&to) {
            self.unchecked.push((old, to));
        }
    }

    /// Whether an object would be moved into itself.
    fn is_circle(&self, old: &MergedPath, to: &MergedPath) -> bool {
        let mut seen = BTreeSet::from([old.clone()]);
        let mut dir = self.theirs.id_of(&to.parent());
        while let ObjectId::Old(above) = dir {
            if above.name().is_none() {
                return false;
            }
            if !seen.insert(above.clone()) {
                return true;
            }
            dir = match self.made.moved.get(&above) {
                Some(to) => self.theirs.id_of(&to.parent()),
                None => match self.ours.new_path(&above) {
                    Some(path) => self.ours.id_of(&path.parent()),
                    None => return false,
                },
            };
        }
        false
    }

    /// Moves the directories above a path of the fork to where the fork has them.
    fn give_up_moves_above(&mut self, path: &MergedPath) {
        for dir in path.above() {
            if let ObjectId::Old(old) = self.theirs.id_of(&dir)
                && self.ours.change(&old).is_some_and(|ours| ours.kind == DifferenceKind::Renamed)
            {
                self.add_move(old, dir);
            }
        }
    }

    /// Whether the directory of a path of the fork is there, or the user takes it back; notes a
    /// conflict otherwise.
    fn ensure_dir(&mut self, path: &MergedPath, theirs: &str) -> Result<bool> {
        let dir = path.parent();
        let ObjectId::Old(old) = self.theirs.id_of(&dir) else { return Ok(true) };
        if self.ours.new_path(&old).is_some() || self.made.added.contains_key(&dir) {
            return Ok(true);
        }
        let both = (format!("deleted {}", old.display()), theirs.to_owned());
        let remakes = self.takes_theirs((path, None), both);
        if remakes {
            self.remake(&dir)?;
        }
        Ok(remakes)
    }

    /// Where a path of the fork is in the session now; `None` if its directory is not there.
    fn place_now(&self, path: &MergedPath) -> Option<MergedPath> {
        let dir = match self.theirs.id_of(&path.parent()) {
            ObjectId::Old(old) => self.ours.new_path(&old)?,
            ObjectId::New(dir) => self.made.joined.get(&dir)?.clone(),
        };
        path.name().map(|name| dir.join(&name))
    }

    /// Whether the object at a path of the session moves away or goes.
    fn is_vacated(&self, path: &MergedPath) -> bool {
        let ObjectId::Old(old) = self.ours.id_of(path) else { return false };
        self.made.removed.contains(&old) || self.made.moved.contains_key(&old)
    }

    fn finish(mut self) -> Result<Decisions> {
        let takes = self.takes.iter().enumerate();
        let unused = takes.filter(|(at, _)| !self.used.contains(at));
        self.made.unused = unused.map(|(_, take)| take.path.clone()).collect();
        self.made.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(self.made)
    }
}
