//! Writes the patch of one difference.

use std::io::Write;

use super::Failure;
use super::blob::has_blob;
use super::blob::{Blob, base_blob, blob};
use super::file::write_file;
use super::style::Style;
use crate::delta::MergedPath;
use crate::inspect::diff::{Difference, DifferenceKind, at, drifted_original};
use crate::inspect::error::{InspectError, Result};
use crate::inspect::opened::OpenSession;
use crate::overlay::TreeView;
use crate::vfs::FileKind;

/// Writes the patch of a difference between files or links. Writes nothing for other objects, and
/// if the earlier content is unknown.
///
/// # Errors
/// The session or the base cannot be read, or `out` cannot be written.
pub fn write_difference(
    (opened, view): (&OpenSession, &TreeView<'_>),
    difference: &Difference,
    style: &Style,
    out: &mut dyn Write,
) -> Result<()> {
    let change = &difference.change;
    let before = difference.old.as_ref().filter(|_| difference.kind != DifferenceKind::Added);
    let kinds = [before.map(|b| b.attr.kind), change.after.as_ref().map(|a| a.attr().kind)];
    if !kinds.into_iter().flatten().all(has_blob) {
        return Ok(());
    }
    let from = before.map(|base| MergedPath::of_base(&base.path));
    let from = from.unwrap_or_else(|| change.path.clone());
    let old = match (before, drifted_original(change)) {
        (None, _) => None,
        (Some(_), Some(original)) => {
            let content = view.original_content(original).map_err(|s| at(&from, s))?;
            let Some(content) = content else { return Ok(()) };
            Some(match original.kind {
                FileKind::Symlink => Blob::link(content),
                _ => Blob::loaded(content, original.mode),
            })
        }
        (Some(_), None) => base_blob(opened, &from)?,
    };
    let new = change.after.as_ref().map(|after| blob(view, after)).transpose()?;
    match write_file((&from, old), (&change.path, new), style, out) {
        Ok(()) => Ok(()),
        Err(Failure::Inspect(error)) => Err(error),
        Err(Failure::Io(source)) => {
            Err(InspectError::Write { path: "the terminal".into(), source })
        }
    }
}
