//! `acetate apply --undo`: undoes the last apply.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::Value;

use super::printing::{by_path, print_note};
use super::progress::ApplyProgress;
use super::report::tell;
use super::{ApplyRun, Args, with_updater};
use crate::cli::diff::whose;
use crate::cli::error::CliError;
use crate::cli::output::{self, Out};
use crate::cli::signals::Interrupts;
use crate::cli::{Ending, asking, text};
use crate::delta::MergedPath;
use crate::inspect::apply::{
    DirContents, KEEP_LIMIT_BYTES, KeptCopy, Report, UndoChange, UndoKind, UndoOptions, UndoPlan,
    clear, pending_copies, plan_undo, undo,
};
use crate::inspect::opened::OpenSession;
use crate::inspect::tool_owned::ToolOwnedFiles;
use crate::workspace::layers::check_base;

/// What is kept of what is replaced and removed.
#[derive(Debug, clap::Args)]
pub(super) struct KeepArgs {
    /// Undo the last apply: the base is as before.
    ///
    /// The session does not get the changes back. A second --undo applies them again; until then,
    /// another apply needs --no-keep, which gives them up.
    #[arg(long, conflicts_with_all = ["paths", "exclude", "gitignore", "conflict_markers", "take",
        "allow_special", "patch", "interactive", "hunk"])]
    pub(super) undo: bool,

    /// Keep nothing of what is replaced and removed: there is no --undo then.
    ///
    /// What an earlier apply kept is removed.
    #[arg(long, hide_short_help = true, conflicts_with = "keep_limit")]
    pub(super) no_keep: bool,

    /// Keep up to SIZE of what is replaced and removed; 4GiB without this option.
    ///
    /// Where it is more, nothing is written.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, hide_short_help = true)]
    keep_limit: Option<u64>,
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    let expected = || "expected bytes, such as 500MB, 2GiB or 4096".to_owned();
    crate::config::parse_bytes(text).ok_or_else(expected)
}

impl KeepArgs {
    /// Maximum bytes to keep; `None` if nothing is kept.
    pub(super) fn limit(&self) -> Option<u64> {
        (!self.no_keep).then(|| self.keep_limit.unwrap_or(KEEP_LIMIT_BYTES))
    }

    /// Text for a plan that would keep more than the limit; else empty.
    pub(super) fn note(&self, bytes: u64) -> String {
        match self.limit().is_some_and(|limit| bytes > limit) {
            true => format!(", {} replaced: more than --undo may keep", text::bytes(bytes)),
            false => String::new(),
        }
    }
}

/// Shows the plan, asks, and undoes the last apply.
pub(super) fn run(args: &Args, opened: &OpenSession) -> Result<Ending, CliError> {
    let to = args.to.as_deref();
    let options =
        UndoOptions { force: args.force, skip_drifted: args.skip_drifted, keep: args.keep.limit() };
    if !args.dry_run {
        clear(opened, to)?;
    }
    let Some(plan) = plan_undo(opened, to, &options)? else {
        output::line(format_args!("nothing to undo: no apply is kept"));
        return Ok(Ending::Findings);
    };
    print(args, opened, &plan)?;
    let stops = plan.drifted.iter().filter(|_| !args.force && !args.skip_drifted).count();
    if stops > 0 {
        let marked = text::count(stops, "object");
        let copies = if args.keep.no_keep { "no copies" } else { "copies" };
        output::line(format_args!(
            "nothing was written, because of {marked} marked with `!`: --skip-drifted undoes \
             the rest, --force all that can be, and keeps {copies} of what it overwrites"
        ));
        note_git_index(args, &plan);
        return Ok(Ending::Findings);
    }
    let ending = if plan.drifted.is_empty() { Ending::Done } else { Ending::Findings };
    if args.dry_run {
        return Ok(ending);
    }
    if !args.yes && !is_wanted(args, opened, &plan)? {
        output::line(format_args!("nothing was written"));
        return Ok(Ending::Findings);
    }
    with_updater(args, opened, ApplyRun::Other, |updater| {
        let interrupts = Interrupts::catch()?;
        let mut progress = ApplyProgress::new(&interrupts);
        let watch = &mut |event| progress.tell(event);
        let report = undo(opened, to, &options, Some(&plan), updater, watch);
        progress.end();
        let report = report?;
        let drifted = plan.drifted.iter().map(|drift| &drift.path);
        tell_copies(args, drifted, report.kept.as_deref())?;
        tell_lost(args, plan.overwritten(), &report)?;
        tell(args, opened, &report)
    })
}

/// Whether the undo is to another base than the session's, which was moved since.
///
/// # Errors
/// The session has content only in that base: the undo could change it there.
pub(super) fn is_of_moved_base(args: &Args, opened: &OpenSession) -> Result<bool, CliError> {
    let base = args.source.base.as_ref().filter(|_| args.keep.undo);
    if base.is_none_or(|base| check_base(opened.session(), base).is_ok()) {
        return Ok(false);
    }
    match pending_copies(opened)?.files {
        0 => Ok(true),
        files => {
            let files = text::count(files, "large file");
            let what = format!("the session has the rest of {files} only in the base");
            let hint = "tell it first that the base was moved: `acetate serve` with --base DIR and \
                        --moved";
            Err(CliError::new(what).with_hint(hint))
        }
    }
}

/// Prints what to do about an index that git wrote since the apply.
fn note_git_index(args: &Args, plan: &UndoPlan) {
    let copy = if args.keep.no_keep { "no copy" } else { "a copy" };
    let is_index = |path: &MergedPath| path.as_bytes().ends_with(b"/.git/index");
    for drift in plan.drifted.iter().filter(|drift| is_index(&drift.path)) {
        output::line(format_args!(
            "git rewrites {} even when it only looks, as `git status` does: --force puts back the \
             one that goes with the rest, and keeps {copy} of this one",
            text::name(drift.path.as_bytes())
        ));
    }
}

/// Prints the paths of the kept copies of drifted objects.
pub(super) fn tell_copies<'p>(
    args: &Args,
    drifted: impl Iterator<Item = &'p MergedPath>,
    kept: Option<&[KeptCopy]>,
) -> Result<(), CliError> {
    let Some(kept) = kept else { return Ok(()) };
    let mut out = Out::new();
    for path in drifted {
        let Some(copy) = kept.iter().find_map(|kept| copy_of(path, kept)) else { continue };
        if args.json {
            let mut object = text::json("kept");
            text::put_path(&mut object, "path", path.as_bytes());
            text::put_path(&mut object, "copy", copy.as_os_str().as_encoded_bytes());
            out.json(object)?;
        } else {
            let copy = text::name(copy.as_os_str().as_encoded_bytes());
            let path = text::name(path.as_bytes());
            out.line(format_args!("{path}: a copy is at {copy}, until the next apply"))?;
        }
    }
    out.end()
}

/// Prints which drifted objects were overwritten for good, because no copies are kept.
pub(super) fn tell_lost<'p>(
    args: &Args,
    overwritten: impl Iterator<Item = &'p MergedPath>,
    report: &Report,
) -> Result<(), CliError> {
    if !args.keep.no_keep || report.broken_off.is_some() {
        return Ok(());
    }
    let skipped: BTreeSet<_> = report.skipped.iter().map(|skipped| skipped.path.clone()).collect();
    let is_done = |path: &&MergedPath| {
        !skipped.contains(*path) && !path.above().any(|above| skipped.contains(&above))
    };
    let lost: BTreeSet<_> = overwritten.filter(is_done).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let paths = text::count(lost.len(), "path");
    let target = if args.to.is_some() { "copy" } else { "base" };
    output::line(format_args!(
        "what the {target} had at {paths} is gone for good: --no-keep keeps no copies"
    ));
    let mut out = Out::new();
    for path in lost.into_iter().filter(|_| args.json) {
        let mut object = text::json("kept");
        text::put_path(&mut object, "path", path.as_bytes());
        object.insert("copy".to_owned(), Value::Null);
        out.json(object)?;
    }
    out.end()
}

/// Path of the kept copy of the object at `path`, if `kept` is that, or a directory that has it.
fn copy_of(path: &MergedPath, kept: &KeptCopy) -> Option<PathBuf> {
    if *path == kept.path || *path == kept.change {
        return Some(kept.copy.clone());
    }
    if !path.is_within(&kept.path) {
        return None;
    }
    let below = path.as_bytes().get(kept.path.as_bytes().len() + 1..)?;
    let mut copy = kept.copy.clone();
    for name in below.split(|byte| *byte == b'/') {
        // A symbolic link in the copy is not followed.
        if copy.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            return None;
        }
        copy.push(std::ffi::OsStr::from_bytes(name));
    }
    let is_gone = copy.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    (!is_gone).then_some(copy)
}

fn print(args: &Args, opened: &OpenSession, plan: &UndoPlan) -> Result<(), CliError> {
    let mut out = Out::new();
    if args.json {
        for change in &plan.changes {
            out.json(json(change))?;
        }
    } else {
        for line in lines(args, opened, plan) {
            out.line(format_args!("{line}"))?;
        }
    }
    print_drift(args, plan, &mut out)?;
    let dir = super::target(args, opened);
    let (changes, drifted) = (plan.count_paths(), plan.drifted.len());
    if args.json {
        let mut object = text::json("undo_plan");
        text::put_path(&mut object, "to", dir.as_os_str().as_encoded_bytes());
        super::report::put_counts(&mut object, changes, drifted, "drifted");
        object.insert("kept_bytes".to_owned(), plan.kept_bytes.into());
        out.json(object)?;
    } else {
        let what = if plan.is_redo { "apply again" } else { "undo" };
        let mut sum = format!("{} to {what}", text::count(changes, "change"));
        if plan.times > 0 {
            sum.push_str(&format!(", times of {}", text::count(plan.times, "directory")));
        }
        if drifted > 0 {
            sum.push_str(&format!(", {drifted} not as the apply left it"));
        }
        if !plan.holders.is_empty() {
            sum.push_str(&format!(", {} left out", plan.holders.len()));
        }
        sum.push_str(&args.keep.note(plan.kept_bytes));
        out.line(format_args!("{}: {sum}", dir.display()))?;
    }
    out.end()
}

/// The changes in lines. As in the plan of an apply, the files of git and of context nodes are in
/// one line, unless `--all` is given.
fn lines(args: &Args, opened: &OpenSession, plan: &UndoPlan) -> Vec<String> {
    let outside = opened.base_path().map(|path| path.as_os_str().as_bytes());
    let paths = plan.changes.iter().map(|change| &change.path);
    // The lines of a session that cannot be read are not folded.
    let own = match args.all {
        true => ToolOwnedFiles::default(),
        false => {
            opened.with_tree(|view| ToolOwnedFiles::find(view, outside, paths)).unwrap_or_default()
        }
    };
    let (mut lines, mut folded) = (Vec::new(), BTreeMap::new());
    let mut dir: Option<&UndoChange> = None;
    for change in &plan.changes {
        if dir.is_some_and(|dir| dir.covers(change)) {
            continue;
        }
        if change.is_whole_dir() {
            dir = Some(change);
        }
        let owned = own.owner(&change.path).filter(|_| !args.all);
        let Some((owner, root)) = owned else {
            lines.push(line(change));
            continue;
        };
        let (_, _, files) = folded.entry(root).or_insert_with(|| {
            lines.push(String::new());
            (lines.len() - 1, owner, 0)
        });
        *files += change.held.files + u64::from(!change.is_dir);
    }
    for (root, (at, owner, files)) in folded {
        let (dir, files) = (text::dir_name(root.as_bytes()), text::count(files, "file"));
        lines[at] = format!("M {dir} ({files}{})", whose(owner));
    }
    lines
}

fn line(change: &UndoChange) -> String {
    let slash = if change.is_dir && change.path != MergedPath::root() { "/" } else { "" };
    let (path, held) = (text::name(change.path.as_bytes()), held(change));
    match &change.kind {
        UndoKind::Removed => format!("D {path}{slash}{held}"),
        UndoKind::Restored => format!("A {path}{slash}{held}"),
        UndoKind::Changed => format!("M {path}{slash}"),
        UndoKind::Moved(from) => format!("R {} -> {path}{slash}", text::name(from.as_bytes())),
    }
}

/// Counts of the descendants restored or removed with a directory, in `diff`'s form.
fn held(change: &UndoChange) -> String {
    match change.held {
        DirContents { files: 0, dirs: 0, .. } => String::new(),
        DirContents { files: 0, dirs, .. } => format!(" ({})", text::count(dirs, "directory")),
        DirContents { files, bytes, .. } => {
            format!(" ({}, {})", text::count(files, "file"), text::bytes(bytes))
        }
    }
}

fn print_drift(args: &Args, plan: &UndoPlan, out: &mut Out) -> Result<(), CliError> {
    for drift in &plan.drifted {
        if args.json {
            let mut object = text::json("drift");
            text::put_path(&mut object, "path", drift.path.as_bytes());
            object.insert("why".to_owned(), drift.why.into());
            out.json(object)?;
        } else {
            let lost = if drift.is_lost { "; it cannot come back" } else { "" };
            let path = text::name(drift.path.as_bytes());
            out.line(format_args!("! {path}: {}{lost}", drift.why))?;
        }
    }
    for holder in by_path(&plan.holders, |holder| &holder.path) {
        print_note(args, out, ("left_out", '-'), (&holder.path, &holder.why))?;
    }
    Ok(())
}

fn json(change: &UndoChange) -> serde_json::Map<String, Value> {
    let mut object = text::json("undo");
    let kind = match &change.kind {
        UndoKind::Restored => "restored",
        UndoKind::Changed => "changed",
        UndoKind::Removed => "removed",
        UndoKind::Moved(_) => "moved",
    };
    object.insert("kind".to_owned(), kind.into());
    text::put_path(&mut object, "path", change.path.as_bytes());
    if let UndoKind::Moved(from) = &change.kind {
        text::put_path(&mut object, "from", from.as_bytes());
    }
    object
}

fn is_wanted(args: &Args, opened: &OpenSession, plan: &UndoPlan) -> Result<bool, CliError> {
    if args.json || !asking::can_ask() {
        let what = "cannot ask without a terminal: nothing was written";
        let hint = "--yes undoes the apply without asking, --dry-run only shows the plan";
        return Err(CliError::new(what).with_hint(hint));
    }
    let dir = super::target(args, opened).display();
    match plan.is_redo {
        true => asking::ask(&format_args!("do the last apply to {dir} again?")),
        false => asking::ask(&format_args!("undo the last apply to {dir}?")),
    }
}
