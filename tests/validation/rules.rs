//! Which paths are guarded.

use acetate::pattern::Pattern;
use acetate::validation::{Guards, Validator};

fn guards(patterns: &[&str]) -> Guards {
    let rules = patterns.iter().map(|pattern| (Pattern::new(pattern).unwrap(), Validator::json()));
    Guards::new(rules).unwrap()
}

#[test]
fn a_path_guards_itself_and_nothing_else() {
    let guards = guards(&["/.agent/fragments.jsonl", "/notes.json"]);
    for path in ["/.agent/fragments.jsonl", "/notes.json"] {
        assert!(guards.is_guarded(path.as_bytes()), "{path}");
    }
    for path in [
        "/.agent/fragments.jsonl/x",
        "/.agent/fragments.jsonl2",
        "/.agent/Fragments.jsonl",
        "/a/.agent/fragments.jsonl",
        "/a/notes.json",
        "/.agent",
        "/",
    ] {
        assert!(!guards.is_guarded(path.as_bytes()), "{path}");
    }
}

#[test]
fn a_star_stops_at_a_slash_and_two_do_not() {
    let one = guards(&["/data/*.json"]);
    assert!(one.is_guarded(b"/data/a.json") && one.is_guarded(b"/data/.json"));
    assert!(one.is_guarded(b"/data/\xff.json"));
    assert!(!one.is_guarded(b"/data/x/a.json") && !one.is_guarded(b"/data/a.jsonl"));
    let any = guards(&["**/*.json"]);
    assert!(any.is_guarded(b"/a.json") && any.is_guarded(b"/x/y/a.json"));
    let name = guards(&["*.json"]);
    assert!(name.is_guarded(b"/a.json") && name.is_guarded(b"/x/y/a.json"));
    assert!(name.may_guard_below(b"/x") && !name.bars_links(b"/x"));
    let either = guards(&["/{a,b}/[0-9].json"]);
    assert!(either.is_guarded(b"/b/7.json") && !either.is_guarded(b"/c/7.json"));
}

#[test]
fn all_guards_of_a_path_count() {
    let guards = guards(&["/a/*.json", "**/x.json", "/b"]);
    assert_eq!(guards.of(b"/a/x.json").len(), 2);
    assert_eq!(guards.of(b"/b").len(), 1);
    assert_eq!(guards.of(b"/c").len(), 0);
    assert!(!guards.is_empty() && Guards::default().is_empty());
    assert!(!Guards::default().is_guarded(b"/a") && !Guards::default().may_guard_below(b"/"));
}

#[test]
fn what_may_hold_guarded_files_is_known() {
    let guards = guards(&["/a/b/*.json", "/x.json"]);
    for dir in ["/", "/a", "/a/b", "/a/b/c", "/x.json/y"] {
        assert!(guards.may_guard_below(dir.as_bytes()), "{dir}");
    }
    for dir in ["/ab", "/a/c", "/b", "/a/bc"] {
        assert!(!guards.may_guard_below(dir.as_bytes()), "{dir}");
    }
}

#[test]
fn no_link_stands_at_or_above_a_guarded_path() {
    let guards = guards(&["/a/b/*.json", "/c/d"]);
    for path in ["/a", "/a/b", "/a/b/x.json", "/c", "/c/d"] {
        assert!(guards.bars_links(path.as_bytes()), "{path}");
    }
    for path in ["/b", "/a/c", "/a/b/x.txt", "/c/e", "/c/d/e", "/ab"] {
        assert!(!guards.bars_links(path.as_bytes()), "{path}");
    }
}
