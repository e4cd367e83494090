//! `acetate apply`: writes what a session changed to its base.

mod forgetting;
mod progress;
mod report;
mod undo;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::change::with_changer;
use super::error::CliError;
use super::output::{self, Out};
use super::picking::{Offer, Picking, Verb};
use super::selecting::LeaveOut;
use super::signals::Interrupts;
use super::source::Source;
use super::{Ending, asking, diff, text};
use crate::control::Request;
use crate::delta::MergedPath;
use crate::inspect::apply::{
    Bookkeeper, Consent, Options, Plan, ShowPlan, apply, clear, interrupted, keep_nothing, plan,
    resume,
};
use crate::inspect::diff::{Difference, Kind};
use crate::inspect::hunks::Chosen;
use crate::inspect::opened::Opened;
use crate::inspect::selection::Selection;
use crate::vfs::FileKind;
use forgetting::Forgetting;
use progress::ApplyProgress;
use report::{lost, put_counts, tell};

/// Write what a session changed to its base.
///
/// Shows the plan, and asks. Text that the session and the base both changed is merged against what
/// the base had when the session first changed it. What cannot be merged is never overwritten
/// without --force: if there is any, nothing is written unless --skip-drifted leaves it out;
/// set-user-ID files and devices are left out without
/// --allow-special. Each file is replaced at once, whole; nothing outside the base is touched.
/// Clients may change the session during apply: their changes are skipped and stay in the session.
/// May be killed at any time: the next run finishes what was begun, and does no more then. What is
/// replaced and removed is kept beside the session until the next apply: --undo puts it back. Exits
/// with 1 if something was not applied.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,

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
    /// Types: difference, undo, drift, merged, special, left_out, loss, plan, kept, skipped,
    /// applied.
    #[arg(long)]
    json: bool,
}

/// Shows, asks, applies.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    args.picking.check(args.json)?;
    let opened = args.source.open()?;
    if let Some(steps) = interrupted(&opened, args.to.as_deref())? {
        let steps = text::count(steps, "step");
        output::line(format_args!("an apply was interrupted; to be finished: {steps}"));
        if args.dry_run {
            return Ok(Ending::Findings);
        }
        if args.keep.no_keep {
            keep_nothing(&opened, args.to.as_deref())?;
        }
        return finish(args, &opened);
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
    let plan = plan(&opened, args.to.as_deref(), &options, &mut |change| shown.difference(change))?;
    let is_left = |drifted| args.skip_drifted || plan.is_taken_from_base(drifted);
    let stops = plan.drifted.iter().filter(|drifted| !args.force && !is_left(drifted)).count();
    let has_work = !plan.changes.is_empty() && stops == 0;
    // With --yes, `apply` prints the plan of its own snapshot.
    if !args.yes || !has_work {
        shown.print(&plan)?;
    }
    if plan.changes.is_empty() {
        return Ok(if plan.left_out.is_empty() { Ending::Done } else { Ending::Findings });
    }
    if stops > 0 {
        let marked = text::count(stops, "object");
        output::line(format_args!(
            "nothing was written, because of {marked} marked with `!`: --skip-drifted applies the \
             rest; for each of them, --take base PATH keeps what the base has, --take session \
             PATH overwrites it, and --conflict-markers merges text to be edited"
        ));
        return Ok(Ending::Findings);
    }
    if args.dry_run {
        return Ok(if plan.left_out.is_empty() { Ending::Done } else { Ending::Findings });
    }
    if !args.yes && !is_wanted(args, &opened, shown.count())? {
        output::line(format_args!("nothing was written"));
        return Ok(Ending::Findings);
    }
    let ending = with_book(args, &opened, |book| {
        let interrupts = Interrupts::catch()?;
        let mut progress = ApplyProgress::new(&interrupts);
        let watch = &mut |event| progress.tell(event);
        let mut made = PlanPrinter::new(args, &opened);
        let consent = if args.yes { Consent::All(&mut made) } else { Consent::Shown(&plan) };
        let report = apply(&opened, args.to.as_deref(), &options, consent, book, watch);
        progress.end();
        if let Some(error) = made.failed.take() {
            return Err(error.with_hint("nothing was written"));
        }
        let report = report?;
        let drifted = plan.drifted.iter().map(|drifted| &drifted.path);
        undo::tell_copies(args, drifted, report.kept.as_deref())?;
        let ending = tell(args, &opened, &report)?;
        let leaves_out = made.leaves_out.unwrap_or(!plan.left_out.is_empty());
        Ok(if leaves_out { Ending::Findings } else { ending })
    })?;
    let kept: BTreeSet<_> = plan.kept_in_base().cloned().collect();
    give_up(args, &kept.into_iter().collect::<Vec<_>>(), ending)
}

/// Lets the user choose from what would be applied.
fn choose(args: &Args, opened: &Opened, options: &Options) -> Result<Chosen, CliError> {
    let mut all = Vec::new();
    plan(opened, args.to.as_deref(), options, &mut |difference| all.push(difference.clone()))?;
    let (quiet, differences) = all.into_iter().partition(is_time_of_directory);
    let offer = Offer { opened, differences, quiet, has_own: args.all, verb: Verb::Apply };
    args.picking.pick(&offer)
}

/// What the options say.
fn options(args: &Args, opened: &Opened, selection: Selection) -> Result<Options, CliError> {
    let mut options = Options {
        selection,
        droppings: args.all,
        force: args.force,
        special: args.allow_special,
        skip_drifted: args.skip_drifted,
        conflict_markers: args.conflict_markers,
        keep: args.keep.limit(),
        ..Options::default()
    };
    for side in args.take.chunks(2) {
        let [side, path] = side else { continue };
        let chosen = args.leave_out.read(opened, std::slice::from_ref(path))?;
        let path: Vec<_> = chosen.paths().cloned().collect();
        if path.is_empty() {
            let what = format!("--take {} takes a path, and no pattern", side.display());
            return Err(CliError::new(what));
        }
        match side.to_str() {
            Some("session") => options.take_session.extend(path),
            Some("base") => options.take_base.extend(path),
            _ => {
                let what = format!("--take {}: no side", side.display());
                return Err(CliError::new(what).with_hint("the sides are `session` and `base`"));
            }
        }
    }
    let (session, mut base) = (&options.take_session, options.take_base.iter());
    if let Some(path) = base.find(|path| session.iter().any(|named| path.is_within(named))) {
        let path = text::name(path.as_bytes());
        return Err(CliError::new(format_args!("--take: both sides are to count for {path}")));
    }
    Ok(options)
}

/// Gives up what the session has at paths at which the base is to stay as it is.
fn give_up(args: &Args, paths: &[MergedPath], ending: Ending) -> Result<Ending, CliError> {
    if paths.is_empty() || args.to.is_some() {
        return Ok(ending);
    }
    let (session, base) = (&args.source.session, args.source.base.as_deref());
    let request = Request::Discard { paths: paths.iter().map(Into::into).collect() };
    with_changer(session, base, |changer| changer.ask(request))?;
    for path in paths {
        let path = text::name(path.as_bytes());
        output::line(format_args!("{path}: the base stays as it is; the session shows it again"));
    }
    Ok(ending)
}

/// Runs `f` with who forgets in the session what is in the base then; nobody, where a copy is
/// written to. From the beginning on, so that nothing is written if nobody can.
fn with_book<T>(
    args: &Args,
    opened: &Opened,
    f: impl FnOnce(Option<&mut dyn Bookkeeper>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    if args.to.is_some() {
        return f(None);
    }
    with_changer(opened.session().path(), args.source.base.as_deref(), |changer| {
        f(Some(&mut Forgetting(changer)))
    })
}

fn finish(args: &Args, opened: &Opened) -> Result<Ending, CliError> {
    with_book(args, opened, |book| {
        let interrupts = Interrupts::catch()?;
        let mut progress = ApplyProgress::new(&interrupts);
        let report = resume(opened, args.to.as_deref(), book, &mut |event| progress.tell(event));
        progress.end();
        match report? {
            Some(report) => tell(args, opened, &report),
            None => Ok(Ending::Done),
        }
    })
}

/// The directory that is written to.
fn target<'a>(args: &'a Args, opened: &'a Opened) -> &'a Path {
    args.to.as_deref().or(opened.base_path()).unwrap_or(Path::new(""))
}

/// Collects the lines of a plan, and prints them.
struct PlanPrinter<'a> {
    args: &'a Args,
    opened: &'a Opened,
    differences: Vec<Difference>,
    /// How many differences have no line.
    quiet: usize,
    /// Whether the plan leaves something out, once it is there.
    leaves_out: Option<bool>,
    /// Why the plan could not be printed.
    failed: Option<CliError>,
}

impl<'a> PlanPrinter<'a> {
    fn new(args: &'a Args, opened: &'a Opened) -> Self {
        Self { args, opened, differences: Vec::new(), quiet: 0, leaves_out: None, failed: None }
    }

    /// How many changes are shown.
    fn count(&self) -> usize {
        if self.differences.is_empty() { self.quiet } else { self.differences.len() }
    }

    fn print(&self, plan: &Plan) -> Result<(), CliError> {
        let json = |d: &Difference| output::json_text(&Value::Object(diff::json(d)));
        let lines = match self.args.json {
            true => self.differences.iter().map(json).collect(),
            // By a view of its own: an apply shows its plan while it looks at the session.
            false => {
                let opened = self.args.source.open()?;
                diff::lines(&opened, self.args.all, self.differences.clone())?
            }
        };
        print_plan(self.args, self.opened, plan, &lines, self.quiet)
    }
}

impl ShowPlan for PlanPrinter<'_> {
    fn difference(&mut self, difference: &Difference) {
        // Every directory of which an entry changed.
        if is_time_of_directory(difference) && !self.args.json {
            self.quiet += 1;
        } else {
            self.differences.push(difference.clone());
        }
    }

    fn plan(&mut self, plan: &Plan) -> ControlFlow<()> {
        self.leaves_out = Some(!plan.left_out.is_empty());
        // With --yes, a closed stdout does not stop the apply; a full disk does.
        self.failed = self.print(plan).err().filter(|error| !error.is_closed());
        if self.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn print_plan(
    args: &Args,
    opened: &Opened,
    plan: &Plan,
    lines: &[String],
    quiet: usize,
) -> Result<(), CliError> {
    let mut out = Out::new();
    for line in lines {
        out.line(format_args!("{line}"))?;
    }
    for drifted in &plan.drifted {
        let (path, why) = (drifted.path.as_bytes(), drifted.why.as_str());
        if args.json {
            let mut object = text::json("drift");
            text::put_path(&mut object, "path", path);
            object.insert("why".to_owned(), why.into());
            out.json(object)?;
        } else {
            out.line(format_args!("! {}: {why}", text::name(path)))?;
        }
    }
    print_notes(args, plan, &mut out)?;
    let dir = target(args, opened);
    if args.json {
        let mut object = text::json("plan");
        text::put_path(&mut object, "to", dir.as_os_str().as_encoded_bytes());
        put_counts(&mut object, plan.changes.len(), plan.drifted.len(), "drifted");
        for (key, value) in [
            ("files", plan.files),
            ("bytes", plan.bytes),
            ("data_bytes", plan.data_bytes),
            ("deletions", plan.deletions),
            ("deleted_dirs", plan.deleted_dirs),
            ("merged", plan.merged.len() as u64),
            ("special", plan.special.len() as u64),
            ("left_out", plan.left_out.len() as u64),
            ("kept_bytes", plan.kept_bytes),
            ("losses", plan.losses.len() as u64),
        ] {
            object.insert(key.to_owned(), value.into());
        }
        out.json(object)?;
    } else if plan.changes.is_empty() {
        out.line(format_args!("nothing to apply to {}", dir.display()))?;
    } else {
        let mut sum =
            format!("{} to write ({}", text::count(plan.files, "file"), text::bytes(plan.bytes));
        if plan.data_bytes < plan.bytes {
            sum.push_str(&format!(", of which {} are data", text::bytes(plan.data_bytes)));
        }
        sum.push(')');
        if plan.deletions > 0 {
            sum.push_str(&format!(", {} to remove", plan.deletions));
        }
        if plan.deleted_dirs > 0 {
            let dirs = text::count(plan.deleted_dirs, "directory");
            let them = if plan.deleted_dirs == 1 { "it" } else { "them" };
            sum.push_str(&format!(" ({dirs} with all that is in {them})"));
        }
        if quiet > 0 {
            sum.push_str(&format!(", times of {}", text::count(quiet, "directory")));
        }
        if !plan.merged.is_empty() {
            sum.push_str(&format!(", {} merged with the base", plan.merged.len()));
        }
        if !plan.drifted.is_empty() {
            sum.push_str(&format!(", {} not as the session saw it", plan.drifted.len()));
        }
        if !plan.left_out.is_empty() {
            sum.push_str(&format!(", {} left out", plan.left_out.len()));
        }
        sum.push_str(&args.keep.note(plan.kept_bytes));
        out.line(format_args!("{}: {sum}", dir.display()))?;
    }
    out.end()
}

/// Names what gives rights away, what is left out, and what of the host's objects is lost.
fn print_notes(args: &Args, plan: &Plan, out: &mut Out) -> Result<(), CliError> {
    let mut note = |kind, sign, path: &MergedPath, why: &str| {
        if args.json {
            let mut object = text::json(kind);
            text::put_path(&mut object, "path", path.as_bytes());
            object.insert("why".to_owned(), why.into());
            out.json(object)
        } else {
            out.line(format_args!("{sign} {}: {why}", text::name(path.as_bytes())))
        }
    };
    for merged in &plan.merged {
        let why = match merged.has_conflicts {
            true => "merged with what the base changed, with conflict markers",
            false => "merged with what the base changed",
        };
        note("merged", '&', &merged.path, why)?;
    }
    for special in &plan.special {
        note("special", '*', &special.path, special.what)?;
    }
    for left in &plan.left_out {
        note("left_out", '-', &left.path, &left.why)?;
    }
    for loss in &plan.losses {
        note("loss", '~', &loss.path, &lost(loss))?;
    }
    Ok(())
}

/// Whether nothing but the time of a directory differs, which follows what is in it.
fn is_time_of_directory(difference: &Difference) -> bool {
    let change = &difference.change;
    let is_dir =
        change.after.as_ref().is_some_and(|after| after.attr().kind == FileKind::Directory);
    let stays = match difference.kind {
        Kind::Modified => true,
        Kind::Renamed => change.is_carried,
        Kind::Added | Kind::Deleted | Kind::Retyped => false,
    };
    is_dir && stays && !difference.differs.mode && !difference.differs.owner
}

/// Asks the person at the terminal whether the plan is to be applied.
fn is_wanted(args: &Args, opened: &Opened, shown: usize) -> Result<bool, CliError> {
    if args.json || !asking::can_ask() {
        let what = "nobody to ask: nothing was written";
        return Err(CliError::new(what)
            .with_hint("--yes applies the plan without asking, --dry-run only shows it"));
    }
    let dir = target(args, opened).display();
    match shown {
        1 => asking::ask(&format_args!("apply this change to {dir}?")),
        _ => asking::ask(&format_args!("apply these {shown} changes to {dir}?")),
    }
}
