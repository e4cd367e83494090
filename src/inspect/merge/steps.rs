//! The steps that make the decided changes, in an order in which each is possible.
//!
//! If a target is not free yet, all that moves waits in a temporary directory first. Then what goes
//! is removed; what is made and what moves gets its place, a directory before what is in it; then
//! content and attributes change.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::content::merge_text;
use super::decide::{Addition, Decisions, NewContent, ObjectEdit};
use super::side::{ObjectId, Side};
use crate::delta::MergedPath;
use crate::inspect::content::{TreeFile, each_differing};
use crate::inspect::diff::at;
use crate::inspect::error::Result;
use crate::overlay::{ChangeStep, TreeObject};
use crate::vfs::{FileKind, FsError, Name, NewNode, SetAttr, SetTime};

/// Takes one step.
pub(super) type EachStep<'a> = dyn FnMut(ChangeStep) -> Result<()> + 'a;

/// The name of the temporary directory; a number may follow.
const PARKING: &[u8] = b".acetate-merge";

/// The most bytes of content in a step.
const MAX_STEP_BYTES: usize = 1 << 20;

/// The bits of a mode that a change of content may clear.
const SETID: u32 = 0o6000;

/// Calls `each` for each step.
///
/// # Errors
/// A side cannot be read, or an error of `each`.
pub(super) fn steps(
    (ours, theirs): (&Side<'_>, &Side<'_>),
    decided: &Decisions,
    each: &mut EachStep<'_>,
) -> Result<()> {
    let mut planner = StepPlanner {
        ours,
        theirs,
        decided,
        each,
        renamed: Vec::new(),
        parked: BTreeMap::new(),
        placed: BTreeMap::new(),
    };
    let parking = planner.park()?;
    planner.remove()?;
    planner.place()?;
    for (old, edit) in &decided.edits {
        planner.edit(old, edit)?;
    }
    planner.set_dirs()?;
    parking.map_or(Ok(()), |parking| (planner.each)(ChangeStep::Remove(parking)))
}

struct StepPlanner<'a, 'e> {
    ours: &'a Side<'a>,
    theirs: &'a Side<'a>,
    decided: &'a Decisions,
    each: &'a mut EachStep<'e>,
    /// Renames so far: old and new path.
    renamed: Vec<(MergedPath, MergedPath)>,
    /// Where moving objects wait, by their paths at the fork point.
    parked: BTreeMap<MergedPath, MergedPath>,
    /// Where objects of the fork are, by their paths there: a path, and how many renames came
    /// before it was right.
    placed: BTreeMap<MergedPath, (MergedPath, usize)>,
}

impl StepPlanner<'_, '_> {
    /// Where a path of the session is after the renames so far.
    fn now(&self, path: &MergedPath) -> MergedPath {
        self.after(path, 0)
    }

    /// Where a path is after all renames but the first `count`.
    fn after(&self, path: &MergedPath, count: usize) -> MergedPath {
        let mut path = path.clone();
        for (from, to) in &self.renamed[count..] {
            if path.is_within(from) {
                let rest = &path.as_bytes()[from.as_bytes().len()..];
                let moved = MergedPath::from_bytes(&[to.as_bytes(), rest].concat());
                path = moved.unwrap_or(path);
            }
        }
        path
    }

    /// Where an object of the fork point is now; `None` if the session does not have it.
    fn old_now(&self, old: &MergedPath) -> Option<MergedPath> {
        self.ours.new_path(old).map(|path| self.now(&path))
    }

    /// Where an object of the fork is that was placed.
    fn placed_now(&self, path: &MergedPath) -> Option<MergedPath> {
        self.placed.get(path).map(|(path, count)| self.after(path, *count))
    }

    fn put(&mut self, path: &MergedPath, target: &MergedPath) {
        self.placed.insert(path.clone(), (target.clone(), self.renamed.len()));
    }

    fn rename(&mut self, from: MergedPath, to: MergedPath) -> Result<()> {
        (self.each)(ChangeStep::Rename(from.clone(), to.clone()))?;
        self.renamed.push((from, to));
        Ok(())
    }

    /// Moves what is to move into a temporary directory, if it must leave its place first. Returns
    /// that directory.
    fn park(&mut self) -> Result<Option<MergedPath>> {
        if !self.needs_parking()? {
            return Ok(None);
        }
        let parking = self.free_name()?;
        (self.each)(ChangeStep::MakeNode(parking.clone(), NewNode::Directory))?;
        let decided = self.decided;
        // What is deeper leaves first.
        for (number, old) in decided.moved.keys().rev().enumerate() {
            let Some(from) = self.old_now(old) else { continue };
            let to = parking.join(&name(number.to_string().as_bytes(), &parking)?);
            self.rename(from, to.clone())?;
            self.parked.insert(old.clone(), to);
        }
        Ok(Some(parking))
    }

    fn needs_parking(&self) -> Result<bool> {
        let decided = self.decided;
        for (old, to) in &decided.moved {
            if old.above().any(|dir| decided.removed.contains(&dir)) || self.is_taken(to)? {
                return Ok(true);
            }
            let is_replaced = |path: &MergedPath| {
                path.above().chain([path.clone()]).any(|path| decided.replaced.contains(&path))
            };
            if self.ours.new_path(old).is_some_and(|path| is_replaced(&path)) {
                return Ok(true);
            }
        }
        for path in decided.added.keys().filter(|_| !decided.moved.is_empty()) {
            if self.is_taken(path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the session has an object where one of the fork goes.
    fn is_taken(&self, path: &MergedPath) -> Result<bool> {
        let dir = match self.theirs.id_of(&path.parent()) {
            ObjectId::Old(old) => self.ours.new_path(&old),
            ObjectId::New(dir) => self.decided.joined.get(&dir).cloned(),
        };
        let Some((dir, name)) = dir.zip(path.name()) else { return Ok(false) };
        Ok(self.ours.find(&dir.join(&name))?.is_some())
    }

    fn free_name(&self) -> Result<MergedPath> {
        let mut number = 0;
        loop {
            let text = match number {
                0 => PARKING.to_vec(),
                number => [PARKING, number.to_string().as_bytes()].concat(),
            };
            let root = MergedPath::root();
            let path = root.join(&name(&text, &root)?);
            if self.ours.find(&path)?.is_none() && self.theirs.find(&path)?.is_none() {
                return Ok(path);
            }
            number += 1;
        }
    }

    fn remove(&mut self) -> Result<()> {
        let decided = self.decided;
        for path in &decided.replaced {
            let path = self.now(path);
            (self.each)(ChangeStep::Remove(path))?;
        }
        for old in &decided.removed {
            let is_with_dir = old.above().any(|dir| decided.removed.contains(&dir));
            let Some(path) = self.old_now(old).filter(|_| !is_with_dir) else { continue };
            (self.each)(ChangeStep::Remove(path))?;
        }
        Ok(())
    }

    /// Makes what the fork has, and moves objects to where it has them.
    fn place(&mut self) -> Result<()> {
        let decided = self.decided;
        for (path, here) in &decided.joined {
            let here = self.now(here);
            self.put(path, &here);
        }
        let moved = decided.moved.iter().map(|(old, to)| (to, PlacedObject::Moved(old)));
        let added =
            decided.added.iter().map(|(path, addition)| (path, PlacedObject::Added(addition)));
        let all: BTreeMap<_, _> = moved.chain(added).collect();
        for (path, object) in all {
            let target = self.target(path)?;
            match object {
                PlacedObject::Moved(old) => {
                    let Some(from) = self.old_now(old) else { continue };
                    if from != target {
                        self.rename(from, target)?;
                    }
                }
                PlacedObject::Added(Addition::Link(other)) => {
                    let from = match other {
                        ObjectId::Old(old) => self.old_now(old),
                        ObjectId::New(new) => self.placed_now(new),
                    };
                    let from = from.ok_or_else(|| at(path, FsError::NotFound))?;
                    self.put(path, &target);
                    (self.each)(ChangeStep::Link(from, target))?;
                }
                PlacedObject::Added(Addition::Object(object)) => {
                    self.put(path, &target);
                    self.make(object, target)?;
                }
            }
        }
        Ok(())
    }

    /// Where an object of the fork goes.
    fn target(&self, path: &MergedPath) -> Result<MergedPath> {
        let above = path.parent();
        let dir = match (self.placed_now(&above), self.theirs.id_of(&above)) {
            (Some(placed), _) => Some(placed),
            (None, ObjectId::Old(old)) => self.old_now(&old),
            (None, ObjectId::New(_)) => None,
        };
        let target = dir.zip(path.name()).map(|(dir, name)| dir.join(&name));
        target.ok_or_else(|| at(path, FsError::NotFound))
    }

    fn make(&mut self, object: &TreeObject, target: MergedPath) -> Result<()> {
        let attr = object.attr();
        if attr.kind == FileKind::Regular {
            (self.each)(ChangeStep::MakeFile(target.clone()))?;
            self.write_new(object, &target)?;
        } else {
            let node = self.node(object)?;
            (self.each)(ChangeStep::MakeNode(target.clone(), node))?;
        }
        match attr.kind {
            FileKind::Directory => Ok(()),
            _ => (self.each)(ChangeStep::Set(target, attributes(object))),
        }
    }

    fn node(&self, object: &TreeObject) -> Result<NewNode> {
        let rdev = object.attr().rdev;
        Ok(match object.attr().kind {
            FileKind::Directory => NewNode::Directory,
            FileKind::Symlink => {
                let target = self.theirs.new.target(object);
                NewNode::Symlink(target.map_err(|source| at(object.path(), source))?)
            }
            FileKind::Block => NewNode::Block(rdev),
            FileKind::Character => NewNode::Character(rdev),
            FileKind::Socket => NewNode::Socket,
            FileKind::Fifo | FileKind::Regular => NewNode::Fifo,
        })
    }

    /// Writes the content of a file of the fork into an empty one.
    fn write_new(&mut self, file: &TreeObject, target: &MergedPath) -> Result<()> {
        let view = self.theirs.new;
        let mut piece = vec![0; MAX_STEP_BYTES];
        let mut end = 0;
        let failed = |source| at(file.path(), source);
        while let Some(data) = view.next_data(file, end).map_err(failed)? {
            let most = usize::try_from(data.end - data.start).unwrap_or(usize::MAX);
            let got = view.read(file, data.start, &mut piece[..most.min(MAX_STEP_BYTES)]);
            let got = got.map_err(failed)?;
            if got == 0 {
                break;
            }
            let bytes = Bytes::copy_from_slice(&piece[..got]);
            (self.each)(ChangeStep::Write(target.clone(), data.start, bytes))?;
            end = data.start + got as u64;
        }
        match file.attr().size {
            size if size > end => (self.each)(resize(target, size)),
            _ => Ok(()),
        }
    }

    fn edit(&mut self, old: &MergedPath, edit: &ObjectEdit) -> Result<()> {
        let Some(path) = self.ours.new_path(old) else { return Ok(()) };
        let Some(here) = self.ours.find(&path)? else { return Ok(()) };
        let (target, mut set) = (self.now(&path), edit.set);
        match edit.content {
            None => {}
            Some(_) if here.attr().kind != FileKind::Regular => {
                // A link or a device does not change: another one takes its place.
                (self.each)(ChangeStep::Remove(target.clone()))?;
                return self.make(&edit.theirs, target);
            }
            Some(from) => {
                self.write_over((old, &here), (&edit.theirs, from), &target)?;
                let mode = set.mode.unwrap_or(here.attr().mode);
                set.mode = set.mode.or((mode & SETID != 0).then_some(mode));
            }
        }
        match set == SetAttr::default() {
            true => Ok(()),
            false => (self.each)(ChangeStep::Set(target, set)),
        }
    }

    /// Replaces the content of a file of the session.
    fn write_over(
        &mut self,
        (old, here): (&MergedPath, &TreeObject),
        (theirs, from): (&TreeObject, NewContent),
        target: &MergedPath,
    ) -> Result<()> {
        let (ours, fork) = (self.ours.new, self.theirs.new);
        if from == NewContent::Both {
            let before = self.ours.find_old(old)?;
            let before = before.ok_or_else(|| at(old, FsError::NotFound))?;
            let before = TreeFile(self.ours.old, &before);
            let text = merge_text(before, TreeFile(ours, here), TreeFile(fork, theirs))?;
            let text = text.ok_or_else(|| at(target, FsError::TryLater))?;
            for (number, piece) in text.chunks(MAX_STEP_BYTES).enumerate() {
                let offset = (number * MAX_STEP_BYTES) as u64;
                let piece = Bytes::copy_from_slice(piece);
                (self.each)(ChangeStep::Write(target.clone(), offset, piece))?;
            }
            return match text.len() as u64 == here.attr().size {
                true => Ok(()),
                false => (self.each)(resize(target, text.len() as u64)),
            };
        }
        let size = theirs.attr().size;
        if size < here.attr().size {
            (self.each)(resize(target, size))?;
        }
        let each = &mut *self.each;
        let (here_file, fork_file) = (TreeFile(ours, here), TreeFile(fork, theirs));
        each_differing(&here_file, &fork_file, size, &mut |offset, piece| {
            each(ChangeStep::Write(target.clone(), offset, Bytes::copy_from_slice(piece)))?;
            Ok(ControlFlow::Continue(()))
        })?;
        match size > here.attr().size {
            true => (self.each)(resize(target, size)),
            false => Ok(()),
        }
    }

    /// Gives new directories their attributes, once everything is in them.
    fn set_dirs(&mut self) -> Result<()> {
        for (path, addition) in self.decided.added.iter().rev() {
            let Addition::Object(object) = addition else { continue };
            if object.attr().kind == FileKind::Directory
                && let Some(target) = self.placed_now(path)
            {
                (self.each)(ChangeStep::Set(target, attributes(object)))?;
            }
        }
        Ok(())
    }
}

enum PlacedObject<'a> {
    Moved(&'a MergedPath),
    Added(&'a Addition),
}

fn resize(path: &MergedPath, size: u64) -> ChangeStep {
    ChangeStep::Set(path.clone(), SetAttr { size: Some(size), ..SetAttr::default() })
}

fn attributes(object: &TreeObject) -> SetAttr {
    let attr = object.attr();
    SetAttr {
        mode: (attr.kind != FileKind::Symlink).then_some(attr.mode),
        uid: Some(attr.uid),
        gid: Some(attr.gid),
        mtime: SetTime::To(attr.mtime),
        ..SetAttr::default()
    }
}

fn name(text: &[u8], dir: &MergedPath) -> Result<Name> {
    Name::new(text).map_err(|source| at(dir, source.into()))
}
