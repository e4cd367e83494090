//! `acetate ctx get`: prints a context node, or one of its layers.

use serde_json::Value;

use super::place::NodeSession;
use super::print;
use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::context::{ContextError, Uri};

/// Print a node's content; exits with 1 if no such node is visible.
///
/// Nodes that are PENDING or BROKEN are not visible.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: NodeSession,

    /// The node.
    uri: Uri,

    #[command(flatten)]
    layer: Layer,

    /// Print a JSON object: uri, status, meta, abstract, overview, content, relations.
    #[arg(long)]
    json: bool,
}

/// What is printed in the place of the content.
#[derive(Debug, clap::Args)]
#[group(multiple = false, conflicts_with = "json")]
struct Layer {
    /// Print the abstract (L0).
    #[arg(long = "abstract")]
    abstract_text: bool,

    /// Print the overview (L1).
    #[arg(long)]
    overview: bool,

    /// Print the metadata, in JSON.
    #[arg(long)]
    meta: bool,

    /// Print the edges that begin here, in JSON.
    #[arg(long)]
    relations: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let node = match args.place.look()?.at(|nodes| nodes.get(&args.uri)) {
        Err(error @ ContextError::NoNode { .. }) => return Ok(print::missing(&error)),
        node => node?,
    };
    let mut out = Out::new();
    let layer = &args.layer;
    if args.json {
        out.json(print::node(&node))?;
    } else if layer.meta {
        out.pretty(&Value::Object(node.meta.fields().clone()))?;
    } else if layer.relations {
        out.pretty(&Value::from(node.relations.edges()))?;
    } else if layer.abstract_text {
        out.bytes(node.abstract_text.as_bytes())?;
        out.bytes(b"\n")?;
    } else if layer.overview {
        out.bytes(node.overview.as_bytes())?;
        out.bytes(b"\n")?;
    } else {
        out.bytes(node.content.as_bytes())?;
    }
    out.end()?;
    Ok(Ending::Done)
}
