//! `acetate merge`: brings the changes of a fork back into its session.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Seek};
use std::path::{Path, PathBuf};

use super::change::with_session_changer;
use super::checkpoint::check_complete;
use super::diff::{change_name, letter};
use super::error::CliError;
use super::mount_events::sync_mounts;
use super::output::{self, Out};
use super::source::SessionSource;
use super::tree_paths::TreePaths;
use super::{Ending, applied_since, asking, text};
use crate::control::{Answer, Reading, Request, RestoreAnswer, write_step};
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::apply::check_finished;
use crate::inspect::merge::{
    MergeChange, MergeChoice, MergeConflict, MergePlan, MergeSide, fork_points, plan_merge,
};
use crate::inspect::opened::OpenSession;
use crate::system_error::words;

/// The most lines of the plan that are shown before the question.
const MAX_SHOWN: usize = 20;

/// Bring what a fork changed into the session that it was forked from.
///
/// What only the fork changed is taken over, and what only the session changed stays; moves are
/// followed. Text that both changed is merged where the changes are apart. Anything else is a
/// conflict: each is listed, nothing changes, and the command exits with 1; --take decides them.
/// The tree as it was gets a checkpoint first, so `acetate undo` takes the merge back. The fork
/// does not change, and can be merged again later. Both may be served at the same time.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: SessionSource,

    /// The fork.
    #[arg(value_name = "FORK.db")]
    fork: PathBuf,

    /// Do not ask.
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,

    /// Only show what would change, and the conflicts.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Whose state counts at and below PATH: `ours`, the session's, or `theirs`, the fork's.
    ///
    /// With `ours`, nothing of the fork is taken over there; with `theirs`, only conflicts are
    /// decided.
    #[arg(long, num_args = 2, value_names = ["SIDE", "PATH"], action = clap::ArgAction::Append)]
    take: Vec<OsString>,

    /// Merge although changes of a side were applied to the base since the fork, or its log has
    /// lost rows since, or both sides' checkpoints of the fork point are incomplete.
    #[arg(long)]
    force: bool,

    /// Print a JSON object for each change: change, path, from, here, merged; for each conflict:
    /// path, ours, theirs; and a last one: session, fork, dry_run, safety_checkpoint, changes,
    /// conflicts.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let base = args.source.base.as_deref();
    [&args.source.session, &args.fork].into_iter().for_each(|session| sync_mounts(session));
    let ours = args.source.open()?;
    let theirs = OpenSession::open(&args.fork, base)?;
    check_finished(&ours)?;
    let points = fork_points(&ours, &theirs).map_err(|error| with_advice(args, error))?;
    for (opened, point) in [(&ours, &points.0), (&theirs, &points.1)] {
        if !args.force {
            applied_since::check(opened.session(), opened.base_path(), point)?;
        }
    }
    // If one of them is complete, both sides are compared with it.
    if points.0.incomplete.is_some() && points.1.incomplete.is_some() {
        check_complete(&points.0, args.force)?;
    }
    let takes = takes(args, &ours)?;
    let spooled = tempfile::tempfile().map_err(spool_failed)?;
    let mut spool = BufWriter::new(spooled);
    let plan = plan_merge((&ours, &theirs), base, (&points.0, &points.1), &takes, &mut |step| {
        // Not needed to look.
        if args.dry_run {
            return Ok(());
        }
        let written = write_step(&mut spool, &step);
        written.map_err(|error| InspectError::Invalid { what: spool_failed(error).to_string() })
    })?;
    drop((ours, theirs));
    output::tell_of_denied(&plan.denied, "compared");
    for path in &plan.unused {
        let path = text::name(path.as_bytes());
        output::line(format_args!("--take: the fork changed nothing at {path}"));
    }
    let mut steps = spool.into_inner().map_err(|error| spool_failed(error.into_error()))?;
    steps.rewind().map_err(spool_failed)?;
    show_and_merge(args, &plan, steps)
}

fn spool_failed(error: std::io::Error) -> CliError {
    let dir = std::env::temp_dir();
    CliError::new(format!("{}: the steps cannot be kept: {}", dir.display(), words(&error)))
        .with_hint("TMPDIR names another directory")
}

fn with_advice(args: &Args, error: InspectError) -> CliError {
    let as_patch =
        format!("`acetate diff {} -p` prints the fork's changes as a patch", args.fork.display());
    let hint = match &error {
        InspectError::Invalid { .. } => {
            format!("the session comes first, then its fork; {as_patch}")
        }
        InspectError::ForkPointRemoved { .. } => as_patch,
        _ => return error.into(),
    };
    CliError::from(error).with_hint(hint)
}

/// The choices of `--take`.
fn takes(args: &Args, ours: &OpenSession) -> Result<Vec<MergeChoice>, CliError> {
    let paths = TreePaths::of(ours);
    let mut takes: Vec<MergeChoice> = Vec::new();
    for pair in args.take.chunks(2) {
        let [side, path] = pair else { continue };
        let Some(side) = MergeSide::from_name(side.as_encoded_bytes()) else {
            let what = format!("--take {}: not a side", side.display());
            let hint = "the sides are `ours` and `theirs`; the side comes before the path";
            return Err(CliError::new(what).with_hint(hint));
        };
        let path = paths.one(path)?;
        if takes.iter().any(|take| take.path == path && take.side != side) {
            let path = text::name(path.as_bytes());
            return Err(CliError::new(format_args!("--take names both sides for {path}")));
        }
        takes.push(MergeChoice { side, path });
    }
    Ok(takes)
}

/// Shows the plan, asks, and merges.
fn show_and_merge(args: &Args, plan: &MergePlan, steps: File) -> Result<Ending, CliError> {
    if !plan.conflicts.is_empty() {
        return tell_conflicts(args, plan);
    }
    if plan.changes.is_empty() {
        output::line(format_args!("nothing to merge: the session has all that the fork changed"));
        print_json(args, plan, None)?;
        return Ok(Ending::Findings);
    }
    let counts = text::count(plan.changes.len() as u64, "change");
    if args.dry_run {
        show(args, plan, usize::MAX)?;
        print_json(args, plan, None)?;
        output::line(format_args!("would merge {counts}"));
        return Ok(Ending::Done);
    }
    if !args.yes {
        if args.json || !asking::can_ask() {
            let why =
                if args.json { "--json does not ask" } else { "cannot ask without a terminal" };
            let what = CliError::new(format!("{why}: nothing changed"));
            return Err(what.with_hint("--yes merges, --dry-run shows what would change"));
        }
        show(args, plan, MAX_SHOWN)?;
        if !asking::ask(&format_args!("{counts}: merge {}?", args.fork.display()))? {
            output::line(format_args!("nothing changed"));
            return Ok(Ending::Findings);
        }
        // The user has taken time to answer.
        sync_mounts(&args.source.session);
    } else if args.json {
        show(args, plan, usize::MAX)?;
    }
    let before = send(args, plan.seen, steps)?;
    print_json(args, plan, Some(before))?;
    let session = args.source.session.display();
    output::line(format_args!("merged {}: {counts}", args.fork.display()));
    output::line(format_args!(
        "the tree before is checkpoint {before}: `acetate undo {session}` brings it back"
    ));
    Ok(Ending::Done)
}

/// Takes the steps; returns the checkpoint of the tree before.
fn send(args: &Args, seen: i64, steps: File) -> Result<i64, CliError> {
    let from = args.fork.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let request = Request::Merge { from, seen };
    let done = with_session_changer(&args.source, |changer| {
        changer.ask_with(request, Reading::stream(steps))
    });
    match done? {
        Answer::Restored(RestoreAnswer::Done { before, .. }) => Ok(before),
        Answer::Restored(RestoreAnswer::ChangedSince) => {
            let what = "the session changed since both were compared: nothing was merged";
            Err(CliError::new(what).with_hint("try again, with the same command"))
        }
        _ => Err(CliError::new("unexpected reply from the session's server")),
    }
}

/// Lists the conflicts.
fn tell_conflicts(args: &Args, plan: &MergePlan) -> Result<Ending, CliError> {
    let mut out = Out::new();
    for MergeConflict { path, ours, theirs } in &plan.conflicts {
        if args.json {
            let mut json = text::json("merge_conflict");
            text::put_path(&mut json, "path", path.as_bytes());
            json.insert("ours".to_owned(), ours.clone().into());
            json.insert("theirs".to_owned(), theirs.clone().into());
            out.json(json)?;
        } else {
            let path = text::name(path.as_bytes());
            let (ours, theirs) = (text::printable(ours), text::printable(theirs));
            out.line(format_args!("C {path}: here: {ours}; in the fork: {theirs}"))?;
        }
    }
    out.end()?;
    print_json(args, plan, None)?;
    let conflicts = text::count(plan.conflicts.len() as u64, "conflict");
    output::line(format_args!("{conflicts}: nothing was merged"));
    output::line(format_args!(
        "hint: --take ours PATH keeps what is here, --take theirs PATH takes the fork's"
    ));
    Ok(Ending::Findings)
}

/// Shows the changes: in lines on stderr before the question, else on stdout.
fn show(args: &Args, plan: &MergePlan, most: usize) -> Result<(), CliError> {
    let mut out = Out::new();
    for change in plan.changes.iter().take(most) {
        match (args.json, args.dry_run) {
            (true, _) => out.json(json(change))?,
            (false, true) => out.line(format_args!("{}", line(change)))?,
            (false, false) => output::line(format_args!("{}", line(change))),
        }
    }
    if let more @ 1.. = plan.changes.len().saturating_sub(most) {
        output::line(format_args!("and {more} more"));
    }
    out.end()
}

fn line(change: &MergeChange) -> String {
    let letter = letter(change.kind);
    let named = |path: &MergedPath| match change.is_dir {
        true => text::dir_name(path.as_bytes()),
        false => text::name(path.as_bytes()),
    };
    let from = change.from.as_ref().map(|from| named(from) + " -> ").unwrap_or_default();
    let here = change.here.as_ref().map(|here| format!(" (here {})", named(here)));
    let merged = if change.is_merged { " (both sides merged)" } else { "" };
    format!("{letter} {from}{}{}{merged}", named(&change.path), here.unwrap_or_default())
}

fn json(change: &MergeChange) -> serde_json::Map<String, serde_json::Value> {
    let mut json = text::json("merge_change");
    json.insert("change".to_owned(), change_name(change.kind).into());
    text::put_path(&mut json, "path", change.path.as_bytes());
    if let Some(from) = &change.from {
        text::put_path(&mut json, "from", from.as_bytes());
    }
    if let Some(here) = &change.here {
        text::put_path(&mut json, "here", here.as_bytes());
    }
    json.insert("merged".to_owned(), change.is_merged.into());
    json
}

fn print_json(args: &Args, plan: &MergePlan, before: Option<i64>) -> Result<(), CliError> {
    if !args.json {
        return Ok(());
    }
    let mut json = text::json("merge");
    let mut put = |key: &str, path: &Path| {
        text::put_path(&mut json, key, path.as_os_str().as_encoded_bytes());
    };
    put("session", &args.source.session);
    put("fork", &args.fork);
    json.insert("dry_run".to_owned(), args.dry_run.into());
    json.insert("safety_checkpoint".to_owned(), before.into());
    let made = if plan.conflicts.is_empty() { plan.changes.len() } else { 0 };
    json.insert("changes".to_owned(), made.into());
    json.insert("conflicts".to_owned(), plan.conflicts.len().into());
    let mut out = Out::new();
    out.json(json)?;
    out.end()
}
