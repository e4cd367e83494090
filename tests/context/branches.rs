//! Repair after others, who write the files of a node one after the other: the specification's
//! branches.

use acetate::context::{EventType, NodeFault, NodesReport};
use serde_json::Value;

use super::memory::{Memory, Tear};
use super::{BREW, COFFEE, VISIT, content, nodes, uri};

const FILES: [&str; 5] =
    ["content.md", ".relations.json", ".abstract.md", ".overview.md", ".meta.json"];

/// A node of which only these files are there, and no event.
fn with_only(files: &[&str]) -> Memory {
    let mut tree = Memory::default();
    nodes(&mut tree).put(&uri(COFFEE), &content("# Coffee\nblack")).unwrap();
    let ids: Vec<_> =
        nodes(&mut tree).events(None, false).unwrap().into_iter().map(|e| e.id).collect();
    nodes(&mut tree).acknowledge(&ids).unwrap();
    tree.take(&at(".outbox"));
    for file in FILES {
        if !files.contains(&file) {
            tree.take(&at(file));
        }
    }
    tree.reborn()
}

fn at(file: &str) -> String {
    format!("{}/{file}", uri(COFFEE).path())
}

fn set_status(tree: &mut Memory, status: &str) {
    let text = tree.text(&at(".meta.json")).replace("ACTIVE", status);
    tree.put(&at(".meta.json"), &text);
}

fn repair(tree: &mut Memory) -> NodesReport {
    let planned = nodes(tree).repair(true).unwrap();
    let repaired = nodes(tree).repair(false).unwrap();
    assert_eq!(planned.findings, repaired.findings, "what was said is what is done");
    repaired
}

fn faults(repaired: &NodesReport) -> Vec<NodeFault> {
    repaired.findings.iter().map(|finding| finding.fault.clone()).collect()
}

/// Asserts that the node is visible, with one event.
#[track_caller]
fn assert_whole(tree: &mut Memory, events: usize) {
    let node = nodes(tree).get(&uri(COFFEE)).unwrap();
    assert_eq!((node.content.as_str(), node.abstract_text.as_str()), ("# Coffee\nblack", "Coffee"));
    assert_eq!(node.overview, "# Coffee");
    let waiting = nodes(tree).events(None, false).unwrap();
    assert_eq!(waiting.len(), events);
    for event in waiting {
        let event = nodes(tree).event(&event).unwrap().unwrap();
        assert_eq!(event.event_type(), EventType::UpsertContext);
    }
    assert_eq!(nodes(tree).repair(true).unwrap().findings, []);
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut tree = with_only(&FILES[..2]);
    let before = tree.copy();
    nodes(&mut tree).repair(true).unwrap();
    assert_eq!((tree.files(), tree.log.len()), (before.files(), 0));
}

#[test]
fn without_content_and_metadata_there_is_nothing_to_repair() {
    for files in [&[][..], &[".relations.json"], &[".abstract.md", ".overview.md"]] {
        let mut tree = with_only(files);
        let before = tree.copy();
        assert_eq!(repair(&mut tree).findings, [], "{files:?}");
        assert_eq!(tree.files(), before.files());
    }
    assert_eq!(nodes(&mut Memory::default()).repair(false).unwrap(), NodesReport::default());
}

#[test]
fn content_without_metadata_gets_some() {
    for steps in 1..5 {
        let mut tree = with_only(&FILES[..steps]);
        assert_eq!(faults(&repair(&mut tree)), [NodeFault::NoMeta], "after {steps} files");
        assert_whole(&mut tree, 1);
        let node = nodes(&mut tree).get(&uri(COFFEE)).unwrap();
        assert_eq!((node.meta.version(), node.field("tags")), (1, Some(&Value::Array(vec![]))));
    }
}

#[test]
fn a_pending_node_that_is_whole_becomes_active() {
    let mut tree = with_only(&FILES);
    set_status(&mut tree, "PENDING");
    assert_eq!(faults(&repair(&mut tree)), [NodeFault::Whole]);
    assert_whole(&mut tree, 1);
}

#[test]
fn a_pending_node_that_is_not_whole_is_broken() {
    for missing in &FILES[..4] {
        let files: Vec<&str> = FILES.into_iter().filter(|file| file != missing).collect();
        let mut tree = with_only(&files);
        set_status(&mut tree, "PENDING");
        let repaired = repair(&mut tree);
        let [NodeFault::Partial(what)] = &faults(&repaired)[..] else { panic!("{repaired:?}") };
        assert!(what.contains(missing) && repaired.findings[0].fault.needs_hands(), "{what}");
        assert!(tree.text(&at(".meta.json")).contains("BROKEN"));
        assert!(nodes(&mut tree).get(&uri(COFFEE)).is_err());
        assert!(nodes(&mut tree).events(None, false).unwrap().is_empty());
        let again = repair(&mut tree);
        assert_eq!((again.findings.len(), again.broken), (0, 1));
    }
    let mut tree = with_only(&FILES);
    set_status(&mut tree, "PENDING");
    tree.put(&at(".abstract.md"), &"x".repeat(101));
    assert!(matches!(&faults(&repair(&mut tree))[..], [NodeFault::Partial(_)]));
}

#[test]
fn active_and_broken_nodes_are_passed_over() {
    for (status, active, broken) in [("ACTIVE", 1, 0), ("BROKEN", 0, 1)] {
        let mut tree = with_only(&[".meta.json"]);
        set_status(&mut tree, status);
        let before = tree.copy();
        let repaired = repair(&mut tree);
        assert_eq!((repaired.findings.len(), repaired.active), (0, active));
        assert_eq!((repaired.broken, tree.files()), (broken, before.files()));
    }
}

#[test]
fn what_is_not_valid_is_named_and_kept() {
    let other = format!("\"{VISIT}\"");
    for (text, what) in [
        ("{", "not JSON"),
        ("[]", "not of type"),
        ("{\"status\": \"ACTIVE\"}", "required"),
        (&*format!("{{\"uri\": {other}}}"), "required"),
    ] {
        let mut tree = with_only(&FILES);
        tree.put(&at(".meta.json"), text);
        let before = tree.copy();
        for _ in 0..2 {
            let repaired = repair(&mut tree);
            let [NodeFault::Invalid(why)] = &faults(&repaired)[..] else { panic!("{repaired:?}") };
            assert!(why.contains(what), "{why}");
        }
        assert_eq!(tree.files(), before.files());
        let error = nodes(&mut tree).get(&uri(COFFEE)).unwrap_err().to_string();
        assert!(error.contains("no such node (it is BROKEN)"), "{error}");
    }
    // Copied from another node.
    let mut tree = with_only(&FILES);
    let text = tree.text(&at(".meta.json")).replace(COFFEE, BREW);
    tree.put(&at(".meta.json"), &text);
    assert!(matches!(&faults(&repair(&mut tree))[..], [NodeFault::Invalid(_)]));
    // Content that is none.
    let mut tree = with_only(&["content.md"]);
    tree.take(&at("content.md"));
    tree.put(&at("content.md/file"), "in a directory of that name");
    assert!(matches!(&faults(&repair(&mut tree))[..], [NodeFault::Invalid(_)]));
}

#[test]
fn what_stands_in_the_way_is_said() {
    let mut tree = with_only(&["content.md"]);
    tree.take(&at("content.md"));
    tree.put(&at("content.md/file"), "in a directory of that name");
    let error = nodes(&mut tree).put(&uri(COFFEE), &content("text")).unwrap_err().to_string();
    assert!(error.contains("a directory is where a file of it belongs"), "{error}");
    let mut tree = with_only(&FILES);
    tree.put(&at(".outbox"), "a file");
    assert!(nodes(&mut tree).remove(&uri(COFFEE)).is_err());

    // Made through a mount, after the change was decided and broken off.
    let mut tree = with_only(&FILES);
    tree.end_after(9, Tear::Nothing);
    nodes(&mut tree).put(&uri(COFFEE), &content("second")).unwrap_err();
    let mut tree = tree.reborn();
    let content_file = tree.text(&at("content.md")).to_owned();
    tree.take(&at("content.md"));
    tree.put(&at("content.md/file"), "in a directory of that name");
    tree.put(&format!("{}/content.md", uri(BREW).path()), "a skill");
    let repaired = nodes(&mut tree).repair(false).unwrap();
    let faults = faults(&repaired);
    assert!(matches!(&faults[..], [NodeFault::NoMeta, NodeFault::Stuck(_)]), "{faults:?}");
    assert!(faults[1].needs_hands() && nodes(&mut tree).get(&uri(BREW)).is_ok());
    tree.take(&at("content.md/file"));
    tree.take(&at("content.md"));
    tree.put(&at("content.md"), &content_file);
    nodes(&mut tree).repair(false).unwrap();
    assert_eq!(nodes(&mut tree).get(&uri(COFFEE)).unwrap().content, "second");
}

#[test]
fn statuses_and_fields_that_the_schema_does_not_have_are_refused() {
    for (from, to) in [
        ("\"ACTIVE\"", "\"DONE\""),
        ("\"preferences\"", "\"secrets\""),
        ("\"version\": 1", "\"version\": 0"),
        ("\"version\": 1", "\"version\": 1.5"),
        ("\"tags\": []", "\"tags\": [1]"),
        ("T10:00", " 10:00"),
        ("user:alice", "alice"),
    ] {
        let mut tree = with_only(&FILES);
        let text = tree.text(&at(".meta.json")).to_owned();
        assert!(text.contains(from), "{from}: {text}");
        tree.put(&at(".meta.json"), &text.replace(from, to));
        assert!(matches!(&faults(&repair(&mut tree))[..], [NodeFault::Invalid(_)]), "{to}");
    }
}
