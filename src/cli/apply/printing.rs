//! Prints the plan of an apply.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

use super::report::{lost, put_counts};
use super::{Args, target};
use crate::cli::error::{CliError, CliErrorKind};
use crate::cli::output::{self, Out};
use crate::cli::shell_words::quoted;
use crate::cli::{diff, text};
use crate::delta::MergedPath;
use crate::inspect::apply::{AppliedChange, ApplyPlan, AttributeCounts, Drifted, ShowPlan};
use crate::inspect::diff::{Difference, DifferenceKind, is_time_of_directory};
use crate::inspect::opened::OpenSession;

/// Collects the differences of a plan, and prints it.
pub(super) struct PlanPrinter<'a> {
    args: &'a Args,
    opened: &'a OpenSession,
    differences: Vec<Difference>,
    /// Whether the plan leaves changes out; `None` before there is a plan.
    pub leaves_out: Option<bool>,
    /// Why the plan could not be printed.
    pub failed: Option<CliError>,
}

impl<'a> PlanPrinter<'a> {
    pub fn new(args: &'a Args, opened: &'a OpenSession) -> Self {
        Self { args, opened, differences: Vec::new(), leaves_out: None, failed: None }
    }

    /// Number of paths that are shown and not left out; 0 if the plan writes nothing.
    pub fn count(plan: &ApplyPlan) -> u64 {
        let is_written = plan.times_alone() > 0 || applied(plan).any(|change| change.paths > 0);
        if is_written { AppliedChange::count_paths(applied(plan)) } else { 0 }
    }

    pub fn print(&mut self, plan: &ApplyPlan) -> Result<(), CliError> {
        let json = |d: &Difference| output::json_text(&Value::Object(diff::json(d)));
        let lines = match self.args.json {
            true => self.differences.iter().map(json).collect(),
            // Through a session opened again: `apply` shows its plan while it holds a view.
            false => {
                let opened = self.args.source.open()?;
                let left: HashSet<_> = plan.left_out.iter().map(|left| &left.path).collect();
                let has_line = |d: &&Difference| !is_told_otherwise(plan, &left, d);
                let differences = self.differences.iter().filter(has_line).cloned().collect();
                diff::lines(&opened, self.args.all, differences)?
            }
        };
        let is_move = |d: &&Difference| d.kind == DifferenceKind::Renamed;
        let from = |d: &Difference| {
            let old = MergedPath::of_base(&d.old.as_ref()?.path);
            Some((d.path.clone(), text::name(old.as_bytes())))
        };
        let moved = self.differences.iter().filter(is_move).filter_map(from).collect();
        print_plan(self.args, self.opened, plan, (&lines, &moved))
    }
}

impl ShowPlan for PlanPrinter<'_> {
    fn difference(&mut self, difference: &Difference) {
        // Each directory with a changed entry has other times.
        if !is_time_of_directory(difference) || self.args.json && difference.differs.mtime {
            self.differences.push(difference.clone());
        }
    }

    fn plan(&mut self, plan: &ApplyPlan) -> ControlFlow<()> {
        self.leaves_out = Some(plan.left_out_unasked() > 0);
        // With --yes, a closed stdout does not stop the apply; a full disk does.
        self.failed = self.print(plan).err().filter(|error| error.kind() != CliErrorKind::Closed);
        if self.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The old names of moved objects, to be printed.
type OldNames = HashMap<MergedPath, String>;

/// The path of a drifted object, after the old one if it was moved.
fn both_names(path: &MergedPath, moved: &OldNames) -> String {
    let name = text::name(path.as_bytes());
    match moved.get(path) {
        Some(old) => format!("{old} -> {name}"),
        None => name,
    }
}

fn print_plan(
    args: &Args,
    opened: &OpenSession,
    plan: &ApplyPlan,
    (lines, moved): (&[String], &OldNames),
) -> Result<(), CliError> {
    let mut out = Out::new();
    for line in lines {
        out.line(format_args!("{line}"))?;
    }
    let overruled =
        plan.overruled.iter().map(|drifted| (drifted, "; overwritten (--take session)"));
    let drifted = plan.drifted.iter().map(|drifted| (drifted, fate(args, plan, drifted)));
    let mut drifted: Vec<_> = drifted.chain(overruled).collect();
    drifted.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    let all_drifted = drifted.len();
    for (drifted, fate) in drifted {
        let (path, why) = (drifted.path.as_bytes(), drifted.why());
        if args.json {
            let mut object = text::json("drift");
            text::put_path(&mut object, "path", path);
            object.insert("why".to_owned(), why.into());
            out.json(object)?;
        } else {
            let name = both_names(&drifted.path, moved);
            out.line(format_args!("! {name}: {why}{fate}"))?;
        }
    }
    print_notes(args, plan, &mut out)?;
    note_left_out(args, plan);
    let dir = target(args, opened);
    if args.json {
        let mut object = text::json("plan");
        text::put_path(&mut object, "to", dir.as_os_str().as_encoded_bytes());
        // Times of directories follow their entries: `dir_times` counts them.
        let changes = applied(plan).map(|change| change.paths).sum();
        put_counts(&mut object, changes, all_drifted, "drifted");
        for (key, value) in [
            ("files", plan.files),
            ("bytes", plan.bytes),
            ("data_bytes", plan.data_bytes),
            ("deletions", plan.deletions),
            ("deleted_dirs", plan.deleted_dirs),
            ("moves", plan.moves),
            ("links", plan.links),
            ("new_dirs", plan.new_dirs),
            ("modes", plan.attributes.modes),
            ("owners", plan.attributes.owners),
            ("times", plan.attributes.times),
            ("dir_attributes", plan.attributes.dirs),
            ("dir_times", plan.times_alone()),
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
        if let Some(last) = &plan.ends_undo_of {
            let (dir, time) = (last.target.display(), text::time_short(last.time));
            out.line(format_args!(
                "this apply ends the undo of the one to {dir} of {time}; to undo that, run --undo \
                 first"
            ))?;
        }
        let sum = sum(args, plan);
        out.line(format_args!("{}: {sum}", dir.display()))?;
    }
    out.end()
}

/// The changes of a plan that are not left out.
fn applied(plan: &ApplyPlan) -> impl Iterator<Item = &AppliedChange> {
    let left: HashSet<_> = plan.left_out.iter().map(|left| &left.path).collect();
    plan.changes.iter().filter(move |change| !left.contains(&change.path))
}

/// Prints how to apply what is left out.
fn note_left_out(args: &Args, plan: &ApplyPlan) {
    if let Some(path) = plan.split.first() {
        note_split(args, path);
    }
    if plan.leaves_special_out {
        output::line(format_args!(
            "--allow-special makes set-user-ID files, set-group-ID files and device nodes"
        ));
    }
}

/// Prints how to apply a directory that holds entries that are not chosen.
fn note_split(args: &Args, path: &MergedPath) {
    let (command, path) = (super::command(args), quoted(&path.display().to_string()));
    let mut given = args.leave_out.given();
    let is_exclusion = |path: &&OsString| {
        [&b":!"[..], b":^", b":(exclude"].iter().any(|sign| path.as_bytes().starts_with(sign))
    };
    let spec = args.paths.iter().find(is_exclusion).map(|spec| quoted(&spec.to_string_lossy()));
    given.extend(spec.as_deref());
    let without = match given.is_empty() {
        true => String::new(),
        false => format!("without {}, ", given.join(" and ")),
    };
    output::line(format_args!(
        "a directory that holds what is not chosen stays: {without}`{command} {path}` applies it \
         whole"
    ));
}

/// What an option does with a drifted object, to be printed after it.
fn fate(args: &Args, plan: &ApplyPlan, drifted: &Drifted) -> &'static str {
    match plan.is_taken_from_base(drifted) {
        true => "; stays as the base has it (--take base)",
        false if args.skip_drifted => "; skipped (--skip-drifted)",
        false if args.force => "; overwritten (--force)",
        false => "",
    }
}

/// The totals of a plan, as a list.
fn sum(args: &Args, plan: &ApplyPlan) -> String {
    let mut parts = Vec::new();
    if plan.files > 0 {
        let mut written = text::bytes(plan.bytes);
        if plan.data_bytes < plan.bytes {
            written.push_str(&format!(", {} of that data", text::bytes(plan.data_bytes)));
        }
        parts.push(format!("{} to write ({written})", text::count(plan.files, "file")));
    }
    if plan.deletions > 0 {
        let mut removed = format!("{} to remove", plan.deletions);
        if plan.deleted_dirs > 0 {
            let dirs = text::count(plan.deleted_dirs, "directory");
            let them = if plan.deleted_dirs == 1 { "it" } else { "them" };
            removed.push_str(&format!(" ({dirs} with all that is in {them})"));
        }
        parts.push(removed);
    }
    if plan.moves > 0 {
        parts.push(format!("{} moved", plan.moves));
    }
    for (count, noun) in [(plan.links, "link"), (plan.new_dirs, "new directory")] {
        if count > 0 {
            parts.push(text::count(count, noun));
        }
    }
    let AttributeCounts { modes, owners, times, dirs } = plan.attributes;
    for (what, count, noun) in [
        ("mode", modes, "file"),
        ("owner", owners, "file"),
        ("time", times, "file"),
        ("mode or owner", dirs, "directory"),
        ("times", plan.times_alone(), "directory"),
    ] {
        if count > 0 {
            parts.push(format!("{what} of {}", text::count(count, noun)));
        }
    }
    if !plan.merged.is_empty() {
        parts.push(format!("{} merged with the base", plan.merged.len()));
    }
    let drifted = plan.drifted.len() + plan.overruled.len();
    if drifted > 0 {
        parts.push(format!("{drifted} drifted"));
    }
    let left_out = plan.left_out.iter().filter(|left| !plan.has_drifted(&left.path)).count();
    if left_out > 0 {
        parts.push(format!("{left_out} left out"));
    }
    if parts.is_empty() {
        // Only directories that a copy of the base has already.
        parts.push(text::count(plan.changes.len(), "change"));
    }
    parts.join(", ") + &args.keep.note(plan.kept_bytes)
}

/// Prints merged, unchanged, special and left-out objects, and lost attributes.
fn print_notes(args: &Args, plan: &ApplyPlan, out: &mut Out) -> Result<(), CliError> {
    let mut note =
        |kind, sign, path: &MergedPath, why: &str| print_note(args, out, (kind, sign), (path, why));
    for merged in by_path(&plan.merged, |merged| &merged.path) {
        let why = match merged.has_conflicts {
            true => "merged with what the base changed, with conflict markers",
            false => "merged with what the base changed",
        };
        note("merged", '&', &merged.path, why)?;
    }
    let dropped = by_path(&plan.unchanged, |dropped| &dropped.copy.path);
    for dropped in dropped.into_iter().filter(|dropped| dropped.is_drifted) {
        let why = match dropped.copy.base {
            Some(_) => {
                "the base has the session's change, and others: what the base has shows again"
            }
            None => "the session changed nothing of it: what the base has shows again",
        };
        note("unchanged", '=', &dropped.copy.path, why)?;
    }
    for special in by_path(&plan.special, |special| &special.path) {
        note("special", '*', &special.path, special.what)?;
    }
    let left_out = plan.left_out.clone();
    let left_out = if args.json { left_out } else { plan.with_git_once(left_out) };
    for left in by_path(&left_out, |left| &left.path) {
        if args.json || !plan.has_drifted(&left.path) {
            note("left_out", '-', &left.path, &left.why)?;
        }
    }
    for loss in by_path(&plan.losses, |loss| &loss.path) {
        note("loss", '~', &loss.path, &lost(loss))?;
    }
    Ok(())
}

/// Prints a path with a reason: as text after a sign, or as JSON of a type.
pub(super) fn print_note(
    args: &Args,
    out: &mut Out,
    (kind, sign): (&str, char),
    (path, why): (&MergedPath, &str),
) -> Result<(), CliError> {
    if args.json {
        let mut object = text::json(kind);
        text::put_path(&mut object, "path", path.as_bytes());
        object.insert("why".to_owned(), why.into());
        out.json(object)
    } else {
        out.line(format_args!("{sign} {}: {why}", text::name(path.as_bytes())))
    }
}

/// A list, sorted by path.
pub(super) fn by_path<T>(list: &[T], path: fn(&T) -> &MergedPath) -> Vec<&T> {
    let mut sorted: Vec<_> = list.iter().collect();
    sorted.sort_by(|a, b| path(a).cmp(path(b)));
    sorted
}

/// Whether a difference is printed as drifted or left out instead. A rename that is left out keeps
/// its own line, which alone has the old name.
fn is_told_otherwise(
    plan: &ApplyPlan,
    left_out: &HashSet<&MergedPath>,
    difference: &Difference,
) -> bool {
    let is_rename = difference.kind == DifferenceKind::Renamed;
    plan.has_drifted(&difference.path)
        || plan.is_overruled(&difference.path)
        || plan.undecided.contains(&difference.change.path)
        || (!is_rename && left_out.contains(&difference.change.path))
}
