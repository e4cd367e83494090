//! `[[export.guard]]`.

use std::time::Duration;

use acetate::config::{GuardRule, Missing, limits};

use super::{Folder, export, fault, faults, with};

fn guarded(lines: &str) -> String {
    format!("{}[[export.guard]]\npath = \"/.agent/f.jsonl\"\n{lines}\n", with(""))
}

#[test]
fn a_guard_has_one_rule() {
    let folder = Folder::new(&guarded("jsonl_schema = \"f.schema.json\""));
    let guards = &folder.read(Missing::Leave).unwrap().exports[0].guards;
    let schema = folder.path().join("f.schema.json");
    assert_eq!(guards[0].rule, GuardRule::JsonLines(Some(schema)));
    assert!(guards[0].path.matches(b".agent/f.jsonl") && !guards[0].path.matches(b"f.jsonl"));
    let rule = |lines: &str| export(&guarded(lines)).guards[0].rule.clone();
    assert_eq!(rule("jsonl = true"), GuardRule::JsonLines(None));
    assert_eq!(rule("json = true"), GuardRule::Json(None));
    assert_eq!(rule("json_schema = \"/s.json\""), GuardRule::Json(Some("/s.json".into())));
    faults(&[
        (&guarded(""), "7:1: this guard lets everything pass [jsonl = true, jsonl_schema"),
        (&guarded("json = true\njsonl = true"), "7:1: a guard has one rule [one of jsonl = true"),
        (&guarded("json = false"), "9:8: false is the default [leave it out]"),
        (&guarded("json = true\ntimeout = 5"), "10:11: only a program has a time limit"),
        (&guarded("jsonl_schema = \"~/x\""), "'~' does not stand for a home directory"),
        (&guarded("json = true").replace(".jsonl", "/../x"), "no path has an empty component"),
        (&guarded("schema = 1"), "unknown field `schema`"),
    ]);
}

#[test]
fn a_program_has_a_time_limit() {
    let program = |lines: &str| guarded(&format!("program = [\"check\", \"-\"]\n{lines}"));
    let timeout = |lines: &str| match export(&program(lines)).guards[0].rule.clone() {
        GuardRule::Program { argv, timeout } => {
            assert_eq!(argv, ["check", "-"]);
            timeout
        }
        other => panic!("{other:?}"),
    };
    let path = guarded("program = [\"./bin/check\", \"./x\"]");
    match &export(&path).guards[0].rule {
        GuardRule::Program { argv, .. } => {
            assert!(argv[0].starts_with('/') && argv[0].ends_with("/bin/check"), "{argv:?}");
            assert_eq!(argv[1], "./x");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(timeout(""), limits::DEFAULT_GUARD_TIME);
    assert_eq!(timeout("timeout = 7"), Duration::from_secs(7));
    assert_eq!(timeout("timeout = \"1500ms\""), Duration::from_millis(1500));
    assert_eq!(timeout("timeout = \"2m\""), Duration::from_secs(120));
    faults(&[
        (&program("timeout = 0"), "10:11: a program has more than 0 and up to 600 seconds"),
        (&program("timeout = \"11m\""), "more than 0 and up to 600 seconds"),
        (&program("timeout = \"-5s\""), "not a time [a number of seconds"),
        (&program("timeout = \"soon\""), "not a time"),
        (&guarded("program = []"), "9:11: there is no program to run"),
        (&guarded("program = [\"a\\u0000\"]"), "a word of a command cannot contain NUL"),
    ]);
}

#[test]
fn guards_are_limited() {
    let guard = "[[export.guard]]\npath = \"x\"\njson = true\n";
    let all = |count: usize| format!("{}{}", with(""), guard.repeat(count));
    let said = fault(&all(limits::MAX_GUARDS + 1));
    assert!(said.contains("at most 256 guards in an export"), "{said}");
    assert_eq!(export(&all(limits::MAX_GUARDS)).guards.len(), 256);
}
