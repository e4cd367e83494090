//! What a restore or undo changes, and what it did, on the terminal or as JSON.

use super::{RestoreOptions, RestorePlan};
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::source::SessionSource;
use crate::cli::{Ending, checkpoint, diff, text};
use crate::delta::Checkpoint;
use crate::inspect::counts::ChangeCounts;
use crate::inspect::diff::Difference;
use crate::inspect::opened::OpenSession;

/// Shows the paths that change: in lines on stderr before the question, else on stdout.
pub(super) fn show_plan(
    how: &RestoreOptions,
    (opened, plan): (&OpenSession, &RestorePlan),
    each: &[Difference],
    most: usize,
) -> Result<(), CliError> {
    if how.json {
        return show_json(plan, each);
    }
    let goes_along = |difference: &Difference| {
        plan.scope.as_ref().is_some_and(|scope| scope.goes_along(difference))
    };
    let (along, named): (Vec<_>, Vec<_>) = plan.differences.iter().cloned().partition(goes_along);
    let mut lines = diff::lines(opened, false, named)?;
    let along = diff::lines(opened, false, along)?;
    lines.extend(along.into_iter().map(|line| line + " (goes along)"));
    let mut out = Out::new();
    for line in lines.iter().take(most) {
        match how.dry_run {
            true => out.line(format_args!("{line}"))?,
            false => output::line(format_args!("{line}")),
        }
    }
    if let more @ 1.. = lines.len().saturating_sub(most) {
        output::line(format_args!("and {more} more"));
    }
    out.end()
}

pub(super) fn show_json(plan: &RestorePlan, each: &[Difference]) -> Result<(), CliError> {
    let mut out = Out::new();
    for difference in each {
        let mut json = diff::json(difference);
        if let Some(scope) = &plan.scope {
            json.insert("goes_along".to_owned(), scope.goes_along(difference).into());
        }
        out.json(json)?;
    }
    out.end()
}

/// Says what was done; `before` is the checkpoint of the tree before.
pub(super) fn print_result(
    source: &SessionSource,
    how: &RestoreOptions,
    (to, call): (&Checkpoint, Option<i64>),
    (counts, before): (ChangeCounts, Option<i64>),
) -> Result<Ending, CliError> {
    if how.json {
        print_json(source, how, (to, call), (counts.sum(), before))?;
        return Ok(Ending::Done);
    }
    let changes = text::changes(counts);
    match before {
        None => {
            let what = words(("restore", "take back"), (to, call));
            output::line(format_args!("would {what}: {changes}"));
        }
        Some(before) => tell_restored(source, (to, call), (&changes, before)),
    }
    Ok(Ending::Done)
}

pub(super) fn print_json(
    source: &SessionSource,
    how: &RestoreOptions,
    (to, call): (&Checkpoint, Option<i64>),
    (changes, before): (u64, Option<i64>),
) -> Result<(), CliError> {
    let mut json = text::json("restore");
    json.insert("session".to_owned(), source.session.display().to_string().into());
    json.insert("checkpoint".to_owned(), to.id.0.into());
    json.insert("name".to_owned(), to.name.clone().into());
    json.insert("tool_call".to_owned(), call.into());
    json.insert("dry_run".to_owned(), how.dry_run.into());
    json.insert("safety_checkpoint".to_owned(), before.into());
    json.insert("changes".to_owned(), changes.into());
    let mut out = Out::new();
    out.json(json)?;
    out.end()
}

/// What is restored: a verb for a checkpoint or for a tool call, and its name.
fn words(verbs: (&str, &str), (to, call): (&Checkpoint, Option<i64>)) -> String {
    match call {
        Some(call) => format!("{} tool call {call}", verbs.1),
        None => format!("{} checkpoint {}", verbs.0, checkpoint::called(to)),
    }
}

pub(super) fn tell_restored(
    source: &SessionSource,
    (to, call): (&Checkpoint, Option<i64>),
    (changes, before): (&str, i64),
) {
    let (what, session) = (words(("restored", "took back"), (to, call)), source.session.display());
    output::line(format_args!("{what}: {changes}"));
    output::line(format_args!(
        "the tree before is checkpoint {before}: `acetate undo {session}` brings it back"
    ));
}
