//! `acetate restore` and `acetate undo`.

use std::fs;
use std::time::Duration;

use super::checkpoint::{ask, said};
use super::program::Serving;
use crate::support::world::World;

/// What the commands of a test run against: a session that is served, or one at rest.
pub(super) struct Place {
    pub(super) world: World,
    server: Option<Serving>,
}

impl Place {
    pub(super) fn new(base: &str, is_served: bool) -> Self {
        let mut world = World::new(base);
        world.close();
        let session = world.session();
        let args = [session.to_str().unwrap()];
        let server = is_served.then(|| Serving::start(world.scratch(), 1, &args));
        Self { world, server }
    }

    #[track_caller]
    pub(super) fn said(&self, code: i32, words: &str) -> String {
        said(&self.world, code, words)
    }

    #[track_caller]
    pub(super) fn does(&self, words: &str) {
        self.said(0, words);
    }

    #[track_caller]
    pub(super) fn end(mut self) {
        if let Some(server) = self.server.take() {
            server.signal("TERM");
            assert!(server.end().0.success());
        }
        assert!(said(&self.world, 0, "check SESSION").ends_with(": sound\n"));
        self.world.open_again();
    }
}

#[test]
fn a_session_goes_back_and_forth() {
    for is_served in [true, false] {
        let place = Place::new("src/a \"base a\"\nsrc/b \"base b\"\nc \"c\"\n", is_served);
        place.does("mkdir SESSION new");
        place.does("checkpoint create SESSION before");
        for words in ["rm SESSION -r src", "mv SESSION c d", "mkdir SESSION new/sub"] {
            place.does(words);
        }
        let asks = place.said(2, "restore SESSION before");
        assert!(asks.contains("cannot ask without a terminal"), "{asks}");
        let plan = place.said(0, "restore SESSION before --dry-run");
        assert_eq!(
            plan,
            "R /d -> /c\nD /new/sub/\nA /src/ (2 files, 12 B)\n\
             would restore checkpoint 1 (before): 3 added, 1 deleted, 1 renamed\n"
        );
        assert_eq!(place.said(0, "ls SESSION"), "d\nnew\n", "a dry run changes nothing");
        let done = place.said(0, "restore SESSION before --yes");
        assert!(
            done.starts_with("restored checkpoint 1 (before): 4 objects of the session\n")
                && done.contains("the tree before is checkpoint 2"),
            "{done}"
        );
        assert_eq!(place.said(0, "ls SESSION"), "c\nnew\nsrc\n");
        assert_eq!(place.said(0, "cat SESSION src/b"), "base b");
        assert!(place.said(1, "restore SESSION before --dry-run").contains("nothing differs"));

        let listed = place.said(0, "checkpoint ls SESSION");
        assert!(listed.lines().nth(1).unwrap().contains("safety"), "{listed}");
        for expected in ["d\nnew\n", "c\nnew\nsrc\n", "d\nnew\n"] {
            let done = place.said(0, "undo SESSION --yes");
            assert!(done.starts_with("undo: back to checkpoint "), "{done}");
            assert_eq!(place.said(0, "ls SESSION"), expected);
        }
        let log = place.said(0, "log SESSION --op restore");
        assert_eq!(log.lines().count(), 4, "{log}");
        assert!(
            log.lines()
                .next()
                .unwrap()
                .ends_with("RESTORE  /  checkpoint 1 (before)  (taken back)"),
            "{log}"
        );
        place.end();
    }
}

#[test]
fn what_changed_back_is_no_step() {
    let place = Place::new("a \"a\"\n", false);
    assert!(place.said(1, "undo SESSION --yes").contains("nothing to undo"));
    place.does("mkdir SESSION one");
    place.does("checkpoint create SESSION");
    place.does("mkdir SESSION two");
    place.does("checkpoint create SESSION");
    let done = place.said(0, "undo SESSION --dry-run");
    assert!(done.starts_with("D /two/\nundo: back to checkpoint 1 "), "{done}");
    let json = ask(&place.world, "undo SESSION --yes --json");
    let json = String::from_utf8(json.stdout).unwrap();
    let last: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!((&last["checkpoint"], &last["changes"]), (&1.into(), &1.into()), "{json}");
    assert_eq!(place.said(0, "ls SESSION"), "a\none\n");
    place.end();
}

#[test]
fn what_is_no_checkpoint_is_named() {
    let place = Place::new("", false);
    assert!(place.said(2, "restore SESSION none --yes").contains("the session has none"));
    place.does("checkpoint create SESSION first");
    let missing = place.said(2, "restore SESSION firts --yes");
    assert!(missing.contains("firts: no such checkpoint; there is first"), "{missing}");
    place.end();
}

#[test]
fn a_restore_of_the_present_tree_is_no_step() {
    let place = Place::new("", false);
    for name in ["one", "two"] {
        place.does(&format!("mkdir SESSION {name}"));
        place.does(&format!("checkpoint create SESSION {name}"));
    }
    for options in ["--yes", "--yes --json", "--dry-run"] {
        let told = place.said(1, &format!("restore SESSION two {options}"));
        assert!(told.contains("nothing differs from checkpoint 2 (two)\n"), "{options}: {told}");
        assert!(!told.contains("undo"), "{options}: {told}");
    }
    place.end();
}

#[test]
fn an_undo_names_the_next_other_tree() {
    let place = Place::new("", false);
    for name in ["one", "two", "three"] {
        place.does(&format!("mkdir SESSION {name}"));
        place.does(&format!("checkpoint create SESSION {name}"));
    }
    let undo = |expected: &str| {
        let told = place.said(0, "undo SESSION --dry-run");
        let further = told.lines().find(|line| line.starts_with("further back"));
        let next = further.unwrap_or_default().rsplit(' ').next().unwrap().to_owned();
        assert_eq!(next, expected, "{told}");
    };
    undo("1");
    place.does("undo SESSION --yes");
    assert_eq!(place.said(0, "ls SESSION"), "one\ntwo\n");
    // Checkpoint 2 has the present tree.
    undo("1");
    let told = place.said(0, "undo SESSION --dry-run");
    assert!(told.contains("\ntakes back the restore of checkpoint 2 (two)\n"), "{told}");
    place.end();
}

/// A pause in which the clock of the base's filesystem moves on.
pub(super) fn pause() {
    std::thread::sleep(Duration::from_millis(30));
}

/// The rows of the log that a restore took back say nothing of when the session hid a base object:
/// neither that the base showed again, nor that the session hid it.
#[test]
fn what_the_base_changed_is_noticed_across_a_restore() {
    let mut place = Place::new("a \"a\"\nb \"b\"\n", false);
    let base = place.world.change_base();
    // The session hides /a before the checkpoint, and shows it afterwards.
    place.does("rm SESSION a");
    place.does("checkpoint create SESSION");
    pause();
    fs::write(base.join("a"), "edited by hand").unwrap();
    place.does("discard SESSION a");
    // The session hides /b only after the checkpoint.
    place.does("rm SESSION b");
    pause();
    fs::write(base.join("b"), "edited too").unwrap();
    // What is kept of originals would tell as well.
    forget_originals(&place);
    place.does("restore SESSION 1 --yes");
    place.does("rm SESSION b");
    forget_originals(&place);
    let refused = place.said(1, "apply SESSION --yes");
    assert!(refused.contains("! /a: ") && !refused.contains("! /b"), "{refused}");
    assert_eq!(fs::read_to_string(base.join("a")).unwrap(), "edited by hand");
    place.end();
}

/// Pruning does not keep what a restore took back. An undo makes it the tree's again, so drift is
/// assumed where only the log can tell.
#[test]
fn what_was_pruned_while_it_was_taken_back_counts_as_drifted() {
    let mut place = Place::new("a \"a\"\n", false);
    let base = place.world.change_base();
    place.does("checkpoint create SESSION early");
    place.does("rm SESSION a");
    pause();
    fs::write(base.join("a"), "edited by hand").unwrap();
    place.does("restore SESSION early --yes");
    forget_originals(&place);
    place.world.open_again();
    place.world.prune_log();
    place.world.close();
    let conn = rusqlite::Connection::open(place.world.session()).unwrap();
    let kept = "SELECT count(*) FROM acetate_meta WHERE key = 'audit_kept'";
    assert_eq!(conn.query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    drop(conn);
    place.does("undo SESSION --yes --force");
    forget_originals(&place);
    assert!(place.said(1, "apply SESSION --yes").contains("! /a: "));
    place.end();
}

/// Leaves only the log to tell.
pub(super) fn forget_originals(place: &Place) {
    let conn = rusqlite::Connection::open(place.world.session()).unwrap();
    conn.execute_batch("DELETE FROM acetate_original").unwrap();
}

#[test]
fn an_apply_is_a_boundary() {
    let mut place = Place::new("a \"a\"\nb \"b\"\n", false);
    let base = place.world.change_base();
    place.does("rm SESSION a");
    place.does("checkpoint create SESSION early");
    place.does("mkdir SESSION dir");
    place.does("apply SESSION --yes");
    assert!(!base.join("a").exists() && base.join("dir").exists());
    let refused = place.said(2, "restore SESSION early --yes");
    assert!(refused.contains("apply --undo"), "{refused}");
    place.does("apply --undo SESSION --yes");
    assert!(base.join("a").exists() && !base.join("dir").exists());
    place.does("restore SESSION early --yes");
    assert_eq!(place.said(0, "ls SESSION"), "b\n");
    // The checkpoint before the restore is later than the apply.
    place.does("undo SESSION --yes");
    assert_eq!(place.said(0, "ls SESSION"), "a\nb\n");
    place.end();
}

/// Of two applies, the undo of the last one leaves the other.
#[test]
fn two_applies_are_a_boundary_after_one_undo() {
    let mut place = Place::new("a \"a\"\nb \"b\"\n", false);
    place.world.change_base();
    place.does("checkpoint create SESSION early");
    place.does("rm SESSION a");
    place.does("rm SESSION b");
    place.does("apply SESSION a --yes");
    place.does("apply SESSION b --yes");
    place.does("apply --undo SESSION --yes");
    let refused = place.said(2, "restore SESSION early --yes");
    assert!(refused.contains("applied to the base"), "{refused}");
    place.end();
}

#[test]
fn the_log_of_a_path_has_the_restores() {
    let place = Place::new("a \"a\"\n", false);
    place.does("checkpoint create SESSION early");
    place.does("rm SESSION a");
    place.does("restore SESSION early --yes");
    let log = place.said(0, "log SESSION a");
    let lines: Vec<_> = log.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("REMOVE"), "{log}");
    assert!(lines[1].contains("RESTORE"), "{log}");
    place.end();
}

#[test]
fn a_log_that_was_cut_does_not_tell_of_an_apply() {
    let mut place = Place::new("a \"a\"\n", false);
    place.does("mkdir SESSION one");
    place.does("checkpoint create SESSION early");
    place.does("mkdir SESSION two");
    place.does("mkdir SESSION three");
    place.world.open_again();
    place.world.prune_log();
    place.world.close();
    let refused = place.said(2, "restore SESSION early --yes");
    assert!(refused.contains("the log has lost changes"), "{refused}");
    place.does("restore SESSION early --yes --force");
    assert_eq!(place.said(0, "ls SESSION"), "a\none\n");
    place.end();
}

#[test]
fn a_restore_over_quota_changes_nothing() {
    for is_served in [true, false] {
        let place = Place::new("", is_served);
        for name in ["one", "two", "three"] {
            place.does(&format!("mkdir SESSION {name}"));
        }
        place.does("checkpoint create SESSION three");
        place.does("rm SESSION -r one two");
        place.does("quota SESSION --files 2");
        let refused = place.said(2, "restore SESSION three --yes");
        assert!(refused.contains("quota"), "{refused}");
        assert_eq!(place.said(0, "ls SESSION"), "three\n");
        place.does("quota SESSION --files 3");
        place.does("restore SESSION three --yes");
        assert_eq!(place.said(0, "ls SESSION"), "one\nthree\ntwo\n");
        let full = place.said(2, "mkdir SESSION four");
        assert!(full.contains("quota"), "restored objects count: {full}");
        place.end();
    }
}
