//! Three-way merges of text are what git makes of them.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use acetate::inspect::text_merge::{TextMerge, merge};
use proptest::prelude::*;

/// What `git merge-file` makes of it.
fn by_git(original: &str, base: &str, session: &str) -> TextMerge {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("original", original), ("base", base), ("session", session)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let labels = ["-L", "base", "-L", "original", "-L", "session"];
    let mut git = Command::new("git");
    git.args(["merge-file", "-p"]).args(labels).args(["base", "original", "session"]);
    let output = git.current_dir(dir.path()).output().unwrap();
    match output.status.code() {
        Some(0) => TextMerge::Clean(output.stdout),
        Some(1..=127) => TextMerge::Conflicts(output.stdout),
        code => panic!("{code:?}: {}", String::from_utf8_lossy(&output.stderr)),
    }
}

#[track_caller]
fn assert_as_git(original: &str, base: &str, session: &str) {
    let [ours, git] = [merge, |a: &[u8], b: &[u8], c: &[u8]| {
        let [a, b, c] = [a, b, c].map(|text| std::str::from_utf8(text).unwrap());
        by_git(a, b, c)
    }]
    .map(|merge| merge(original.as_bytes(), base.as_bytes(), session.as_bytes()));
    assert_eq!(shown(&ours), shown(&git), "{original:?}, {base:?}, {session:?}");
}

fn shown(merged: &TextMerge) -> (bool, String) {
    let (is_clean, text) = match merged {
        TextMerge::Clean(text) => (true, text),
        TextMerge::Conflicts(text) => (false, text),
    };
    (is_clean, String::from_utf8_lossy(text).into_owned())
}

#[test]
fn lines_that_are_repeated() {
    for (original, base, session) in [
        ("a b b c", "a P b c", "a b c"),
        ("a b b c", "a b c", "a X Y b c"),
        ("x f f b", "x g f b", "x f b"),
        ("} }  q", "x }  q", "}  q"),
    ] {
        let [original, base, session] =
            [original, base, session].map(|t| t.replace(' ', "\n") + "\n");
        assert_as_git(&original, &base, &session);
        let merged = merge(original.as_bytes(), base.as_bytes(), session.as_bytes());
        assert!(matches!(merged, TextMerge::Conflicts(_)), "{original:?}, {base:?}, {session:?}");
    }
}

#[test]
fn markers_have_lines_of_their_own() {
    for (original, base, session) in [
        ("a\nb", "a\nP", "a\nS"),
        ("a\r\nb\r\n", "a\r\nP\r\n", "a\r\nS\r\n"),
        ("a\r\nb", "a\r\nP", "a\r\nS"),
        ("a\r\nb\r\n", "a\r\nP\r\n", "a\nS\n"),
        ("b", "P", "S"),
        ("", "P", "S\n"),
        ("a\nb\n", "a\n", "a\nS"),
    ] {
        assert_as_git(original, base, session);
    }
}

/// Each line is in another place on both sides: the search for what they share is bounded.
#[test]
fn texts_that_have_nothing_in_common() {
    let text = |letter: char| {
        let mut text = String::new();
        (0..100_000).for_each(|line| writeln!(text, "{letter}{line}").unwrap());
        text
    };
    let (original, base, session) = (text('a'), text('b'), text('c'));
    let begun = Instant::now();
    let merged = merge(original.as_bytes(), base.as_bytes(), session.as_bytes());
    assert!(matches!(merged, TextMerge::Conflicts(_)));
    // It takes a tenth of a second; the search without a bound took minutes.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// Lines that are alike, with edits of both sides all over them.
#[test]
fn a_text_of_equal_lines() {
    let text = |every: usize, edit: &str| {
        let line = |at: usize| if at % every == every - 1 { edit } else { "}\n" };
        (0..100_000).map(line).collect::<String>()
    };
    let original = text(1, "}\n");
    let (base, session) = (text(1_000, "}\nbase\n"), text(700, "session\n}\n"));
    let begun = Instant::now();
    let TextMerge::Clean(merged) = merge(original.as_bytes(), base.as_bytes(), session.as_bytes())
    else {
        panic!("a conflict");
    };
    // It takes a second; where each line was compared with all before it, it took minutes.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    let merged = String::from_utf8(merged).unwrap();
    let count = |text: &str, line: &str| text.lines().filter(|found| *found == line).count();
    for line in ["}", "base", "session"] {
        let sides = [&base, &session].map(|side| count(side, line)).into_iter().max();
        assert_eq!(Some(count(&merged, line)), sides, "{line}");
    }
}

/// Lines of few kinds, of which many are alike.
fn text() -> impl Strategy<Value = String> {
    ("([abc{}]?\n){0,12}", prop_oneof![4 => Just(""), 1 => Just("a"), 1 => Just("}")])
        .prop_map(|(lines, last)| lines + last)
}

/// The same with some lines replaced.
fn edited(text: &str, edits: &[(usize, usize, String)]) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    for (at, count, new) in edits {
        let at = at % (lines.len() + 1);
        let end = (at + count).min(lines.len());
        lines.splice(at..end, new.split_inclusive('\n').map(str::to_owned));
    }
    lines.concat()
}

fn edits() -> impl Strategy<Value = Vec<(usize, usize, String)>> {
    proptest::collection::vec((0..12_usize, 0..3_usize, "([abxy{}]?\n){0,2}"), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Where lines are repeated, a conflict may begin a line earlier or later than git's.
    #[test]
    fn as_git_makes_it(original in text(), person in edits(), agent in edits()) {
        let (base, session) = (edited(&original, &person), edited(&original, &agent));
        let ours = merge(original.as_bytes(), base.as_bytes(), session.as_bytes());
        let git = by_git(&original, &base, &session);
        let is_conflict = |merged: &TextMerge| matches!(merged, TextMerge::Conflicts(_));
        let is_same = ours == git || is_conflict(&ours) && is_conflict(&git);
        let texts = (&original, &base, &session);
        prop_assert!(is_same, "{texts:?}: {ours:?}, git: {git:?}");
    }
}
