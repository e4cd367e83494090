//! `acetate ctx ls`: lists context nodes below a prefix.

use super::place::NodeSession;
use super::print;
use crate::cli::Ending;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::context::{NodeMeta, UriPrefix};

/// List the visible nodes below a prefix, a URI each.
///
/// A prefix ends with a whole part: ctx://acme/users/al is not one of ctx://acme/users/alice/….
/// ctx:// matches all.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: NodeSession,

    /// What the URIs begin with.
    #[arg(value_name = "URI-PREFIX")]
    prefix: UriPrefix,

    /// Show PENDING and BROKEN nodes too, and the status of each.
    #[arg(short, long)]
    all: bool,

    /// Show version, last change and abstract, too.
    #[arg(short, long)]
    long: bool,

    /// Print a JSON object for each: uri, status, meta, abstract.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let listed = args.place.look()?.at(|nodes| nodes.list(&args.prefix, args.all))?;
    let mut out = Out::new();
    for node in &listed {
        if args.json {
            out.json(print::listed(node))?;
            continue;
        }
        let status = if args.all { format!("{:<7} ", node.status) } else { String::new() };
        let uri = &node.uri;
        if !args.long {
            out.line(format_args!("{status}{uri}"))?;
            continue;
        }
        let version =
            node.meta.as_ref().map_or_else(|| "-".to_owned(), |m| m.version().to_string());
        let time = node.meta.as_ref().map_or("-", NodeMeta::updated_at);
        let text = print::plain(node.abstract_text.as_deref().unwrap_or_default());
        out.line(format_args!("{status}{version:>4} {time:<20} {uri}  {text}"))?;
    }
    out.end()?;
    Ok(Ending::Done)
}
