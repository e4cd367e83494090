//! The summaries of the content: abstract (L0) and overview (L1), given or derived.

use super::error::{ContextError, Result};
use super::limits::{ABSTRACT_CHARS, OVERVIEW_BYTES, OVERVIEW_HEADINGS, OVERVIEW_LINES};

/// The layers of a node.
pub(super) struct SummaryTexts<'a> {
    /// L0.
    pub abstract_text: &'a str,
    /// L1.
    pub overview: &'a str,
    /// L2, the whole content.
    pub content: &'a str,
}

/// Checks a given abstract; trims white space.
pub(super) fn checked_abstract(text: &str) -> Result<String> {
    let text = text.trim();
    let chars = text.chars().count();
    match chars {
        0 => Err(ContextError::invalid("the abstract is empty")),
        1..=ABSTRACT_CHARS => Ok(text.to_owned()),
        _ => Err(ContextError::Invalid {
            what: format!("the abstract has {chars} characters, and {ABSTRACT_CHARS} are the most"),
            hint: Some("it is what a search shows: say the rest in the overview"),
        }),
    }
}

/// Checks a given overview; trims white space at its end.
pub(super) fn checked_overview(text: &str) -> Result<String> {
    let text = text.trim_end();
    if text.len() as u64 > OVERVIEW_BYTES {
        let what =
            format!("the overview has {} bytes, and {OVERVIEW_BYTES} are the most", text.len());
        return Err(ContextError::invalid(what));
    }
    Ok(text.to_owned())
}

/// Whether a stored text is short enough for an abstract.
pub(super) fn is_abstract(text: &str) -> bool {
    text.trim_end().chars().count() <= ABSTRACT_CHARS
}

/// The beginning of the first line with a letter or digit, without heading marks.
pub(super) fn make_abstract(content: &str) -> String {
    let says = |line: &&str| line.chars().any(char::is_alphanumeric);
    let line = content.lines().find(says).unwrap_or_default();
    let line = line.trim().trim_start_matches('#').trim_start();
    line.chars().take(ABSTRACT_CHARS).collect::<String>().trim_end().to_owned()
}

/// The headings; if there are none, the first non-blank lines.
pub(super) fn make_overview(content: &str) -> String {
    let headings = headings(content);
    let lines: Vec<&str> = match headings.is_empty() {
        false => headings,
        true => {
            let lines = content.lines().filter(|line| !line.trim().is_empty());
            lines.take(OVERVIEW_LINES).collect()
        }
    };
    let most = usize::try_from(OVERVIEW_BYTES).unwrap_or(usize::MAX);
    beginning(&lines.join("\n"), most).to_owned()
}

/// The longest prefix of whole characters that fits into `most` bytes.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The headings of a Markdown text, without fenced blocks.
fn headings(content: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let is_heading = |line: &&str| {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        }
        let marks = line.chars().take_while(|c| *c == '#').count();
        !is_fenced && (1..=6).contains(&marks) && line[marks..].starts_with(' ')
    };
    content.lines().filter(is_heading).take(OVERVIEW_HEADINGS).collect()
}

#[cfg(test)]
mod tests {
    use super::{checked_abstract, make_abstract, make_overview};

    #[test]
    fn an_abstract_is_the_first_line_that_says_something() {
        assert_eq!(make_abstract("---\n\n## Coffee  \nmore"), "Coffee");
        assert_eq!(make_abstract(&"é".repeat(200)), "é".repeat(100));
        assert_eq!(make_abstract(" \n"), "");
        assert_eq!(checked_abstract(&"é".repeat(100)).unwrap(), "é".repeat(100));
        assert!(checked_abstract(&"é".repeat(101)).is_err() && checked_abstract(" ").is_err());
    }

    #[test]
    fn an_overview_is_the_headings_or_the_first_lines() {
        let text = "intro\n# A\ntext\n```\n# no heading\n```\n## B\n#no\n";
        assert_eq!(make_overview(text), "# A\n## B");
        assert_eq!(make_overview("a\n\nb\n"), "a\nb");
        assert_eq!(make_overview(&"x\n".repeat(50)).lines().count(), 10);
        assert_eq!(make_overview(&"é".repeat(100_000)).len(), 64 << 10);
    }
}
