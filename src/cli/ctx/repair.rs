//! `acetate ctx repair`: completes or undoes interrupted changes of context nodes.

use super::place::NodeSession;
use super::print::plain;
use crate::cli::error::CliError;
use crate::cli::output::Out;
use crate::cli::{Ending, output, text};

/// Finish or take back interrupted changes; exits with 1 if a node needs help by hand.
///
/// A change of `acetate ctx` that was decided is finished, with its event; one that was not is
/// taken back. Content without metadata gets some, a PENDING node that is whole becomes ACTIVE, and
/// one that is not BROKEN. What is not valid is named and left as it is. Nodes that are ACTIVE or
/// BROKEN are skipped.
///
/// Run it when no client writes nodes through a mount: a node that is half written there looks
/// abandoned.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: NodeSession,

    /// Only say what would be done; exits with 1 if there is anything.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print a JSON object for each finding (uri, fault, what, cure, needs_hands), and one with the
    /// totals.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let repaired = args.place.change(|nodes| Ok(nodes.repair(args.dry_run)?))?;
    let mut out = Out::new();
    for finding in &repaired.findings {
        let (fault, cure) = (&finding.fault, finding.fault.cure());
        if args.json {
            let mut object = text::json("ctx_finding");
            object.insert("uri".to_owned(), finding.uri.as_str().into());
            object.insert("fault".to_owned(), fault.word().into());
            object.insert("what".to_owned(), fault.to_string().into());
            object.insert("cure".to_owned(), cure.into());
            object.insert("needs_hands".to_owned(), fault.needs_hands().into());
            out.json(object)?;
        } else {
            let would = if args.dry_run { "would be " } else { "" };
            let what = plain(&fault.to_string());
            out.line(format_args!("{}: {what}: {would}{cure}", finding.uri))?;
        }
    }
    let needs_hands = repaired.findings.iter().filter(|f| f.fault.needs_hands()).count();
    if args.json {
        let mut object = text::json("ctx_repair");
        object.insert("findings".to_owned(), repaired.findings.len().into());
        object.insert("needs_hands".to_owned(), needs_hands.into());
        object.insert("active".to_owned(), repaired.active.into());
        object.insert("broken_before".to_owned(), repaired.broken.into());
        object.insert("dry_run".to_owned(), args.dry_run.into());
        out.json(object)?;
    } else {
        let (active, broken) = (repaired.active, repaired.broken);
        let active = text::count(active, "node");
        output::line(format_args!("ACTIVE: {active}; BROKEN before: {broken}"));
    }
    out.end()?;
    let is_finding = needs_hands > 0 || (args.dry_run && !repaired.findings.is_empty());
    Ok(if is_finding { Ending::Findings } else { Ending::Done })
}
