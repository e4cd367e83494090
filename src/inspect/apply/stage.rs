//! Making everything that is to be placed, beside the tree: until that is done, nothing of the
//! tree has changed.

use std::ops::ControlFlow;

use super::plan::{Make, Plan, attrs};
use super::{Event, Watch};
use crate::inspect::diff;
use crate::inspect::error::Result;
use crate::overlay::{TreeObject, TreeView};
use crate::target::{Slot, Staging, TargetError, Unset};
use crate::vfs::{FileKind, FsError};

/// How much of a file is copied at a time, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// How often something could not be set.
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

/// Makes what the plan says; `None` if it was broken off.
pub(super) fn stage(
    view: &TreeView<'_>,
    plan: &Plan,
    staging: &Staging,
    watch: &mut Watch<'_>,
) -> Result<Option<NotSet>> {
    let mut stage = Stage { view, staging, watch, all: plan.bytes, done: 0 };
    let mut not_set = NotSet::default();
    for make in &plan.makes {
        match stage.make(make)? {
            ControlFlow::Continue(unset) => not_set.add(unset),
            ControlFlow::Break(()) => return Ok(None),
        }
    }
    Ok(Some(not_set))
}

struct Stage<'a, 'w> {
    view: &'a TreeView<'a>,
    staging: &'a Staging,
    watch: &'a mut Watch<'w>,
    all: u64,
    done: u64,
}

impl Stage<'_, '_> {
    fn make(&mut self, make: &Make) -> Result<ControlFlow<(), Unset>> {
        if self.tell().is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(of) = make.link {
            self.staging.link(make.slot, of)?;
            return Ok(ControlFlow::Continue(Unset::default()));
        }
        let failed = |source| diff::at(&make.path, source);
        let found = self.view.find(&make.path).map_err(failed)?;
        let object = found.ok_or(FsError::NotFound).map_err(failed)?;
        let attr = object.attr();
        match attr.kind {
            FileKind::Directory => {
                // Its attributes come when all is in it.
                self.staging.directory(make.slot)?;
                return Ok(ControlFlow::Continue(Unset::default()));
            }
            FileKind::Regular => {
                if self.file(make.slot, &object)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            FileKind::Symlink => {
                let target = self.view.target(&object).map_err(failed)?;
                self.staging.symlink(make.slot, &target)?;
            }
            kind => self.staging.special(make.slot, kind, attr.rdev)?,
        }
        Ok(ControlFlow::Continue(self.staging.set(make.slot, &attrs(&object))?))
    }

    fn file(&mut self, slot: Slot, object: &TreeObject) -> Result<ControlFlow<()>> {
        let mut file = self.staging.file(slot)?;
        let on_disk = |source| TargetError { path: self.staging.path().to_owned(), source };
        let mut buffer = vec![0; PIECE_BYTES];
        let mut offset = 0;
        while offset < object.attr().size {
            let got = self.view.read(object, offset, &mut buffer);
            let got = got.map_err(|source| diff::at(object.path(), source))?;
            if got == 0 {
                break;
            }
            file.append(&buffer[..got]).map_err(on_disk)?;
            offset += got as u64;
            self.done += got as u64;
            if (self.watch)(Event::Making { done: self.done, all: self.all }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        file.end().map_err(on_disk)?;
        Ok(ControlFlow::Continue(()))
    }

    fn tell(&mut self) -> ControlFlow<()> {
        (self.watch)(Event::Making { done: self.done, all: self.all })
    }
}
