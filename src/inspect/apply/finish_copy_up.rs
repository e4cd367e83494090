//! What large files of the session still have in the base.
//!
//! It can be read only while the base file is as it was when its copy-up began, so the session has
//! to have all of it before anything in the base changes: also of what is not applied, which may
//! be another name of the same file, and of what is, which somebody may go on writing to.

use std::ops::ControlFlow;

use super::{ApplyEvent, ApplyWatch, SessionUpdater};
use crate::delta::Ino;
use crate::inspect::error::Result;

/// Copies all of it into the session, if there is one to be kept; it may be broken off. What is
/// lost already, as the base changed otherwise, is left as it is.
///
/// # Errors
/// The session does not take it.
pub(super) fn bring_in(
    bookkeeper: Option<&mut (dyn SessionUpdater + '_)>,
    watch: &mut ApplyWatch<'_>,
) -> Result<ControlFlow<()>> {
    let Some(bookkeeper) = bookkeeper else { return Ok(ControlFlow::Continue(())) };
    loop {
        let (mut next, mut has_copied) = (Some(Ino(0)), false);
        while let Some(from) = next {
            let turn = bookkeeper.copy(from)?;
            has_copied |= turn.has_copied;
            next = turn.next;
            if next.is_some() && watch(ApplyEvent::Copying(turn.left)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        // A client may have begun another one behind us meanwhile.
        if !has_copied {
            return Ok(ControlFlow::Continue(()));
        }
    }
}
