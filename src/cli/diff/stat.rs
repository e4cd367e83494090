//! `diff --stat`, `--numstat`, `--shortstat`: how much changed.

use std::collections::{HashMap, HashSet};
use std::fmt::Arguments;

use super::line::{
    BASE_CHANGED, BASE_REMOVED, folded_letter, held, is_dir, kind, letter, notes, shown, whose,
};
use super::text;
use crate::cli::CliError;
use crate::cli::output;
use crate::cli::output::Out;
use crate::delta::MergedPath;
use crate::inspect::counts::ChangeCounts;
use crate::inspect::diff::{Difference, DifferenceKind};
use crate::inspect::fold::{Folded, FoldedLine, Reason};
use crate::inspect::patch::{FileStat, Volume, quoted_text};
use crate::inspect::tool_owned::OwnedBy;
use crate::vfs::FileKind;

/// Columns of the longest bar.
const BAR: usize = 40;

/// The most columns for which a text beside one path cuts the paths of all rows.
const TEXT: usize = 28;

/// The fewest columns of a path.
const PATH: usize = 8;

/// The columns of `A ` before a path and ` | ` behind it.
const MARKS: usize = 5;

/// How it looks.
pub(super) struct StatStyle {
    pub colour: bool,
    /// Rows that are shown; the sum is of all.
    pub most_rows: usize,
}

type StatLine<'a> = &'a mut dyn FnMut(Arguments<'_>) -> Result<(), CliError>;

/// The escape sequence of the colour of a letter.
pub(super) fn colour_of(letter: char) -> Option<&'static str> {
    match letter {
        'A' => Some("\x1b[32m"),
        'D' => Some("\x1b[31m"),
        'R' => Some("\x1b[36m"),
        'T' => Some("\x1b[35m"),
        _ => None,
    }
}

struct StatRow {
    letter: char,
    name: String,
    /// Lines added and removed; `None` for what has a text only.
    lines: Option<(u64, u64)>,
    text: String,
}

/// Prints a row for each entry, and the sum of all differences: each is a path.
pub(super) fn print(
    entries: &[FoldedLine],
    differences: &[Difference],
    files: &[FileStat],
    look: &StatStyle,
    line: StatLine<'_>,
) -> Result<(), CliError> {
    let mut by_path: HashMap<&MergedPath, Vec<&FileStat>> = HashMap::new();
    for file in files {
        by_path.entry(path_of(file)).or_default().push(file);
    }
    // Their directory is the difference.
    let named: HashSet<_> = differences.iter().map(|difference| &difference.path).collect();
    let moved = files.iter().filter_map(|file| file.to.as_ref());
    let moved: Vec<_> = moved.filter(|path| !named.contains(path)).collect();
    let rows: Vec<_> = entries.iter().map(|entry| row(entry, &by_path, &moved)).collect();
    let frame = Frame::of(&rows, output::columns());
    for row in rows.iter().take(look.most_rows) {
        line(format_args!("{}", frame.line(row, look.colour)))?;
    }
    if let more @ 1.. = rows.len().saturating_sub(look.most_rows) {
        line(format_args!("and {more} more"))?;
    }
    if differences.is_empty() {
        return Ok(());
    }
    let changes = text::count(differences.len(), "change");
    line(format_args!("{changes}: {}", text::changes(ChangeCounts::of(differences))))?;
    let of_these = of_these(entries, differences);
    if !of_these.is_empty() {
        line(format_args!("({})", of_these.join(", ")))?;
    }
    if let moved @ 1.. = moved.len() {
        let theirs = if moved == 1 { "its directory" } else { "their directories" };
        line(format_args!("besides: {} moved with {theirs}", text::count(moved, "file")))?;
    }
    sum(files).map_or(Ok(()), |sum| line(format_args!("{sum}")))
}

/// How many of the changes are no files, no content, or names of a file that is counted already.
fn of_these(entries: &[FoldedLine], differences: &[Difference]) -> Vec<String> {
    let (mut git, mut nodes) = (0, 0);
    let mut dirs = differences.iter().filter(|d| is_dir(d)).count() as u64;
    for entry in entries {
        let FoldedLine::Folded(Folded { reason: Reason::Own(owner), paths, files, .. }) = entry
        else {
            continue;
        };
        dirs = dirs.saturating_sub(paths - files);
        match owner {
            OwnedBy::Git => git += paths,
            OwnedBy::Nodes => nodes += paths,
        }
    }
    let mut all = Vec::new();
    let links = differences.iter().filter(|d| d.change.is_link).count() as u64;
    let special = differences.iter().filter(|d| is_special(d)).count() as u64;
    let counts = [(dirs, "directory"), (links, "hard link"), (special, "special file")];
    for (count, what) in counts {
        all.extend((count > 0).then(|| text::count(count, what)));
    }
    let only_attributes = differences.iter().filter(|d| has_only_attributes(d)).count() as u64;
    let (git, nodes) = ((git, whose(OwnedBy::Git)), (nodes, whose(OwnedBy::Nodes)));
    for (count, what) in [git, nodes, (only_attributes, " only in mode or owner")] {
        all.extend((count > 0).then(|| format!("{count}{what}")));
    }
    all
}

/// Whether more than a content differs: also the path, the mode or the owner.
pub(super) fn has_attributes(difference: &Difference) -> bool {
    let differs = difference.differs;
    difference.kind != DifferenceKind::Modified || differs.mode || differs.owner
}

/// Whether it is neither a file nor a link nor a directory: it has no content.
fn is_special(difference: &Difference) -> bool {
    let kind = kind(difference);
    !matches!(kind, FileKind::Regular | FileKind::Symlink | FileKind::Directory)
}

fn has_only_attributes(difference: &Difference) -> bool {
    difference.kind == DifferenceKind::Modified
        && !difference.differs.content
        && has_attributes(difference)
}

fn path_of(file: &FileStat) -> &MergedPath {
    static ROOT: std::sync::LazyLock<MergedPath> = std::sync::LazyLock::new(MergedPath::root);
    file.path().unwrap_or(&ROOT)
}

fn row(
    entry: &FoldedLine,
    by_path: &HashMap<&MergedPath, Vec<&FileStat>>,
    moved: &[&MergedPath],
) -> StatRow {
    let difference = match entry {
        FoldedLine::Folded(folded) => {
            let name = text::dir_name(folded.path.as_bytes());
            let text = held(folded);
            return StatRow { letter: folded_letter(folded), name, lines: None, text };
        }
        FoldedLine::One(difference) => difference,
    };
    let from = difference.old.as_ref().filter(|_| difference.kind == DifferenceKind::Renamed);
    let name = match from {
        Some(base) => {
            let from = text::name(MergedPath::of_base(&base.path).as_bytes());
            let slash = if is_dir(difference) { "/" } else { "" };
            renamed(&from, &text::name(difference.path.as_bytes())) + slash
        }
        None => shown(difference),
    };
    let own = by_path.get(&difference.path).map(Vec::as_slice).unwrap_or_default();
    let letter = letter(difference.kind);
    let mut notes = notes(difference);
    notes.retain(|note| note != "modified");
    if own.is_empty() && is_dir(difference) && difference.kind == DifferenceKind::Renamed {
        let inside = |path: &&&MergedPath| path.is_within(&difference.path);
        notes.insert(0, text::count(moved.iter().filter(inside).count(), "file"));
    }
    if is_special(difference) {
        notes.insert(0, text::kind(kind(difference)).to_owned());
    }
    let mut lines = None;
    for file in own {
        match file.volume {
            Volume::Lines { added, removed } => {
                let (a, r) = lines.unwrap_or((0, 0));
                lines = Some((a + added, r + removed));
            }
            Volume::Binary(old, new) => notes.insert(0, format!("Bin {old} -> {new} bytes")),
            Volume::Unknown => notes.insert(0, "lines not known".to_owned()),
        }
    }
    // A file that only changed its mode or name has no lines to count.
    let lines = lines.filter(|lines| *lines != (0, 0) || notes.is_empty());
    StatRow { letter, name, lines, text: notes.join(", ") }
}

/// The columns of a text and of the number of lines before it.
fn beside(row: &StatRow, text: usize, number: usize) -> usize {
    match (text, row.lines) {
        (0, _) => 0,
        (text, None) => text,
        (text, Some(_)) => number + 2 + text,
    }
}

/// The columns of the rows.
struct Frame {
    columns: usize,
    name: usize,
    number: usize,
    bar: usize,
    most: u64,
}

impl Frame {
    fn of(rows: &[StatRow], columns: usize) -> Self {
        let longest = |width: &dyn Fn(&StatRow) -> usize| rows.iter().map(width).max().unwrap_or(0);
        let most = rows.iter().filter_map(|row| row.lines).map(|(a, r)| a + r).max().unwrap_or(0);
        let number = if most > 0 { most.to_string().len() } else { 1 };
        let text = longest(&|row| beside(row, text::width(&row.text).min(TEXT), number));
        let room = columns.saturating_sub(MARKS);
        let beside = text.max(number + 1 + 10);
        let longest_name = longest(&|row| text::width(&row.name));
        let name = longest_name.min(room.saturating_sub(beside).max(PATH));
        let bar = room.saturating_sub(name + number + 1).min(BAR);
        Self { columns, name, number, bar, most }
    }

    /// The columns of a row's name: fewer than those of the others if its text says that the base
    /// changed and would not be whole.
    fn name_of(&self, row: &StatRow) -> usize {
        if note_on_base(&row.text).is_none() {
            return self.name;
        }
        let beside = beside(row, text::width(&row.text), self.number);
        let room = self.columns.saturating_sub(MARKS);
        self.name.min(room.saturating_sub(beside).max(PATH))
    }

    fn line(&self, row: &StatRow, has_colour: bool) -> String {
        let columns = self.name_of(row);
        let name = cut_front(&row.name, columns);
        let pad = " ".repeat(columns.saturating_sub(text::width(&name)));
        let head = format!("{} {name}{pad} | ", row.letter);
        let Some((added, removed)) = row.lines else {
            let left = self.columns.saturating_sub(text::width(&head));
            let line = head + &cut_text(&row.text, left);
            return text::printable(&line).trim_end().to_owned();
        };
        let head = format!("{head}{:>width$} ", added + removed, width = self.number);
        let head = text::printable(&cut_end(&head, self.columns)).into_owned();
        let left = self.columns.saturating_sub(text::width(&head));
        let note = match row.text.is_empty() {
            true => String::new(),
            false => format!(" {}", cut_text(&row.text, left.saturating_sub(1))),
        };
        let note = text::printable(&note).into_owned();
        let (plus, minus) = self.bars(added, removed, left.saturating_sub(text::width(&note)));
        let (plus, minus) = ("+".repeat(plus), "-".repeat(minus));
        let line = match has_colour {
            true => format!("{head}\x1b[32m{plus}\x1b[31m{minus}\x1b[m{note}"),
            false => format!("{head}{plus}{minus}{note}"),
        };
        line.trim_end().to_owned()
    }

    /// How many signs stand for so many lines.
    fn bars(&self, added: u64, removed: u64, left: usize) -> (usize, usize) {
        let room = self.bar.min(left) as u64;
        if self.most <= room {
            return (added as usize, removed as usize);
        }
        let scaled = |lines: u64| {
            let length = u128::from(lines) * u128::from(room) / u128::from(self.most.max(1));
            usize::try_from(length).unwrap_or(0).max(usize::from(lines > 0))
        };
        let plus = scaled(added).min(room as usize);
        (plus, scaled(removed).min(room as usize - plus))
    }
}

/// The end of a name that is too long, from a slash on where there is one.
fn cut_front(name: &str, width: usize) -> String {
    if text::width(name) <= width {
        return name.to_owned();
    }
    let mut left = width.saturating_sub(3);
    let mut begin = name.len();
    for (at, c) in name.char_indices().rev() {
        let Some(rest) = left.checked_sub(text::char_width(c)) else { break };
        (left, begin) = (rest, at);
    }
    let end = &name[begin..];
    let from = end.find('/').filter(|at| *at + 1 < end.len()).unwrap_or(0);
    format!("...{}", &end[from..])
}

fn cut_end(line: &str, width: usize) -> String {
    if text::width(line) <= width {
        return line.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| {
        let rest = left.checked_sub(text::char_width(*c));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    line.chars().take_while(fits).chain(['…']).collect()
}

/// The note at the end of a text that says that the base changed.
fn note_on_base(text: &str) -> Option<&'static str> {
    [BASE_CHANGED, BASE_REMOVED].into_iter().find(|note| text.ends_with(note))
}

/// A text that is too long, cut at its end, but for a note on the base.
fn cut_text(text: &str, width: usize) -> String {
    let room = |note: &str| width.checked_sub(text::width(note) + 2).filter(|room| *room > 1);
    match note_on_base(text) {
        Some(note) if text::width(text) > width => match room(note) {
            Some(room) => {
                let before = text.strip_suffix(note).unwrap_or(text).trim_end_matches([',', ' ']);
                format!("{}, {note}", cut_end(before, room))
            }
            None => cut_end(note, width),
        },
        _ => cut_end(text, width),
    }
}

/// Two paths with what they have in common once, as git writes it: `/dir/{a => b}/file`.
fn renamed(from: &str, to: &str) -> String {
    let common = from.bytes().zip(to.bytes()).take_while(|(a, b)| a == b).count();
    let front = from[..floor(from, common)].rfind('/').map_or(0, |at| at + 1);
    let (a, b) = (&from[front..], &to[front..]);
    let back = a.bytes().rev().zip(b.bytes().rev()).take_while(|(a, b)| a == b).count();
    let tail = |text: &str| {
        text[ceil(text, text.len() - back)..]
            .find('/')
            .map(|at| text.len() - ceil(text, text.len() - back) - at)
    };
    let back = tail(a).unwrap_or(0).min(a.len()).min(b.len());
    if front <= 1 && back == 0 {
        return format!("{from} => {to}");
    }
    let (a_mid, b_mid) = (&a[..a.len() - back], &b[..b.len() - back]);
    format!("{}{{{a_mid} => {b_mid}}}{}", &from[..front], &a[a.len() - back..])
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

fn ceil(text: &str, at: usize) -> usize {
    (at..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

/// Prints lines added, lines removed and the path of each file, as git does.
pub(super) fn numstat(files: &[FileStat], out: &mut Out) -> Result<(), CliError> {
    for file in files {
        let (added, removed) = match file.volume {
            Volume::Lines { added, removed } => (added.to_string(), removed.to_string()),
            Volume::Binary(..) => ("-".to_owned(), "-".to_owned()),
            Volume::Unknown => ("?".to_owned(), "?".to_owned()),
        };
        let quoted =
            |path: &MergedPath| String::from_utf8_lossy(&quoted_text(path.as_bytes())).into_owned();
        let name = match (&file.from, &file.to) {
            (Some(from), Some(to)) if from != to => renamed(&quoted(from), &quoted(to)),
            _ => quoted(path_of(file)),
        };
        out.line(format_args!("{added}\t{removed}\t{name}"))?;
    }
    Ok(())
}

/// Prints the sum of the changed lines.
pub(super) fn shortstat(files: &[FileStat], out: &mut Out) -> Result<(), CliError> {
    sum(files).map_or(Ok(()), |sum| out.line(format_args!("{sum}")))
}

/// The sum of the changed lines, as git writes it.
fn sum(files: &[FileStat]) -> Option<String> {
    let (mut added, mut removed) = (0, 0);
    for file in files {
        if let Volume::Lines { added: a, removed: r } = file.volume {
            added += a;
            removed += r;
        }
    }
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let changed = text::count(files.len(), "file");
    let mut sum = format!(" {changed} changed");
    if added > 0 || removed == 0 {
        sum.push_str(&format!(", {added} insertion{}(+)", plural(added)));
    }
    if removed > 0 || added == 0 {
        sum.push_str(&format!(", {removed} deletion{}(-)", plural(removed)));
    }
    (!files.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, lines: Option<(u64, u64)>, text: &str) -> StatRow {
        StatRow { letter: 'M', name: name.to_owned(), lines, text: text.to_owned() }
    }

    fn lines(rows: &[StatRow], columns: usize) -> Vec<String> {
        let frame = Frame::of(rows, columns);
        let lines: Vec<_> = rows.iter().map(|row| frame.line(row, false)).collect();
        assert!(lines.iter().all(|line| text::width(line) <= columns), "{lines:?}");
        lines
    }

    #[test]
    fn the_path_is_cut_and_the_note_on_the_base_is_not() {
        let long = format!("/{}", "long".repeat(20));
        let notes = format!("mode 0644 -> 0755, {BASE_CHANGED}");
        let rows =
            [row(&long, Some((1, 1)), &notes), row(&long, None, &notes), row("/a", None, "")];
        for columns in [80, 60] {
            for line in &lines(&rows, columns)[..2] {
                assert!(line.ends_with(&notes) && line.contains("..."), "{line}");
            }
        }
        // The other notes are cut where the path is as short as it may be.
        let short = lines(&rows, 41);
        assert!(short[0].ends_with(&format!("- {BASE_CHANGED}")), "{short:?}");
        assert!(short[1].ends_with(&format!("…, {BASE_CHANGED}")), "{short:?}");
        for line in &lines(&rows, 25)[..2] {
            assert!(line.ends_with("…"), "{line}");
        }
    }

    #[test]
    fn a_long_note_on_the_base_cuts_the_path_of_its_own_row_alone() {
        let (path, dir) = ("/regex-automata/src/util.rs", "/regex-automata/tests/");
        let note = format!("44 files, 145.4 KiB, {BASE_CHANGED}");
        let rows = [row(path, Some((3, 1)), ""), row(dir, None, &note), row(path, None, "x")];
        let lines = lines(&rows, 60);
        assert_eq!(lines[0], format!("M {path} | 4 +++-"));
        assert_eq!(lines[1], format!("M .../tests/  | {note}"));
        assert_eq!(lines[2], format!("M {path} | x"));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = [row("/日本語", Some((1, 0)), ""), row("/e\u{301}tude", Some((2, 0)), "")];
        assert_eq!(lines(&rows, 80), ["M /日本語 | 1 +", "M /e\u{301}tude  | 2 ++"]);
        assert_eq!(cut_front("/日本語/文", 8), ".../文");
        assert_eq!((cut_end("日本語", 4), cut_end("日本語", 5)), ("日…".into(), "日本…".into()));
    }
}
