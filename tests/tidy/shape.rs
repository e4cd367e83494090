//! Lengths, and that each module says what it is for.

use std::collections::BTreeSet;

use super::tokens::{Token, closing, tokens};
use super::{Complaint, Rule, Source, files, settle, sources};

/// Lines of a file.
const FILE_LINES: usize = 500;

/// Characters of a line.
const LINE_CHARS: usize = 100;

/// Lines with code of a function's body.
const FUNCTION_LINES: usize = 70;

fn lengths(source: &Source) -> Vec<Complaint> {
    let complain = |rule, line, what| Complaint { rule, path: source.path.clone(), line, what };
    let mut complaints = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES {
        let what = format!("{lines} lines, more than {FILE_LINES}");
        complaints.push(complain(Rule::FileLength, FILE_LINES + 1, what));
    }
    for (at, line) in source.text.lines().enumerate() {
        let chars = line.chars().count();
        if chars > LINE_CHARS {
            let what = format!("{chars} characters, more than {LINE_CHARS}");
            complaints.push(complain(Rule::LineLength, at + 1, what));
        }
    }
    complaints
}

fn function_lengths(source: &Source) -> Vec<Complaint> {
    let tokens = tokens(&source.text);
    let starts = tokens.windows(2).enumerate().filter(|(_, w)| w[0].text == "fn" && w[1].is_word());
    starts
        .filter_map(|(at, window)| {
            let lines = body_lines(&tokens, at);
            (lines > FUNCTION_LINES).then(|| Complaint {
                rule: Rule::FunctionLength,
                path: source.path.clone(),
                line: window[0].line,
                what: format!("`{}`: {lines} lines, more than {FUNCTION_LINES}", window[1].text),
            })
        })
        .collect()
}

/// Lines with code in the body of the function that begins at `at`; 0 where it has none.
fn body_lines(tokens: &[Token], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            ";" => return 0,
            "{" => {
                let body = &tokens[at + 1..closing(tokens, at).saturating_sub(1)];
                return body.iter().map(|t| t.line).collect::<BTreeSet<_>>().len();
            }
            "(" | "[" => at = closing(tokens, at),
            _ => at += 1,
        }
    }
    0
}

fn module_doc(source: &Source) -> Option<Complaint> {
    (!source.text.starts_with("//! ")).then(|| Complaint {
        rule: Rule::ModuleDoc,
        path: source.path.clone(),
        line: 1,
        what: "does not begin with `//!`: what is this module for?".to_owned(),
    })
}

#[test]
fn files_lines_and_functions_are_short() {
    let mut all = sources();
    all.extend(files("tests", "rs"));
    let complaints: Vec<_> = all.iter().flat_map(lengths).collect();
    settle(Rule::FileLength, &complaints);
    settle(Rule::LineLength, &complaints);
    let complaints: Vec<_> = sources().iter().flat_map(function_lengths).collect();
    settle(Rule::FunctionLength, &complaints);
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let complaints: Vec<_> = sources().iter().filter_map(module_doc).collect();
    settle(Rule::ModuleDoc, &complaints);
}

#[test]
fn what_is_too_long_is_seen() {
    let rules = |text: &str| -> Vec<Rule> {
        lengths(&Source::new("f.rs", text)).iter().map(|c| c.rule).collect()
    };
    assert_eq!(rules(&"x\n".repeat(501)), [Rule::FileLength]);
    assert_eq!(rules(&"x\n".repeat(500)), []);
    assert_eq!(rules(&format!("a\n{}\n", "é".repeat(101))), [Rule::LineLength]);
    assert_eq!(rules(&"é".repeat(100)), []);

    let function = |lines: usize| {
        let text = format!("fn a([u8; 3]) -> X\n{{\n{}\n// c\n\n}}", "x();\n".repeat(lines));
        function_lengths(&Source::new("f.rs", &text)).len()
    };
    assert_eq!((function(70), function(71)), (0, 1));
    assert_eq!(function_lengths(&Source::new("f.rs", "fn a();\n")), []);
}

#[test]
fn a_module_without_a_purpose_is_seen() {
    assert!(module_doc(&Source::new("f.rs", "use std::io;\n")).is_some());
    assert!(module_doc(&Source::new("f.rs", "//! Text.\n")).is_none());
}
