//! Divides a changed text into its smallest hunks, like the split of `git add -p`.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::id::HunkId;
use crate::delta::MergedPath;
use crate::inspect::patch::{LineDiff, has_nul};
use crate::inspect::text_merge::{self, TextMerge};

/// A run of removed lines, added lines, or both, without an unchanged line in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Stays valid while other hunks of the file are applied or discarded. Where several hunks make
    /// the same change, the id includes the hunk's position among them and their number.
    pub id: HunkId,
    /// The removed lines, counted from 0.
    pub old: Range<usize>,
    /// The added lines, counted from 0.
    pub new: Range<usize>,
}

/// The kind of a line in a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// Unchanged.
    Context,
    /// Removed.
    Old,
    /// Added.
    New,
}

impl Sign {
    /// The character that marks the line in a patch.
    pub fn as_char(self) -> char {
        match self {
            Self::Context => ' ',
            Self::Old => '-',
            Self::New => '+',
        }
    }
}

/// A text before and after, and its hunks.
#[derive(Debug)]
pub struct TextHunks {
    old: Vec<u8>,
    new: Vec<u8>,
    /// The byte offset of each line, and of the end.
    old_starts: Vec<usize>,
    new_starts: Vec<usize>,
    /// In the order of their lines.
    pub hunks: Vec<Hunk>,
}

impl TextHunks {
    /// Compares two texts; `None` if a text has too many lines.
    pub(super) fn of(path: &MergedPath, old: Vec<u8>, new: Vec<u8>) -> Option<Self> {
        let range = |range: &Range<u32>| range.start as usize..range.end as usize;
        let ranges: Vec<_> = {
            let changed = LineDiff::of(&old, &new, false)?;
            changed.hunks().iter().map(|h| (range(&h.before), range(&h.after))).collect()
        };
        let (old_starts, new_starts) = (starts(&old), starts(&new));
        let mut text = Self { old, new, old_starts, new_starts, hunks: Vec::new() };
        let mut equal: HashMap<_, (u32, u32)> = HashMap::new();
        for (old, new) in &ranges {
            equal.entry((text.old_bytes(old), text.new_bytes(new))).or_default().1 += 1;
        }
        let mut hunks = Vec::with_capacity(ranges.len());
        for (old, new) in &ranges {
            let lines = (text.old_bytes(old), text.new_bytes(new));
            let (at, all) = equal.entry(lines).or_default();
            let which = [at.to_be_bytes(), all.to_be_bytes()].concat();
            *at += 1;
            let id = HunkId::of("lines", &[path.as_bytes(), lines.0, lines.1, &which]);
            hunks.push(Hunk { id, old: old.clone(), new: new.clone() });
        }
        text.hunks = hunks;
        Some(text)
    }

    fn old_bytes(&self, lines: &Range<usize>) -> &[u8] {
        &self.old[self.old_starts[lines.start]..self.old_starts[lines.end]]
    }

    fn new_bytes(&self, lines: &Range<usize>) -> &[u8] {
        &self.new[self.new_starts[lines.start]..self.new_starts[lines.end]]
    }

    /// The earlier text with these hunks applied.
    pub fn with(&self, ids: &BTreeSet<HunkId>) -> Vec<u8> {
        let mut text = Vec::with_capacity(self.old.len().max(self.new.len()));
        let mut at = 0;
        for hunk in self.hunks.iter().filter(|hunk| ids.contains(&hunk.id)) {
            text.extend_from_slice(self.old_bytes(&(at..hunk.old.start)));
            text.extend_from_slice(self.new_bytes(&hunk.new));
            at = hunk.old.end;
        }
        text.extend_from_slice(self.old_bytes(&(at..self.old_starts.len() - 1)));
        text
    }

    /// Whether a group of hunks conflicts with `base`, the current content of the base file.
    pub fn has_conflicts(&self, group: Range<usize>, base: &[u8]) -> bool {
        let ids = self.hunks[group].iter().map(|hunk| hunk.id).collect();
        let merged = || text_merge::merge(&self.old, base, &self.with(&ids));
        has_nul(base) || matches!(merged(), TextMerge::Conflicts(_))
    }

    /// Groups the hunks as a patch does: hunks with at most `2 * context` unchanged lines between
    /// them are in one group.
    pub fn groups(&self, context: usize) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (at, hunk) in self.hunks.iter().enumerate() {
            let is_near = |last: &Range<usize>| {
                hunk.old.start - self.hunks[last.end - 1].old.end <= 2 * context
            };
            match groups.last_mut() {
                Some(last) if is_near(last) => last.end = at + 1,
                _ => groups.push(at..at + 1),
            }
        }
        groups
    }

    /// Calls `each` for the lines of a group, with at most `context` unchanged lines before and
    /// after it. Returns the header line of the group.
    pub fn show(
        &self,
        group: Range<usize>,
        context: usize,
        each: &mut dyn FnMut(Sign, &[u8]),
    ) -> String {
        let (Some(first), Some(last)) =
            (self.hunks.get(group.start), self.hunks[group.clone()].last())
        else {
            return String::new();
        };
        // Context ends at the next hunk.
        let before = match group.start.checked_sub(1) {
            Some(above) => first.old.start - self.hunks[above].old.end,
            None => first.old.start,
        };
        let after = match self.hunks.get(group.end) {
            Some(below) => below.old.start - last.old.end,
            None => self.old_starts.len() - 1 - last.old.end,
        };
        let (before, after) = (before.min(context), after.min(context));
        let old = first.old.start - before..last.old.end + after;
        let new = first.new.start - before..last.new.end + after;
        let mut at = old.start;
        for hunk in &self.hunks[group] {
            self.each_line(Sign::Context, &(at..hunk.old.start), each);
            self.each_line(Sign::Old, &hunk.old, each);
            self.each_line(Sign::New, &hunk.new, each);
            at = hunk.old.end;
        }
        self.each_line(Sign::Context, &(at..old.end), each);
        format!("@@ -{} +{} @@", span(&old), span(&new))
    }

    fn each_line(&self, sign: Sign, lines: &Range<usize>, each: &mut dyn FnMut(Sign, &[u8])) {
        for line in lines.clone() {
            let text = match sign {
                Sign::New => self.new_bytes(&(line..line + 1)),
                Sign::Old | Sign::Context => self.old_bytes(&(line..line + 1)),
            };
            each(sign, text);
        }
    }
}

/// The byte offset of each line, and of the end.
fn starts(text: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    let mut end = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        end += line.len();
        starts.push(end);
    }
    starts
}

/// A line range in a hunk header: see git-diff(1).
fn span(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}
