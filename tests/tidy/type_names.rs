//! One type name for one idea: no name is declared twice in the crate.

use std::collections::BTreeMap;

use super::tokens::{Token, closing, library_tokens};
use super::{Complaint, Rule, Source, settle, sources};

/// Names that modules give to a type of their own, by custom.
const SHARED: [&str; 3] = ["Args", "Limits", "Result"];

/// The types that `source` declares, with their lines. Associated types are none.
fn declared(source: &Source) -> Vec<Token> {
    let tokens = library_tokens(&source.text);
    let mut found = Vec::new();
    let mut at = 0;
    while at + 1 < tokens.len() {
        let (word, name) = (&tokens[at], &tokens[at + 1]);
        if matches!(word.text.as_str(), "struct" | "enum" | "union" | "trait" | "type")
            && name.is_word()
        {
            found.push(name.clone());
        }
        at = match word.text.as_str() {
            "impl" | "trait" => past_body(&tokens, at),
            _ => at + 1,
        };
    }
    found
}

/// The place after the body that begins behind `at`, or after the `;` instead of one.
fn past_body(tokens: &[Token], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            ";" => return at + 1,
            "{" => return closing(tokens, at),
            _ => at += 1,
        }
    }
    at
}

fn declared_twice(sources: &[Source]) -> Vec<Complaint> {
    let mut first: BTreeMap<String, &str> = BTreeMap::new();
    let mut complaints = Vec::new();
    for source in sources {
        for name in declared(source) {
            if SHARED.contains(&name.text.as_str()) {
                continue;
            }
            match first.get(&name.text) {
                Some(other) => complaints.push(Complaint {
                    rule: Rule::UniqueTypeName,
                    path: source.path.clone(),
                    line: name.line,
                    what: format!("`{}` is a type of {other} too", name.text),
                }),
                None => {
                    first.insert(name.text, &source.path);
                }
            }
        }
    }
    complaints
}

#[test]
fn no_type_name_is_declared_twice() {
    settle(Rule::UniqueTypeName, &declared_twice(&sources()));
}

#[test]
fn a_name_that_is_declared_twice_is_seen() {
    let one = Source::new(
        "one.rs",
        "struct A; enum B { C } impl T for A { type Output = u8; } type Result<T> = X<T>; \
         fn f() -> impl T { struct D; } trait E { type Item; } #[cfg(test)] mod t { struct F; }",
    );
    let two = Source::new("two.rs", "type Output = u8;\nstruct B;\ntype Result = X; struct F;");
    let names: Vec<_> = declared(&one).into_iter().map(|name| name.text).collect();
    assert_eq!(names, ["A", "B", "Result", "E"]);
    let seen: Vec<_> =
        declared_twice(&[one, two]).iter().map(|c| (c.line, c.what.clone())).collect();
    assert_eq!(seen, [(2, "`B` is a type of one.rs too".to_owned())]);
}
