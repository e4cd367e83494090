//! `acetate diff`: what a session changed.

use std::ffi::OsString;
use std::io::{self, Write};
use std::ops::ControlFlow;

use serde_json::{Map, Value};

use super::error::CliError;
use super::output::Out;
use super::source::{LookSource, parsed};
use super::{Ending, object, output, text};
use crate::delta::MergedPath;
use crate::inspect::diff::{Difference, Kind, Options, diff};
use crate::inspect::opened::{Opened, check_known};
use crate::inspect::patch::{MAX_FILE_BYTES, patch};
use crate::vfs::FileKind;

/// Show what a session changed against its base.
///
/// Contents are compared: what was only read, or written as it was, does not show. A letter says
/// what happened: A added, D deleted, M modified, R renamed, T of another type; a directory
/// stands for all that is in it where that has no line of its own. Exits with 1 if there are
/// differences.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    source: LookSource,

    /// Only what is at, below, or came from these paths.
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,

    /// A patch in git's format, as `git apply` takes it.
    #[arg(short, long, conflicts_with_all = ["json", "stat", "name_only", "times"])]
    patch: bool,

    /// How much each change is, and a sum.
    #[arg(long, conflicts_with_all = ["json", "name_only"])]
    stat: bool,

    /// Only the paths.
    #[arg(long, conflicts_with = "json")]
    name_only: bool,

    /// The letters and the paths: as without any option.
    #[arg(long, conflicts_with_all = ["json", "stat", "name_only", "patch"])]
    name_status: bool,

    /// Also where only the time of the last change differs.
    #[arg(long)]
    times: bool,

    /// Also what clients and killed commands leave behind: .nfs*, ._*, .DS_Store,
    /// .acetate-write-*.
    #[arg(long)]
    all: bool,

    /// Print a JSON object for each difference.
    #[arg(long)]
    json: bool,
}

/// Compares.
pub(super) fn run(args: &Args) -> Result<Ending, CliError> {
    let paths = parsed(&args.paths)?;
    let opened = args.source.open()?;
    check_known(&opened, &paths)?;
    let options = Options { paths, droppings: args.all, times: args.times, exact: false };
    if args.patch {
        return print_patch(&opened, &options);
    }
    let mut out = Out::new();
    let (mut any, mut closed) = (false, None);
    let mut stat = Stat::default();
    diff(&opened, &options, &mut |_, difference| {
        any = true;
        let printed = if args.json {
            out.json(json(&difference))
        } else if args.stat {
            stat.rows.push(Row::of(&difference));
            Ok(())
        } else if args.name_only {
            out.line(format_args!("{}", shown(&difference)))
        } else {
            out.line(format_args!("{}", line(&difference)))
        };
        closed = printed.err();
        Ok(if closed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if let Some(error) = closed {
        return Err(error);
    }
    if args.stat {
        stat.print(usize::MAX, &mut |text| out.line(text))?;
    }
    out.end()?;
    Ok(if any { Ending::Findings } else { Ending::Done })
}

/// Prints on stderr what `--stat` would, `most_rows` rows of it; says how many there are.
pub(super) fn stat(opened: &Opened, most_rows: usize) -> Result<usize, CliError> {
    let mut stat = Stat::default();
    diff(opened, &Options::default(), &mut |_, difference| {
        stat.rows.push(Row::of(&difference));
        Ok(ControlFlow::Continue(()))
    })?;
    if !stat.rows.is_empty() {
        stat.print(most_rows, &mut |text| {
            output::line(text);
            Ok(())
        })?;
    }
    Ok(stat.rows.len())
}

fn print_patch(opened: &Opened, options: &Options) -> Result<Ending, CliError> {
    let mut out = Counted { out: Out::new(), bytes: 0 };
    let left_out = patch(opened, options, &mut out)?.map_err(|error| CliError::stdout(&error))?;
    if left_out.special > 0 {
        output::line(format_args!(
            "in no patch: {} (fifos, sockets, devices)",
            text::count(left_out.special, "special file"),
        ));
    }
    for path in &left_out.too_large {
        let (path, most) = (text::name(path.as_bytes()), text::bytes(MAX_FILE_BYTES));
        output::line(format_args!("in no patch: {path}: larger than {most}"));
    }
    out.out.end()?;
    let is_any = out.bytes > 0 || !left_out.too_large.is_empty();
    Ok(if is_any { Ending::Findings } else { Ending::Done })
}

/// Stdout, and how much went there.
struct Counted {
    out: Out,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The path, with a slash behind that of a directory.
fn shown(difference: &Difference) -> String {
    let kind = match (&difference.change.after, &difference.change.before) {
        (Some(after), _) => after.attr().kind,
        (None, Some(before)) => before.attr.kind,
        (None, None) => FileKind::Regular,
    };
    let slash = if kind == FileKind::Directory { "/" } else { "" };
    text::name(difference.path.as_bytes()) + slash
}

/// A difference in a line.
pub(super) fn line(difference: &Difference) -> String {
    let letter = letter(difference.kind);
    let path = shown(difference);
    let mut line = match (&difference.change.before, difference.kind) {
        (Some(before), Kind::Renamed) => {
            format!(
                "{letter} {} -> {path}",
                text::name(MergedPath::of_base(&before.path).as_bytes())
            )
        }
        _ => format!("{letter} {path}"),
    };
    let notes = notes(difference);
    if !notes.is_empty() {
        line.push_str(&format!(" ({})", notes.join(", ")));
    }
    line
}

/// What there is to say besides the letter and the path.
fn notes(difference: &Difference) -> Vec<String> {
    let mut notes = Vec::new();
    let differs = difference.differs;
    if let (Some(before), Some(after)) = (&difference.change.before, &difference.change.after) {
        if differs.mode {
            notes.push(format!("mode {:04o} -> {:04o}", before.attr.mode, after.attr().mode));
        }
        if differs.owner {
            let (old, new) = (&before.attr, after.attr());
            notes.push(format!("owner {}:{} -> {}:{}", old.uid, old.gid, new.uid, new.gid));
        }
        if difference.kind == Kind::Renamed && differs.content {
            notes.push("modified".to_owned());
        }
        if differs.mtime && !differs.content && difference.kind == Kind::Modified {
            notes.push("time".to_owned());
        }
    }
    if difference.change.is_link {
        notes.push("link".to_owned());
    }
    if difference.change.replaced.is_some() {
        notes.push("replaced".to_owned());
    }
    if difference.change.is_drifted {
        notes.push("the base changed meanwhile".to_owned());
    }
    notes
}

fn letter(kind: Kind) -> char {
    match kind {
        Kind::Added => 'A',
        Kind::Deleted => 'D',
        Kind::Modified => 'M',
        Kind::Renamed => 'R',
        Kind::Retyped => 'T',
    }
}

/// A difference as an object of `--json`.
pub(super) fn json(difference: &Difference) -> Map<String, Value> {
    let mut json = text::json("difference");
    let kind = match difference.kind {
        Kind::Added => "added",
        Kind::Deleted => "deleted",
        Kind::Modified => "modified",
        Kind::Renamed => "renamed",
        Kind::Retyped => "retyped",
    };
    json.insert("change".to_owned(), kind.into());
    text::put_path(&mut json, "path", difference.path.as_bytes());
    let change = &difference.change;
    if let (Some(before), Kind::Renamed) = (&change.before, difference.kind) {
        text::put_path(&mut json, "from", MergedPath::of_base(&before.path).as_bytes());
    }
    for (key, value) in [
        ("content", difference.differs.content),
        ("mode", difference.differs.mode),
        ("owner", difference.differs.owner),
        ("mtime", difference.differs.mtime),
        ("link", change.is_link),
        ("replaced", change.replaced.is_some()),
        ("drifted", change.is_drifted),
    ] {
        json.insert(key.to_owned(), value.into());
    }
    if let Some(before) = change.before.as_ref().filter(|_| difference.kind != Kind::Added) {
        let attr = &before.attr;
        let mut old = Map::new();
        old.insert("kind".to_owned(), text::kind(attr.kind).into());
        old.insert("mode".to_owned(), format!("{:04o}", attr.mode).into());
        old.insert("uid".to_owned(), attr.uid.into());
        old.insert("gid".to_owned(), attr.gid.into());
        old.insert("size".to_owned(), attr.size.into());
        old.insert("mtime".to_owned(), text::time(attr.mtime).into());
        json.insert("before".to_owned(), old.into());
    }
    if let Some(after) = &change.after {
        json.insert("after".to_owned(), object::json(after).into());
    }
    json
}

/// The rows of `--stat`.
#[derive(Default)]
struct Stat {
    rows: Vec<Row>,
}

struct Row {
    letter: char,
    path: String,
    before: u64,
    after: u64,
}

/// Characters of the longest bar.
const BAR: u64 = 30;

impl Row {
    fn of(difference: &Difference) -> Self {
        let of_file = |kind, size| if kind == FileKind::Regular { size } else { 0 };
        let change = &difference.change;
        let before = change.before.as_ref().filter(|_| difference.kind != Kind::Added);
        let before = before.map_or(0, |base| of_file(base.attr.kind, base.attr.size));
        let after = change.after.as_ref();
        let after = after.map_or(0, |after| of_file(after.attr().kind, after.attr().size));
        Self { letter: letter(difference.kind), path: shown(difference), before, after }
    }
}

impl Stat {
    /// Prints `most_rows` rows and the sum of all.
    fn print(
        &self,
        most_rows: usize,
        line: &mut dyn FnMut(std::fmt::Arguments<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let widest = self.rows.iter().map(|row| row.path.chars().count()).max().unwrap_or(0);
        let most = self.rows.iter().map(|row| row.before.abs_diff(row.after)).max().unwrap_or(0);
        for row in self.rows.iter().take(most_rows) {
            let change = row.before.abs_diff(row.after);
            let length = (u128::from(change) * u128::from(BAR)).div_ceil(u128::from(most.max(1)));
            let sign = if row.after < row.before { "-" } else { "+" };
            let bar = sign.repeat(usize::try_from(length).unwrap_or(0));
            let sizes = match (row.before, row.after) {
                (0, 0) => String::new(),
                (0, after) => text::bytes(after),
                (before, 0) => text::bytes(before),
                (before, after) => {
                    format!("{} -> {}", text::bytes(before), text::bytes(after))
                }
            };
            let (letter, path) = (row.letter, &row.path);
            let pad = " ".repeat(widest - path.chars().count());
            let text = format!("{letter} {path}{pad} | {sizes:>22} {bar}");
            line(format_args!("{}", text.trim_end_matches([' ', '|'])))?;
        }
        if let more @ 1.. = self.rows.len().saturating_sub(most_rows) {
            line(format_args!("and {more} more"))?;
        }
        let count = |letter| self.rows.iter().filter(|row| row.letter == letter).count();
        let grown: u64 = self.rows.iter().map(|row| row.after.saturating_sub(row.before)).sum();
        let shrunk: u64 = self.rows.iter().map(|row| row.before.saturating_sub(row.after)).sum();
        line(format_args!(
            "{} added, {} deleted, {} modified, {} renamed; +{}, -{}",
            count('A'),
            count('D'),
            count('M') + count('T'),
            count('R'),
            text::bytes(grown),
            text::bytes(shrunk),
        ))
    }
}
