//! The question before an apply.

use std::collections::BTreeSet;

use super::printing::PlanPrinter;
use super::{Args, ending_of, give_up, target};
use crate::cli::error::CliError;
use crate::cli::{Ending, asking, output, text};
use crate::inspect::apply::ApplyPlan;
use crate::inspect::opened::OpenSession;

/// Asks on the terminal for what a plan does. Returns the ending if nothing is to be written to the
/// target: the answer is no, all changes are left out, or the session only drops what `--take base`
/// names.
pub(super) fn ask(
    args: &Args,
    opened: &OpenSession,
    plan: &ApplyPlan,
) -> Result<Option<Ending>, CliError> {
    let kept: BTreeSet<_> = plan.kept_in_base().cloned().collect();
    let changes = PlanPrinter::count(plan);
    let dropped = if args.to.is_some() { 0 } else { kept.len() };
    if changes == 0 && dropped == 0 {
        output::line(format_args!("nothing is left to apply"));
    } else if !is_wanted(args, opened, (changes, dropped))? {
        output::line(format_args!("nothing was written"));
        return Ok(Some(Ending::Findings));
    }
    match changes {
        0 => give_up(args, &kept, ending_of(plan)).map(Some),
        _ => Ok(None),
    }
}

/// Whether the user wants to apply these changes, and to drop others from the session.
fn is_wanted(
    args: &Args,
    opened: &OpenSession,
    (changes, dropped): (u64, usize),
) -> Result<bool, CliError> {
    if args.json || !asking::can_ask() {
        let what = "cannot ask without a terminal: nothing was written";
        return Err(CliError::new(what)
            .with_hint("--yes applies the plan without asking, --dry-run only shows it"));
    }
    let dir = target(args, opened).display();
    let apply = match changes {
        1 => format!("apply this change to {dir}"),
        _ => format!("apply these {changes} changes to {dir}"),
    };
    let drop = format!("drop {} from the session", text::count(dropped, "change"));
    match (changes, dropped) {
        (_, 0) => asking::ask(&format_args!("{apply}?")),
        (0, _) => asking::ask(&format_args!("{drop}?")),
        _ => asking::ask(&format_args!("{apply}, and {drop}?")),
    }
}
