//! Removes the staging at the end of a run, which changes the mtime of the target's top.

use super::locked_dirs;
use crate::base::BasePath;
use crate::inspect::error::Result;
use crate::writeback::{Attrs, Staging, Target};

/// Removes the staging of a run that changes nothing. The top gets its noted mtime again.
pub(super) fn remove_unused_staging(target: &Target, staging: Staging) -> Result<()> {
    let root = BasePath::root();
    let top = match target.object(&root)? {
        Some(now) => {
            let top = target.noted_top(&staging, now.attrs.clone())?;
            target.change(&root, &now.attrs, &locked_dirs::open_attrs(&top))?;
            Some(top)
        }
        None => None,
    };
    remove_staging(target, staging, top)
}

/// Removes the staging. The top, which has the mtime of `top` now, has it afterwards too, unless
/// something else changes the top; and the mode of `top`, if it has that, opened to its owner.
pub(super) fn remove_staging(target: &Target, staging: Staging, top: Option<Attrs>) -> Result<()> {
    let root = BasePath::root();
    let now = target.object(&root)?.map(|now| now.attrs);
    let (Some(top), Some(now)) = (top, now) else {
        target.remove(staging)?;
        return Ok(());
    };
    let top = Attrs { mtime: now.mtime, ..top };
    // Before the journal goes: a run that is killed later leaves no other trace of them.
    if let Err(error) = target.note_top(&staging, &top) {
        // Only a run after a kill needs it.
        tracing::debug!(%error, "the attributes of the top are not noted");
    }
    let removed = target.remove(staging)?;
    let from = Attrs { mode: locked_dirs::open_attrs(&top).mode, mtime: removed.after, ..now };
    let to = Attrs { mode: top.mode, mtime: removed.before, ..from.clone() };
    // The steps have reported what cannot be set.
    target.change(&root, &from, &to)?;
    Ok(())
}
