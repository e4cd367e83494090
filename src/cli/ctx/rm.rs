//! `acetate ctx rm`: removes a context node.

use super::place::NodeSession;
use super::print;
use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::context::{ContextError, Uri};

/// Remove a node, in whatever status it is; exits with 1 if there is none.
///
/// The event DELETE_CONTEXT waits in the outbox, and its directory stays until that and earlier
/// ones are acknowledged. Edges of other nodes that lead to it stay.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: NodeSession,

    /// The node.
    uri: Uri,

    /// Print a JSON object: uri, version (null), event_id, event_type.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let removed = args.place.change(|nodes| match nodes.remove(&args.uri) {
        Err(error @ ContextError::NoNode { .. }) => Ok(Err(error)),
        removed => Ok(Ok(removed?)),
    })?;
    match removed {
        Ok(changed) => print::changed(&changed, args.json),
        Err(error) => Ok(print::missing(&error)),
    }
}
