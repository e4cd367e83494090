//! `acetate ctx relate`: adds an edge to a context node.

use super::place::NodeSession;
use super::print;
use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::context::{Relation, Uri};

/// Add an edge from one node to another of the same account.
///
/// One of the same type to the same node is replaced. The event UPSERT_RELATION waits in the
/// outbox.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: NodeSession,

    /// The node where it begins.
    from: Uri,

    /// The node where it leads.
    to: Uri,

    /// What the edge means.
    #[arg(long = "type", value_name = "TYPE", default_value = "related_to")]
    relation_type: String,

    /// How strong the edge is, from 0 to 1.
    #[arg(long, default_value_t = 1.0)]
    weight: f64,

    /// Why there is an edge.
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,

    /// Print a JSON object: uri, version, event_id, event_type.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let relation = Relation {
        to: args.to.clone(),
        relation_type: args.relation_type.clone(),
        weight: args.weight,
        reason: args.reason.clone(),
    };
    let changed = args.place.change(|nodes| Ok(nodes.relate(&args.from, &relation)?))?;
    print::changed(&changed, args.json)
}
