//! `acetate ctx mv`: changes the URI of a context node.

use super::place::NodeSession;
use super::print;
use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::context::Uri;

/// Move a node to another URI of its account.
///
/// Its outbox moves along, with the event MOVE_CONTEXT at its end. Edges of other nodes that lead
/// to it stay as they are.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: NodeSession,

    /// The node.
    uri: Uri,

    /// The new URI; no node may be there.
    new_uri: Uri,

    /// Print a JSON object: uri, version, event_id, event_type.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let changed = args.place.change(|nodes| Ok(nodes.rename(&args.uri, &args.new_uri)?))?;
    print::changed(&changed, args.json)
}
