//! `acetate diff`: what a session changed.

mod between;
mod hunks;
mod line;
mod patch;
mod stat;

use std::collections::HashMap;
use std::ffi::OsString;

use super::error::CliError;
use super::lost_dirs;
use super::output::{self, Out};
use super::pager::{Colour, Pager};
use super::selecting::{LeaveOut, tell_excluded_moves, tell_ignored, tell_unmatched};
use super::source::PastSource;
use super::{Ending, text};
use crate::delta::MergedPath;
use crate::inspect::diff::{DiffOptions, Difference};
use crate::inspect::fold::{
    FoldOptions, FoldedLine, each_path, entries, sorted, sorted_past_denied,
};
use crate::inspect::opened::OpenSession;
use crate::inspect::patch::{FileStat, PatchOmissions, PatchStats, Style, stats};
pub(super) use line::{change_name, json, letter, line, whose};
pub(super) use patch::escaped;

/// The forms without a patch.
const NO_PATCH: [&str; 6] = ["stat", "numstat", "shortstat", "name_only", "name_status", "json"];

/// Show what a session changed against its base.
///
/// Contents are compared: a file that was only read, or rewritten with the same content, is not
/// shown. A letter is the kind of change: A added, D deleted, M modified, R renamed, T another
/// type. A directory that was added or deleted as a whole is one line with its totals, unless PATH
/// names it; so are git's own files, and those of context nodes. Exits with 1 if there are
/// differences.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: PastSource,

    /// Only changes at or below these paths or renamed from there, or pathspecs: `*.rs`, `:!dist`.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    #[command(flatten)]
    leave_out: LeaveOut,

    /// Compare with the tree at this checkpoint, instead of the base.
    ///
    /// An id, a name, `@-1` for the newest, or a moment: see `acetate checkpoint`.
    #[arg(long, value_name = "CHECKPOINT", hide_short_help = true)]
    from: Option<String>,

    /// With --from, compare the tree at this later checkpoint [default: as it is now].
    #[arg(long, value_name = "CHECKPOINT", requires = "from", hide_short_help = true)]
    to: Option<String>,

    /// Print a patch for `git apply`.
    #[arg(short, long, group = "form")]
    patch: bool,

    /// Show how many lines of each file changed, and the totals.
    #[arg(long, group = "form")]
    stat: bool,

    /// Like --stat, for programs.
    ///
    /// Lines added, lines removed, path; dashes for a binary file, question marks where the
    /// original is not known.
    #[arg(long, group = "form")]
    numstat: bool,

    /// Show only the totals.
    #[arg(long, group = "form", hide_short_help = true)]
    shortstat: bool,

    /// Print only the paths, one per line; nothing is folded.
    #[arg(long, group = "form")]
    name_only: bool,

    /// Print letters and paths, one per line; nothing is folded.
    ///
    /// Separated by tabs, with the old path of a rename before the new one; quoted as git quotes.
    #[arg(long, group = "form", hide_short_help = true)]
    name_status: bool,

    /// Print a JSON object for each path that differs; nothing is folded.
    #[arg(long, group = "form")]
    json: bool,

    /// With --json, print the hunks of each difference instead.
    ///
    /// `apply --hunk` and `discard --hunk` take the ids. Fields: id, path, change; part (lines,
    /// attributes, or whole: a change without hunks); for lines also header, old_start, old_lines,
    /// new_start, new_lines, lines (with U+FFFD for invalid UTF-8); for attributes before, after.
    /// An id stays valid while other hunks are applied or discarded.
    #[arg(long, requires = "json", hide_short_help = true)]
    hunks: bool,

    /// Include files in which only the modification time differs.
    #[arg(long, conflicts_with = "patch", hide_short_help = true)]
    times: bool,

    /// Do not fold directories.
    ///
    /// Print one line per path also for directories that were added or deleted as a whole.
    #[arg(long)]
    no_fold: bool,

    /// Include what is otherwise left out or folded.
    ///
    /// Files that clients and killed commands leave behind (.nfs*, ._*, .DS_Store,
    /// .acetate-write-*), and one line for each of git's own files and those of context nodes,
    /// which are in no patch otherwise.
    #[arg(long)]
    all: bool,

    /// Find renames by similarity [default: 50 percent].
    ///
    /// Shows a new file as renamed from a deleted one if they are similar by PERCENT or more. `-M`,
    /// `-M70`, `-M70%`, `--find-renames=70`.
    #[arg(short = 'M', long, value_name = "PERCENT", value_parser = percent)]
    #[arg(num_args = 0..=1, default_missing_value = "50", require_equals = true)]
    find_renames: Option<u8>,

    /// Print a patch with this many lines around each change [default: 3].
    #[arg(short = 'U', long, value_name = "LINES", hide_short_help = true)]
    #[arg(conflicts_with_all = NO_PATCH)]
    unified: Option<u32>,

    /// Ignore spaces and tabs. `git apply` may refuse such a patch.
    #[arg(short = 'w', long, hide_short_help = true)]
    ignore_all_space: bool,

    /// Show changed words instead of lines: [-removed-] {+added+}. Not for `git apply`.
    #[arg(long, conflicts_with_all = NO_PATCH, hide_short_help = true)]
    word_diff: bool,

    /// Use colours.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, hide_short_help = true)]
    color: Colour,

    /// Do not use a pager on a terminal.
    #[arg(long, hide_short_help = true)]
    no_pager: bool,
}

impl Args {
    fn is_patch(&self) -> bool {
        self.patch || self.word_diff || self.unified.is_some()
    }

    /// Whether lines are counted.
    fn has_counts(&self) -> bool {
        self.stat || self.numstat || self.shortstat
    }

    fn style(&self) -> Style {
        Style {
            context: self.unified.unwrap_or(Style::default().context),
            ignores_space: self.ignore_all_space,
            is_of_words: self.word_diff,
            similarity: self.find_renames,
            has_git: self.all,
            ..Style::default()
        }
    }
}

/// Compares.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    if let Some(from) = &args.from {
        return between::run(args, from);
    }
    let opened = args.source.open()?;
    let selection = args.leave_out.read(&opened, &args.paths)?;
    lost_dirs::warn(&opened)?;
    let (client_temp_files, times) = (args.all, args.times);
    let options = DiffOptions { selection, client_temp_files, times, ..DiffOptions::default() };
    if args.is_patch() {
        return patch::print(args, &opened, &options);
    }
    let counts = args.has_counts();
    let (files, left_out, mut differences) = match counts || args.find_renames.is_some() {
        true => {
            let PatchStats { files, left_out, differences } =
                stats(&opened, &options, &args.style())?;
            let moved = moved(args, &files);
            (files, left_out, sorted(&opened, &options, differences, &moved)?)
        }
        false => {
            let (differences, denied) = sorted_past_denied(&opened, &options)?;
            (Vec::new(), PatchOmissions { denied, ..PatchOmissions::default() }, differences)
        }
    };
    let is_any = !differences.is_empty();
    if counts {
        // As for git, these have no counts; but their mode may differ, too.
        differences.retain(|d| stat::has_attributes(d) || !left_out.only_space.contains(&d.path));
    }
    let mut out = output(args);
    print(args, (&opened, &options), (differences, &files), &mut out)?;
    out.end()?;
    patch::tell_of_renames(&left_out);
    tell_unmatched(&options.selection, "change");
    tell_excluded_moves(&options.selection);
    tell_ignored(&opened, &options.selection)?;
    output::tell_of_denied(&left_out.denied, "shown");
    if counts && !left_out.unknown.is_empty() {
        patch::tell_of_unknown(&left_out, "counted");
    }
    if !left_out.denied.is_empty() || (counts && !left_out.unknown.is_empty()) {
        return Ok(Ending::Exit(2));
    }
    Ok(if is_any { Ending::Findings } else { Ending::Done })
}

/// Prints differences, in every form but that of a patch.
fn print(
    args: &Args,
    (opened, options): (&OpenSession, &DiffOptions),
    (differences, files): (Vec<Difference>, &[FileStat]),
    out: &mut Out,
) -> Result<(), CliError> {
    let each = |differences| each_path(opened, options, differences);
    match args {
        Args { numstat: true, .. } => stat::numstat(files, out),
        Args { shortstat: true, .. } => stat::shortstat(files, out),
        Args { stat: true, .. } => {
            let look = stat::StatStyle { colour: args.color.is_on(), most_rows: usize::MAX };
            let folded = entries(opened, options, folding(args), differences.clone())?;
            stat::print(&folded, &each(differences)?, files, &look, &mut |text| out.raw_line(text))
        }
        Args { hunks: true, .. } => {
            differences.iter().try_for_each(|d| hunks::print(opened, d, out))
        }
        Args { json: true, .. } => each(differences)?.iter().try_for_each(|d| out.json(json(d))),
        Args { name_only: true, .. } => {
            let each = each(differences)?;
            each.iter().try_for_each(|d| out.line(format_args!("{}", line::shown(d))))
        }
        Args { name_status: true, .. } => {
            let each = each(differences)?;
            each.iter().try_for_each(|d| out.line(format_args!("{}", line::status(d))))
        }
        _ => list(&entries(opened, options, folding(args), differences)?, args, out),
    }
}

/// Where it is printed to: the pager, if there is one.
fn output(args: &Args) -> Out {
    let is_paged = !args.no_pager && !args.json;
    is_paged.then(Pager::start).flatten().map_or_else(Out::new, Out::to_pager)
}

fn folding(args: &Args) -> FoldOptions {
    FoldOptions { dirs: !args.no_fold, own: !args.all }
}

/// The old paths of files that are shown as renamed because of similar content, by new path.
fn moved(args: &Args, files: &[FileStat]) -> HashMap<MergedPath, MergedPath> {
    if args.find_renames.is_none() {
        return HashMap::new();
    }
    let both = |file: &FileStat| Some((file.to.clone()?, file.from.clone()?));
    files.iter().filter_map(both).filter(|(to, from)| to != from).collect()
}

/// The lines of some differences, folded; with `all`, git's own files and those of context nodes
/// have lines of their own.
pub(super) fn lines(
    opened: &OpenSession,
    all: bool,
    differences: Vec<Difference>,
) -> Result<Vec<String>, CliError> {
    let folding = FoldOptions { dirs: true, own: !all };
    let entries = entries(opened, &DiffOptions::default(), folding, differences)?;
    Ok(entries.iter().map(entry_line).collect())
}

/// An entry in a line.
pub(super) fn entry_line(entry: &FoldedLine) -> String {
    let (letter, rest) = line::entry(entry);
    format!("{letter} {rest}")
}

/// Prints a line for each entry.
fn list(entries: &[FoldedLine], args: &Args, out: &mut Out) -> Result<(), CliError> {
    let has_colour = args.color.is_on();
    for entry in entries {
        let (letter, rest) = line::entry(entry);
        let text = text::printable(&format!("{letter} {rest}")).into_owned();
        match (has_colour, stat::colour_of(letter)) {
            (true, Some(colour)) => out.raw_line(format_args!("{colour}{text}\x1b[m"))?,
            _ => out.raw_line(format_args!("{text}"))?,
        }
    }
    Ok(())
}

/// The arguments with `-M70` as `-M=70`, the form that clap takes.
pub(super) fn with_equals_sign(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_option = true;
    let rewritten = |arg: OsString| {
        is_option &= arg != "--";
        let text = arg.to_str().filter(|_| is_option).and_then(|text| text.strip_prefix('-'));
        let at = text.and_then(|text| text.find('M').map(|at| text.split_at(at + 1)));
        match at {
            // `-pM70`: flags without values may stand before it.
            Some((flags, value))
                if flags.bytes().all(|flag| b"pwM".contains(&flag))
                    && value.starts_with(|first: char| first.is_ascii_digit()) =>
            {
                format!("-{flags}={value}").into()
            }
            _ => arg,
        }
    };
    args.map(rewritten).collect()
}

fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    number.filter(|n| *n <= 100).ok_or_else(|| "expected a percentage, 0 to 100".to_owned())
}
