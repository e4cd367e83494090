//! Nodes in a real session, and over a base.

use std::fs;

use acetate::context::{AccountName, Relation};
use acetate::workspace::Workspace;

use super::{BREW, COFFEE, VISIT, content, uri};
use crate::support::check::assert_consistent;

#[test]
fn nodes_live_in_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let session = dir.path().join("s.db");
    let mut work = Workspace::create(&session, None).unwrap();
    let account: AccountName = "acme".parse().unwrap();
    let mut nodes = work.nodes(Some(account));
    nodes.put(&uri(COFFEE), &content("black")).unwrap();
    nodes.put(&uri(COFFEE), &content("white")).unwrap();
    nodes.put(&uri(VISIT), &content("a visit")).unwrap();
    let relation = Relation {
        to: uri(COFFEE),
        relation_type: "related_to".to_owned(),
        weight: 0.5,
        reason: String::new(),
    };
    nodes.relate(&uri(VISIT), &relation).unwrap();
    nodes.rename(&uri(VISIT), &uri(BREW)).unwrap();
    nodes.remove(&uri(COFFEE)).unwrap();
    let ids: Vec<_> = nodes.events(None, false).unwrap().into_iter().map(|e| e.id).collect();
    assert_eq!(ids.len(), 6);
    nodes.fail(&ids[..1]).unwrap();
    nodes.acknowledge(&ids).unwrap();
    work.close().unwrap();
    let mut work = Workspace::open(&session, None).unwrap();
    assert_eq!(work.nodes(None).get(&uri(BREW)).unwrap().content, "a visit");
    assert_eq!(work.nodes(None).repair(false).unwrap().findings, []);
    let preferences = "/accounts/acme/users/alice/memories/preferences";
    assert!(work.list(preferences).unwrap().is_empty(), "the removed node's directory is gone");
    work.close().unwrap();
    assert_consistent(&session);
}

#[test]
fn nodes_of_the_base_are_read_and_changed_in_the_session_alone() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir(&base).unwrap();
    let mut first = Workspace::create(&dir.path().join("first.db"), None).unwrap();
    first.nodes(None).put(&uri(COFFEE), &content("of the base")).unwrap();
    let node = base.join(uri(COFFEE).path().trim_start_matches('/'));
    fs::create_dir_all(node.join(".outbox")).unwrap();
    for file in ["content.md", ".relations.json", ".abstract.md", ".overview.md", ".meta.json"] {
        let text = first.read(format!("{}/{file}", uri(COFFEE).path())).unwrap();
        fs::write(node.join(file), text).unwrap();
    }
    let mut work = Workspace::create(&dir.path().join("second.db"), Some(&base)).unwrap();
    assert_eq!(work.nodes(None).get(&uri(COFFEE)).unwrap().content, "of the base");
    work.nodes(None).rename(&uri(COFFEE), &uri(BREW)).unwrap();
    work.nodes(None).put(&uri(BREW), &content("of the session")).unwrap();
    assert!(work.nodes(None).get(&uri(COFFEE)).is_err());
    assert_eq!(work.nodes(None).get(&uri(BREW)).unwrap().meta.version(), 3);
    assert_eq!(fs::read(node.join("content.md")).unwrap(), b"of the base");
    work.close().unwrap();
}

#[test]
fn a_link_leads_to_no_other_account() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base");
    fs::create_dir_all(base.join("accounts/beta/users/alice")).unwrap();
    fs::create_dir_all(base.join("accounts/acme/users")).unwrap();
    std::os::unix::fs::symlink("../../beta/users/alice", base.join("accounts/acme/users/alice"))
        .unwrap();
    let mut work = Workspace::create(&dir.path().join("s.db"), Some(&base)).unwrap();
    let error = work.nodes(None).put(&uri(COFFEE), &content("text")).unwrap_err().to_string();
    assert!(error.contains("/accounts/acme/users/alice"), "{error}");
    assert!(work.nodes(None).get(&uri(COFFEE)).is_err());
    assert!(work.nodes(None).list(&"ctx://".parse().unwrap(), true).unwrap().is_empty());
    work.close().unwrap();
}
