//! Several servers of one session at once.

use serde_json::json;

use super::client::{McpClient, McpPlace};

/// How many files each agent writes.
const FILES: usize = 8;

#[test]
fn two_agents_change_one_session() {
    for is_served in [true, false] {
        let place = McpPlace::new("a \"base\"\n", is_served);
        let work = |mut agent: McpClient, name: &str| {
            for number in 0..FILES {
                let path = format!("{name}-{number}");
                agent.call("write_file", json!({"path": path, "content": name}));
                assert_eq!(agent.texts("read_file", json!({"path": path})), [name]);
                agent.call("kv_set", json!({"key": path, "value": number}));
            }
            agent.ends_well();
        };
        let (one, two) = (place.client(), place.client());
        std::thread::scope(|scope| {
            let other = scope.spawn(move || work(one, "one"));
            work(two, "two");
            other.join().unwrap();
        });
        let mut agent = place.client_with(&[]);
        let entries = agent.call("readdir", json!({}));
        assert_eq!(entries["entries"].as_array().unwrap().len(), 2 * FILES + 1);
        let keys = agent.call("kv_list", json!({}));
        assert_eq!(keys["keys"].as_array().unwrap().len(), 2 * FILES);
        agent.ends_well();
        let calls = place.calls();
        assert_eq!(calls.len(), 4 * FILES);
        assert!(calls.iter().all(|(_, status, ..)| status == "success"));
        // Each call after a change of a file finds one to keep.
        let kept = place.checkpoints();
        assert!(kept.len() >= 2 * FILES, "{kept:?}");
        assert!(kept.iter().all(|(kind, _)| kind == "tool"), "{kept:?}");
        place.end();
    }
}

#[test]
fn a_server_may_come_and_go_below_an_agent() {
    let mut place = McpPlace::new("a \"base\"\n", false);
    let mut agent = place.client();
    agent.call("write_file", json!({"path": "b", "content": "at rest"}));
    place.serve();
    agent.call("write_file", json!({"path": "b", "content": "served"}));
    assert_eq!(place.says("cat SESSION b"), "served");
    place.stop_serving();
    agent.call("restore", json!({"checkpoint": "@-1"}));
    assert_eq!(agent.texts("read_file", json!({"path": "b"})), ["at rest"]);
    agent.ends_well();
    place.end();
}
