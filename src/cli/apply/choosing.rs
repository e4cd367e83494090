//! The changes of a plan that the user chooses: `-p`, `-i`, `--hunk`.

use std::collections::BTreeSet;

use super::{Args, check_kept};
use crate::cli::error::CliError;
use crate::cli::picking::{Offer, Verb};
use crate::delta::MergedPath;
use crate::inspect::apply::{ApplyOptions, ApplyPlan, plan};
use crate::inspect::diff::{DiffOptions, is_time_of_directory};
use crate::inspect::fold::sorted_past_denied;
use crate::inspect::hunks::ChosenHunks;
use crate::inspect::opened::OpenSession;

/// Lets the user choose changes and hunks of the plan.
pub(super) fn choose(
    args: &Args,
    opened: &OpenSession,
    options: &ApplyOptions,
) -> Result<ChosenHunks, CliError> {
    let mut all = Vec::new();
    let plan =
        plan(opened, args.to.as_deref(), options, &mut |difference| all.push(difference.clone()))?;
    if !args.dry_run {
        check_kept(args, opened, &plan)?;
    }
    let in_base = in_base(opened, options, &plan)?;
    let drifted = plan.drifted.into_iter().map(|drifted| drifted.path).collect();
    let (quiet, differences) = all.into_iter().partition(is_time_of_directory);
    let offer = Offer {
        opened,
        differences,
        time_only_dirs: quiet,
        drifted,
        in_base,
        is_to_copy: args.to.is_some(),
        has_own: args.all,
        verb: Verb::Apply,
        selection: &options.selection,
    };
    args.picking.pick(&offer)
}

/// The paths at which `diff` shows a change, but an apply writes nothing: the base has the change
/// already, among others.
fn in_base(
    opened: &OpenSession,
    options: &ApplyOptions,
    plan: &ApplyPlan,
) -> Result<BTreeSet<MergedPath>, CliError> {
    let dropped: BTreeSet<_> = plan.unchanged.iter().map(|copy| &copy.copy.path).collect();
    if dropped.is_empty() {
        return Ok(BTreeSet::new());
    }
    let shown = DiffOptions { selection: options.selection.clone(), ..DiffOptions::default() };
    let (shown, _denied) = sorted_past_denied(opened, &shown)?;
    let shown = shown.into_iter().map(|difference| difference.change.path);
    Ok(shown.filter(|path| dropped.contains(path)).collect())
}
