//! The tools for files and keys, what they refuse, and what they leave in the session.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::client::McpPlace;

const BASE: &str = "src/a \"one\\ntwo\\n\"\nsrc/b \"base b\"\nc \"c\"\n";

fn names(listed: &Value, key: &str) -> Vec<String> {
    let entries = listed["entries"].as_array().or(listed["keys"].as_array()).unwrap();
    entries.iter().map(|entry| entry[key].as_str().unwrap().to_owned()).collect()
}

#[test]
fn files_are_read_and_changed_served_and_at_rest() {
    for is_served in [true, false] {
        let place = McpPlace::new(BASE, is_served);
        let mut agent = place.client();
        assert_eq!(agent.texts("read_file", json!({"path": "src/a"})), ["one\ntwo\n"]);
        let written = agent.call("write_file", json!({"path": "/src/new", "content": "né\n"}));
        let expected = json!({"path": "/src/new", "bytes": 4, "checkpoint": 1, "tool_call": 1});
        assert_eq!(written, expected);
        agent.call("write_file", json!({"path": "src/new", "content": "+", "mode": "append"}));
        assert_eq!(agent.texts("read_file", json!({"path": "src/new"})), ["né\n+"]);
        let made = agent.call("mkdir", json!({"path": "deep/er", "parents": true}));
        assert_eq!(made["objects"], 2);
        let moved = agent.call("rename", json!({"from": "src/b", "to": "deep/er/b"}));
        assert_eq!((&moved["path"], &moved["to"]), (&json!("/src/b"), &json!("/deep/er/b")));
        assert_eq!(agent.call("remove", json!({"path": "c"}))["objects"], 1);
        let all = agent.call("readdir", json!({}));
        assert_eq!(names(&all, "name"), ["deep", "src"]);
        assert_eq!((&all["path"], &all["more"]), (&json!("/"), &json!(false)));
        let listed = agent.call("readdir", json!({"path": "src"}));
        let new = &listed["entries"][1];
        assert_eq!(
            (&new["name"], &new["kind"], &new["size"]),
            (&json!("new"), &json!("file"), &json!(5))
        );
        assert_eq!(agent.call("stat", json!({"path": "src/a"}))["layer"], "base");
        assert_eq!(agent.call("stat", json!({"path": "src/new"}))["layer"], "session");
        assert_eq!(agent.call("remove", json!({"path": "deep", "recursive": true}))["objects"], 3);
        agent.ends_well();
        assert_eq!(place.says("ls SESSION"), "src\n");
        place.world.assert_base_untouched();
        place.end();
    }
}

#[test]
fn each_change_is_a_tool_call_and_begins_with_a_checkpoint() {
    for is_served in [true, false] {
        let place = McpPlace::new(BASE, is_served);
        let mut agent = place.client();
        let write = |n: u8| json!({"path": "a", "content": n.to_string()});
        agent.call("write_file", write(1));
        agent.call("write_file", write(2));
        // Nothing changed since the checkpoint of the failed one.
        agent.fails("remove", json!({"path": "src"}));
        agent.call("mkdir", json!({"path": "d"}));
        agent.call("rename", json!({"from": "d", "to": "e"}));
        agent.call("remove", json!({"path": "c"}));
        agent.call("kv_set", json!({"key": "k", "value": 1}));
        agent.call("kv_delete", json!({"key": "k"}));
        agent.texts("read_file", json!({"path": "a"}));
        agent.ends_well();
        let calls = place.calls();
        let seen: Vec<_> =
            calls.iter().map(|(name, status, ..)| format!("{name} {status}")).collect();
        assert_eq!(
            seen,
            [
                "write_file success",
                "write_file success",
                "remove error",
                "mkdir success",
                "rename success",
                "remove success",
                "kv_set success",
                "kv_delete success",
            ]
        );
        assert_eq!(calls[0].2, write(1));
        let tool = |tool: &str| ("tool".to_owned(), json!(tool));
        // One that changed nothing gives its checkpoint to the next call; the tree is meant.
        let expected = ["write_file", "write_file", "mkdir", "rename", "remove", "kv_delete"];
        assert_eq!(place.checkpoints(), expected.map(tool));
        assert_eq!(place.says("cat SESSION a --at 2"), "1");
        place.end();
    }
}

#[test]
fn bytes_that_are_no_text_go_as_base64() {
    let place = McpPlace::new("cut \"aé\"\n", false);
    let mut agent = place.client();
    let bytes = [0xff_u8, 0, 0xc3, 1];
    let content = STANDARD.encode(bytes);
    let given = json!({"path": "bin", "content": content, "encoding": "base64"});
    assert_eq!(agent.call("write_file", given)["bytes"], 4);
    let told = agent.fails("read_file", json!({"path": "bin"}));
    assert_eq!(told, "/bin: not UTF-8\nhint: read it with \"encoding\": \"base64\"");
    let read = agent.texts("read_file", json!({"path": "bin", "encoding": "base64"}));
    assert_eq!(read, [content]);
    let told =
        agent.fails("write_file", json!({"path": "x", "content": "*", "encoding": "base64"}));
    assert!(told.starts_with("content: not base64"), "{told}");
    // A part of a text ends with a whole character.
    let part = agent.texts("read_file", json!({"path": "cut", "length": 2}));
    assert_eq!(part, ["a", "[bytes 0 to 1 of 3: read on with \"offset\": 1]"]);
    assert_eq!(agent.texts("read_file", json!({"path": "cut", "offset": 1})), ["é"]);
    assert!(agent.fails("read_file", json!({"path": "cut", "offset": 2})).contains("not UTF-8"));
    assert_eq!(agent.texts("read_file", json!({"path": "cut", "offset": 9})), [""]);
    agent.ends_well();
    place.end();
}

#[test]
fn what_cannot_be_done_is_told_with_a_hint_and_recorded() {
    for is_served in [true, false] {
        let place = McpPlace::new(BASE, is_served);
        let mut agent = place.client();
        for (tool, given, expected) in [
            ("write_file", json!({"path": "no/file", "content": ""}), "/no: no such file"),
            ("write_file", json!({"path": "src", "content": ""}), "/src: is a directory"),
            ("write_file", json!({"path": "c", "content": "", "mode": "new"}), "/c: file exists"),
            ("write_file", json!({"path": "../c", "content": ""}), "not a path in the session"),
            ("mkdir", json!({"path": "no/dir"}), "hint: \"parents\": true makes"),
            ("mkdir", json!({"path": "src"}), "/src: file exists"),
            ("remove", json!({"path": "src"}), "hint: \"recursive\": true removes"),
            ("remove", json!({"path": "no"}), "/no: no such file"),
            ("rename", json!({"from": "no", "to": "c"}), "/no: no such file"),
            ("kv_delete", json!({"key": "no"}), "no: no such key\nhint: kv_list"),
            ("write_file", json!({"path": "c"}), "arguments: missing field `content`"),
            ("remove", json!({"path": "c", "force": true}), "arguments: unknown field `force`"),
        ] {
            let told = agent.fails(tool, given.clone());
            assert!(told.contains(expected), "{tool} {given}: {told}");
            let (name, status, parameters, error) = place.calls().pop().unwrap();
            assert_eq!((&*name, &*status, parameters), (tool, "error", given));
            assert!(told.starts_with(error.as_str().unwrap()), "{told}: {error}");
        }
        let calls = place.calls().len();
        for (tool, given, expected) in [
            ("read_file", json!({"path": "no"}), "/no: no such file"),
            ("read_file", json!({"path": "src"}), "/src: is a directory"),
            ("read_file", json!({"path": ""}), "an empty path names nothing"),
            ("readdir", json!({"path": "c"}), "/c: not a directory"),
            ("stat", json!({"path": "c/d"}), "/c/d: no such file"),
            ("stat", json!({"path": "c", "at": "never"}), "never: no such checkpoint"),
            ("search", json!({"pattern": "("}), "not a regular expression"),
            ("search", json!({"pattern": "x", "glob": "["}), "error parsing glob"),
            ("search", json!({"pattern": "x", "path": "no"}), "/no: no such file"),
            ("kv_get", json!({"key": "no"}), "no: no such key"),
            ("diff", json!({"to": "1"}), "\"to\" without \"from\""),
            ("diff", json!({"from": "never"}), "never: no such checkpoint"),
            ("diff", json!({"paths": ["no"]}), "/no: no such file"),
            ("log", json!({"since_checkpoint": "never"}), "never: no such checkpoint"),
            ("checkpoint_list", json!({"limit": 0}), "0 entries: a result has between 1 and"),
        ] {
            let told = agent.fails(tool, given.clone());
            assert!(told.contains(expected), "{tool} {given}: {told}");
        }
        assert_eq!(place.calls().len(), calls, "reading is not recorded");
        agent.ends_well();
        assert_eq!(place.says("cat SESSION c"), "c");
        place.end();
    }
}

#[test]
fn keys_and_values_are_kept() {
    for is_served in [true, false] {
        let place = McpPlace::new(BASE, is_served);
        let mut agent = place.client();
        let value = json!({"n": 1.50, "list": [null, "é"]});
        assert_eq!(agent.call("kv_set", json!({"key": "plan", "value": value}))["key"], "plan");
        for key in ["a:1", "a:2", "b"] {
            agent.call("kv_set", json!({"key": key, "value": null}));
        }
        assert_eq!(agent.call("kv_get", json!({"key": "plan"}))["value"], value);
        let page = agent.call("kv_list", json!({"prefix": "a:", "limit": 1}));
        assert_eq!((names(&page, "key"), &page["more"]), (vec!["a:1".to_owned()], &json!(true)));
        let page = agent.call("kv_list", json!({"prefix": "a:", "after": "a:1"}));
        assert_eq!((names(&page, "key"), &page["more"]), (vec!["a:2".to_owned()], &json!(false)));
        agent.call("kv_delete", json!({"key": "plan"}));
        assert!(agent.fails("kv_get", json!({"key": "plan"})).contains("no such key"));
        agent.ends_well();
        assert_eq!(place.says("kv ls SESSION"), "a:1\na:2\nb\n");
        place.end();
    }
}

#[test]
fn a_search_finds_lines_of_the_merged_tree() {
    let base = "src/a.rs \"fn one\\nlet two\\n\"\nsrc/b \"fn b\"\n";
    let place = McpPlace::new(base, false);
    let mut agent = place.client();
    agent.call("write_file", json!({"path": "src/c.rs", "content": "\r\nFN three\r\nfn four"}));
    // NUL, and "fn".
    let binary = json!({"path": "z", "content": "AGZu", "encoding": "base64"});
    agent.call("write_file", binary);
    let found = |answer: &Value| -> Vec<String> {
        let matches = answer["matches"].as_array().unwrap().iter();
        let line = |found: &Value| {
            let text = |key: &str| found[key].as_str().unwrap().to_owned();
            format!("{}:{}:{}", text("path"), found["line"], text("text"))
        };
        matches.map(line).collect()
    };
    let all = agent.call("search", json!({"pattern": "^fn \\w+"}));
    assert_eq!(found(&all), ["/src/a.rs:1:fn one", "/src/b:1:fn b", "/src/c.rs:3:fn four"]);
    assert_eq!((&all["files"], &all["binary_files"]), (&json!(4), &json!(1)));
    assert_eq!((&all["more"], &all["ended_by"]), (&json!(false), &Value::Null));
    let some = agent.call("search", json!({"pattern": "fn", "glob": "*.rs", "ignore_case": true}));
    assert_eq!(found(&some), ["/src/a.rs:1:fn one", "/src/c.rs:2:FN three", "/src/c.rs:3:fn four"]);
    let below = agent.call("search", json!({"pattern": "fn", "path": "src/b"}));
    assert_eq!(found(&below), ["/src/b:1:fn b"]);
    let first = agent.call("search", json!({"pattern": "fn", "limit": 1}));
    assert_eq!((found(&first).len(), &first["ended_by"]), (1, &json!("matches")));
    let then = agent.call("search", json!({"pattern": "fn", "at": "@-2"}));
    assert_eq!(found(&then), ["/src/a.rs:1:fn one", "/src/b:1:fn b"]);
    agent.ends_well();
    place.end();
}
