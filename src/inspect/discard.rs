//! What giving up changes would take.

use super::error::{InspectError, Result};
use super::opened::Opened;
use crate::delta::MergedPath;
use crate::overlay::Undo;

/// What it takes that `asked` show the base again; nothing is changed.
///
/// # Errors
/// The session or the base cannot be read.
pub fn undo(opened: &Opened, asked: &[MergedPath]) -> Result<Undo> {
    opened.look(|view| {
        let path = MergedPath::root();
        view.undo(asked).map_err(|source| InspectError::Path { path, source })
    })
}
