//! The warning about moved directories whose base directories are gone.

use super::error::CliError;
use super::{output, text};
use crate::inspect::opened::OpenSession;

/// The most directories that are named.
const MAX_NAMED: usize = 10;

/// Names the directories that the session moved, and that show nothing of the base because it no
/// longer has them.
pub(super) fn warn(opened: &OpenSession) -> Result<(), CliError> {
    let lost = opened.lost_dirs()?;
    for dir in lost.iter().take(MAX_NAMED) {
        output::line(format_args!("warning: {}: {dir}", text::name(dir.path.as_bytes())));
    }
    if let Some(more) = lost.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        output::line(format_args!("warning: and {more} more"));
    }
    Ok(())
}
