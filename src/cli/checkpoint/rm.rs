//! `acetate checkpoint rm`: removes checkpoints.

use super::{called, find, print_removed, remove};
use crate::cli::change::with_session_changer;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::source::SessionSource;
use crate::cli::{Ending, text};
use crate::delta::{Checkpoint, CheckpointKind};
use crate::inspect::opened::open_session;

/// Remove checkpoints: their moments cannot be looked at any more.
///
/// The checkpoints before them stay exact, and so does the tree. One at which a fork began goes
/// only with --force: without it, the fork can no longer be merged. `acetate compact` gives the
/// space back to the disk.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Ids, names, `@-1`, or moments.
    #[arg(value_name = "CHECKPOINT", required = true)]
    checkpoints: Vec<String>,

    /// Remove also those at which forks began.
    #[arg(long)]
    force: bool,

    /// Print a JSON object for each that is removed: id, name.
    #[arg(long)]
    json: bool,
}

/// Removes them. All are found before one is removed, because `@-1` is another one then.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let session = open_session(&args.source.session)?;
    let found = args.checkpoints.iter().map(|text| find(&session, text));
    let mut found = found.collect::<Result<Vec<_>, _>>()?;
    if let Some(point) = found.iter().find(|one| one.kind == CheckpointKind::Fork && !args.force) {
        return Err(is_fork_point(point));
    }
    drop(session);
    // Newest first: each then hands over the least.
    found.sort_by_key(|checkpoint| std::cmp::Reverse(checkpoint.id));
    found.dedup_by_key(|checkpoint| checkpoint.id);
    let mut out = Out::new();
    with_session_changer(&args.source, |changer| {
        for checkpoint in &found {
            if remove(changer, checkpoint.id)? {
                print_removed(&mut out, ("removed", args.json), checkpoint)?;
            }
        }
        Ok(())
    })?;
    out.end()?;
    Ok(Ending::Done)
}

/// The error for a checkpoint that a merge needs.
fn is_fork_point(point: &Checkpoint) -> CliError {
    let label = |key| point.labels.get(key).map(|value| text::printable(value));
    let began = match (label("of"), label("forks")) {
        (Some(of), _) => format!("this fork of {of} began"),
        (None, Some(forks)) => format!("forks began ({forks})"),
        (None, None) => "a fork began".to_owned(),
    };
    let what = format!("at checkpoint {} {began}: nothing was removed", called(point));
    CliError::new(what)
        .with_hint("--force removes it; what the fork changed can then no longer be merged")
}
