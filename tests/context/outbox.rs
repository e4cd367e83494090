//! Events: who takes them, and what becomes of those that fail.

use acetate::context::{NodeStatus, limits::MAX_RETRY};

use super::memory::Memory;
use super::{BREW, COFFEE, VISIT, content, nodes, uri};

fn with_events() -> (Memory, Vec<String>) {
    let mut tree = Memory::default();
    for node in [COFFEE, VISIT, BREW] {
        nodes(&mut tree).put(&uri(node), &content("text")).unwrap();
    }
    let ids = nodes(&mut tree).events(None, false).unwrap().into_iter().map(|e| e.id).collect();
    (tree, ids)
}

fn waiting(tree: &mut Memory, dead: bool) -> usize {
    nodes(tree).events(None, dead).unwrap().len()
}

#[test]
fn an_event_waits_until_it_is_acknowledged() {
    let (mut tree, ids) = with_events();
    let none = "00000000-0000-7000-8000-000000000000".to_owned();
    let asked = [ids[1].clone(), none];
    assert_eq!(nodes(&mut tree).acknowledge(&asked).unwrap(), [true, false]);
    assert_eq!(nodes(&mut tree).acknowledge(&asked).unwrap(), [false, false]);
    assert_eq!(waiting(&mut tree, false), 2);
    let prefix = "ctx://acme/agents".parse().unwrap();
    let events = nodes(&mut tree).events(Some(&prefix), false).unwrap();
    assert_eq!(events.iter().map(|event| &event.id).collect::<Vec<_>>(), [&ids[2]]);
    assert_eq!(events[0].node, uri(BREW));
    for bad in ["", "../x", "a/b", "x.json"] {
        assert!(nodes(&mut tree).acknowledge(&[bad.to_owned()]).is_err(), "{bad}");
    }
    let listed = nodes(&mut tree).list(&"ctx://".parse().unwrap(), false).unwrap();
    assert!(listed.len() == 3 && listed.iter().all(|node| node.status == NodeStatus::Active));
}

#[test]
fn an_event_that_fails_too_often_is_a_dead_letter() {
    let (mut tree, ids) = with_events();
    let id = &ids[..1];
    for failed in 1..=MAX_RETRY {
        let now = nodes(&mut tree).fail(id).unwrap().remove(0).unwrap();
        let is_last = failed == MAX_RETRY;
        assert_eq!((now.event.retry_count(), now.is_dead), (failed, is_last));
        assert_eq!(now.event.status(), if is_last { "FAILED" } else { "PENDING" });
    }
    assert_eq!((waiting(&mut tree, false), waiting(&mut tree, true)), (2, 1));
    let path = format!("{}/.outbox/dlq/{}.json", uri(COFFEE).path(), id[0]);
    assert!(tree.text(&path).contains("FAILED"));
    assert_eq!(nodes(&mut tree).fail(id).unwrap(), [None]);
    let back = nodes(&mut tree).retry(id).unwrap().remove(0).unwrap();
    assert_eq!((back.retry_count(), back.status()), (0, "PENDING"));
    assert_eq!((waiting(&mut tree, false), waiting(&mut tree, true)), (3, 0));
    assert_eq!(nodes(&mut tree).retry(id).unwrap(), [None]);
    assert_eq!(nodes(&mut tree).repair(true).unwrap().findings, []);
}

#[test]
fn the_dead_letters_of_a_removed_node_hold_its_directory() {
    let (mut tree, ids) = with_events();
    for _ in 0..MAX_RETRY {
        nodes(&mut tree).fail(&ids[..1]).unwrap();
    }
    let removed = nodes(&mut tree).remove(&uri(COFFEE)).unwrap();
    nodes(&mut tree).acknowledge(&[removed.event.id().to_owned()]).unwrap();
    assert!(tree.has_dir(&uri(COFFEE).path()));
    nodes(&mut tree).acknowledge(&ids[..1]).unwrap();
    assert!(!tree.has_dir(&uri(COFFEE).path()));
}

#[test]
fn an_event_that_is_not_valid_is_told_and_kept() {
    let (mut tree, ids) = with_events();
    let path = format!("{}/.outbox/{}.json", uri(COFFEE).path(), ids[0]);
    let good = tree.text(&path).to_owned();
    for bad in [
        "{}".to_owned(),
        "not JSON".to_owned(),
        good.replace("UPSERT_CONTEXT", "MOVE_CONTEXT"),
        good.replace("UPSERT_CONTEXT", "DELETE_CONTEXT"),
        good.replace("UPSERT_CONTEXT", "UPSERT_RELATION"),
        good.replace("\"retry_count\": 0", "\"retry_count\": -1"),
        good.replace("\"level\": 2", "\"level\": 7"),
    ] {
        tree.put(&path, &bad);
        let events = nodes(&mut tree).events(None, false).unwrap();
        let event = events.iter().find(|event| event.id == ids[0]).unwrap();
        let error = nodes(&mut tree).event(event).unwrap_err().to_string();
        assert!(error.starts_with(&path), "{error}");
        assert!(nodes(&mut tree).fail(&ids[..1]).is_err());
        nodes(&mut tree).repair(false).unwrap();
        assert_eq!(tree.text(&path), bad);
    }
    assert_eq!(nodes(&mut tree).acknowledge(&ids[..1]).unwrap(), [true]);
}
