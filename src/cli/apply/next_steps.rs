//! What the user can do about changes that drifted: the options, and the command for them.

use std::collections::BTreeSet;

use super::Args;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::cli::shell_words::quoted;
use crate::delta::MergedPath;
use crate::inspect::apply::{ApplyOptions, ApplyPlan, DriftReason, Drifted, plan};
use crate::inspect::opened::OpenSession;

/// The command that applies the same session to the same directory.
pub(super) fn command(args: &Args) -> String {
    let session = quoted(&args.source.session.display().to_string());
    let to = args.to.as_ref().map(|to| format!(" --to {}", quoted(&to.display().to_string())));
    format!("acetate apply {session}{}", to.unwrap_or_default())
}

/// Whether anything is applied if what drifted is left out, with all that cannot be applied without
/// it.
pub(super) fn has_rest(
    args: &Args,
    opened: &OpenSession,
    options: &ApplyOptions,
) -> Result<bool, CliError> {
    let options = ApplyOptions { skip_drifted: true, ..options.clone() };
    let plan = plan(opened, args.to.as_deref(), &options, &mut |_| {})?;
    let left: BTreeSet<_> = plan.left_out.iter().map(|left| &left.path).collect();
    Ok(plan.changes.iter().any(|change| change.paths > 0 && !left.contains(&change.path)))
}

/// The end of a list of options for drifted objects: those that write the session's state.
pub(super) fn overwriting(plan: &ApplyPlan) -> &'static str {
    let is_text = |drifted: &Drifted| drifted.reason == DriftReason::Conflict;
    match plan.drifted.iter().filter(|drifted| is_text(drifted)).count() {
        0 => ", and --take session PATH overwrites it",
        all if all == plan.drifted.len() => {
            ", --take session PATH overwrites it, and --conflict-markers merges it, to be edited"
        }
        _ => {
            ", and --take session PATH overwrites it; --conflict-markers merges those in which the \
             same lines changed, to be edited"
        }
    }
}

/// The pathspecs that leave out git's own files, if some of them drifted.
pub(super) fn without_git(plan: &ApplyPlan) -> String {
    let spec = |dir: &MergedPath| match dir.as_bytes() {
        b"/.git" => "':!.git'".to_owned(),
        _ => quoted(&format!(":!{}", dir.display())),
    };
    let specs: Vec<_> = plan.git_drifted.iter().map(spec).collect();
    match specs.is_empty() {
        true => String::new(),
        false => format!("; {} leaves git's own files out", specs.join(" ")),
    }
}

/// The option that keeps larger originals, if one is missing.
pub(super) fn keeping_originals(plan: &ApplyPlan) -> &'static str {
    match plan.drifted.iter().any(|drifted| drifted.reason == DriftReason::NoOriginal) {
        true => "; --keep-originals=SIZE of serve, mount and run keeps larger files to merge later",
        false => "",
    }
}

/// Prints the options for drifted objects that were left out.
pub(super) fn note_next(args: &Args, plan: &ApplyPlan) {
    let command = command(args);
    let gives_up = if args.to.is_none() { " and gives up what the session has" } else { "" };
    output::line(format_args!(
        "for each drifted path: `{command} --take base PATH` keeps it as it is{gives_up}{}{}{}",
        overwriting(plan),
        without_git(plan),
        keeping_originals(plan),
    ));
}
