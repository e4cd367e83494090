//! Sizes at and over the limits.

use serde_json::{Value, json};

use super::client::McpPlace;

#[test]
fn files_are_read_in_parts() {
    let mut base = "x ".to_owned();
    base.push_str(&format!("\"{}\"\n", "y".repeat((1 << 20) + 7)));
    let place = McpPlace::new(&base, false);
    let mut agent = place.client();
    let parts = agent.texts("read_file", json!({"path": "x"}));
    assert_eq!(parts[0].len(), 256 << 10);
    assert_eq!(parts[1], "[bytes 0 to 262144 of 1048583: read on with \"offset\": 262144]");
    let parts = agent.texts("read_file", json!({"path": "x", "offset": 262144, "length": 1 << 20}));
    assert_eq!((parts[0].len(), parts.len()), ((1 << 20) + 7 - (256 << 10), 1));
    for length in [0, (1 << 20) + 1] {
        let told = agent.fails("read_file", json!({"path": "x", "length": length}));
        assert!(told.contains("between 1 and 1048576 bytes are read\nhint: "), "{told}");
    }
    let read = agent.ask("resources/read", json!({"uri": "acetate:///x"}));
    assert_eq!(read["error"]["code"], -32602);
    assert!(read["error"]["message"].as_str().unwrap().contains("the tool read_file reads a part"));
    agent.ends_well();
    place.end();
}

#[test]
fn a_call_writes_8_mib_and_not_more() {
    let place = McpPlace::new("x \"x\"\n", true);
    let mut agent = place.client();
    let mut content = "z".repeat(8 << 20);
    agent.call("write_file", json!({"path": "x", "content": content}));
    content.push('z');
    let told = agent.fails("write_file", json!({"path": "x", "content": content}));
    let expected = "content: 8388609 bytes: one call writes at most 8388608\n\
                    hint: write it in parts, with \"mode\": \"append\"";
    assert_eq!(told, expected);
    // Only the begin of the content is recorded.
    let calls = place.calls();
    let recorded = calls[0].2["content"].as_str().unwrap();
    assert!(recorded.ends_with("zzz… (8388608 bytes)") && recorded.len() < 5000, "{recorded}");
    assert_eq!((&*calls[1].0, &*calls[1].1), ("write_file", "error"));
    agent.ends_well();
    assert_eq!(place.says("cat SESSION x").len(), 8 << 20);
    place.end();
}

#[test]
fn a_request_that_is_too_long_is_refused_and_the_next_one_answered() {
    let place = McpPlace::new("x \"x\"\n", false);
    let mut agent = place.client();
    let given =
        json!({"name": "write_file", "arguments": {"id": 9, "content": "z".repeat(17 << 20)}});
    // As the official clients write it: with the id last.
    let line = format!(r#"{{"method":"tools/call","params":{given},"jsonrpc":"2.0","id":"long"}}"#);
    agent.send_line(&line);
    let answer = agent.receive().unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("long"), &json!(-32600)));
    let told = answer["error"]["message"].as_str().unwrap();
    assert!(told.starts_with("a request has at most 16777216 bytes"), "{told}");
    assert_eq!(agent.call("stat", json!({"path": "x"}))["size"], 1);
    let (_, code, told) = agent.end();
    assert_eq!((code, told.lines().count()), (Some(0), 1), "{told}");
    place.end();
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let place = McpPlace::new("x \"x\"\n", true);
    let mut agent = place.client();
    let ids: Vec<_> = (0..40)
        .map(|n| match n % 4 {
            0 => {
                json!({"name": "write_file", "arguments": {"path": format!("f{n}"), "content": ""}})
            }
            _ => json!({"name": "read_file", "arguments": {"path": "x"}}),
        })
        .map(|given| agent.request("tools/call", given))
        .collect();
    let mut answered: Vec<_> = ids.iter().map(|_| agent.receive().unwrap()).collect();
    answered.sort_by_key(|answer| answer["id"].as_u64());
    for (id, answer) in ids.iter().zip(&answered) {
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(id), &json!(false)));
    }
    agent.ends_well();
    assert_eq!(place.calls().len(), 10);
    place.end();
}

#[test]
fn values_have_a_largest_size() {
    let place = McpPlace::new("x \"x\"\n", false);
    let mut agent = place.client();
    let told = agent.fails("kv_set", json!({"key": "k", "value": "v".repeat(1 << 20)}));
    assert!(told.contains("1048578 bytes, more than 1048576\nhint: keep it in a file"), "{told}");
    agent.call("kv_set", json!({"key": "k", "value": "v".repeat((1 << 20) - 2)}));
    let keys = agent.call("kv_list", json!({}));
    assert_eq!(keys["keys"][0]["value_bytes"], 1 << 20);
    let session = place.world.session();
    let larger =
        acetate::inspect::kv::KeyValues::open(&session, acetate::inspect::AgentAccess::Write);
    let value = format!("\"{}\"", "v".repeat(1 << 20));
    larger.unwrap().set("large", &value, 1).unwrap();
    let told = agent.fails("kv_get", json!({"key": "large"}));
    assert!(told.contains("more than 1048576\nhint: its user can print it"), "{told}");
    agent.ends_well();
    place.end();
}

#[test]
fn searches_and_patches_end_at_their_limits() {
    let place = McpPlace::new("x \"x\"\n", false);
    let mut agent = place.client();
    let long = format!("{}needle{}", "a".repeat(2000), "b".repeat(2000));
    agent.call("write_file", json!({"path": "long", "content": long}));
    let answer = agent.call("search", json!({"pattern": "needle"}));
    let found = &answer["matches"][0];
    assert_eq!((found["text"].as_str().unwrap().len(), &found["is_cut"]), (500, &json!(true)));
    assert!(found["text"].as_str().unwrap().contains("aneedleb"));
    // Beyond the part of a line that is looked at.
    let far = format!("{}needle\nneedle", "a".repeat(65 << 10));
    agent.call("write_file", json!({"path": "long", "content": far}));
    let answer = agent.call("search", json!({"pattern": "needle"}));
    assert_eq!(
        (answer["matches"].as_array().unwrap().len(), &answer["matches"][0]["line"]),
        (1, &json!(2))
    );
    let told = agent.fails("search", json!({"pattern": "a".repeat(5000)}));
    assert!(told.contains("has at most 4096 bytes"), "{told}");
    let told = agent.fails("search", json!({"pattern": "(a{1000}){1000}"}));
    assert!(told.contains("not a regular expression"), "{told}");
    // Each of these characters takes six in JSON.
    let many = format!("{}\n", "\u{1}".repeat(400)).repeat(1000);
    agent.call("write_file", json!({"path": "many", "content": many}));
    let answer = agent.call("search", json!({"pattern": "\u{1}", "limit": 1000}));
    assert_eq!(
        (&answer["more"], &answer["ended_by"]),
        (&json!(true), &json!("size of the result"))
    );
    assert!(answer["matches"].to_string().len() <= 1 << 20);
    let lines: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
    agent.call("write_file", json!({"path": "many", "content": lines}));
    let patch = agent.texts("diff", json!({"patch": true, "paths": ["many"]}));
    assert_eq!((patch[0].len(), patch.len()), (512 << 10, 2));
    assert!(patch[1].starts_with("[the first 524288 bytes of the patch"), "{}", patch[1]);
    agent.ends_well();
    place.end();
}

#[test]
fn resources_and_directories_come_in_pages() {
    let base: String = (0..250)
        .map(|n| format!("d{}/f{n:03} \"{n}\"\n", n % 3))
        .chain(["é%/x \"X\"\n".into()])
        .collect();
    let place = McpPlace::new(&base, false);
    let mut agent = place.client();
    let given = json!({"path": "bin", "content": "/wA=", "encoding": "base64"});
    agent.call("write_file", given);
    let (mut uris, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let page = agent.ask("resources/list", params)["result"].take();
        let files = page["resources"].as_array().unwrap();
        assert!(files.len() <= 200);
        uris.extend(files.iter().map(|file| file["uri"].as_str().unwrap().to_owned()));
        pages += 1;
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let mut sorted = uris.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((uris.len(), sorted.len(), pages), (252, 252, 2));
    assert!(uris.contains(&"acetate:///%C3%A9%25/x".to_owned()), "{uris:?}");
    let mut read = |uri: &str| {
        agent.ask("resources/read", json!({"uri": uri}))["result"]["contents"][0].take()
    };
    assert_eq!(read("acetate:///%C3%A9%25/x")["text"], "X");
    assert_eq!(read("acetate:///d1/f001")["text"], "1");
    assert_eq!(read("acetate:///bin")["blob"], "/wA=");
    let template = agent.ask("resources/templates/list", json!({}));
    let template = &template["result"]["resourceTemplates"][0]["uriTemplate"];
    assert_eq!(template, "acetate:///{+path}");
    let page = agent.call("readdir", json!({"path": "d0", "limit": 50}));
    let last = page["entries"][49]["name"].as_str().unwrap();
    assert_eq!((last, &page["more"]), ("f147", &json!(true)));
    let page = agent.call("readdir", json!({"path": "d0", "after": last}));
    assert_eq!((page["entries"].as_array().unwrap().len(), &page["more"]), (34, &json!(false)));
    agent.ends_well();
    place.end();
}
