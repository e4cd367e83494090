//! Compares two texts by lines, with git's algorithm.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use gix_imara_diff::{Algorithm, Diff, Hunk, InternedInput, Token};

use super::limits::MAX_LINES;

/// A line with its newline, and how it is compared.
#[derive(Clone, Copy, Default)]
pub(in crate::inspect) struct Line<'a> {
    pub text: &'a [u8],
    ignores_space: bool,
}

impl<'a> Line<'a> {
    fn compared(&self) -> impl Iterator<Item = &'a u8> + use<'a> {
        let ignores_space = self.ignores_space;
        // As isspace(3), which git uses.
        let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
        self.text.iter().filter(move |byte| !(ignores_space && is_space(byte)))
    }
}

impl PartialEq for Line<'_> {
    fn eq(&self, other: &Self) -> bool {
        match self.ignores_space {
            true => self.compared().eq(other.compared()),
            false => self.text == other.text,
        }
    }
}

impl Eq for Line<'_> {}

impl Hash for Line<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.ignores_space {
            true => self.compared().for_each(|byte| state.write_u8(*byte)),
            false => state.write(self.text),
        }
    }
}

impl AsRef<[u8]> for Line<'_> {
    fn as_ref(&self) -> &[u8] {
        self.text
    }
}

/// Whether a text has more than 400,000 lines, and is thus not compared by lines.
pub fn has_too_many_lines(text: &[u8]) -> bool {
    text.iter().filter(|&&byte| byte == b'\n').count() > MAX_LINES
}

/// Two texts as lines, and their differences.
pub(in crate::inspect) struct LineDiff<'a> {
    input: InternedInput<Line<'a>>,
    /// The lines as they are, if white space is ignored: equal lines may then have different bytes.
    texts: Option<[Vec<&'a [u8]>; 2]>,
    hunks: Vec<Hunk>,
}

impl<'a> LineDiff<'a> {
    /// Compares two texts; `None` if one has too many lines.
    pub fn of(old: &'a [u8], new: &'a [u8], ignores_space: bool) -> Option<Self> {
        if [old, new].into_iter().any(has_too_many_lines) {
            return None;
        }
        let mut input = InternedInput::default();
        input.update_before(lines(old, ignores_space));
        input.update_after(lines(new, ignores_space));
        let mut diff = Diff::compute(Algorithm::Myers, &input);
        diff.postprocess_lines(&input);
        let texts = ignores_space
            .then(|| [old, new].map(|text| lines(text, true).map(|line| line.text).collect()));
        Some(Self { input, texts, hunks: diff.hunks().collect() })
    }

    /// The runs of changed lines, in order.
    pub fn hunks(&self) -> &[Hunk] {
        &self.hunks
    }

    /// The number of removed lines, and of added ones.
    pub fn count(&self) -> (u64, u64) {
        let length = |range: &Range<u32>| u64::from(range.end - range.start);
        let removed = self.hunks.iter().map(|hunk| length(&hunk.before)).sum();
        (removed, self.hunks.iter().map(|hunk| length(&hunk.after)).sum())
    }

    /// A range of the old lines.
    pub fn old_lines(&self, range: Range<u32>) -> Vec<&'a [u8]> {
        let range = range.start as usize..range.end as usize;
        match &self.texts {
            Some([old, _]) => old[range].to_vec(),
            None => self.texts_of(&self.input.before[range]),
        }
    }

    /// A range of the new lines.
    pub fn new_lines(&self, range: Range<u32>) -> Vec<&'a [u8]> {
        let range = range.start as usize..range.end as usize;
        match &self.texts {
            Some([_, new]) => new[range].to_vec(),
            None => self.texts_of(&self.input.after[range]),
        }
    }

    fn texts_of(&self, tokens: &[Token]) -> Vec<&'a [u8]> {
        tokens.iter().map(|token| self.input.interner[*token].text).collect()
    }

    /// The number of old lines.
    pub fn old_count(&self) -> u32 {
        self.input.before.len() as u32
    }

    /// Groups of changes that are shown together, with `context` unchanged lines around them.
    pub fn groups(&self, context: u32) -> impl Iterator<Item = &[Hunk]> {
        let most = context.saturating_mul(2);
        self.hunks.chunk_by(move |a, b| b.before.start - a.before.end <= most)
    }
}

/// The lines of a text with their newlines; the last line may lack one. As in git, only a newline
/// ends a line.
fn lines(text: &[u8], ignores_space: bool) -> impl Iterator<Item = Line<'_>> {
    text.split_inclusive(|&byte| byte == b'\n').map(move |text| Line { text, ignores_space })
}
