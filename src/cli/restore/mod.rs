//! `acetate restore` and `acetate undo`: makes the tree that of a checkpoint again.

mod call;
mod show;

use std::ffi::OsString;
use std::thread;
use std::time::Duration;

use super::change::with_session_changer;
use super::error::CliError;
use super::mount_events::sync_mounts;
use super::output;
use super::source::SessionSource;
use super::tree_paths::TreePaths;
use super::{Ending, applied_since, asking, checkpoint, steps_back, text};
use crate::control::limits::MAX_PATHS;
use crate::control::{Answer, PathText, Request, RestoreAnswer, RestorePathsText};
use crate::delta::{Checkpoint, MergedPath};
use crate::inspect::apply::check_finished;
use crate::inspect::checkpoint::{checkpoints, steps_back as log_of_steps};
use crate::inspect::counts::ChangeCounts;
use crate::inspect::diff::DiffOptions;
use crate::inspect::fold::each_path;
use crate::inspect::opened::OpenSession;
use crate::inspect::restore::{RestorePlan, plan_restore, undo_targets};
use crate::inspect::restore_paths::{RestoreScope, plan_restore_paths};
use show::{print_json, print_result, show_json, show_plan, tell_restored};

/// The most lines of the plan that are shown before the question.
const MAX_SHOWN: usize = 20;

/// How often a restore of paths that does not ask is attempted while others change the session.
const MAX_ATTEMPTS: u32 = 10;

/// How long it waits between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// The most checkpoints that an undo compares with.
const MAX_UNDO_CANDIDATES: usize = 100;

/// The most checkpoints that an undo compares with, to name the next one.
const MAX_FURTHER_BACK: usize = 3;

/// Go back to a checkpoint, also while clients have the tree mounted.
///
/// Everything that the session changed since is taken back, whatever changed it; what was deleted
/// since returns. With PATHs, only they are restored, and what must go along with them, which is
/// marked: further names of a file; missing directories above, without their other entries; a
/// directory above that moved or was replaced, with everything below it. The base is not touched.
/// The tree as it is gets a checkpoint first, so `acetate undo` brings it back. On a terminal, the
/// command shows what changes, and asks; without one, it needs --yes. Exits with 1 if nothing
/// differs, or the answer is no.
///
/// With --tool-call, only what changed while that call of `acetate tool run` or `acetate mcp` ran
/// is taken back. That is refused if the same paths were changed again after the call, or another
/// call ran at the same time.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// The checkpoint: an id, a name, `@-1` for the newest, or a moment.
    #[arg(value_name = "CHECKPOINT", required_unless_present = "tool_call")]
    checkpoint: Option<String>,

    /// A file, or a directory with everything below: only these paths become what they were.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    /// Take back what this tool call changed (`acetate tool ls` lists them).
    #[arg(long, value_name = "N")]
    tool_call: Option<i64>,

    #[command(flatten)]
    how: RestoreOptions,
}

/// Take back the last step: go back to the newest other checkpoint.
///
/// `acetate run` and `acetate tool run` make a checkpoint before the command, and `acetate
/// restore`, `undo`, `discard` and `merge` one before they change the tree. So this takes back the
/// last of these, and a second undo brings it back. Later changes by others go with it. What
/// `acetate apply` wrote to the base is taken back by `acetate apply --undo`. On a terminal, the
/// command shows what changes, and asks; without one, it needs --yes. Exits with 1 if there is
/// nothing to undo, or the answer is no.
#[derive(Debug, clap::Args)]
pub(super) struct UndoArgs {
    #[command(flatten)]
    source: SessionSource,

    #[command(flatten)]
    how: RestoreOptions,
}

/// How to go back.
#[derive(Debug, clap::Args)]
struct RestoreOptions {
    /// Do not ask.
    ///
    /// What others change until it is done is taken back too; but a restore of PATHs or of a tool
    /// call is planned again if the session changes, and attempted 10 times.
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,

    /// Only show what would change.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Go back although changes were applied to the base since, or the log has lost rows since, or
    /// the checkpoint is incomplete.
    ///
    /// After an apply, the base is not what the checkpoint showed through: paths that the session
    /// had not changed at the checkpoint keep what was applied. `acetate checkpoint ls` shows
    /// which checkpoints are incomplete; a warning says what may be wrong.
    #[arg(long)]
    force: bool,

    /// Print a JSON object for each path that changes, as `acetate diff` does, with goes_along for
    /// a restore of paths; and a last one: session, checkpoint, name, tool_call, dry_run,
    /// safety_checkpoint (the tree as it was), changes.
    #[arg(long)]
    json: bool,
}

/// Runs `acetate restore`.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(ending) = run_once(args)? {
            return Ok(ending);
        }
        if !args.how.yes {
            return Err(changed_since());
        }
        thread::sleep(PAUSE);
    }
    Err(changed_in_each_attempt())
}

/// As [`run`]; `None` if something changed since it was shown.
fn run_once(args: &Args) -> Result<Option<Ending>, CliError> {
    if let (Some(call), Some(given)) = (args.tool_call, &args.checkpoint) {
        // clap would say that it is a checkpoint.
        let what = format!("--tool-call takes back all of the call: leave out `{given}`");
        let session = args.source.session.display();
        return Err(CliError::new(what).with_hint(format_args!(
            "some paths alone: `acetate restore {session} CHECKPOINT PATH...`; `acetate tool show \
             {session} {call}` names the checkpoint before the call"
        )));
    }
    let opened = open(&args.source)?;
    if let Some(call) = args.tool_call {
        return call::run_once(&args.source, &args.how, opened, call);
    }
    let to = checkpoint::find(opened.session(), args.checkpoint.as_deref().unwrap_or_default())?;
    let paths = TreePaths::of(&opened).all(&args.paths)?;
    if args.how.yes && !args.how.json && is_whole(&paths) {
        // A plan, which takes longer than the restore, would be for no reader.
        check_applies(args.how.force, &opened, &to)?;
        checkpoint::check_complete(&to, args.how.force)?;
        drop(opened);
        let Some((before, objects)) = restore(&args.source, &to, None)? else { return Ok(None) };
        if objects == 0 {
            let called = checkpoint::called(&to);
            output::line(format_args!("nothing differs from checkpoint {called}"));
            return Ok(Some(Ending::Findings));
        }
        // Of a plan, paths would be counted.
        let changes = format!("{} of the session", text::count(objects, "object"));
        tell_restored(&args.source, (&to, None), (&changes, before));
        let session = args.source.session.display();
        output::line(format_args!("`acetate diff {session} --from {before}` lists what changed"));
        return Ok(Some(Ending::Done));
    }
    check_applies(args.how.force, &opened, &to)?;
    let plan = plan(&args.source, &opened, (&to, &paths))?;
    if plan.differences.is_empty() {
        let called = checkpoint::called(&to);
        checkpoint::warn_if_incomplete(&to);
        let there = if is_whole(&paths) { "" } else { " there" };
        output::line(format_args!("nothing differs from checkpoint {called}{there}"));
        if args.how.json {
            print_json(&args.source, &args.how, (&to, None), (0, None))?;
        }
        return Ok(Some(Ending::Findings));
    }
    go_back(&args.source, &args.how, opened, &to, &plan)
}

/// What a restore did.
pub(super) struct RestoreDone {
    /// The checkpoint whose tree it is.
    pub(super) to: Checkpoint,
    /// The id of the checkpoint of the tree before; `None` if nothing differed at the paths.
    pub(super) before: Option<i64>,
    /// How many objects changed, came back or went.
    pub(super) objects: u64,
    /// What a restore of paths changed.
    pub(super) plan: Option<RestorePlan>,
}

/// What is restored.
#[derive(Debug, Clone, Copy)]
pub(super) enum RestoreWhat<'a> {
    /// The checkpoint that a text names, with the whole tree or some paths.
    Checkpoint(&'a str, &'a [MergedPath]),
    /// What a tool call changed.
    ToolCall(i64),
}

/// Goes back without a question.
pub(super) fn without_asking(
    source: &SessionSource,
    what: RestoreWhat<'_>,
) -> Result<RestoreDone, CliError> {
    for _ in 0..MAX_ATTEMPTS {
        let opened = open(source)?;
        let (to, plan) = match what {
            RestoreWhat::ToolCall(id) => {
                let (to, plan) = call::plan_for_agent(source, &opened, id)?;
                (to, Some(plan))
            }
            RestoreWhat::Checkpoint(checkpoint, paths) => {
                let to = checkpoint::find(opened.session(), checkpoint)?;
                check_applies(false, &opened, &to)?;
                let plan = match is_whole(paths) {
                    true => None,
                    false => Some(plan(source, &opened, (&to, paths))?),
                };
                (to, plan)
            }
        };
        checkpoint::check_complete(&to, false)?;
        drop(opened);
        if plan.as_ref().is_some_and(|plan| plan.differences.is_empty()) {
            return Ok(RestoreDone { to, before: None, objects: 0, plan });
        }
        if let Some((before, objects)) = restore(source, &to, plan.as_ref())? {
            return Ok(RestoreDone { to, before: Some(before), objects, plan });
        }
        thread::sleep(PAUSE);
    }
    Err(changed_in_each_attempt())
}

/// Runs `acetate undo`.
pub(super) fn undo(args: &UndoArgs) -> Result<Ending, CliError> {
    let opened = open(&args.source)?;
    // What changed after a checkpoint may have been changed back.
    let targets = undo_targets(opened.session())?;
    if let Some(newest) = targets.first().filter(|_| !args.how.force) {
        applied_since::check_undo(&opened, newest)?;
    }
    for (at, to) in targets.iter().take(MAX_UNDO_CANDIDATES).enumerate() {
        check_applies(args.how.force, &opened, to)?;
        let plan = plan(&args.source, &opened, (to, &[]))?;
        if !plan.differences.is_empty() {
            output::line(format_args!("undo: back to {}", describe(to)));
            let steps = log_of_steps(opened.session(), to)?;
            if let Some(taken) = steps_back::words(&steps) {
                output::line(format_args!("takes back {taken}"));
            }
            if let Some(older) = further_back(&args.source, &opened, &targets[at + 1..])? {
                let (session, older) = (args.source.session.display(), older.id);
                output::line(format_args!("further back: acetate restore {session} {older}"));
            }
            return go_back(&args.source, &args.how, opened, to, &plan)?.ok_or_else(changed_since);
        }
    }
    if let Some(older) = targets.get(MAX_UNDO_CANDIDATES) {
        let (session, older) = (args.source.session.display(), older.id);
        let what = format!(
            "the newest {MAX_UNDO_CANDIDATES} checkpoints have this tree: nothing was undone"
        );
        return Err(CliError::new(what)
            .with_hint(format_args!("further back: acetate restore {session} {older}")));
    }
    output::line(format_args!("nothing to undo: no checkpoint has another tree"));
    if checkpoints(opened.session())?.is_empty() {
        let session = args.source.session.display();
        output::line(format_args!(
            "the session has no checkpoint; `acetate discard {session} /` discards all its changes"
        ));
    }
    Ok(Ending::Findings)
}

fn open(source: &SessionSource) -> Result<OpenSession, CliError> {
    sync_mounts(&source.session);
    let opened = source.open()?;
    check_finished(&opened)?;
    Ok(opened)
}

/// A checkpoint with its time, kind and labels.
fn describe(checkpoint: &Checkpoint) -> String {
    let labels = checkpoint.labels.iter().map(|(key, value)| format!(", {key} {value}"));
    let labels: String = labels.collect();
    format!(
        "checkpoint {} of {} ({}{})",
        checkpoint::called(checkpoint),
        text::time_short(checkpoint.time),
        checkpoint.kind.as_str(),
        text::printable(&labels)
    )
}

/// The newest of these checkpoints with another tree than the present one, or one that is not
/// compared any more.
fn further_back<'t>(
    source: &SessionSource,
    opened: &OpenSession,
    targets: &'t [Checkpoint],
) -> Result<Option<&'t Checkpoint>, CliError> {
    for older in targets.iter().take(MAX_FURTHER_BACK) {
        if !plan(source, opened, (older, &[]))?.differences.is_empty() {
            return Ok(Some(older));
        }
    }
    Ok(targets.get(MAX_FURTHER_BACK))
}

/// Refuses to go on across an apply to the base since a checkpoint, but for `force`.
fn check_applies(force: bool, opened: &OpenSession, to: &Checkpoint) -> Result<(), CliError> {
    match force {
        true => Ok(()),
        false => applied_since::check(opened.session(), opened.base_path(), to),
    }
}

/// Whether these paths are the whole tree.
fn is_whole(paths: &[MergedPath]) -> bool {
    paths.is_empty() || paths.contains(&MergedPath::root())
}

/// What would change, in the whole tree or at some paths.
fn plan(
    source: &SessionSource,
    opened: &OpenSession,
    (to, paths): (&Checkpoint, &[MergedPath]),
) -> Result<RestorePlan, CliError> {
    if is_whole(paths) {
        return Ok(plan_restore(opened, source.base.as_deref(), to)?);
    }
    let plan = plan_restore_paths(opened, source.base.as_deref(), to, paths)?;
    check_count(plan.scope.as_ref().map_or(0, |scope| scope.closed.count()))?;
    Ok(plan)
}

/// Refuses more paths than one request has.
fn check_count(paths: usize) -> Result<(), CliError> {
    if paths <= MAX_PATHS {
        return Ok(());
    }
    let what = format!("{paths} paths must go back together, and {MAX_PATHS} is the most");
    let hint = "name a directory above them, or restore the whole tree";
    Err(CliError::new(what).with_hint(hint))
}

/// Shows what changes, asks, and goes back. `None` if something changed since it was shown.
fn go_back(
    source: &SessionSource,
    how: &RestoreOptions,
    opened: OpenSession,
    to: &Checkpoint,
    plan: &RestorePlan,
) -> Result<Option<Ending>, CliError> {
    checkpoint::check_complete(to, how.force)?;
    output::tell_of_denied(&plan.denied, "compared");
    let each = each_path(&opened, &DiffOptions::default(), plan.differences.clone())?;
    let counts = ChangeCounts::of(&each);
    if how.dry_run {
        show_plan(how, (&opened, plan), &each, usize::MAX)?;
        return print_result(source, how, (to, plan.call), (counts, None)).map(Some);
    }
    if !how.yes {
        if how.json || !asking::can_ask() {
            let why =
                if how.json { "--json does not ask" } else { "cannot ask without a terminal" };
            let what = CliError::new(format!("{why}: nothing changed"));
            return Err(what.with_hint("--yes goes back, --dry-run shows what would change"));
        }
        show_plan(how, (&opened, plan), &each, MAX_SHOWN)?;
        let question = match plan.call {
            Some(call) => format!("take back tool call {call}?"),
            None => format!("restore checkpoint {}?", checkpoint::called(to)),
        };
        if !asking::ask(&format_args!("{}: {question}", text::changes(counts)))? {
            output::line(format_args!("nothing changed"));
            return Ok(Some(Ending::Findings));
        }
    }
    drop(opened);
    if !how.yes {
        // The user has taken time to answer.
        sync_mounts(&source.session);
    }
    // Without a question, what others change until it is done is taken back too; not by a restore
    // of paths, which is of the paths that the plan found, nor by that of a tool call.
    let shown = (!how.yes || plan.scope.is_some() || plan.call.is_some()).then_some(plan);
    let Some((before, _)) = restore(source, to, shown)? else { return Ok(None) };
    if how.json {
        show_json(plan, &each)?;
    }
    print_result(source, how, (to, plan.call), (counts, Some(before))).map(Some)
}

/// Goes back; with a plan, only if the session did not change since. Returns the checkpoint of the
/// tree before, and how many objects changed; `None` if it changed.
fn restore(
    source: &SessionSource,
    to: &Checkpoint,
    shown: Option<&RestorePlan>,
) -> Result<Option<(i64, u64)>, CliError> {
    let (id, seen) = (to.id.0, shown.map(|plan| plan.seen));
    let request = match shown.and_then(|plan| Some((plan.seen, plan.scope.as_ref()?))) {
        None => Request::Restore { to: id, seen },
        Some((seen, RestoreScope { closed, .. })) => Request::RestorePaths(RestorePathsText {
            to: id,
            seen,
            paths: closed.paths.iter().map(PathText::from).collect(),
            dirs: closed.dirs.iter().map(PathText::from).collect(),
            absent: closed.absent.iter().map(PathText::from).collect(),
        }),
    };
    match with_session_changer(source, |changer| changer.ask(request))? {
        Answer::Restored(RestoreAnswer::Done { before, objects }) => Ok(Some((before, objects))),
        Answer::Restored(RestoreAnswer::NoCheckpoint) => {
            Err(CliError::new("the checkpoint was removed: nothing changed"))
        }
        Answer::Restored(RestoreAnswer::ChangedSince) => Ok(None),
        _ => Err(CliError::new("unexpected reply from the session's server")),
    }
}

fn changed_since() -> CliError {
    let what = "the session changed since this was shown: nothing was restored";
    CliError::new(what).with_hint("look again, with the same command")
}

fn changed_in_each_attempt() -> CliError {
    let what =
        format!("the session changed during each of {MAX_ATTEMPTS} attempts: nothing was restored");
    CliError::new(what).with_hint("stop the program that changes it, or restore the whole tree")
}

#[cfg(test)]
mod tests {
    use super::{MAX_PATHS, check_count};

    #[test]
    fn more_paths_than_a_request_has_are_refused() {
        assert!(check_count(MAX_PATHS).is_ok());
        let refused = check_count(MAX_PATHS + 1).unwrap_err().to_string();
        assert!(refused.contains("8193 paths must go back together, and 8192 is"), "{refused}");
    }
}
