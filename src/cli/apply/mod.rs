//! `acetate apply`: writes the session's changes to its base.

pub(super) mod advice;
mod choosing;
mod forgetting;
mod next_steps;
mod printing;
mod progress;
mod question;
mod report;
mod take;
mod undo;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::CliError;
use super::lost_dirs;
use super::output;
use super::picking::Picking;
use super::selecting::{LeaveOut, tell_ignored, tell_unmatched};
use super::signals::Interrupts;
use super::source::SessionSource;
use super::{Ending, text};
use crate::control::limits::MAX_PATHS;
use crate::control::{PathText, Request};
use crate::inspect::apply::{
    AppliedChange, ApplyOptions, ApplyPlan, Consent, InterruptedApply, KeptExtent, KeptInBase,
    SessionUpdater, ShowPlan, apply, check_not_undone, clear, has_moves_of_both, interrupted,
    keep_nothing, plan, resume,
};
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::Selection;
use crate::workspace::layers::check_base;
use choosing::choose;
use forgetting::{Forgetting, with_changer};
use next_steps::{command, has_rest, keeping_originals, note_next, overwriting, without_git};
use printing::PlanPrinter;
use progress::ApplyProgress;
use report::tell;
pub(super) use report::undo_command;
pub(super) use take::with_take_apart;

/// Write what a session changed to its base.
///
/// Shows the plan, and asks. Text that the session and the base both changed is merged against what
/// the base had when the session first changed it. What cannot be merged is never overwritten
/// without --force or --take session: if there is any, nothing is written unless --skip-drifted
/// skips it;
/// set-user-ID files and devices are left out without --allow-special. Each file is replaced at
/// once, whole; nothing outside the base is touched. Clients may change the session during apply:
/// their changes are skipped and stay in the session. May be killed at any time: the next run
/// finishes what was begun, and does no more then. What is replaced and removed is kept beside the
/// session until the next apply: --undo puts it back. Exits with 1 if something was not applied.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Only what is at, below or from these paths, or pathspecs: `*.rs`, `:!dist`.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    #[command(flatten)]
    leave_out: LeaveOut,

    #[command(flatten)]
    picking: Picking,

    /// Write to this copy of the base instead; the session keeps its changes.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,

    /// Do not ask.
    #[arg(short, long)]
    yes: bool,

    /// Only show the plan.
    #[arg(short = 'n', long, conflicts_with = "yes")]
    dry_run: bool,

    /// Overwrite also what changed behind the session's back.
    #[arg(long)]
    force: bool,

    /// Apply the rest where the base changed what cannot be merged.
    ///
    /// The session keeps its changes of that.
    #[arg(long, conflicts_with = "force")]
    skip_drifted: bool,

    /// Merge text in which both changed the same lines too, with conflict markers, as git does.
    #[arg(long, hide_short_help = true)]
    conflict_markers: bool,

    /// Whose state counts where the base changed: `session` or `base`.
    ///
    /// `session` overwrites PATH in the base, `base` gives up what the session has at PATH.
    #[arg(long, num_args = 2, value_names = ["SIDE", "PATH"], action = clap::ArgAction::Append)]
    take: Vec<OsString>,

    /// Make set-user-ID and set-group-ID files and device nodes too.
    #[arg(long, hide_short_help = true)]
    allow_special: bool,

    /// Also what clients and killed commands leave behind.
    ///
    /// Files called .nfs*, ._*, .DS_Store or .acetate-write-*; and name each of git's own files,
    /// and of those of context nodes.
    #[arg(long, hide_short_help = true)]
    all: bool,

    #[command(flatten)]
    keep: undo::KeepArgs,

    /// Print JSON objects.
    ///
    /// Types: difference, undo, drift, merged, unchanged, special, left_out, loss, plan, undo_plan,
    /// kept, skipped, attribute_kept, link_lost, applied.
    #[arg(long)]
    json: bool,
}

/// Shows the plan, asks, and applies it.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    args.picking.check(args.json)?;
    let opened = args.source.open()?;
    // The session cannot drop changes that are applied to another base than its own.
    // An undo leaves the session as it is.
    let drops_changes = args.to.is_none() && !args.keep.undo;
    if let Some(base) = args.source.base.as_ref().filter(|_| drops_changes) {
        check_base(opened.session(), base)?;
    }
    if let Some(left) = interrupted(&opened, args.to.as_deref())? {
        return finish_interrupted(args, &opened, left);
    }
    if args.keep.undo {
        return undo::run(args, &opened);
    }
    let selection = args.leave_out.read(&opened, &args.paths)?;
    let mut options = options(args, &opened, selection)?;
    if !args.dry_run {
        clear(&opened, args.to.as_deref())?;
    }
    if args.picking.is_given() {
        let chosen = choose(args, &opened, &options)?;
        if chosen.is_empty() {
            output::line(format_args!("nothing was chosen"));
            return Ok(Ending::Findings);
        }
        options.chosen = Some(Arc::new(chosen));
    }
    let mut shown = PlanPrinter::new(args, &opened);
    let mut plan =
        plan(&opened, args.to.as_deref(), &options, &mut |change| shown.difference(change))?;
    tell_unmatched(&options.selection, "change");
    tell_ignored(&opened, &options.selection)?;
    lost_dirs::warn(&opened)?;
    let is_left = |drifted| args.skip_drifted || plan.is_taken_from_base(drifted);
    let stops = plan.drifted.iter().filter(|drifted| !args.force && !is_left(drifted)).count();
    let has_work = !plan.changes.is_empty() && stops == 0;
    if stops > 0 {
        plan.ends_undo_of = None;
    }
    if has_work && !args.dry_run {
        check_bound(args, &plan)?;
        check_kept(args, &opened, &plan)?;
    }
    // With --yes, `apply` prints the plan of its own snapshot.
    if !args.yes || !has_work {
        shown.print(&plan)?;
    }
    if plan.changes.is_empty() {
        if args.yes && args.to.is_none() {
            drop_unchanged(args, &opened, &plan)?;
        }
        return Ok(ending_of(&plan));
    }
    if stops > 0 {
        return tell_stopped((args, &opened), &options, &plan, stops);
    }
    if args.dry_run {
        check_bound(args, &plan)?;
        check_kept(args, &opened, &plan)?;
        return Ok(ending_of(&plan));
    }
    if !args.yes
        && let Some(ending) = question::ask(args, &opened, &plan)?
    {
        return Ok(ending);
    }
    write(args, &opened, &options, &plan)
}

/// Says that nothing was written because of drifted objects, and what to do about these.
fn tell_stopped(
    (args, opened): (&Args, &OpenSession),
    options: &ApplyOptions,
    plan: &ApplyPlan,
    stops: usize,
) -> Result<Ending, CliError> {
    let marked = text::count(stops, "object");
    let has_rest = has_rest(args, opened, options)?;
    let rest = if has_rest { "--skip-drifted applies the rest; " } else { "" };
    output::line(format_args!(
        "nothing was written, because of {marked} marked with `!`: {rest}for each of them, \
         --take base PATH keeps what the base has{}{}{}",
        overwriting(plan),
        without_git(plan),
        keeping_originals(plan),
    ));
    Ok(Ending::Findings)
}

/// Drops copies in which the session changed nothing, and moves that the base made too.
fn drop_unchanged(args: &Args, opened: &OpenSession, plan: &ApplyPlan) -> Result<(), CliError> {
    let has_moves = has_moves_of_both(opened)?;
    if plan.unchanged.is_empty() && !has_moves {
        return Ok(());
    }
    with_updater(args, opened, ApplyRun::Other, |updater| {
        let Some(updater) = updater else { return Ok(()) };
        if has_moves {
            updater.settle_moves()?;
        }
        updater.drop_unchanged(&plan.unchanged);
        Ok(())
    })
}

/// Finishes an interrupted apply or undo, and starts no other.
fn finish_interrupted(
    args: &Args,
    opened: &OpenSession,
    InterruptedApply { steps, left, is_undo }: InterruptedApply,
) -> Result<Ending, CliError> {
    if args.keep.undo && !is_undo {
        return Err(CliError::new("an apply was interrupted: nothing was undone")
            .with_hint("finish it with `acetate apply` without --undo, then undo it"));
    }
    let (what, steps) = (if is_undo { "undo" } else { "apply" }, text::count(steps, "step"));
    output::line(format_args!("an {what} was interrupted: {left} of {steps} left"));
    if args.dry_run {
        return Ok(Ending::Findings);
    }
    if args.keep.no_keep {
        keep_nothing(opened, args.to.as_deref())?;
    }
    finish(args, opened)
}

/// Refuses more changes that are bound to one request than a request may have.
fn check_bound(args: &Args, plan: &ApplyPlan) -> Result<(), CliError> {
    match AppliedChange::count_inseparable(&plan.changes) {
        bound if bound > MAX_PATHS && args.to.is_none() => {
            let what = format!(
                "{bound} directories moved together with objects in them: nothing was written, \
                 because the session can drop {MAX_PATHS} of these at once"
            );
            let hint = "apply to a copy with --to, or some of these directories at a time";
            Err(CliError::new(what).with_hint(hint))
        }
        _ => Ok(()),
    }
}

/// Refuses to lose the changes of an apply that was undone.
fn check_kept(args: &Args, opened: &OpenSession, plan: &ApplyPlan) -> Result<(), CliError> {
    match args.keep.limit() {
        Some(_) => Ok(check_not_undone(opened, args.to.as_deref(), plan)?),
        None => Ok(()),
    }
}

/// Applies the plan, and prints the report.
fn write(
    args: &Args,
    opened: &OpenSession,
    options: &ApplyOptions,
    plan: &ApplyPlan,
) -> Result<Ending, CliError> {
    let kept: BTreeSet<_> = plan.kept_in_base().cloned().collect();
    let ending = with_updater(args, opened, ApplyRun::New, |updater| {
        let interrupts = Interrupts::catch()?;
        let mut progress = ApplyProgress::new(&interrupts);
        let watch = &mut |event| progress.tell(event);
        let mut made = PlanPrinter::new(args, opened);
        let consent = if args.yes { Consent::All(&mut made) } else { Consent::Shown(plan) };
        let report = apply(opened, args.to.as_deref(), options, consent, updater, watch);
        progress.end();
        if let Some(error) = made.failed.take() {
            return Err(error.with_hint("nothing was written"));
        }
        let mut report = report?;
        report.skipped.retain(|skipped| !plan.left_to_base().contains(&skipped.path));
        let drifted = plan.drifted.iter().chain(&plan.overruled).map(|drifted| &drifted.path);
        undo::tell_copies(args, drifted, report.kept.as_deref())?;
        undo::tell_lost(args, plan.overwritten(), &report)?;
        report.left_out.retain(|left| !plan.left_to_base().contains(&left.path));
        if !args.json {
            report.skipped = plan.with_git_once(report.skipped);
        }
        let ending = tell(args, opened, &report)?;
        if args.skip_drifted && !report.skipped.is_empty() && !plan.drifted.is_empty() {
            note_next(args, plan);
        }
        let leaves_out = made.leaves_out.unwrap_or(plan.left_out_unasked() > 0);
        let has_markers = name_marked(plan);
        Ok(if leaves_out || has_markers { Ending::Findings } else { ending })
    })?;
    give_up(args, &kept, ending)
}

/// The ending of a run that writes nothing of its plan.
fn ending_of(plan: &ApplyPlan) -> Ending {
    if plan.left_out_unasked() == 0 { Ending::Done } else { Ending::Findings }
}

/// Prints the files that have conflict markers; returns whether there are any.
fn name_marked(plan: &ApplyPlan) -> bool {
    let marked: Vec<_> = plan.merged.iter().filter(|merged| merged.has_conflicts).collect();
    for merged in &marked {
        let path = text::name(merged.path.as_bytes());
        output::line(format_args!("{path}: has conflict markers, to be edited"));
    }
    !marked.is_empty()
}

/// Converts the arguments.
fn options(
    args: &Args,
    opened: &OpenSession,
    selection: Selection,
) -> Result<ApplyOptions, CliError> {
    let mut options = ApplyOptions {
        selection,
        client_temp_files: args.all,
        force: args.force,
        needs_difference: true,
        special: args.allow_special,
        skip_drifted: args.skip_drifted,
        conflict_markers: args.conflict_markers,
        keep: args.keep.limit(),
        ..ApplyOptions::default()
    };
    take::read_sides(args, opened, &mut options)?;
    Ok(options)
}

/// Discards the session's changes where `--take base` keeps the base's state; with --to, the
/// session keeps them.
fn give_up(args: &Args, kept: &BTreeSet<KeptInBase>, ending: Ending) -> Result<Ending, CliError> {
    if kept.is_empty() {
        return Ok(ending);
    }
    let has_one = kept.len() == 1;
    let stay = format!(
        "{} {} as the {} {} (--take base)",
        text::count(kept.len(), "object"),
        if has_one { "stays" } else { "stay" },
        if args.to.is_some() { "copy" } else { "base" },
        if has_one { "has it" } else { "has them" },
    );
    if args.to.is_some() {
        output::line(format_args!("{stay}; the session keeps its own"));
        return Ok(ending);
    }
    let paths = |extent: KeptExtent| -> Option<Vec<PathText>> {
        let some = kept.iter().filter(|kept| kept.extent == extent);
        let some: Vec<_> = some.map(|kept| (&kept.path).into()).collect();
        (!some.is_empty()).then_some(some)
    };
    with_changer(&args.source, |changer| {
        if let Some(paths) = paths(KeptExtent::Attributes) {
            changer.ask(Request::DiscardAttributes { paths })?;
        }
        if let Some(paths) = paths(KeptExtent::InRemovedDir) {
            changer.ask(Request::DiscardInRemoved { paths })?;
        }
        if let Some(paths) = paths(KeptExtent::Whole) {
            changer.ask(Request::Discard { paths })?;
        }
        Ok(())
    })?;
    output::line(format_args!("{stay}; the session gave up its own, and shows the base there:"));
    for KeptInBase { path, extent } in kept {
        let alone = if *extent == KeptExtent::Attributes { " (mode or owner)" } else { "" };
        output::line(format_args!("{}{alone}", text::name(path.as_bytes())));
    }
    Ok(ending)
}

/// What a run does to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApplyRun {
    /// It applies changes, which the session then drops: it begins with a checkpoint.
    New,
    /// It finishes or undoes an apply, or changes nothing that the session shows.
    Other,
}

/// Calls `f` with the updater of the session; `None` with --to, or if an undo is to a base that was
/// moved. The session is opened for changes first: if that fails, nothing is written.
fn with_updater<T>(
    args: &Args,
    opened: &OpenSession,
    run: ApplyRun,
    f: impl FnOnce(Option<&mut dyn SessionUpdater>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    if args.to.is_some() || undo::is_of_moved_base(args, opened)? {
        return f(None);
    }
    with_changer(&args.source, |changer| {
        f(Some(&mut match run {
            ApplyRun::New => Forgetting::after_checkpoint(changer, opened)?,
            ApplyRun::Other => Forgetting::new(changer),
        }))
    })
}

fn finish(args: &Args, opened: &OpenSession) -> Result<Ending, CliError> {
    with_updater(args, opened, ApplyRun::Other, |updater| {
        let interrupts = Interrupts::catch()?;
        let mut progress = ApplyProgress::new(&interrupts);
        let report = resume(opened, args.to.as_deref(), updater, &mut |event| progress.tell(event));
        progress.end();
        match report? {
            Some(mut report) => {
                // No plan was printed that lists these.
                report.skipped.append(&mut report.left_out);
                tell(args, opened, &report)
            }
            None => Ok(Ending::Done),
        }
    })
}

/// The target.
fn target<'a>(args: &'a Args, opened: &'a OpenSession) -> &'a Path {
    args.to.as_deref().or(opened.base_path()).unwrap_or(Path::new(""))
}
