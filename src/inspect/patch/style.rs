//! The style of a patch.

use std::borrow::Cow;
use std::io::Write;

/// Escapes content for a terminal.
pub type Escape = fn(&[u8]) -> Cow<'_, [u8]>;

/// What a patch shows, and how.
#[derive(Debug, Clone)]
pub struct Style {
    /// Unchanged lines around a change.
    pub context: u32,
    /// Whether differences in white space are ignored.
    pub ignores_space: bool,
    /// Whether words are compared instead of lines. `git apply` cannot read the result.
    pub is_of_words: bool,
    /// Whether parts are coloured with escape sequences.
    pub has_colour: bool,
    /// Applied to content that is shown to a person. `git apply` needs the content unchanged.
    pub escape: Option<Escape>,
    /// The least similarity of a rename, in percent; `None` does not detect renames.
    pub similarity: Option<u8>,
    /// Whether contents of binary files are included. `git apply` needs them.
    pub has_binary: bool,
    /// Whether git's own files are included.
    pub has_git: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            context: 3,
            ignores_space: false,
            is_of_words: false,
            has_colour: false,
            escape: None,
            similarity: None,
            has_binary: true,
            has_git: false,
        }
    }
}

/// The parts of a patch that differ in colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColoredPart {
    Plain,
    Meta,
    Place,
    Old,
    New,
}

impl ColoredPart {
    /// The escape sequence that starts the part, as in git.
    fn sequence(self) -> &'static [u8] {
        match self {
            Self::Plain => b"",
            Self::Meta => b"\x1b[1m",
            Self::Place => b"\x1b[36m",
            Self::Old => b"\x1b[31m",
            Self::New => b"\x1b[32m",
        }
    }
}

impl Style {
    /// Whether the patch is for `git apply`, and not only for people.
    pub(super) fn is_for_git_apply(&self) -> bool {
        !self.ignores_space && !self.is_of_words
    }

    /// Writes a part of a line.
    pub(super) fn put(
        &self,
        part: ColoredPart,
        text: &[u8],
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        let text = self.escape.map_or(Cow::Borrowed(text), |escape| escape(text));
        if !self.has_colour || part == ColoredPart::Plain {
            return out.write_all(&text);
        }
        out.write_all(part.sequence())?;
        out.write_all(&text)?;
        out.write_all(b"\x1b[m")
    }

    /// Writes a line; `text` has no newline.
    pub(super) fn line(
        &self,
        part: ColoredPart,
        text: &[u8],
        out: &mut dyn Write,
    ) -> std::io::Result<()> {
        self.put(part, text, out)?;
        out.write_all(b"\n")
    }
}
