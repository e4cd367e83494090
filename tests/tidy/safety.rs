//! The library neither panics on purpose nor prints, and lets the compiler check what it does.

use super::tokens::{Token, closing, is_run, library_tokens};
use super::{Complaint, Rule, Source, is_in, settle, sources};

/// Methods that panic.
const METHODS: &[&str] = &["unwrap", "expect", "unwrap_err", "expect_err"];

/// Macros that panic.
const PANICS: &[&str] = &["panic", "todo", "unimplemented", "unreachable"];

/// Macros that print; only the command line does.
const PRINTS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

fn panics_and_prints(source: &Source) -> Vec<Complaint> {
    let may_print = is_in(&source.path, "src/cli") || source.path == "src/main.rs";
    let tokens = without_constants(library_tokens(&source.text));
    let mut complaints = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let name = token.text.as_str();
        let rest = &tokens[at + 1..];
        let is_macro = is_run(rest, &["!"]) && !is_run(rest, &["!", "="]);
        let is_bad = (METHODS.contains(&name) && is_called(&tokens, at))
            || (PANICS.contains(&name) && is_macro)
            || (PRINTS.contains(&name) && is_macro && (!may_print || name == "dbg"));
        if is_bad {
            complaints.push(Complaint {
                rule: Rule::NoPanic,
                path: source.path.clone(),
                line: token.line,
                what: format!("`{name}` has no place here"),
            });
        }
    }
    complaints
}

/// Whether the name at `at` is used as a method: `x.unwrap()`, or `Option::unwrap` as a value.
fn is_called(tokens: &[Token], at: usize) -> bool {
    let before = |sign: &str| at > 0 && tokens[at - 1].text == sign;
    (before(".") && is_run(&tokens[at + 1..], &["("])) || before(":")
}

/// Leaves out the values of constants: a panic there is a compile error.
fn without_constants(tokens: Vec<Token>) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        kept.push(tokens[at].clone());
        at += 1;
        // Not a function, and not a parameter (`<const N: usize>`).
        let is_parameter = at > 1 && ["<", ","].contains(&&*tokens[at - 2].text);
        let is_constant = tokens[at - 1].text == "const"
            && !is_parameter
            && is_run(tokens.get(at + 1..).unwrap_or_default(), &[":"]);
        while is_constant && at < tokens.len() && tokens[at].text != ";" {
            let is_open = ["(", "[", "{"].contains(&&*tokens[at].text);
            at = if is_open { closing(&tokens, at) } else { at + 1 };
        }
    }
    kept
}

#[test]
fn the_library_neither_panics_nor_prints() {
    let complaints: Vec<_> = sources().iter().flat_map(panics_and_prints).collect();
    settle(Rule::NoPanic, &complaints);
}

fn unchecked(source: &Source) -> Vec<Complaint> {
    let tokens = library_tokens(&source.text);
    let unsafe_words = tokens.iter().filter(|token| token.text == "unsafe");
    unsafe_words
        .map(|token| Complaint {
            rule: Rule::NoUnsafe,
            path: source.path.clone(),
            line: token.line,
            what: "`unsafe` has no place here".to_owned(),
        })
        .collect()
}

#[test]
fn what_the_compiler_cannot_check_is_in_one_place() {
    let complaints: Vec<_> = sources().iter().flat_map(unchecked).collect();
    settle(Rule::NoUnsafe, &complaints);
}

#[test]
fn an_unsafe_block_is_seen() {
    for (text, count) in [
        ("fn f() { unsafe { g() } }", 1),
        ("unsafe impl Send for A {}", 1),
        ("#![forbid(unsafe_code)]\n// unsafe\nfn f() { \"unsafe\" }", 0),
    ] {
        assert_eq!(unchecked(&Source::new("src/vfs/mod.rs", text)).len(), count, "{text}");
    }
}

#[test]
fn a_panic_or_a_print_is_seen() {
    for bad in [
        "fn f() { x.unwrap(); }",
        "fn f() { x\n    .expect(\"so\"); }",
        "fn f() { a.map(Option::unwrap) }",
        "const fn f() { x.unwrap() }",
        "fn f() { panic!(\"a\") }",
        "fn f() { todo!() }",
        "fn f() { println!() }",
        "fn f() { dbg!(x) }",
        "fn f<const N: usize>() { x.unwrap() }",
        "const A: u8 = 1; fn f() { x.unwrap() }",
        "fn f(a: *const u8) { x.unwrap() }",
    ] {
        let complaints = panics_and_prints(&Source::new("src/vfs/mod.rs", bad));
        assert_eq!(complaints.len(), 1, "{bad}");
    }
    for good in [
        "fn f() { x.unwrap_or(1).unwrap_or_else(g).unwrap_or_default() }",
        "fn unwrap() {} fn f() { self.expected(1); expect(2) }",
        "const A: NonZero<u8> = NonZero::new(1).unwrap();",
        "const A: [u8; 1] = { let a = b.unwrap(); [a] };",
        "#[cfg(test)] mod t { fn f() { x.unwrap(); panic!() } }",
        "// x.unwrap()\nfn f() { if panic != 1 { \"todo!()\" } }",
        "use std::panic::catch_unwind;",
    ] {
        let complaints = panics_and_prints(&Source::new("src/vfs/mod.rs", good));
        assert_eq!(complaints, [], "{good}");
    }
    let print = "fn f() { println!(); x.unwrap() }";
    assert_eq!(panics_and_prints(&Source::new("src/cli/mod.rs", print)).len(), 1);
}
