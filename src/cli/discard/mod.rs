//! `acetate discard`: discards changes of a session, so that paths show the base again.

mod parts;

use std::ffi::OsString;
use std::io::IsTerminal;

use crate::cli::change::with_session_changer;
use crate::cli::checkpoint::before_step::{StepCheckpoint, StepToKeep};
use crate::cli::error::CliError;
use crate::cli::output::{self, Out, ProgressLine};
use crate::cli::picking::Picking;
use crate::cli::selecting::{LeaveOut, tell_excluded_moves, tell_unmatched};
use crate::cli::source::SessionSource;
use crate::cli::{Ending, asking, text};
use crate::control::{Answer, PathText, Request, limits};
use crate::delta::MergedPath;
use crate::inspect::apply::check_finished;
use crate::inspect::counts::count_changes;
use crate::inspect::discard::{DiscardChoice, chosen, plan_discard};
use crate::inspect::opened::OpenSession;
use crate::inspect::selection::Selection;
use crate::overlay::{DiscardExtent, Idle};

/// Discard changes: the paths show the base again.
///
/// Of a move, both ends are discarded, whichever is named. The base is not touched. The tree as it
/// was gets a checkpoint first, so `acetate undo` brings the changes back. On a terminal, the
/// command shows how much that is, and asks. Exits with 1 if there is nothing to discard at a path.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// Paths in the tree, or pathspecs: `*.rs`, `:!dist`; `/` for all that the session changed.
    #[arg(value_name = "PATH", required_unless_present_any = ["patch", "interactive", "hunk"])]
    paths: Vec<OsString>,

    #[command(flatten)]
    leave_out: LeaveOut,

    #[command(flatten)]
    picking: Picking,

    /// Do not ask.
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,

    /// Discard for good: make no checkpoint.
    ///
    /// With one, the session keeps what is discarded until the checkpoint is removed.
    #[arg(long, hide_short_help = true)]
    no_checkpoint: bool,

    /// Only show what would be discarded.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Print a JSON object for each path that shows the base again: path; and a last one: paths,
    /// changes (how many `acetate diff --stat` counts at these paths), unchanged (paths with
    /// nothing to discard), safety_checkpoint (the tree as it was).
    #[arg(long)]
    json: bool,
}

/// The most paths that are listed before the question.
const MAX_SHOWN: usize = 20;

/// The longest path that the label of a checkpoint has, in bytes.
const MAX_NAMED_BYTES: usize = 256;

/// What was discarded, or would be.
struct Discarded {
    paths: Vec<PathText>,
    changes: u64,
    idle: Vec<(PathText, Option<PathText>)>,
    /// The checkpoint of the tree before.
    before: Option<i64>,
}

/// Runs the command.
pub(in crate::cli) fn run(args: &Args) -> Result<Ending, CliError> {
    args.picking.check(args.json)?;
    let opened = args.source.open()?;
    check_finished(&opened)?;
    let selection = args.leave_out.read(&opened, &args.paths)?;
    if args.picking.is_given() {
        return parts::run(args, &opened, selection);
    }
    let asked: Vec<_> = if selection.is_everything() {
        vec![MergedPath::root()]
    } else if selection.is_of_paths() {
        selection.paths().cloned().collect()
    } else {
        let DiscardChoice { paths, whole, tied } = chosen(&opened, &selection)?;
        tell_unmatched(&selection, "change");
        tell_excluded_moves(&selection);
        for dir in whole {
            let dir = text::name(dir.as_bytes());
            output::line(format_args!(
                "{dir}: was deleted with paths that are not chosen, and comes back only whole"
            ));
        }
        for path in tied {
            let path = text::name(path.as_bytes());
            output::line(format_args!(
                "{path}: was moved, and cannot come back without changes that are not chosen"
            ));
        }
        paths
    };
    if asked.is_empty() {
        output::line(format_args!("nothing to discard"));
        return Ok(Ending::Findings);
    }
    let planned = plan_discard(&opened, &asked)?;
    // A base file that cannot be read does not keep its change from being discarded.
    let changes = shown_changes(&opened, &planned.paths).unwrap_or(planned.changes);
    let undone = if args.dry_run {
        let idle = |idle: &Idle| ((&idle.path).into(), idle.gone_with.as_ref().map(PathText::from));
        Discarded {
            paths: planned.paths.iter().map(PathText::from).collect(),
            changes,
            idle: planned.idle.iter().map(idle).collect(),
            before: None,
        }
    } else {
        let are_named = selection.is_of_paths();
        if !args.yes && !is_wanted(args, &opened, (&planned, changes), (&asked, are_named))? {
            output::line(format_args!("nothing was discarded"));
            return Ok(Ending::Findings);
        }
        let keeps = !args.no_checkpoint && !planned.paths.is_empty();
        let step = keeps.then(|| StepToKeep::new(step_name(&asked), &opened, &planned.paths));
        drop(opened);
        let undone = discard(&args.source, &asked, step.as_ref())?;
        Discarded { changes: if undone.paths.is_empty() { 0 } else { changes }, ..undone }
    };
    show(args, &undone)?;
    Ok(if undone.idle.is_empty() { Ending::Done } else { Ending::Findings })
}

/// How many changes `diff` shows at these paths.
fn shown_changes(opened: &OpenSession, paths: &[MergedPath]) -> Result<u64, CliError> {
    if paths.is_empty() {
        return Ok(0);
    }
    Ok(count_changes(opened, Selection::of(paths.iter().cloned()))?.sum())
}

/// Shows what would be discarded, and asks. Without a terminal, discarding the whole session needs
/// `--yes`, unless all its changes are named by their paths (`are_named`).
fn is_wanted(
    args: &Args,
    opened: &OpenSession,
    (planned, changes): (&DiscardExtent, u64),
    (asked, are_named): (&[MergedPath], bool),
) -> Result<bool, CliError> {
    if args.json || !asking::can_ask() {
        let root = MergedPath::root();
        let is_all = asked.contains(&root)
            || (!are_named && planned.changes >= plan_discard(opened, &[root])?.changes);
        if !is_all {
            return Ok(true);
        }
        let what = CliError::new("cannot ask without a terminal: nothing was discarded");
        return Err(what.with_hint(
            "--yes discards all that the session changed, --dry-run shows how much that is",
        ));
    }
    if planned.changes == 0 {
        return Ok(true);
    }
    for path in planned.paths.iter().take(MAX_SHOWN) {
        output::line(format_args!("would discard: {}", text::name(path.as_bytes())));
    }
    if let more @ 1.. = planned.paths.len().saturating_sub(MAX_SHOWN) {
        output::line(format_args!("and {more} more"));
    }
    let what = match changes {
        0 => "times and copies that `acetate diff` does not show".to_owned(),
        _ => text::count(changes, "change"),
    };
    let for_good = if args.no_checkpoint { " for good" } else { "" };
    asking::ask(&format_args!("discard {what}{for_good}?"))
}

/// What the checkpoint before a discard of these paths is made for.
fn step_name(asked: &[MergedPath]) -> String {
    match asked {
        [path] if path.as_bytes().len() <= MAX_NAMED_BYTES => {
            format!("discard {}", text::name(path.as_bytes()))
        }
        _ => format!("discard {}", text::count(asked.len(), "path")),
    }
}

/// Discards changes, after a checkpoint for the `step`.
fn discard(
    source: &SessionSource,
    asked: &[MergedPath],
    step: Option<&StepToKeep>,
) -> Result<Discarded, CliError> {
    let mut progress = ProgressLine::new("discarding changes", std::io::stderr().is_terminal());
    let discarded = with_session_changer(source, |changer| {
        let mut all = Discarded { paths: Vec::new(), changes: 0, idle: Vec::new(), before: None };
        let mut before = step.map(|step| StepCheckpoint::make(changer, step)).transpose()?;
        for some in asked.chunks(limits::MAX_PATHS) {
            progress.say(|| {
                format!("{} of {}", all.paths.len(), text::count(asked.len() as u64, "path"))
            });
            let paths = some.iter().map(PathText::from).collect();
            let request = Request::Discard { paths };
            let answer = match &mut before {
                Some(before) => before.ask(changer, request),
                None => changer.ask(request),
            };
            let Answer::Undone { paths, idle, .. } = answer? else {
                return Err(CliError::new("unexpected reply from the session's server"));
            };
            all.paths.extend(paths);
            all.idle.extend(idle);
        }
        all.before = before.and_then(|before| before.id());
        Ok(all)
    });
    progress.end();
    discarded
}

fn show(args: &Args, undone: &Discarded) -> Result<(), CliError> {
    let mut out = Out::new();
    let verb = if args.dry_run { "would discard" } else { "discarded" };
    for path in &undone.paths {
        if args.json {
            let mut object = text::json("undone");
            text::put_path(&mut object, "path", path.as_bytes());
            out.json(object)?;
        } else {
            out.line(format_args!("{verb}: {}", text::name(path.as_bytes())))?;
        }
    }
    if args.json {
        let mut object = text::json("discard");
        object.insert("paths".to_owned(), undone.paths.len().into());
        object.insert("changes".to_owned(), undone.changes.into());
        object.insert("unchanged".to_owned(), undone.idle.len().into());
        object.insert("safety_checkpoint".to_owned(), undone.before.into());
        out.json(object)?;
    }
    out.end()?;
    if !args.json && undone.changes > 0 {
        let changes = text::count(undone.changes, "change");
        let verb = if args.dry_run { "would be discarded" } else { "discarded" };
        output::line(format_args!("{changes} {verb}"));
    }
    if !args.json {
        tell_undo(&args.source, undone.before);
    }
    for (path, gone_with) in &undone.idle {
        let path = text::name(path.as_bytes());
        match gone_with {
            Some(above) => output::line(format_args!(
                "{path}: cannot come back by itself: discard {}",
                text::name(above.as_bytes())
            )),
            None => output::line(format_args!("{path}: nothing to discard")),
        }
    }
    Ok(())
}

/// Says how what was discarded comes back.
fn tell_undo(source: &SessionSource, before: Option<i64>) {
    if let Some(before) = before {
        let session = source.session.display();
        output::line(format_args!(
            "the tree before is checkpoint {before}: `acetate undo {session}` brings it back"
        ));
    }
}
