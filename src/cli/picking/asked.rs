//! `-p`: shows each hunk and asks for it.

use std::cell::RefCell;
use std::ops::Range;

use super::add_hunk;
use super::offer::{CONFLICTS_WITH_BASE, Offer, choose, moved_dir, noun};
use super::question::{Choices, QuestionEnd, ask};
use super::shown::Screen;
use crate::cli::error::CliError;
use crate::cli::{diff, text};
use crate::delta::MergedPath;
use crate::inspect::diff::Difference;
use crate::inspect::fold::FoldedLine;
use crate::inspect::hunks::{
    Attributes, ChosenHunks, DiffPieces, FileHunks, HunkId, Pick, base_now, pieces,
};
use crate::inspect::opened::OpenSession;

/// Unchanged lines around a hunk.
const CONTEXT: usize = 3;

/// Asks for every offered change.
pub(super) fn pick(offer: &Offer<'_>) -> Result<ChosenHunks, CliError> {
    let screen = Screen::new();
    let mut chosen = ChosenHunks::new();
    let mut staying: Vec<MergedPath> = Vec::new();
    for entry in offer.entries()? {
        if let Some(dir) = staying.iter().find(|dir| entry.path().is_within(dir)) {
            let (path, dir) = (entry.path().as_bytes(), text::name(dir.as_bytes()));
            let path = text::name(path);
            screen.line(&format!("{path}: left out, as the move of {dir} is not chosen"));
            continue;
        }
        let end = match (&entry, hunks_of(offer, &entry)?) {
            (FoldedLine::One(difference), Some(file)) => {
                pick_hunks(offer, &screen, (difference, file), &mut chosen)?
            }
            _ => pick_whole(offer, &screen, &entry, &mut chosen)?,
        };
        if let Some(dir) = moved_dir(&entry)
            && !chosen.contains_key(dir)
        {
            staying.push(dir.clone());
        }
        if end == QuestionEnd::Quit {
            break;
        }
    }
    Ok(chosen)
}

/// The hunks of an entry. No snapshot of the session is held while the user answers.
fn hunks_of(offer: &Offer<'_>, entry: &FoldedLine) -> Result<Option<FileHunks>, CliError> {
    let FoldedLine::One(difference) = entry else { return Ok(None) };
    let found = offer.opened.with_tree(|view| pieces(offer.opened, view, difference))?;
    Ok(match found {
        DiffPieces::File(file) => Some(*file),
        DiffPieces::Whole(_) => None,
    })
}

fn pick_whole(
    offer: &Offer<'_>,
    screen: &Screen,
    entry: &FoldedLine,
    chosen: &mut ChosenHunks,
) -> Result<QuestionEnd, CliError> {
    let mark = offer.mark(offer.has_conflicts(entry));
    screen.title(&format!("{}{mark}", diff::entry_line(entry)));
    let mut whole = Whole { opened: offer.opened, entry, failed: RefCell::new(None) };
    let asked = ask(&mut whole, offer.verb, screen);
    if let Some(error) = whole.failed.into_inner() {
        return Err(error);
    }
    let (picks, end) = asked?;
    if picks.contains(&true) {
        choose(entry, chosen);
    }
    Ok(end)
}

fn pick_hunks(
    offer: &Offer<'_>,
    screen: &Screen,
    (difference, file): (&Difference, FileHunks),
    chosen: &mut ChosenHunks,
) -> Result<QuestionEnd, CliError> {
    let path = &difference.change.path;
    let is_drifted = offer.drifted.contains(path);
    // For a copy, conflicts are only known per file.
    let mark = offer.mark(is_drifted && offer.is_to_copy);
    screen.title(&format!("{}{mark}", diff::line(difference)));
    let mut groups = AskedHunks::of(file);
    if is_drifted && !offer.is_to_copy {
        groups.base = base_now(offer.opened, difference)?;
    }
    let (picks, end) = ask(&mut groups, offer.verb, screen)?;
    if picks.iter().all(|pick| *pick) {
        chosen.insert(path.clone(), Pick::Whole);
        return Ok(end);
    }
    let picked = groups.pieces.iter().zip(picks).filter(|(_, pick)| *pick);
    for id in picked.flat_map(|(piece, _)| groups.ids(piece)) {
        add_hunk(chosen, path, id);
    }
    Ok(end)
}

/// A change that is chosen as a whole.
struct Whole<'a> {
    opened: &'a OpenSession,
    entry: &'a FoldedLine,
    failed: RefCell<Option<CliError>>,
}

impl Choices for Whole<'_> {
    fn count(&self) -> usize {
        1
    }

    fn noun(&self, _at: usize) -> &'static str {
        noun(self.entry)
    }

    fn show(&self, _at: usize, screen: &Screen) {
        if let FoldedLine::One(difference) = self.entry {
            let shown = screen.whole(self.opened, difference);
            self.failed.replace(shown.err());
        }
    }

    fn line(&self, _at: usize) -> String {
        diff::entry_line(self.entry)
    }

    fn has_text(&self, _at: usize, _text: &str) -> bool {
        false
    }

    fn split(&mut self, _at: usize) -> usize {
        1
    }

    fn can_split(&self, _at: usize) -> bool {
        false
    }
}

/// The hunks of a file in the form of questions.
struct AskedHunks {
    file: FileHunks,
    pieces: Vec<AskedPiece>,
    /// The current content of a drifted base file, with which not all hunks may merge.
    base: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
enum AskedPiece {
    Attributes(Attributes),
    Lines(Range<usize>),
}

impl AskedHunks {
    fn of(file: FileHunks) -> Self {
        let attributes = file.attributes.map(AskedPiece::Attributes);
        let groups = file.text.groups(CONTEXT).into_iter().map(AskedPiece::Lines);
        let pieces = attributes.into_iter().chain(groups).collect();
        Self { file, pieces, base: None }
    }

    /// The mark of hunks that conflict with the current base file.
    fn mark(&self, range: &Range<usize>) -> &'static str {
        let conflicts = |base: &Vec<u8>| self.file.text.has_conflicts(range.clone(), base);
        if self.base.as_ref().is_some_and(conflicts) { CONFLICTS_WITH_BASE } else { "" }
    }

    fn ids(&self, piece: &AskedPiece) -> Vec<HunkId> {
        match piece {
            AskedPiece::Attributes(attributes) => vec![attributes.id],
            AskedPiece::Lines(range) => {
                self.file.text.hunks[range.clone()].iter().map(|hunk| hunk.id).collect()
            }
        }
    }
}

impl Choices for AskedHunks {
    fn count(&self) -> usize {
        self.pieces.len()
    }

    fn noun(&self, at: usize) -> &'static str {
        match self.pieces[at] {
            AskedPiece::Attributes(Attributes { old, new, .. }) if old[0] != new[0] => {
                "mode change"
            }
            AskedPiece::Attributes(_) => "change of owner",
            AskedPiece::Lines(_) => "hunk",
        }
    }

    fn show(&self, at: usize, screen: &Screen) {
        match &self.pieces[at] {
            // Printed on a line of its own, without a hunk header.
            AskedPiece::Attributes(_) => screen.line(&self.line(at)),
            AskedPiece::Lines(range) => {
                let mut lines = Vec::new();
                let header = self.file.text.show(range.clone(), CONTEXT, &mut |sign, line| {
                    lines.push((sign, line.to_vec()));
                });
                screen.header(&format!("{header}{}", self.mark(range)));
                lines.iter().for_each(|(sign, line)| screen.hunk_line(*sign, line));
            }
        }
    }

    fn line(&self, at: usize) -> String {
        match &self.pieces[at] {
            AskedPiece::Attributes(Attributes { old, new, .. }) => {
                let (a, b) = (old, new);
                let mode = format!("mode {:04o} -> {:04o}", a[0], b[0]);
                let owner = format!("owner {}:{} -> {}:{}", a[1], a[2], b[1], b[2]);
                match (a[0] != b[0], a[1..] != b[1..]) {
                    (true, true) => format!("{mode}, {owner}"),
                    (true, false) => mode,
                    _ => owner,
                }
            }
            AskedPiece::Lines(range) => {
                let mut first = None;
                let header = self.file.text.show(range.clone(), 0, &mut |sign, line| {
                    first.get_or_insert_with(|| (sign.as_char(), line.to_vec()));
                });
                let (sign, line) = first.unwrap_or((' ', Vec::new()));
                let line = text::line(line.strip_suffix(b"\n").unwrap_or(&line));
                let lines = header.trim_matches(['@', ' ']);
                // Like `git add -p`, lists the first line as in a patch.
                format!("{lines:<20} {sign}{line}{}", self.mark(range))
            }
        }
    }

    fn has_text(&self, at: usize, text: &str) -> bool {
        let AskedPiece::Lines(range) = &self.pieces[at] else {
            return self.line(at).contains(text);
        };
        let mut found = false;
        self.file.text.show(range.clone(), CONTEXT, &mut |_, line| {
            found |= String::from_utf8_lossy(line).contains(text);
        });
        found
    }

    fn split(&mut self, at: usize) -> usize {
        let AskedPiece::Lines(range) = self.pieces[at].clone() else { return 1 };
        let parts = range.len();
        self.pieces.splice(at..=at, range.map(|hunk| AskedPiece::Lines(hunk..hunk + 1)));
        parts
    }

    fn can_split(&self, at: usize) -> bool {
        matches!(&self.pieces[at], AskedPiece::Lines(range) if range.len() > 1)
    }
}
