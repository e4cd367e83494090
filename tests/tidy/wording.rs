//! Words that are not used in comments, messages and documents.

use std::collections::BTreeSet;

use super::tokens::{Token, prose};
use super::{Complaint, Rule, Source, files, root, settle, sources};

/// The words, in lower case.
const UNUSED: [&str; 11] = [
    "whoever",
    "nobody",
    "somebody",
    "anew",
    "of late",
    "by now",
    "be it",
    "lets go of",
    "takes in",
    "is asked",
    "of which",
];

/// The unused words in a text that begins in some line; a phrase may go on in the next line.
fn unused(text: &str, first_line: usize) -> BTreeSet<(usize, &'static str)> {
    // With one space for each run of white space; and the line of each byte.
    let (mut flat, mut lines) = (String::new(), Vec::new());
    let mut line = first_line;
    for c in text.chars() {
        line += usize::from(c == '\n');
        match c.is_whitespace() {
            true if flat.ends_with(' ') => {}
            true => flat.push(' '),
            false => flat.push(c),
        }
        lines.resize(flat.len(), line);
    }
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for phrase in UNUSED {
        // Names in capitals are the code's.
        let capital = phrase[..1].to_ascii_uppercase() + &phrase[1..];
        for (at, _) in flat.match_indices(phrase).chain(flat.match_indices(&capital)) {
            let (before, after) = (&flat[..at], &flat[at + phrase.len()..]);
            if !before.ends_with(is_part) && !after.starts_with(is_part) {
                found.insert((lines[at], phrase));
            }
        }
    }
    found
}

fn complaints(path: &str, text: &str, first_line: usize) -> Vec<Complaint> {
    let found = unused(text, first_line).into_iter();
    let complaint = |(line, phrase)| Complaint {
        rule: Rule::Wording,
        path: path.to_owned(),
        line,
        what: format!("`{phrase}` is not used"),
    };
    found.map(complaint).collect()
}

/// Complaints about comments and strings; comments on lines that follow each other are one text.
fn of_rust(source: &Source) -> Vec<Complaint> {
    let mut texts: Vec<Token> = Vec::new();
    let mut last_line = None;
    for mut token in prose(&source.text) {
        let lines = token.text.matches('\n').count();
        let is_comment = token.text.starts_with("//");
        if is_comment {
            token.text = token.text.trim_start_matches(['/', '!']).to_owned();
        } else {
            // A string that goes on in the next line.
            token.text = token.text.replace("\\\n", "\n");
        }
        let follows = is_comment && last_line.is_some_and(|last| last + 1 == token.line);
        last_line = is_comment.then_some(token.line + lines);
        match texts.last_mut().filter(|_| follows) {
            Some(text) => text.text.push_str(&format!("\n{}", token.text)),
            None => texts.push(token),
        }
    }
    texts.iter().flat_map(|text| complaints(&source.path, &text.text, text.line)).collect()
}

#[test]
fn comments_messages_and_documents_are_in_plain_words() {
    let mut found: Vec<_> = sources().iter().flat_map(of_rust).collect();
    let mut documents = files("docs", "md");
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    documents.push(Source::new("README.md", &readme));
    found.extend(documents.iter().flat_map(|text| complaints(&text.path, &text.text, 1)));
    settle(Rule::Wording, &found);
}

#[test]
fn an_unused_word_is_seen() {
    let text = [
        "//! Whoever comes, and one of",
        "//! which goes.",
        "",
        "fn nobody() -> Nobody {",
        "    \"by \\",
        "     now\"; // be, it; of later; NOBODY",
        "    let anew_or = 'a'; r\"counted anew\"",
        "}",
    ];
    let source = Source::new("src/x.rs", &text.join("\n"));
    let found = of_rust(&source);
    let found: Vec<_> = found.iter().map(|c| (c.line, c.what.as_str())).collect();
    let seen = [(1, "of which"), (1, "whoever"), (5, "by now"), (7, "anew")];
    let seen = seen.map(|(line, phrase)| (line, format!("`{phrase}` is not used")));
    assert_eq!(found, seen.each_ref().map(|(line, what)| (*line, what.as_str())));
}
