//! `acetate discard` of chosen changes and hunks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::{Args, step_name, tell_undo};
use crate::cli::change::{PathResults, SessionChanger, with_session_changer};
use crate::cli::checkpoint::before_step::{StepCheckpoint, StepToKeep};
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::picking::{Offer, Verb};
use crate::cli::selecting::{tell_excluded_moves, tell_unmatched};
use crate::cli::{Ending, asking, text};
use crate::control::{Answer, AttrChanges, Reading, Request};
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference, diff_past_denied};
use crate::inspect::fold::each_path;
use crate::inspect::hunks::{DiscardStep, whole_id, without};
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::Selection;

/// Lets the user choose, and discards the chosen pieces.
pub(super) fn run(
    args: &Args,
    opened: &OpenSession,
    selection: Selection,
) -> Result<Ending, CliError> {
    let options = DiffOptions { selection, ..DiffOptions::default() };
    let mut differences = Vec::new();
    let denied = diff_past_denied(opened, &options, &mut |_, difference| {
        differences.push(difference);
        Ok(ControlFlow::Continue(()))
    })?;
    tell_unmatched(&options.selection, "change");
    tell_excluded_moves(&options.selection);
    output::tell_of_denied(&denied, "offered");
    let paths = each_path(opened, &options, differences.clone())?;
    let seen: BTreeMap<_, _> =
        differences.iter().map(|d| (d.change.path.clone(), whole_id(d))).collect();
    let quiet = Vec::new();
    let offer = Offer {
        opened,
        differences,
        time_only_dirs: quiet,
        drifted: BTreeSet::new(),
        in_base: BTreeSet::new(),
        is_to_copy: false,
        has_own: false,
        verb: Verb::Discard,
        selection: &options.selection,
    };
    let chosen = args.picking.pick(&offer)?;
    if chosen.is_empty() {
        output::line(format_args!("nothing was chosen"));
        return Ok(Ending::Findings);
    }
    let undoings = || without(opened, (&chosen, &seen));
    let planned = undoings()?;
    if args.dry_run {
        return show(args, &planned, (None, &paths), None);
    }
    let is_asked = !args.yes && !args.json && asking::can_ask();
    let count = planned.iter().filter(|undoing| !is_nothing(undoing)).count();
    if is_asked && count > 0 {
        for undoing in &planned {
            output::line(format_args!("{}", line("would discard", undoing)));
        }
        let what = text::count(count, "path");
        let for_good = if args.no_checkpoint { " for good" } else { "" };
        if !asking::ask(&format_args!("discard what was chosen of {what}{for_good}?"))? {
            output::line(format_args!("nothing was discarded"));
            return Ok(Ending::Findings);
        }
    }
    // The session may have changed while the user answered.
    let undoings = if is_asked { undoings()? } else { planned };
    let mut several = PathResults::default();
    let keeps = !args.no_checkpoint && !undoings.iter().all(is_nothing);
    let step = keeps.then(|| step(opened, &undoings));
    let (done, before) = with_session_changer(&args.source, |changer| {
        let mut done = Vec::new();
        let before = step.map(|step| StepCheckpoint::make(changer, &step)).transpose()?;
        let mut before = before.unwrap_or_default();
        for undoing in &undoings {
            done.push(several.take(give_up(changer, undoing, &mut before))?.unwrap_or(0));
        }
        Ok((done, before.id()))
    })?;
    let ending = show(args, &undoings, (Some(&done), &paths), before)?;
    if !args.json {
        tell_undo(&args.source, before);
    }
    match several.end()? {
        Ending::Done => Ok(ending),
        other => Ok(other),
    }
}

/// What the checkpoint before these steps is made for.
fn step(opened: &OpenSession, undoings: &[DiscardStep]) -> StepToKeep {
    let chosen = undoings.iter().filter(|undoing| !is_nothing(undoing));
    let paths: Vec<_> = chosen.map(|undoing| path(undoing).clone()).collect();
    StepToKeep::new(step_name(&paths), opened, &paths)
}

fn is_nothing(undoing: &DiscardStep) -> bool {
    matches!(undoing, DiscardStep::Nothing(..))
}

/// How many changes of `each`, which has one for each path, the steps discard: of a directory all
/// in it.
fn count<'u>(steps: impl Iterator<Item = &'u DiscardStep>, each: &[Difference]) -> usize {
    let (whole, parts): (Vec<_>, Vec<_>) =
        steps.partition(|step| matches!(step, DiscardStep::Path(_)));
    let whole: BTreeSet<_> = whole.into_iter().map(path).collect();
    let is_in = |at: &MergedPath| whole.contains(at) || at.above().any(|up| whole.contains(&up));
    each.iter().filter(|difference| is_in(&difference.path)).count() + parts.len()
}

/// Performs one step; returns 0 if it had nothing to discard.
fn give_up(
    changer: &mut SessionChanger,
    undoing: &DiscardStep,
    before: &mut StepCheckpoint,
) -> Result<u64, CliError> {
    let meta = |attributes: Option<[u32; 3]>| {
        let [mode, uid, gid] = attributes.map_or([None; 3], |all| all.map(Some));
        AttrChanges { mode, uid, gid, ..AttrChanges::default() }
    };
    let answer = match undoing {
        DiscardStep::Path(path) => {
            before.ask(changer, Request::Discard { paths: vec![path.into()] })
        }
        DiscardStep::Attributes(path, attributes) => {
            let meta = meta(Some(*attributes));
            changer.ask(Request::SetMeta { path: path.into(), meta })
        }
        DiscardStep::Hunks { path, object: (id, at), content, attributes, .. } => {
            let object = (id.0, at.secs, at.nanos);
            let request = Request::Rewrite { path: path.into(), object, meta: meta(*attributes) };
            changer.ask_with(request, Reading::stream(&content[..]))
        }
        DiscardStep::Nothing(..) => return Ok(0),
    }?;
    let Answer::Undone { changes, idle, .. } = answer else { return Ok(1) };
    let Some((path, gone_with)) = idle.first() else { return Ok(changes) };
    let path = text::name(path.as_bytes());
    let failed = CliError::new(format!("{path}: nothing to discard")).about_path();
    Err(match gone_with {
        Some(above) => {
            let above = text::name(above.as_bytes());
            failed.with_hint(format!("it cannot come back by itself: discard {above}"))
        }
        None => failed,
    })
}

/// Shows what was discarded; if `done` is `None`, what would be.
fn show(
    args: &Args,
    undoings: &[DiscardStep],
    (done, each): (Option<&[u64]>, &[Difference]),
    before: Option<i64>,
) -> Result<Ending, CliError> {
    let mut out = Out::new();
    let verb = if done.is_some() { "discarded" } else { "would discard" };
    let (mut shown, mut left) = (Vec::new(), 0_u64);
    for (at, undoing) in undoings.iter().enumerate() {
        if is_nothing(undoing) {
            left += 1;
            output::line(format_args!("{}", line(verb, undoing)));
            continue;
        }
        if done.is_some_and(|done| done[at] == 0) {
            continue;
        }
        shown.push(undoing);
        if !args.json {
            out.line(format_args!("{}", line(verb, undoing)))?;
            continue;
        }
        let mut object = text::json("undone");
        text::put_path(&mut object, "path", path(undoing).as_bytes());
        if let DiscardStep::Hunks { hunks: (some, _), .. } = undoing {
            object.insert("hunks".to_owned(), (*some).into());
        }
        out.json(object)?;
    }
    if args.json {
        let mut object = text::json("discard");
        object.insert("paths".to_owned(), shown.len().into());
        object.insert("changes".to_owned(), count(shown.iter().copied(), each).into());
        object.insert("unchanged".to_owned(), left.into());
        object.insert("safety_checkpoint".to_owned(), before.into());
        out.json(object)?;
    }
    out.end()?;
    Ok(if left > 0 || shown.is_empty() { Ending::Findings } else { Ending::Done })
}

fn path(undoing: &DiscardStep) -> &MergedPath {
    match undoing {
        DiscardStep::Path(path)
        | DiscardStep::Hunks { path, .. }
        | DiscardStep::Attributes(path, _)
        | DiscardStep::Nothing(path, _) => path,
    }
}

fn line(verb: &str, undoing: &DiscardStep) -> String {
    let path = text::name(path(undoing).as_bytes());
    match undoing {
        DiscardStep::Path(_) => format!("{verb}: {path}"),
        DiscardStep::Hunks { hunks: (some, all), .. } => {
            format!("{verb}: {path} ({some} of {})", text::count(*all, "hunk"))
        }
        DiscardStep::Attributes(..) => format!("{verb}: {path} (mode or owner)"),
        DiscardStep::Nothing(_, why) => format!("{path}: {why}: it stays"),
    }
}
