//! `acetate fork`.

use std::fs;

use rusqlite::Connection;
use serde_json::Value;

use super::checkpoint::ask;
use super::restore::Place;

/// A path for a file beside the session.
fn beside(place: &Place, name: &str) -> String {
    place.world.scratch().join(name).display().to_string()
}

#[test]
fn a_fork_and_its_session_change_apart() {
    for is_served in [true, false] {
        let place = Place::new("a \"base a\"\nb \"b\"\n", is_served);
        let (one, two) = (beside(&place, "one.db"), beside(&place, "two.db"));
        place.does("mkdir SESSION dir");
        place.does("kv set SESSION key 7");
        place.does("tool run SESSION tool --no-checkpoint -- true");
        let made = place.said(0, &format!("fork SESSION {one} {two}"));
        assert_eq!(made.lines().count(), 2, "{made}");
        assert!(made.contains("forked at checkpoint 1 to"), "{made}");
        let listed = place.said(0, "checkpoint ls SESSION");
        assert!(listed.contains("  fork  ") && listed.contains("forks=one.db, two.db"), "{listed}");

        place.does("rm SESSION a");
        place.does(&format!("mv {one} b dir/b"));
        place.does(&format!("mkdir {two} more"));
        assert_eq!(place.said(0, "ls SESSION"), "b\ndir\n");
        assert_eq!(place.said(0, &format!("ls {one}")), "a\ndir\n");
        assert_eq!(place.said(0, &format!("cat {one} dir/b")), "b");
        assert_eq!(place.said(0, &format!("ls {two}")), "a\nb\ndir\nmore\n");
        assert_eq!(place.said(0, &format!("kv get {one} key")), "7\n");
        assert_eq!(place.said(0, &format!("log {one} --op rename")).lines().count(), 1);
        for fork in [&one, &two] {
            let said = place.said(0, &format!("check {fork}"));
            assert!(said.ends_with(": sound\n"), "{said}");
            let count = "SELECT count(*) FROM tool_calls";
            let conn = Connection::open(fork).unwrap();
            assert_eq!(conn.query_row(count, [], |row| row.get(0)), Ok(0));
        }
        let undone = place.said(0, &format!("undo {one} --yes"));
        assert!(undone.contains("1 renamed"), "{undone}");
        place.end();
    }
}

#[test]
fn a_fork_of_the_past_has_its_tree() {
    let place = Place::new("a \"base a\"\n", true);
    let (old, json) = (beside(&place, "old.db"), beside(&place, "json.db"));
    place.does("mkdir SESSION one");
    place.does("tool run SESSION tool -- true");
    place.does("rm SESSION a");
    place.does(&format!("fork SESSION {old} --at @-1"));
    assert_eq!(place.said(0, &format!("ls {old}")), "a\none\n");
    assert!(place.said(0, "checkpoint ls SESSION").contains("  fork  "), "retention keeps it");
    let said = place.said(1, "checkpoint prune SESSION --keep 0");
    assert!(said.contains("nothing to remove"), "{said}");
    let output = ask(&place.world, &format!("fork SESSION {json} --json"));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["type"], &object["checkpoint"]), (&"fork".into(), &2.into()));
    assert_eq!(object["bytes"], fs::metadata(&json).unwrap().len());
    assert_eq!(object["session_id"].as_str().unwrap().len(), 32);
    place.end();
}

#[test]
fn nothing_is_made_where_a_fork_cannot_be() {
    let place = Place::new("a \"a\"\n", false);
    let (there, new) = (beside(&place, "there.db"), beside(&place, "new.db"));
    fs::write(&there, "mine").unwrap();
    let said = place.said(2, &format!("fork SESSION {new} {there}"));
    assert!(said.contains("there.db: the file exists: no fork was made"), "{said}");
    let said = place.said(2, &format!("fork SESSION {new} {new}"));
    assert!(said.contains("given twice"), "{said}");
    let said = place.said(2, &format!("fork SESSION {new} --at none"));
    assert!(said.contains("none: no such checkpoint"), "{said}");
    place.said(1, "checkpoint ls SESSION");
    let said = place.said(2, &format!("fork SESSION {}", beside(&place, "none/new.db")));
    assert!(said.contains("No such file or directory"), "{said}");
    assert_eq!(fs::read_to_string(&there).unwrap(), "mine");
    assert!(!fs::exists(&new).unwrap());
    place.end();
}

/// A fork knows since when the session hides what the base has.
#[test]
fn drift_is_found_from_a_fork() {
    let mut place = Place::new("a \"a\"\nb \"b\"\n", false);
    let fork = beside(&place, "fork.db");
    place.does("rm SESSION a");
    place.does("rm SESSION b");
    place.does(&format!("fork SESSION {fork}"));
    let base = place.world.change_base();
    fs::write(base.join("a"), "edited by a person").unwrap();
    let said = place.said(1, &format!("apply {fork} --yes"));
    assert!(said.contains("! /a") || said.contains("/a:"), "{said}");
    assert!(fs::exists(base.join("a")).unwrap());
}

/// A fork has what was still to be copied from the base when it was made.
#[test]
fn a_fork_does_not_wait_for_the_base() {
    let mut place = Place::new("", true);
    let fork = beside(&place, "fork.db");
    let base = place.world.change_base();
    let content = vec![b'x'; 40 << 20];
    fs::write(base.join("large"), &content).unwrap();
    place.does("chmod SESSION 600 large");
    place.does(&format!("fork SESSION {fork}"));
    fs::write(base.join("large"), "changed").unwrap();
    let output = ask(&place.world, &format!("cat {fork} large"));
    assert!(output.stdout == content, "{} bytes", output.stdout.len());
    assert!(place.said(0, &format!("check {fork}")).ends_with(": sound\n"));
    place.end();
}
