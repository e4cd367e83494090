//! Many changes by path in one transaction: all or none.

use std::io;

use bytes::Bytes;

use crate::delta::{CheckpointId, MadeCheckpoint, MergedPath, NewCheckpoint, StoreError};
use crate::vfs::{Caller, CreateHow, FileKind, FsError, Locator, Name, NewNode, SetAttr};

use super::discard::refuse_during_apply;
use super::needed_dirs::TreeChangeError;
use super::tree::{TreeObject, TreeView};
use crate::overlay::Overlay;
use crate::overlay::cache::Invalidation;
use crate::overlay::create::{create_in, make_node_in};
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::link::link;
use crate::overlay::remove::{remove, rmdir};
use crate::overlay::rename::rename;
use crate::overlay::setattr::setattr;
use crate::overlay::write::write;

/// One change. Parent directories must exist, and new paths must be free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeStep {
    /// Creates an empty regular file.
    MakeFile(MergedPath),
    /// Creates another object.
    MakeNode(MergedPath, NewNode),
    /// Creates a hard link: existing path, new path.
    Link(MergedPath, MergedPath),
    /// Renames an object: old path, new path.
    Rename(MergedPath, MergedPath),
    /// Removes an object, with everything in it.
    Remove(MergedPath),
    /// Writes into a regular file from a byte on.
    Write(MergedPath, u64, Bytes),
    /// Sets attributes.
    Set(MergedPath, SetAttr),
}

/// A source of steps that can be read more than once.
pub trait ChangeSteps: Send {
    /// Goes back to the first step.
    ///
    /// # Errors
    /// The source cannot be read.
    fn restart(&mut self) -> io::Result<()>;

    /// The next step; `None` at the end.
    ///
    /// # Errors
    /// The source cannot be read.
    fn next(&mut self) -> io::Result<Option<ChangeStep>>;
}

/// What taking steps came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepsOutcome {
    /// All were taken.
    Done {
        /// The checkpoint of the tree before.
        before: CheckpointId,
        /// The number of steps.
        steps: u64,
    },
    /// Something changed since the user looked.
    ChangedSince,
}

impl Overlay {
    /// Takes the steps in order, in one change that is synced before this returns, unless a row of
    /// the audit log after `seen` changed anything. The tree as it is gets the checkpoint `safety`
    /// first, in a change of its own: it stays also if the steps fail.
    ///
    /// # Errors
    /// A step cannot be taken, also for want of room or of quota: none is taken.
    /// [`FsError::TryLater`] while the base has the journal of an unfinished apply, and
    /// [`TreeChangeError::Needed`] if an export needs a directory that would go or move.
    pub async fn take_steps(
        &self,
        caller: &Caller,
        (seen, safety): (i64, NewCheckpoint),
        mut steps: Box<dyn ChangeSteps>,
    ) -> std::result::Result<StepsOutcome, TreeChangeError> {
        let safety = NewCheckpoint { time: (self.core.clock)(), ..safety };
        let before = self.change_rows(true, move |txn| {
            if txn.is_changed_since(seen)? {
                return Ok(None);
            }
            match txn.create_checkpoint(&safety)? {
                MadeCheckpoint::Made(made) | MadeCheckpoint::Reused(made) => Ok(Some(made.id)),
                MadeCheckpoint::NameTaken | MadeCheckpoint::Off => {
                    Err(StoreError::io("the checkpoint before the change was not made"))
                }
            }
        });
        let Some(before) = before.await? else { return Ok(StepsOutcome::ChangedSince) };
        let is_made = |done: &StepsOutcome| matches!(done, StepsOutcome::Done { .. });
        self.change_tree(caller, is_made, move |edit| {
            refuse_during_apply(edit)?;
            if edit.txn.is_changed_since(seen)? {
                return Ok(StepsOutcome::ChangedSince);
            }
            steps.restart().map_err(|_| FsError::Io)?;
            let mut taken = StepState::default();
            while let Some(step) = steps.next().map_err(|_| FsError::Io)? {
                taken.take(edit, &step)?;
            }
            edit.invalidate(Invalidation::All);
            Ok(StepsOutcome::Done { before, steps: taken.count })
        })
        .await
    }
}

/// What the steps so far let the next ones know.
#[derive(Default)]
pub(super) struct StepState {
    count: u64,
    /// The last object that was looked up. Its path and locator stay valid while nothing moves.
    object: Option<(MergedPath, Locator)>,
    /// The same of a directory.
    dir: Option<(MergedPath, Locator)>,
}

impl StepState {
    pub(super) fn take(&mut self, edit: &mut Edit<'_>, step: &ChangeStep) -> Result<()> {
        // A step may set the attributes of a directory, so cached rows are outdated.
        edit.dirs.clear();
        self.count += 1;
        match step {
            ChangeStep::MakeFile(path) => {
                let (dir, name) = self.place(edit, path)?;
                let parent = edit.parent(&dir)?;
                create_in(edit, &parent, &name, CreateHow::Guarded(SetAttr::default()))?;
            }
            ChangeStep::MakeNode(path, node) => {
                let (dir, name) = self.place(edit, path)?;
                let parent = edit.parent(&dir)?;
                make_node_in(edit, &parent, &name, node, &SetAttr::default())?;
            }
            ChangeStep::Link(from, to) => {
                let from = self.object(edit, from)?;
                let (dir, name) = self.place(edit, to)?;
                link(edit, &from, &dir, name.as_bytes()).result?;
            }
            ChangeStep::Rename(from, to) => {
                let (old_dir, old) = self.place(edit, from)?;
                let (new_dir, new) = self.place(edit, to)?;
                (self.object, self.dir) = (None, None);
                let (from, to) = ((&old_dir, old.as_bytes()), (&new_dir, new.as_bytes()));
                rename(edit, from, to, &[]).result?;
            }
            ChangeStep::Remove(path) => {
                (self.object, self.dir) = (None, None);
                remove_all(edit, path)?;
            }
            ChangeStep::Write(path, offset, data) => {
                let file = self.object(edit, path)?;
                write(edit, &file, *offset, data).result?;
            }
            ChangeStep::Set(path, set) => {
                let object = self.object(edit, path)?;
                setattr(edit, &object, set, None).result?;
            }
        }
        Ok(())
    }

    fn object(&mut self, edit: &Edit<'_>, path: &MergedPath) -> Result<Locator> {
        if let Some((_, found)) = self.object.as_ref().filter(|(known, _)| known == path) {
            return Ok(found.clone());
        }
        let found = find(edit, path)?.locator();
        self.object = Some((path.clone(), found.clone()));
        Ok(found)
    }

    /// The directory of a path, and the name in it.
    fn place(&mut self, edit: &Edit<'_>, path: &MergedPath) -> Result<(Locator, Name)> {
        let name = path.name().ok_or(FsError::Invalid)?;
        let above = path.parent();
        if let Some((_, dir)) = self.dir.as_ref().filter(|(known, _)| *known == above) {
            return Ok((dir.clone(), name));
        }
        let dir = find(edit, &above)?.locator();
        self.dir = Some((above, dir.clone()));
        Ok((dir, name))
    }
}

fn find(edit: &Edit<'_>, path: &MergedPath) -> Result<TreeObject> {
    let tree = TreeView { view: edit.view(), knows_base: true };
    Ok(tree.find(path)?.ok_or(FsError::NotFound)?)
}

/// Removes an object, with everything in it.
fn remove_all(edit: &mut Edit<'_>, path: &MergedPath) -> Result<()> {
    // Each directory twice: before its entries, and after them.
    let mut open = vec![(path.clone(), false)];
    while let Some((path, is_emptied)) = open.pop() {
        edit.dirs.clear();
        let name = path.name().ok_or(FsError::Invalid)?;
        let dir = find(edit, &path.parent())?.locator();
        let object = find(edit, &path)?;
        if object.attr().kind != FileKind::Directory {
            remove(edit, &dir, name.as_bytes()).result?;
        } else if is_emptied {
            rmdir(edit, &dir, name.as_bytes()).result?;
        } else {
            let tree = TreeView { view: edit.view(), knows_base: true };
            let entries = tree.children(&object)?;
            open.push((path, true));
            open.extend(entries.into_iter().map(|(_, child)| (child.path().clone(), false)));
        }
    }
    Ok(())
}
