//! `diff --from`: what changed between two checkpoints, or from one until now.

use super::{Args, output, patch, print};
use crate::cli::error::CliError;
use crate::cli::selecting::tell_unmatched;
use crate::cli::{Ending, output as stderr};
use crate::inspect::between::{Moments, patch_between, stats_between};
use crate::inspect::diff::DiffOptions;
use crate::inspect::opened::is_known;
use crate::inspect::patch::PatchOmissions;
use crate::inspect::selection::Selection;

/// Compares.
pub(super) fn run(args: &Args, from: &str) -> Result<Ending, CliError> {
    check_options(args)?;
    let (old, at) = args.source.open_moment(Some(from))?;
    let (new, until) = args.source.open_moment(args.to.as_deref())?;
    let Some(from) = at else { return Err(CliError::new("--from names no checkpoint")) };
    if until.as_ref().is_some_and(|until| until.id < from.id) {
        return Err(CliError::new("--from is later than --to")
            .with_hint("swap them: a diff shows what changed as time passed"));
    }
    let asked = args.leave_out.asked(&args.paths, new.session().path(), new.base_path());
    let selection = old.with_tree(|then| {
        new.with_tree(|now| {
            Selection::parse(&asked, &|path| {
                Ok(is_known(&new, now, path)? || is_known(&old, then, path)?)
            })
        })
    })?;
    let (client_temp_files, times) = (args.all, args.times);
    let options = DiffOptions { selection, client_temp_files, times, ..DiffOptions::default() };
    let moments = Moments { old: &old, new: &new, from: &from, until: until.as_ref() };
    if args.is_patch() {
        return patch::print_with(args, &new, &options, &|style, out| {
            patch_between(&moments, &options, style, out)
        });
    }
    let (files, left_out, differences) = match args.has_counts() {
        true => {
            let counted = stats_between(&moments, &options, &args.style())?;
            (counted.files, counted.left_out, counted.differences)
        }
        false => {
            let found = moments.differences(&options)?;
            let left_out = PatchOmissions { denied: found.denied, ..PatchOmissions::default() };
            (Vec::new(), left_out, found.all)
        }
    };
    let is_any = !differences.is_empty();
    let mut out = output(args);
    print(args, (&new, &options), (differences, &files), &mut out)?;
    out.end()?;
    tell_unmatched(&options.selection, "change");
    stderr::tell_of_denied(&left_out.denied, "shown");
    if !left_out.denied.is_empty() {
        return Ok(Ending::Exit(2));
    }
    Ok(if is_any { Ending::Findings } else { Ending::Done })
}

/// Refuses the options that only a comparison with the base has.
fn check_options(args: &Args) -> Result<(), CliError> {
    let refused = |option: &str, hint: &str| {
        Err(CliError::new(format_args!("{option} does not go with --from")).with_hint(hint))
    };
    match args {
        Args { find_renames: Some(_), .. } => refused(
            "--find-renames",
            "leave it out: what moved since a checkpoint is shown as renamed, whatever its content",
        ),
        Args { hunks: true, .. } => refused(
            "--hunks",
            "leave --from out: hunks are applied and discarded, which is against the base",
        ),
        args if args.source.at().is_some() => {
            refused("--at", "--from names the earlier tree, and --to the later one")
        }
        _ => Ok(()),
    }
}
