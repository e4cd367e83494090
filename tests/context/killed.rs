//! The end at each step of each change, and at each step of the repair after it: then the node is
//! the old one or the new one, whole, and its event is there exactly once.
//!
//! What is done becomes durable in order, so that a power cut leaves what an earlier end leaves;
//! what was answered is synced.

use acetate::context::{ContextError, Files, Relation};

use super::memory::{Memory, Tear};
use super::{BREW, COFFEE, VISIT, content, nodes, uri};

type Act<'a> = &'a dyn Fn(&mut Memory) -> Result<(), ContextError>;

/// Ends `act` at each step, and repairs.
#[track_caller]
fn at_each_step(before: &Memory, act: Act<'_>) {
    let mut done = before.copy();
    act(&mut done).unwrap();
    assert_eq!(done.log.last().map(String::as_str), Some("sync"), "what was answered is synced");
    let (mut old, mut new) = (0, 0);
    for step in 0..done.log.len() {
        for tear in [Tear::Nothing, Tear::Empty, Tear::Half] {
            let mut broken = before.copy();
            broken.end_after(step, tear);
            act(&mut broken).unwrap_err();
            see_all(&mut broken.reborn(), before, &done);
            let what = format!("after {step} steps of {:#?}", done.log);
            let repaired = repair_with_ends(&broken.reborn(), &what);
            if repaired.files() == before.files() {
                old += 1;
            } else {
                assert_eq!(repaired.files(), done.files(), "neither old nor new {what}");
                new += 1;
            }
        }
    }
    assert!(old > 0 && new > 0, "{old} ended as the old one, {new} as the new one");
}

/// Each node is the one of before or after, or not visible.
#[track_caller]
fn see_all(broken: &mut Memory, before: &Memory, done: &Memory) {
    for text in [COFFEE, VISIT, BREW] {
        if let Ok(node) = nodes(broken).get(&uri(text)) {
            let old = nodes(&mut before.copy()).get(&uri(text)).ok();
            let new = nodes(&mut done.copy()).get(&uri(text)).ok();
            assert!(old.as_ref() == Some(&node) || new.as_ref() == Some(&node), "a mix: {node:?}");
        }
    }
}

/// Repairs, and before that ends at each step of the repair and begins again.
#[track_caller]
fn repair_with_ends(broken: &Memory, what: &str) -> Memory {
    let mut whole = broken.clone();
    let repaired = nodes(&mut whole).repair(false).unwrap();
    assert!(repaired.findings.iter().all(|finding| !finding.fault.needs_hands()), "{what}");
    let again = nodes(&mut whole).repair(true).unwrap();
    assert_eq!(again.findings, [], "{what}");
    for step in 0..whole.log.len() {
        let mut twice = broken.clone();
        twice.end_after(step, Tear::Half);
        // The last steps may be those of nothing that matters.
        let _ended = nodes(&mut twice).repair(false);
        let mut twice = twice.reborn();
        nodes(&mut twice).repair(false).unwrap();
        assert_eq!(twice.files(), whole.files(), "the repair ended after {step} steps, {what}");
    }
    whole
}

fn put(tree: &mut Memory, at: &str, text: &str) -> Result<(), ContextError> {
    nodes(tree).put(&uri(at), &content(text)).map(drop)
}

/// A tree with two nodes that are related.
fn with_nodes() -> Memory {
    let mut tree = Memory::default();
    put(&mut tree, VISIT, "a visit").unwrap();
    put(&mut tree, COFFEE, "old coffee\n# heading").unwrap();
    relate(&mut tree, "why").unwrap();
    tree
}

fn relate(tree: &mut Memory, reason: &str) -> Result<(), ContextError> {
    let relation = Relation {
        to: uri(VISIT),
        relation_type: "related_to".to_owned(),
        weight: 0.85,
        reason: reason.to_owned(),
    };
    nodes(tree).relate(&uri(COFFEE), &relation).map(drop)
}

#[test]
fn a_new_node_is_there_or_not() {
    at_each_step(&Memory::default(), &|tree| put(tree, COFFEE, "new coffee"));
    at_each_step(&with_nodes(), &|tree| put(tree, BREW, "new skill"));
}

#[test]
fn a_node_that_is_written_again_is_the_old_or_the_new_one() {
    at_each_step(&with_nodes(), &|tree| put(tree, COFFEE, "new coffee\n# another"));
}

#[test]
fn an_edge_is_there_or_not() {
    at_each_step(&with_nodes(), &|tree| relate(tree, "another reason"));
}

#[test]
fn a_node_is_removed_or_not() {
    at_each_step(&with_nodes(), &|tree| nodes(tree).remove(&uri(COFFEE)).map(drop));
}

#[test]
fn a_node_is_here_or_there() {
    let rename = |tree: &mut Memory| nodes(tree).rename(&uri(COFFEE), &uri(BREW)).map(drop);
    at_each_step(&with_nodes(), &rename);
    let mut with_empty = with_nodes();
    with_empty.make_dir(&uri(BREW).path()).unwrap();
    at_each_step(&with_empty, &rename);
}

#[test]
fn what_follows_finishes_what_was_broken_off() {
    let before = with_nodes();
    let mut done = before.copy();
    put(&mut done, COFFEE, "second").unwrap();
    for step in 0..done.log.len() {
        let mut broken = before.copy();
        broken.end_after(step, Tear::Half);
        put(&mut broken, COFFEE, "second").unwrap_err();
        let mut next = broken.reborn();
        put(&mut next, COFFEE, "third").unwrap();
        let node = nodes(&mut next).get(&uri(COFFEE)).unwrap();
        assert_eq!((node.content.as_str(), node.abstract_text.as_str()), ("third", "third"));
        assert_eq!(node.relations.edges().len(), 1);
        let events = nodes(&mut next).events(None, false).unwrap();
        // 3 of before; that of the second version only where that was decided.
        assert_eq!(events.len() as u64, 1 + node.meta.version(), "after {step} steps");
        assert_eq!(nodes(&mut next).repair(true).unwrap().findings, []);
    }
}

#[test]
fn events_are_taken_once() {
    let mut before = with_nodes();
    nodes(&mut before).remove(&uri(VISIT)).unwrap();
    let ids: Vec<String> =
        nodes(&mut before).events(None, false).unwrap().into_iter().map(|e| e.id).collect();
    assert_eq!(ids.len(), 4);
    at_each_event_step(&before, &|tree| nodes(tree).acknowledge(&ids[3..]).map(drop));
    at_each_event_step(&before, &|tree| nodes(tree).fail(&ids[..1]).map(drop));
    nodes(&mut before).fail(&ids[..1]).unwrap();
    nodes(&mut before).fail(&ids[..1]).unwrap();
    at_each_event_step(&before, &|tree| nodes(tree).fail(&ids[..1]).map(drop));
    nodes(&mut before).fail(&ids[..1]).unwrap();
    at_each_event_step(&before, &|tree| nodes(tree).retry(&ids[..1]).map(drop));
    nodes(&mut before).acknowledge(&ids).unwrap();
    assert!(!before.has_dir(&uri(VISIT).path()), "the last event takes the directory along");
    assert!(before.has_dir(&uri(COFFEE).path()));
}

/// As [`at_each_step`], for changes that may have been done with their first step.
#[track_caller]
fn at_each_event_step(before: &Memory, act: Act<'_>) {
    let mut done = before.copy();
    act(&mut done).unwrap();
    for step in 0..done.log.len() {
        let mut broken = before.copy();
        broken.end_after(step, Tear::Half);
        act(&mut broken).unwrap_err();
        let repaired = repair_with_ends(&broken.reborn(), &format!("{step} of {:?}", done.log));
        let is_either = repaired.files() == before.files() || repaired.files() == done.files();
        assert!(is_either, "after {step} of {:#?}: {:?}", done.log, repaired.paths());
    }
}
