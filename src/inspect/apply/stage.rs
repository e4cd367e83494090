//! Makes the objects that an apply places, in the staging: the tree does not change before all are
//! made. An object that cannot be made is left out, and the others are made.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;

use super::merge::{self, StepContent};
use super::plan::{ApplyPlan, Loss, Make};
use super::target_dir::ApplyTarget;
use super::{ApplyEvent, ApplyWatch, LostLink, Skipped};
use crate::inspect::InspectError;
use crate::inspect::diff;
use crate::inspect::error::Result;
use crate::overlay::{TreeObject, TreeView};
use crate::system_error::words;
use crate::vfs::{FileKind, FsError};
use crate::writeback::{Attrs, Staging, StagingDir, StagingSlot, TargetError, Unset, Xattrs};

/// Numbers of objects on which an attribute could not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotSet {
    /// Owner or group.
    pub owners: u64,
    /// Permission bits.
    pub modes: u64,
    /// Times.
    pub times: u64,
}

impl NotSet {
    pub(super) fn add(&mut self, unset: Unset) {
        self.owners += u64::from(unset.owner);
        self.modes += u64::from(unset.mode);
        self.times += u64::from(unset.times);
    }
}

/// Result of [`stage`].
#[derive(Debug, Default)]
pub(super) struct Staged {
    pub not_set: NotSet,
    /// The changes that are left out, with their number if the plan has them.
    pub skipped: Vec<(Option<usize>, Skipped)>,
    /// Extended attributes that the host refuses.
    pub losses: Vec<Loss>,
    /// Files that an undo could not link to their further names.
    pub lost_links: Vec<LostLink>,
    /// An earlier run did all this, and perhaps some steps; the other fields are empty.
    pub is_resumed: bool,
}

/// Makes the plan's objects; `None` if `watch` broke it off.
pub(super) fn stage(
    view: &TreeView<'_>,
    target: &ApplyTarget<'_>,
    plan: &ApplyPlan,
    staging: &Staging,
    watch: &mut ApplyWatch<'_>,
) -> Result<Option<Staged>> {
    let skipped = plan.refused.iter().map(|(change, what)| (Some(*change), what.clone()));
    let staged = Staged { skipped: skipped.collect(), ..Staged::default() };
    let (all, failed) = (plan.data_bytes, HashMap::new());
    let mut stage = StagingRun { view, target, staging, watch, all, done: 0, staged, failed };
    for make in &plan.makes {
        if stage.tell().is_break() {
            return Ok(None);
        }
        match stage.make(make) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(None),
            Err(error) => stage.leave_out(make, &error)?,
        }
    }
    Ok(Some(stage.staged))
}

struct StagingRun<'a, 'w> {
    view: &'a TreeView<'a>,
    target: &'a ApplyTarget<'a>,
    staging: &'a Staging,
    watch: &'a mut ApplyWatch<'w>,
    /// Bytes of data to write, and those written so far.
    all: u64,
    done: u64,
    staged: Staged,
    /// Why an object could not be made, by its slot.
    failed: HashMap<StagingSlot, String>,
}

impl StagingRun<'_, '_> {
    fn make(&mut self, make: &Make) -> Result<ControlFlow<()>> {
        if let Some(of) = make.link {
            if let Some(why) = self.failed.get(&of) {
                let skipped = Skipped { path: make.path.clone(), why: why.clone() };
                self.staged.skipped.push((Some(make.change), skipped));
                return Ok(ControlFlow::Continue(()));
            }
            self.staging.link(make.slot, of)?;
            return Ok(ControlFlow::Continue(()));
        }
        let failed = |source| diff::at(&make.path, source);
        let found = self.view.find(&make.path).map_err(failed)?;
        let object = found.ok_or(FsError::NotFound).map_err(failed)?;
        let attr = object.attr();
        match attr.kind {
            FileKind::Directory => {
                // Its attributes are set after its entries are placed.
                self.staging.directory(make.slot)?;
                return Ok(ControlFlow::Continue(()));
            }
            FileKind::Regular => {
                let made = match &make.content {
                    StepContent::Both { original, base, ours, .. } => {
                        let (sides, ours) = ((&**original, &**base), ours.as_deref());
                        let content = merge::make(self.view, self.target, sides, (&object, ours))?;
                        self.write(make.slot, &content, &object)?
                    }
                    StepContent::Given(content) => self.write(make.slot, content, &object)?,
                    _ => self.file(make.slot, &object)?,
                };
                if made.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            FileKind::Symlink => {
                let target = self.view.target(&object).map_err(failed)?;
                self.staging.symlink(make.slot, &target)?;
            }
            kind => self.staging.special(make.slot, kind, attr.rdev)?,
        }
        let mut carried = match &make.replaces {
            Some(path) => self.target.xattrs(path)?,
            None => Xattrs::default(),
        };
        // The plan already lists these as losses.
        carried.take_bound();
        if let Some(name) = carried.unreadable() {
            // To read it, the mode of the base's file would have to change, and so its ctime.
            let what = format!("the extended attribute {name} of the base's file cannot be read");
            let source = io::Error::new(io::ErrorKind::PermissionDenied, what);
            let path = self.target.dir.path().to_owned();
            return Err(TargetError { path, source }.into());
        }
        let (unset, names) = self.staging.set(make.slot, &self.attrs(make)?, &carried)?;
        self.staged.not_set.add(unset);
        if !names.is_empty() {
            let (path, why) = (make.path.clone(), "the host refuses them");
            self.staged.losses.push(Loss { path, names, why });
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The attributes of a made object. Text that neither side had keeps the time at which it was
    /// written: by an older one, a build would take it as up to date.
    fn attrs(&self, make: &Make) -> Result<Attrs> {
        let attrs = make.attrs.clone();
        if !make.content.is_new_text() {
            return Ok(attrs);
        }
        let path = Staging::path_of(StagingDir::New, make.slot);
        let made = self.target.dir.object(&path)?;
        Ok(Attrs { mtime: made.map_or(attrs.mtime, |made| made.attrs.mtime), ..attrs })
    }

    /// Writes merged content, or the chosen part of the session's content.
    fn write(
        &mut self,
        slot: StagingSlot,
        content: &[u8],
        object: &TreeObject,
    ) -> Result<ControlFlow<()>> {
        let file = self.staging.file(slot)?;
        let on_disk = |source| TargetError { path: self.staging.path().to_owned(), source };
        file.write(0, content).map_err(on_disk)?;
        file.end(content.len() as u64).map_err(on_disk)?;
        self.done += object.attr().size;
        Ok((self.watch)(ApplyEvent::Making { done: self.done, all: self.all }))
    }

    fn file(&mut self, slot: StagingSlot, object: &TreeObject) -> Result<ControlFlow<()>> {
        let file = self.staging.file(slot)?;
        let on_disk = |source| TargetError { path: self.staging.path().to_owned(), source };
        let mut reader = self.view.data_reader(object);
        loop {
            let piece = reader.next_piece().map_err(|source| diff::at(object.path(), source))?;
            let Some(piece) = piece else { break };
            file.write(piece.offset, piece.bytes).map_err(on_disk)?;
            self.done += piece.bytes.len() as u64;
            if (self.watch)(ApplyEvent::Making { done: self.done, all: self.all }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        file.end(object.attr().size).map_err(on_disk)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Leaves out an object that cannot be made, with the reason, and removes the partial object.
    fn leave_out(&mut self, make: &Make, error: &InspectError) -> Result<()> {
        self.staging.discard_partial(make.slot)?;
        let why = match error {
            InspectError::Target(TargetError { source, .. }) => words(source),
            InspectError::Path { source: FsError::Io, .. } => {
                "its content cannot be read: see the log".to_owned()
            }
            InspectError::Path { source, .. } => format!("cannot be read: {source}"),
            other => other.to_string(),
        };
        self.failed.insert(make.slot, why.clone());
        let skipped = Skipped { path: make.path.clone(), why };
        self.staged.skipped.push((Some(make.change), skipped));
        Ok(())
    }

    fn tell(&mut self) -> ControlFlow<()> {
        (self.watch)(ApplyEvent::Making { done: self.done, all: self.all })
    }
}
