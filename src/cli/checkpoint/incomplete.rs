//! What commands say of incomplete checkpoints.

use super::called;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::delta::{Checkpoint, Incomplete};

/// What may be wrong with a checkpoint.
fn words(why: Incomplete) -> &'static str {
    match why {
        Incomplete::OtherProgram => {
            "another program changed the session since, and what it changed or removed looks as it \
             is now"
        }
        Incomplete::NoRoom => {
            "the disk was full, so what changed since, up to the next checkpoint, may look as it \
             was later, and what was removed may be missing"
        }
    }
}

/// Warns of a checkpoint that is incomplete.
pub(in crate::cli) fn warn_if_incomplete(checkpoint: &Checkpoint) {
    if let Some(why) = checkpoint.incomplete {
        let (called, words) = (called(checkpoint), words(why));
        output::line(format_args!("warning: checkpoint {called} is incomplete: {words}"));
    }
}

/// Refuses to go on with an incomplete checkpoint, but for `force`, which warns.
pub(in crate::cli) fn check_complete(checkpoint: &Checkpoint, force: bool) -> Result<(), CliError> {
    let Some(why) = checkpoint.incomplete.filter(|_| !force) else {
        warn_if_incomplete(checkpoint);
        return Ok(());
    };
    let what = format!("checkpoint {} is incomplete: {}", called(checkpoint), words(why));
    Err(CliError::new(what).with_hint("--force continues all the same"))
}
