//! Which tools there are, what is refused, and how the program ends.

use std::process::Command;

use serde_json::{Value, json};

use super::client::{McpClient, McpPlace};
use crate::cli::program::failure;

const READING: [&str; 9] = [
    "read_file",
    "readdir",
    "stat",
    "search",
    "diff",
    "log",
    "checkpoint_list",
    "kv_get",
    "kv_list",
];

const CHANGING: [&str; 8] = [
    "write_file",
    "mkdir",
    "remove",
    "rename",
    "checkpoint_create",
    "restore",
    "kv_set",
    "kv_delete",
];

#[test]
fn without_allow_changes_nothing_can_be_changed() {
    for is_served in [true, false] {
        let place = McpPlace::new("a \"base\"\n", is_served);
        let mut agent = place.client_with(&[]);
        assert_eq!(agent.tools(), READING);
        for tool in CHANGING {
            let told = agent.fails(tool, json!({"path": "a", "content": "x", "key": "k"}));
            let expected = format!("{tool}: this server only reads: nothing was changed\nhint: ");
            assert!(told.starts_with(&expected) && told.contains("--allow-changes"), "{told}");
        }
        assert_eq!(agent.texts("read_file", json!({"path": "a"})), ["base"]);
        agent.ends_well();
        assert_eq!(place.says("tool ls SESSION"), "");
        assert_eq!(place.says("ls SESSION"), "a\n");
        place.end();
    }
}

#[test]
fn tools_are_chosen_by_name() {
    let place = McpPlace::new("a \"base\"\n", false);
    let mut agent = place.client_with(&["--allow-changes", "--tools", "stat,mkdir"]);
    assert_eq!(agent.tools(), ["stat", "mkdir"]);
    agent.call("mkdir", json!({"path": "d"}));
    let told = agent.fails("read_file", json!({"path": "a"}));
    assert!(told.contains("not one of the tools of this server\nhint: its user chose stat, mkdir"));
    assert!(agent.fails("remove", json!({"path": "a"})).contains("not one of the tools"));
    // Resources are files too.
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "acetate:///a"})),
    ] {
        assert_eq!(agent.ask(method, params)["error"]["code"], -32601, "{method}");
    }
    agent.ends_well();
    let session = place.world.session();
    let session = session.to_str().unwrap();
    for (options, expected) in [
        (
            &["--tools", "stat,reed_file"][..],
            "reed_file: no such tool\nhint: did you mean read_file,",
        ),
        (&["--tools", "write"], "write: no such tool\nhint: did you mean write_file,"),
        (&["--tools", "mkdir"], "mkdir changes the session\nhint: give --allow-changes too"),
    ] {
        let args: Vec<_> = ["mcp", session].iter().chain(options).copied().collect();
        let told = failure(place.world.scratch(), &args);
        assert!(told.contains(expected), "{told}");
    }
    place.end();
}

#[test]
fn each_tool_says_what_it_takes() {
    let place = McpPlace::new("a \"base\"\n", false);
    let mut agent = place.client();
    let answer = agent.ask("tools/list", json!({}));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, [&READING[..], &CHANGING].concat());
    for tool in tools {
        let schema = &tool["inputSchema"];
        assert!(jsonschema::draft202012::meta::is_valid(schema), "{tool}");
        assert_eq!(schema["type"], "object", "{tool}");
        assert!(tool["description"].as_str().unwrap().ends_with('.'), "{tool}");
        let properties = schema["properties"].as_object().unwrap().values();
        assert!(properties.into_iter().all(|one| one["description"].is_string()), "{tool}");
        let reads = READING.contains(&tool["name"].as_str().unwrap());
        assert_eq!(tool["annotations"]["readOnlyHint"], reads, "{tool}");
    }
    agent.ends_well();
    place.end();
}

/// What a server with these options says about itself, and about its tools.
fn descriptions(place: &McpPlace, options: &[&str]) -> (String, Vec<String>) {
    let session = place.world.session();
    let args: Vec<_> = [session.to_str().unwrap()].iter().chain(options).copied().collect();
    let mut agent = McpClient::unconnected(place.world.scratch(), &args);
    let hello = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    let answer = agent.ask("initialize", hello);
    agent.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let listed = agent.ask("tools/list", json!({}));
    agent.ends_well();
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    let texts = tools.map(|tool| tool["description"].as_str().unwrap().to_owned());
    (answer["result"]["instructions"].as_str().unwrap().to_owned(), texts.collect())
}

#[test]
fn instructions_name_only_tools_that_there_are() {
    let place = McpPlace::new("a \"base\"\n", false);
    let (all, _) = descriptions(&place, &["--allow-changes"]);
    for tool in ["checkpoint_list", "diff", "restore"] {
        assert!(all.contains(tool), "{all}");
    }
    for options in [&[][..], &["--tools", "stat"], &["--allow-changes", "--tools", "mkdir"]] {
        let (told, tools) = descriptions(&place, options);
        let mut missing = CHANGING.iter().filter(|tool| **tool != "mkdir");
        assert!(missing.all(|tool| !told.contains(tool)), "{options:?}: {told}");
        assert_eq!(told.contains("checkpoint_list"), options.is_empty(), "{told}");
        for text in &tools {
            assert!(!text.contains("restore") && !text.contains("checkpoint_create"), "{text}");
        }
    }
    place.end();
}

/// An agent has no shell: a hint names tools, or says whom it is for.
#[test]
fn hints_name_tools() {
    let place = McpPlace::new("a \"base\"\n", false);
    let mut agent = place.client();
    agent.call("checkpoint_create", json!({"name": "one"}));
    let told = agent.fails("diff", json!({"from": "none"}));
    assert!(told.ends_with("\nhint: checkpoint_list lists them"), "{told}");
    let told = agent.fails("checkpoint_create", json!({"name": "one"}));
    assert!(told.ends_with("another checkpoint has this name\nhint: give another name"), "{told}");
    agent.ends_well();
    let mut agent = place.client_with(&["--tools", "diff"]);
    let told = agent.fails("diff", json!({"from": "none"}));
    assert!(!told.contains("hint"), "{told}");
    agent.ends_well();
    place.end();
}

/// JSON-RPC allows any number as an id.
#[test]
fn each_id_gets_its_answer() {
    let place = McpPlace::new("a \"base\"\n", false);
    let mut agent = place.client();
    for id in ["1.5", "-2.25", "1e3", "18446744073709551616", r#""acetate-id:1.5""#] {
        agent.send_line(&format!(r#"{{"jsonrpc": "2.0", "id": {id}, "method": "ping"}}"#));
        let answer = agent.receive().unwrap();
        let expected: Value = serde_json::from_str(id).unwrap();
        assert_eq!((&answer["id"], &answer["result"]), (&expected, &json!({})), "{answer}");
        agent.send_line(&format!(r#"{{"jsonrpc": "2.0", "id": {id}, "method": 7}}"#));
        let answer = agent.receive().unwrap();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&expected, &(-32600).into()));
    }
    // A cancelled call ends, whether it was answered before or not.
    let call =
        r#""method": "tools/call", "params": {"name": "search", "arguments": {"pattern": "x"}}"#;
    agent.send_line(&format!(r#"{{"jsonrpc": "2.0", "id": 2.5, {call}}}"#));
    let cancelled = r#""method": "notifications/cancelled", "params": {"requestId": 2.5}"#;
    agent.send_line(&format!(r#"{{"jsonrpc": "2.0", {cancelled}}}"#));
    let id = agent.request("ping", json!({}));
    while agent.receive().unwrap()["id"] != id {}
    assert_eq!(agent.end().1, Some(0));
    place.end();
}

#[test]
fn errors_of_the_protocol_are_answered() {
    let place = McpPlace::new("a \"base\"\n", false);
    let mut agent = place.client();
    for (method, params, code, expected) in [
        (
            "tools/call",
            json!({"name": "write"}),
            -32602,
            "unknown tool: write; did you mean write_file",
        ),
        ("tools/call", json!({}), -32602, "tools/call: its parameters are missing"),
        ("resources/read", json!({}), -32602, "resources/read: its parameters are missing"),
        ("resources/read", json!({"uri": "file:///a"}), -32002, "not a URI of a file"),
        ("resources/read", json!({"uri": "acetate:///b"}), -32002, "/b: no such file"),
        ("resources/list", json!({"cursor": "?"}), -32602, "not a cursor of this server"),
        ("prompts/list", json!({}), -32601, ""),
        ("no/method", json!({}), -32601, "no/method: not a method of this server"),
    ] {
        let error = agent.ask(method, params)["error"].take();
        assert_eq!(error["code"], code, "{method}: {error}");
        assert!(error["message"].as_str().unwrap().contains(expected), "{error}");
    }
    for (line, code) in [("no JSON", -32700), ("[]", -32600), ("{\"id\": 7}", -32600)] {
        agent.send_line(line);
        let answer = agent.receive().unwrap();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    // What has no meaning and no id has no answer.
    agent.send_line("");
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/unknown"}));
    assert_eq!(agent.ask("ping", json!({}))["result"], json!({}));
    let (rest, code, told) = agent.end();
    assert_eq!((rest, code), (Vec::new(), Some(0)));
    assert!(told.contains("a request is refused error=not JSON"), "{told}");
    place.end();
}

#[test]
fn what_cannot_be_served_is_told_at_once() {
    let place = McpPlace::new("a \"base\"\n", false);
    let told = failure(place.world.scratch(), &["mcp", "no.db"]);
    assert!(told.contains("no.db") && told.contains("hint: "), "{told}");
    let session = place.world.session();
    let agent = McpClient::unconnected(place.world.scratch(), &[session.to_str().unwrap()]);
    assert_eq!(agent.end(), (Vec::new(), Some(0), String::new()));
    let mut agent = McpClient::unconnected(place.world.scratch(), &[session.to_str().unwrap()]);
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let (rest, code, told) = agent.end();
    assert_eq!((rest, code), (Vec::new(), Some(2)));
    assert!(told.starts_with("error: the client: "), "{told}");
    place.end();
}

#[test]
fn a_call_in_progress_is_finished_and_answered() {
    for is_served in [true, false] {
        let place = McpPlace::new("a \"base\"\n", is_served);
        let mut agent = place.client();
        let content = "x".repeat(4 << 20);
        let given = json!({"name": "write_file", "arguments": {"path": "b", "content": content}});
        let id = agent.request("tools/call", given);
        let (rest, code, _) = agent.end();
        assert_eq!((rest[0]["id"].as_u64(), rest.len(), code), (Some(id), 1, Some(0)));
        assert_eq!(rest[0]["result"]["structuredContent"]["bytes"], content.len());
        assert_eq!(place.says("cat SESSION b"), content);
        place.end();
    }
}

#[test]
fn a_signal_ends_it_after_the_call_in_progress() {
    let place = McpPlace::new("a \"base\"\n", false);
    let mut agent = place.client();
    let write = |n: u64| {
        let path = format!("f{n}");
        json!({"name": "write_file", "arguments": {"path": path, "content": "x".repeat(1 << 20)}})
    };
    agent.request("tools/call", write(0));
    agent.request("tools/call", write(1));
    let first = agent.receive().unwrap();
    assert!(first["result"].is_object());
    assert!(Command::new("kill").args(["-TERM", &agent.id()]).status().unwrap().success());
    // Its end is not that of the input: the pipe stays open until it has ended.
    let mut rest = Vec::new();
    while let Some(answer) = agent.receive() {
        rest.push(answer);
    }
    let (_, code, told) = agent.end();
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("stopping; a second signal stops at once"), "{told}");
    let answered = 1 + rest.iter().filter(|answer: &&Value| answer["result"].is_object()).count();
    let calls = place.calls();
    assert_eq!(calls.len(), answered);
    assert!(calls.iter().all(|(_, status, ..)| status == "success"));
    assert_eq!(place.says("ls SESSION").lines().count(), 1 + answered);
    place.end();
}
