//! The tools for differences, the log and checkpoints.

use serde_json::{Value, json};

use super::client::{McpClient, McpPlace};
use crate::cli::program::run;

const BASE: &str = "src/a \"one\\n\"\nsrc/b \"base b\"\nc \"c\"\n";

fn changed(answer: &Value) -> Vec<String> {
    let paths = answer.get("paths").unwrap_or(&answer["changes"]).as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    paths.map(|one| format!("{} {}", text(&one["change"]), text(&one["path"]))).collect()
}

#[test]
fn an_agent_goes_back_by_itself() {
    for is_served in [true, false] {
        let place = McpPlace::new(BASE, is_served);
        let mut agent = place.client();
        let made =
            agent.call("checkpoint_create", json!({"name": "begin", "labels": {"step": "0"}}));
        assert_eq!(made, json!({"id": 1, "name": "begin"}));
        agent.call("write_file", json!({"path": "src/a", "content": "two\n"}));
        agent.call("remove", json!({"path": "src/b"}));
        agent.call("write_file", json!({"path": "new", "content": "x"}));
        let since = agent.call("diff", json!({"from": "begin"}));
        assert_eq!(changed(&since), ["added /new", "modified /src/a", "deleted /src/b"]);
        let at = agent.texts("read_file", json!({"path": "src/a", "at": "begin"}));
        assert_eq!(at, ["one\n"]);
        let back = agent.call("restore", json!({"checkpoint": "begin"}));
        assert_eq!((&back["restored"], back["objects"].as_u64() > Some(0)), (&json!(1), true));
        assert_eq!(agent.texts("read_file", json!({"path": "src/b"})), ["base b"]);
        assert!(agent.fails("stat", json!({"path": "new"})).contains("no such file"));
        // And forth again.
        agent.call("restore", json!({"checkpoint": back["checkpoint"].to_string()}));
        assert_eq!(agent.texts("read_file", json!({"path": "new"})), ["x"]);
        let paths = json!({"checkpoint": "begin", "paths": ["src/b", "new"]});
        let some = agent.call("restore", paths);
        assert_eq!(
            (&some["restored"], &some["more"], &some["changes"][0]["goes_along"]),
            (&json!(1), &json!(false), &json!(false))
        );
        assert_eq!(changed(&some), ["deleted /new", "added /src/b"]);
        assert_eq!(agent.texts("read_file", json!({"path": "src/a"})), ["two\n"]);
        assert_eq!(agent.texts("read_file", json!({"path": "src/b"})), ["base b"]);
        assert!(agent.fails("stat", json!({"path": "new"})).contains("no such file"));
        let again = agent.call("restore", json!({"checkpoint": "begin", "paths": ["src/b"]}));
        assert_eq!((&again["checkpoint"], &again["objects"]), (&json!(null), &json!(0)));
        let told = agent.fails("restore", json!({"checkpoint": "begin", "paths": []}));
        assert_eq!(told, "`paths` is empty: leave it out for the whole tree");
        let told = agent.fails("restore", json!({"checkpoint": "begin", "paths": ["none"]}));
        assert!(told.starts_with("/none: neither there now nor at the checkpoint"), "{told}");
        let told = agent.fails("restore", json!({"checkpoint": "begun"}));
        assert!(told.starts_with("begun: no such checkpoint; there are "), "{told}");
        let listed = agent.call("checkpoint_list", json!({}));
        let kinds: Vec<_> =
            listed["checkpoints"].as_array().unwrap().iter().map(|one| &one["kind"]).collect();
        assert_eq!(kinds, ["manual", "tool", "tool", "safety", "safety", "safety"]);
        let last = agent.call("checkpoint_list", json!({"limit": 1}));
        assert_eq!((&last["checkpoints"][0]["id"], &last["more"]), (&json!(6), &json!(true)));
        agent.ends_well();
        let calls = place.calls();
        let restores = calls.iter().filter(|(name, ..)| name == "restore");
        let statuses: Vec<_> = restores.map(|(_, status, ..)| status.as_str()).collect();
        assert_eq!(
            statuses,
            ["success", "success", "success", "success", "error", "error", "error"]
        );
        place.end();
    }
}

#[test]
fn an_agent_takes_one_call_back() {
    for is_served in [true, false] {
        let place = McpPlace::new(BASE, is_served);
        let mut agent = place.client();
        agent.call("mkdir", json!({"path": "one"}));
        let two = agent.call("write_file", json!({"path": "src/a", "content": "two\n"}));
        assert_eq!(two["tool_call"], 2, "{two}");
        agent.call("write_file", json!({"path": "one/in", "content": "x"}));
        let back = agent.call("restore", json!({"tool_call": two["tool_call"]}));
        assert_eq!(changed(&back), ["modified /src/a"]);
        assert_eq!((&back["tool_call"], &back["tool_call_taken_back"]), (&json!(4), &json!(2)));
        assert_eq!(agent.texts("read_file", json!({"path": "src/a"})), ["one\n"]);
        assert_eq!(agent.texts("read_file", json!({"path": "one/in"})), ["x"]);
        let told = agent.fails("restore", json!({"tool_call": 1}));
        assert_eq!(
            told,
            "tool call 1: a path was changed again after the call, by tool call 3 (write_file): \
             /one/in\nhint: `tool_call: 3` takes that call back first; `checkpoint: 1, paths: \
             [...]` takes back what you name, together with these changes"
        );
        let again = agent.fails("restore", json!({"tool_call": 2}));
        assert_eq!(again, "tool call 2: nothing of what it changed is left");
        // The restore is a call, too.
        agent.call("restore", json!({"tool_call": 4}));
        assert_eq!(agent.texts("read_file", json!({"path": "src/a"})), ["two\n"]);
        for wrong in [json!({}), json!({"tool_call": 1, "checkpoint": "1"})] {
            let told = agent.fails("restore", wrong);
            assert!(told.starts_with("give either `checkpoint`"), "{told}");
        }
        agent.ends_well();
        place.end();
    }
}

#[test]
fn names_of_checkpoints_are_checked() {
    let place = McpPlace::new(BASE, false);
    let mut agent = place.client();
    agent.call("checkpoint_create", json!({"name": "one"}));
    for (given, expected) in [
        (json!({"name": "one"}), "one: another checkpoint has this name"),
        (json!({"name": "12"}), "it looks like an id"),
        (json!({"name": "x", "labels": {"a=b": "c"}}), "a=b: the key of a label has no `=`"),
        (json!({"name": "x", "labels": {"": "c"}}), "not a label"),
        (json!({"labels": {"a": "x".repeat(20 << 10)}}), "of 16 KiB together"),
    ] {
        let told = agent.fails("checkpoint_create", given);
        assert!(told.contains(expected), "{told}");
    }
    agent.ends_well();
    assert_eq!(place.checkpoints().len(), 1);
    place.end();
}

#[test]
fn a_diff_is_a_list_or_a_patch() {
    let place = McpPlace::new(BASE, false);
    let mut agent = place.client();
    assert_eq!(agent.call("diff", json!({}))["changes"], 0);
    agent.call("write_file", json!({"path": "src/a", "content": "two\n"}));
    agent.call("rename", json!({"from": "c", "to": "d"}));
    let all = agent.call("diff", json!({}));
    assert_eq!(changed(&all), ["renamed /d", "modified /src/a"]);
    assert_eq!((&all["paths"][0]["from"], &all["changes"]), (&json!("/c"), &json!(2)));
    let some = agent.call("diff", json!({"limit": 1}));
    assert_eq!(
        (changed(&some).len(), &some["changes"], &some["more"]),
        (1, &json!(2), &json!(true))
    );
    let some = agent.call("diff", json!({"paths": ["src"]}));
    assert_eq!(changed(&some), ["modified /src/a"]);
    let patch = agent.texts("diff", json!({"patch": true, "paths": ["src"]})).concat();
    assert!(patch.contains("\n-one\n+two\n"), "{patch}");
    let patch = agent.texts("diff", json!({"patch": true, "from": "1", "to": "2"})).concat();
    assert!(patch.contains("\n-one\n+two\n") && !patch.contains("rename"), "{patch}");
    let told = agent.fails("diff", json!({"from": "2", "to": "1"}));
    assert!(told.contains("hint: swap them"), "{told}");
    agent.ends_well();
    place.end();
}

#[test]
fn the_log_has_the_last_changes() {
    let place = McpPlace::new(BASE, true);
    let mut agent = place.client();
    agent.call("mkdir", json!({"path": "d"}));
    agent.call("rename", json!({"from": "d", "to": "e"}));
    agent.call("mkdir", json!({"path": "f"}));
    let ops = |answer: &Value| -> Vec<String> {
        let changes = answer["changes"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        changes.map(|one| format!("{} {}", text(&one["op"]), text(&one["path"]))).collect()
    };
    assert_eq!(ops(&agent.call("log", json!({}))), ["MKDIR /d", "RENAME /d", "MKDIR /f"]);
    let last = agent.call("log", json!({"limit": 2}));
    assert_eq!(
        (ops(&last), &last["more"]),
        (vec!["RENAME /d".into(), "MKDIR /f".into()], &json!(true))
    );
    assert_eq!(ops(&agent.call("log", json!({"path": "e"}))), ["MKDIR /d", "RENAME /d"]);
    assert_eq!(ops(&agent.call("log", json!({"since_checkpoint": "@-1"}))), ["MKDIR /f"]);
    agent.ends_well();
    place.end();
}

#[test]
fn a_restore_does_not_go_back_across_an_apply() {
    let mut place = McpPlace::new(BASE, false);
    place.world.change_base();
    let mut agent = place.client();
    agent.call("write_file", json!({"path": "c", "content": "changed"}));
    place.says("apply SESSION --yes");
    let told = agent.fails("restore", json!({"checkpoint": "1"}));
    assert!(told.contains("were applied to the base since the checkpoint"), "{told}");
    assert_eq!(place.calls().pop().unwrap().1, "error");
    agent.ends_well();
    place.end();
}

#[test]
fn a_session_of_another_program_has_an_empty_log() {
    let dir = tempfile::tempdir().unwrap();
    assert!(run(dir.path(), &["init", "s.db"]).status.success());
    let session = rusqlite::Connection::open(dir.path().join("s.db")).unwrap();
    session.execute_batch("DROP TABLE acetate_op").unwrap();
    drop(session);
    let mut agent = McpClient::start(dir.path(), &["s.db"]);
    let empty = json!({"changes": [], "more": false, "unreadable": 0});
    assert_eq!(agent.call("log", json!({})), empty);
    assert_eq!(agent.call("checkpoint_list", json!({}))["checkpoints"], json!([]));
    assert_eq!(agent.call("readdir", json!({}))["entries"], json!([]));
    agent.ends_well();
}
