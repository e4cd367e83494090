//! What each verb does, and refuses.

use acetate::context::{
    AccountName, ContextError, EventType, Files, NodePut, NodeStatus, Nodes, Relation,
};
use serde_json::{Value, json};

use super::memory::Memory;
use super::{BREW, COFFEE, VISIT, content, nodes, uri};

fn relation(to: &str) -> Relation {
    Relation {
        to: uri(to),
        relation_type: "related_to".to_owned(),
        weight: 0.85,
        reason: "Alice visited this coffee shop on March 15".to_owned(),
    }
}

#[test]
fn the_five_steps_come_in_order_each_synced_before_the_next() {
    let mut tree = Memory::default();
    nodes(&mut tree).put(&uri(COFFEE), &content("black")).unwrap();
    let dir = uri(COFFEE).path();
    let id = nodes(&mut tree).events(None, false).unwrap().remove(0).id;
    let log: Vec<String> =
        tree.log.iter().map(|step| step.replace(&dir, "").replace(&id, "ID")).collect();
    let placed = &log[log.iter().position(|step| step == "sync").unwrap()..];
    let expected = [
        "sync",
        "rename /.content.md.new /content.md",
        "sync",
        "rename /.relations.json.new /.relations.json",
        "sync",
        "rename /.abstract.md.new /.abstract.md",
        "rename /.overview.md.new /.overview.md",
        "sync",
        "rename /.meta.json.new /.meta.json",
        "sync",
        "make /.outbox",
        "rename /.event.json.new /.outbox/ID.json",
        "sync",
    ];
    assert_eq!(placed, expected);
    let names: Vec<&str> =
        tree.paths().iter().map(|path| path.strip_prefix(&dir).unwrap()).collect();
    let event = format!("/.outbox/{id}.json");
    let mut files =
        vec!["/.abstract.md", "/.meta.json", &event, "/.overview.md", "/.relations.json"];
    files.push("/content.md");
    assert_eq!(names, files);
}

#[test]
fn a_visible_node_is_pending_while_it_is_changed() {
    let mut tree = Memory::default();
    nodes(&mut tree).put(&uri(COFFEE), &content("black")).unwrap();
    tree.log.clear();
    nodes(&mut tree).put(&uri(COFFEE), &content("white")).unwrap();
    let renames = tree.log.iter().filter(|step| step.starts_with("rename"));
    assert!(renames.clone().next().unwrap().ends_with(
        ".pending.json.new \
        /accounts/acme/users/alice/memories/preferences/coffee/.meta.json"
    ));
    assert_eq!(renames.count(), 7);
}

#[test]
fn a_node_is_what_was_put() {
    let mut tree = Memory::default();
    let text = "# Coffee\n\nBlack.\n## Why\nIt is good.\n";
    let put = NodePut { tags: Some(vec!["drinks".to_owned()]), ..content(text) };
    nodes(&mut tree).put(&uri(COFFEE), &put).unwrap();
    let node = nodes(&mut tree).get(&uri(COFFEE)).unwrap();
    assert_eq!(
        Value::Object(node.meta.fields().clone()),
        json!({
            "uri": COFFEE, "context_type": "MEMORY", "category": "preferences", "level": 3,
            "owner_space": "user:alice", "status": "ACTIVE", "version": 1, "tags": ["drinks"],
            "created_at": "2025-03-17T10:00:00Z", "updated_at": "2025-03-17T10:00:00Z",
        })
    );
    assert_eq!((node.content.as_str(), node.abstract_text.as_str()), (text, "Coffee"));
    assert_eq!(node.overview, "# Coffee\n## Why");
    assert_eq!(tree.text(&format!("{}/.relations.json", uri(COFFEE).path())), "[]\n");

    let put = NodePut {
        abstract_text: Some("short\n".to_owned()),
        overview: Some("longer".to_owned()),
        level: Some(2),
        ..content("second")
    };
    let changed = nodes(&mut tree).put(&uri(COFFEE), &put).unwrap();
    assert_eq!((changed.version, changed.event.event_type()), (Some(2), EventType::UpsertContext));
    let node = nodes(&mut tree).get(&uri(COFFEE)).unwrap();
    assert_eq!((node.abstract_text.as_str(), node.overview.as_str()), ("short", "longer"));
    let field = |key: &str| node.field(key).unwrap().clone();
    assert_eq!(
        (field("version"), field("level"), field("tags")),
        (json!(2), json!(2), json!(["drinks"]))
    );
    assert_eq!(field("created_at"), "2025-03-17T10:00:00Z");
    assert_eq!(field("updated_at"), "2025-03-17T10:00:01Z");
}

#[test]
fn an_event_has_the_three_layers() {
    let mut tree = Memory::default();
    let long = format!("first\n{}", "é".repeat(50_000));
    let changed = nodes(&mut tree).put(&uri(BREW), &content(&long)).unwrap();
    let event = changed.event.fields();
    assert_eq!((&event["status"], &event["retry_count"]), (&json!("PENDING"), &json!(0)));
    let records = event["payload"]["records"].as_array().unwrap();
    let levels: Vec<_> = records.iter().map(|record| record["level"].clone()).collect();
    assert_eq!(levels, [0, 1, 2]);
    assert_eq!(records[0]["text"], "first");
    assert_eq!(records[0]["filters"], json!({"account_id": "acme", "owner_space": "agent:gpt-4"}));
    assert_eq!(records[1]["metadata"], json!({"category": "skills", "context_type": "SKILL"}));
    let text = records[2]["text"].as_str().unwrap();
    assert!(long.starts_with(text) && text.len() == 64 << 10);
    assert_eq!(records[2]["metadata"]["truncated"], true);
    assert_eq!(records[2]["metadata"]["content_bytes"], 100_006);
    let again = nodes(&mut tree).put(&uri(BREW), &content("again")).unwrap();
    let id = |event: &acetate::context::Event| {
        event.fields()["payload"]["records"][0]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(id(&again.event), id(&changed.event), "an index replaces the record");
    assert_eq!(id(&again.event).len(), 16);
    assert!(again.event.id() > changed.event.id(), "ids sort by time");
}

#[test]
fn what_is_not_valid_is_refused_before_anything_is_written() {
    let mut tree = Memory::default();
    let tags = |tags: &[&str]| Some(tags.iter().map(|tag| (*tag).to_owned()).collect());
    let text = content("text");
    for (put, what) in [
        (NodePut { content: vec![b'a'; (16 << 20) + 1], ..text.clone() }, "16 MiB are the most"),
        (NodePut { content: vec![0xff], ..text.clone() }, "not UTF-8"),
        (NodePut { content: b"\n".to_vec(), ..text.clone() }, "no line to make the abstract of"),
        (NodePut { abstract_text: Some("é".repeat(101)), ..text.clone() }, "101 characters"),
        (NodePut { abstract_text: Some(" ".to_owned()), ..text.clone() }, "abstract is empty"),
        (NodePut { overview: Some("x".repeat(65_537)), ..text.clone() }, "65537 bytes"),
        (NodePut { tags: tags(&[""]), ..text.clone() }, "is empty"),
        (NodePut { tags: tags(&["a", "a"]), ..text.clone() }, "given twice"),
        (NodePut { tags: Some(vec![String::new(); 65]), ..text.clone() }, "64 are the most"),
        (NodePut { level: Some(10), ..text.clone() }, "level is 0 to 9"),
    ] {
        let error = nodes(&mut tree).put(&uri(COFFEE), &put).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    nodes(&mut tree).put(&uri(COFFEE), &text).unwrap();
    nodes(&mut tree).put(&uri(VISIT), &text).unwrap();
    let before = tree.copy();
    for (relation, what) in [
        (Relation { weight: 1.5, ..relation(VISIT) }, "weight"),
        (Relation { weight: f64::NAN, ..relation(VISIT) }, "weight"),
        (Relation { relation_type: "a b".to_owned(), ..relation(VISIT) }, "relation_type"),
        (Relation { reason: "x".repeat(1001), ..relation(VISIT) }, "reason"),
        (relation(BREW), "no such node"),
        (relation("ctx://beta/users/b/memories/profile"), "not of the account acme"),
    ] {
        let error = nodes(&mut tree).relate(&uri(COFFEE), &relation).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    assert_eq!(tree.files(), before.files());
}

#[test]
fn an_edge_is_added_or_replaced() {
    let mut tree = Memory::default();
    for node in [COFFEE, VISIT] {
        nodes(&mut tree).put(&uri(node), &content("text")).unwrap();
    }
    let changed = nodes(&mut tree).relate(&uri(COFFEE), &relation(VISIT)).unwrap();
    let edge = json!({
        "from_uri": COFFEE, "to_uri": VISIT, "relation_type": "related_to", "weight": 0.85,
        "reason": "Alice visited this coffee shop on March 15",
    });
    assert_eq!(changed.event.fields()["payload"], json!({ "edges": [edge] }));
    assert_eq!(changed.event.event_type(), EventType::UpsertRelation);
    let stronger = Relation { weight: 1.0, ..relation(VISIT) };
    nodes(&mut tree).relate(&uri(COFFEE), &stronger).unwrap();
    let other = Relation { relation_type: "caused_by".to_owned(), ..relation(VISIT) };
    nodes(&mut tree).relate(&uri(COFFEE), &other).unwrap();
    let node = nodes(&mut tree).get(&uri(COFFEE)).unwrap();
    let weights: Vec<_> = node.relations.edges().iter().map(|edge| &edge["weight"]).collect();
    assert_eq!(weights, [&json!(1.0), &json!(0.85)]);
    assert_eq!((node.meta.version(), node.content.as_str()), (4, "text"));
}

#[test]
fn a_removed_node_leaves_its_events() {
    let mut tree = Memory::default();
    nodes(&mut tree).put(&uri(COFFEE), &content("text")).unwrap();
    let changed = nodes(&mut tree).remove(&uri(COFFEE)).unwrap();
    assert_eq!(changed.event.event_type(), EventType::DeleteContext);
    assert_eq!(changed.event.fields()["payload"], json!({}));
    assert!(matches!(
        nodes(&mut tree).get(&uri(COFFEE)),
        Err(ContextError::NoNode { status: None, is_changing: false, .. })
    ));
    assert!(nodes(&mut tree).remove(&uri(COFFEE)).is_err());
    let events = nodes(&mut tree).events(None, false).unwrap();
    assert_eq!(tree.paths().len(), events.len());
    // It may come back at once: the events are told in their order.
    nodes(&mut tree).put(&uri(COFFEE), &content("again")).unwrap();
    let events = nodes(&mut tree).events(None, false).unwrap();
    let kinds: Vec<EventType> = events
        .iter()
        .map(|event| nodes(&mut tree).event(event).unwrap().unwrap().event_type())
        .collect();
    let upsert = EventType::UpsertContext;
    assert_eq!(kinds, [upsert, EventType::DeleteContext, upsert]);
    assert_eq!(nodes(&mut tree).get(&uri(COFFEE)).unwrap().meta.version(), 1);
}

#[test]
fn a_moved_node_takes_its_outbox_along() {
    let mut tree = Memory::default();
    for node in [COFFEE, VISIT] {
        nodes(&mut tree).put(&uri(node), &content("text")).unwrap();
    }
    nodes(&mut tree).relate(&uri(COFFEE), &relation(VISIT)).unwrap();
    let changed = nodes(&mut tree).rename(&uri(COFFEE), &uri(BREW)).unwrap();
    assert_eq!(changed.event.fields()["payload"], json!({ "new_uri": BREW }));
    assert_eq!((changed.event.uri(), changed.uri.as_str()), (COFFEE, BREW));
    assert!(nodes(&mut tree).get(&uri(COFFEE)).is_err());
    let node = nodes(&mut tree).get(&uri(BREW)).unwrap();
    let field = |key: &str| node.field(key).unwrap().clone();
    assert_eq!((field("context_type"), field("category")), (json!("SKILL"), json!("skills")));
    assert_eq!((field("owner_space"), field("version")), (json!("agent:gpt-4"), json!(3)));
    assert_eq!(node.relations.edges()[0]["from_uri"], BREW);
    let prefix = BREW.parse().unwrap();
    assert_eq!(nodes(&mut tree).events(Some(&prefix), false).unwrap().len(), 3);
    assert!(!tree.has_dir(&uri(COFFEE).path()));
}

#[test]
fn a_node_moves_to_no_place_that_is_taken() {
    let profile = "ctx://acme/users/alice/memories/profile";
    let below = "ctx://acme/users/alice/memories/profile/work";
    let mut tree = Memory::default();
    for node in [COFFEE, VISIT, profile, below] {
        nodes(&mut tree).put(&uri(node), &content("text")).unwrap();
    }
    let before = tree.copy();
    for (from, to, what) in [
        (COFFEE, COFFEE, "the same node"),
        (COFFEE, VISIT, "a node already"),
        (profile, "ctx://acme/users/alice/memories/profile/x", "below the node itself"),
        (profile, BREW, "directories below it"),
        (COFFEE, "ctx://beta/agents/b/skills/x", "not of the account acme"),
        (BREW, COFFEE, "no such node"),
    ] {
        let error = nodes(&mut tree).rename(&uri(from), &uri(to)).unwrap_err().to_string();
        assert!(error.contains(what), "{from} {to}: {error}");
    }
    assert_eq!(tree.files(), before.files());
    nodes(&mut tree).remove(&uri(VISIT)).unwrap();
    let error = nodes(&mut tree).rename(&uri(COFFEE), &uri(VISIT)).unwrap_err().to_string();
    assert!(error.contains("not acknowledged yet"), "{error}");
    nodes(&mut tree).remove(&uri(profile)).unwrap();
    assert_eq!(nodes(&mut tree).get(&uri(below)).unwrap().content, "text");
}

#[test]
fn only_whole_nodes_are_visible() {
    let mut tree = Memory::default();
    for node in [COFFEE, VISIT, BREW] {
        nodes(&mut tree).put(&uri(node), &content("text")).unwrap();
    }
    for (node, status) in [(COFFEE, "PENDING"), (VISIT, "BROKEN")] {
        let meta = format!("{}/.meta.json", uri(node).path());
        let text = tree.text(&meta).replace("ACTIVE", status);
        tree.put(&meta, &text);
        let error = nodes(&mut tree).get(&uri(node)).unwrap_err().to_string();
        assert_eq!(error, format!("{node}: no such node (it is {status})"));
        assert!(nodes(&mut tree).rename(&uri(node), &uri(node)).is_err());
    }
    let acme = "ctx://acme".parse().unwrap();
    let listed = nodes(&mut tree).list(&acme, false).unwrap();
    assert_eq!(listed.iter().map(|node| node.uri.as_str()).collect::<Vec<_>>(), [BREW]);
    assert_eq!(listed[0].abstract_text.as_deref(), Some("text"));
    let all = nodes(&mut tree).list(&acme, true).unwrap();
    let all: Vec<_> = all.iter().map(|node| (node.uri.as_str(), node.status)).collect();
    let expected =
        [(VISIT, NodeStatus::Broken), (BREW, NodeStatus::Active), (COFFEE, NodeStatus::Pending)];
    assert_eq!(all, expected);
    let alice = "ctx://acme/users/alic".parse().unwrap();
    assert!(nodes(&mut tree).list(&alice, true).unwrap().is_empty(), "no whole part");
    // Somebody puts it in order.
    nodes(&mut tree).put(&uri(VISIT), &content("anew")).unwrap();
    nodes(&mut tree).remove(&uri(COFFEE)).unwrap();
    assert_eq!(nodes(&mut tree).get(&uri(VISIT)).unwrap().meta.version(), 2);
}

#[test]
fn fields_that_others_added_stay() {
    let mut tree = Memory::default();
    nodes(&mut tree).put(&uri(COFFEE), &content("text")).unwrap();
    let meta = format!("{}/.meta.json", uri(COFFEE).path());
    let text = tree.text(&meta).replacen('{', "{\"score\": 1234567890.12345678901,", 1);
    tree.put(&meta, &text);
    nodes(&mut tree).put(&uri(COFFEE), &content("more")).unwrap();
    let text = tree.text(&meta);
    assert!(text.contains("1234567890.12345678901") && text.contains("\"version\": 2"), "{text}");
}

#[test]
fn every_other_account_is_refused() {
    let theirs = "ctx://beta/users/bob/memories/profile";
    let mut tree = Memory::default();
    for node in [COFFEE, VISIT, theirs] {
        nodes(&mut tree).put(&uri(node), &content("text")).unwrap();
    }
    let id = nodes(&mut tree).events(Some(&theirs.parse().unwrap()), false).unwrap().remove(0).id;
    tree.make_dir("/accounts/acme2/users/x/memories").unwrap();
    let before = tree.copy();
    let account: AccountName = "acme".parse().unwrap();
    let mut acme = Nodes::new(&mut tree, Some(account));
    let theirs = uri(theirs);
    for refused in [
        acme.get(&theirs).err(),
        acme.put(&theirs, &content("x")).err(),
        acme.remove(&theirs).err(),
        acme.rename(&theirs, &uri(BREW)).err(),
        acme.rename(&uri(COFFEE), &theirs).err(),
        acme.relate(&uri(COFFEE), &relation("ctx://beta/users/bob/memories/profile")).err(),
        acme.list(&"ctx://beta".parse().unwrap(), true).err(),
        acme.list(&"ctx://".parse().unwrap(), true).err(),
        acme.list(&"ctx://acme2".parse().unwrap(), true).err(),
        acme.events(Some(&"ctx://beta".parse().unwrap()), false).err(),
    ] {
        let refused = refused.unwrap();
        assert!(matches!(refused, ContextError::Account { .. }), "{refused}");
    }
    assert_eq!(acme.events(None, false).unwrap().len(), 2);
    assert_eq!(acme.acknowledge(std::slice::from_ref(&id)).unwrap(), [false]);
    assert_eq!(acme.fail(&[id]).unwrap(), [None]);
    assert_eq!(acme.repair(false).unwrap().active, 2);
    assert_eq!(tree.files(), before.files());
}
