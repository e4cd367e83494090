//! The checkpoints that `acetate discard` and `acetate apply` make, and the way back to them.

use std::fs;
use std::path::Path;
use std::process::Command;

use rusqlite::Connection;
use serde_json::Value;

use super::checkpoint::ask;
use super::program::{Serving, run, said};
use super::restore::Place;
use crate::support::skip::skip;

/// The last JSON object that a command prints.
fn last_json(place: &Place, words: &str) -> Value {
    let output = ask(&place.world, words);
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// How many checkpoints there are.
fn count(place: &Place) -> usize {
    let listed = String::from_utf8(ask(&place.world, "checkpoint ls SESSION").stdout).unwrap();
    listed.lines().count()
}

#[test]
fn a_discard_is_undone_and_done_again() {
    for is_served in [true, false] {
        let place = Place::new("a \"base a\"\nb \"b\"\n", is_served);
        place.does("rm SESSION a");
        place.does("mkdir SESSION dir");
        let discarded = place.said(0, "discard SESSION a");
        assert!(
            discarded.contains("the tree before is checkpoint 1: `acetate undo "),
            "{discarded}"
        );
        let listed = place.said(0, "checkpoint ls SESSION");
        assert!(listed.contains("  safety  ") && listed.contains("before=discard /a"), "{listed}");
        assert_eq!(place.said(0, "ls SESSION"), "a\nb\ndir\n");
        let undone = place.said(0, "undo SESSION --yes");
        assert!(undone.contains("undo: back to checkpoint 1 "), "{undone}");
        assert!(undone.contains("takes back the discard of /a\n"), "{undone}");
        assert_eq!(place.said(0, "ls SESSION"), "b\ndir\n");
        let again = place.said(0, "undo SESSION --yes");
        assert!(again.contains("takes back the restore of checkpoint 1\n"), "{again}");
        assert_eq!(place.said(0, "ls SESSION"), "a\nb\ndir\n");

        let whole = last_json(&place, "discard SESSION / --yes --json");
        assert_eq!(whole["safety_checkpoint"], count(&place));
        assert_eq!(place.said(0, "ls SESSION"), "a\nb\n");
        place.does("undo SESSION --yes");
        assert_eq!(place.said(0, "ls SESSION"), "a\nb\ndir\n");
        place.end();
    }
}

#[test]
fn a_discard_makes_a_checkpoint_only_if_it_changes_something() {
    let place = Place::new("a \"base a\"\nb \"b\"\n", false);
    place.does("rm SESSION a");
    place.does("discard SESSION a --dry-run");
    place.said(1, "discard SESSION b");
    assert_eq!(count(&place), 0);
    place.does("checkpoint create SESSION mine");
    assert_eq!(last_json(&place, "discard SESSION a --json")["safety_checkpoint"], 1);
    assert_eq!(count(&place), 1, "nothing changed since");
    assert!(place.said(0, "undo SESSION --yes").contains("the discard of /a"));
    place.does("mkdir SESSION dir");
    let before = count(&place);
    let last = last_json(&place, "discard SESSION dir --no-checkpoint --json");
    assert_eq!(last["safety_checkpoint"], Value::Null);
    assert_eq!(count(&place), before);
    place.end();
}

/// What a discard forgot of the base's objects comes back with an undo.
#[test]
fn an_original_comes_back_with_an_undo() {
    let mut place = Place::new("a \"one\\ntwo\\nthree\\nfour\\nfive\\n\"\n", false);
    let base = place.world.change_base();
    fs::write(place.world.scratch().join("new"), "ONE\ntwo\nthree\nfour\nfive\n").unwrap();
    place.does("write SESSION a --from new");
    place.does("discard SESSION a");
    place.does("undo SESSION --yes");
    fs::write(base.join("a"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    place.does("apply SESSION --yes");
    assert_eq!(fs::read_to_string(base.join("a")).unwrap(), "ONE\ntwo\nthree\nfour\nFIVE\n");
    place.end();
}

/// A user who wants no checkpoint gets no first one; one who made some gets these too.
#[test]
fn a_server_without_checkpoints_makes_no_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let done = |args: &[&str]| said(&run(dir, args), 0);
    let server = Serving::start(dir, 1, &["s.db", "--checkpoints", "off"]);
    done(&["mkdir", "s.db", "one"]);
    let (_, err) = done(&["discard", "s.db", "one"]);
    assert!(err.contains("no checkpoint before it"), "{err}");
    said(&run(dir, &["checkpoint", "ls", "s.db"]), 1);
    done(&["checkpoint", "create", "s.db"]);
    done(&["mkdir", "s.db", "two"]);
    let (_, err) = done(&["discard", "s.db", "two"]);
    assert!(err.contains("the tree before is checkpoint 2"), "{err}");
    done(&["undo", "s.db", "--yes"]);
    assert_eq!(done(&["ls", "s.db"]).0, "two\n");
    server.signal("TERM");
    assert!(server.end().0.success());
}

#[test]
fn what_a_discard_keeps_falls_under_retention() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let done = |args: &[&str]| said(&run(dir, args), 0).0;
    let keep = "--keep-checkpoints=2,hourly=0s,daily=0s";
    let server = Serving::start(dir, 1, &["s.db", keep]);
    for name in ["one", "two", "three", "four", "five"] {
        done(&["mkdir", "s.db", name]);
        done(&["discard", "s.db", name]);
    }
    let listed = done(&["checkpoint", "ls", "s.db"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(listed.contains("before=discard /five"), "{listed}");
    server.signal("TERM");
    assert!(server.end().0.success());
    done(&["check", "s.db"]);
}

/// Where there is no room for what a checkpoint would keep, a discard needs no room.
#[test]
fn a_disk_that_is_nearly_full_has_no_checkpoint_of_what_is_large() {
    let mounts = Command::new("unshare").args(["-m", "true"]).status();
    if !mounts.is_ok_and(|status| status.success()) {
        skip("no mount namespace without root");
        return;
    }
    let [dir, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let blob = other.path().join("blob");
    fs::write(&blob, vec![7; 12 << 20]).unwrap();
    let script = "mount -t tmpfs -o size=24m tmpfs \"$0\" && cd \"$0\" && \
                  \"$1\" init s.db && \"$1\" cp s.db \"$2\" :/blob && \
                  \"$1\" mkdir s.db small && \"$1\" discard s.db small && \
                  \"$1\" checkpoint rm s.db 1 && \
                  \"$1\" discard s.db blob && \"$1\" mkdir s.db dir && \"$1\" ls s.db";
    let mut command = Command::new("unshare");
    let program = env!("CARGO_BIN_EXE_acetate");
    command.args(["-m", "sh", "-c", script]).arg(dir.path()).arg(program).arg(&blob);
    let (out, err) = said(&command.output().unwrap(), 0);
    assert!(out.ends_with("removed 1\ndiscarded: /blob\ndir\n"), "{out}{err}");
    let of_blob = "warning: the disk has no room for a checkpoint: `acetate undo` cannot take this \
                   back\n1 change discarded\n";
    assert!(err.contains("the tree before is checkpoint 1") && err.ends_with(of_blob), "{err}");
}

fn applied(is_served: bool) -> (Place, std::path::PathBuf) {
    let mut place = Place::new("a \"a\"\nb \"b\"\n", is_served);
    let base = place.world.change_base();
    place.does("rm SESSION a");
    place.does("mkdir SESSION dir");
    place.does("checkpoint create SESSION early");
    place.does("mkdir SESSION dir/sub");
    place.does("apply SESSION --yes");
    assert!(!base.join("a").exists() && base.join("dir/sub").exists());
    (place, base)
}

#[test]
fn an_applied_session_gets_its_changes_back() {
    for is_served in [true, false] {
        let (place, base) = applied(is_served);
        let listed = place.said(0, "checkpoint ls SESSION");
        assert!(listed.contains("before=apply"), "{listed}");
        let refused = place.said(2, "undo SESSION --yes");
        assert!(refused.contains("the last step has an apply in it"), "{refused}");
        assert!(refused.contains("takes it out of the base; then `acetate undo "), "{refused}");
        let taken = place.said(0, "apply --undo SESSION --yes");
        assert!(taken.contains("gives them back to it"), "{taken}");
        assert!(base.join("a").exists() && !base.join("dir").exists());
        assert_eq!(place.said(0, "ls SESSION"), "a\nb\n");
        place.does("undo SESSION --yes");
        assert_eq!(place.said(0, "ls SESSION"), "b\ndir\n");
        // The deletion is older than what `apply --undo` put back, if that took a second.
        place.does("apply SESSION --yes --no-keep --take session a");
        assert!(!base.join("a").exists() && base.join("dir/sub").exists());
        let refused = place.said(2, "undo SESSION --yes");
        assert!(refused.contains("nothing is kept of it"), "{refused}");
        place.end();
    }
}

/// A large apply drops its changes in several requests, with a time for each.
#[test]
fn a_large_apply_is_one() {
    let (place, _) = applied(false);
    let conn = Connection::open(place.world.session()).unwrap();
    conn.execute("UPDATE acetate_op SET time = time + id WHERE procedure = 'APPLY'", []).unwrap();
    drop(conn);
    place.does("apply --undo SESSION --yes");
    place.does("undo SESSION --yes");
    assert_eq!(place.said(0, "ls SESSION"), "b\ndir\n");
    place.end();
}

/// The base has what was applied, so a checkpoint from before does not show what it was.
#[test]
fn who_looks_across_an_apply_is_warned() {
    let (place, _) = applied(false);
    let warning = "warning: changes were applied to the base since checkpoint ";
    for (code, words) in [
        (0, "ls SESSION --at early"),
        (0, "tree SESSION --at early"),
        (0, "find SESSION --at early"),
        (0, "du SESSION --at early"),
        (0, "stat SESSION b --at early"),
        (0, "cat SESSION b --at early"),
        (0, "diff SESSION --at early"),
        (0, "diff SESSION --from early --to 2"),
        (0, "export SESSION --at early --dir then"),
    ] {
        let output = ask(&place.world, words);
        let (out, err) = said(&output, code);
        assert!(err.contains(warning), "{words}: {out}{err}");
    }
    let early = place.world.scratch().join("early.db").display().to_string();
    let refused = place.said(2, &format!("fork SESSION {early} --at early"));
    assert!(refused.contains("--force"), "{refused}");
    assert!(!Path::new(&early).exists());
    let listed = place.said(0, "checkpoint ls SESSION");
    assert!(listed.lines().all(|line| line.ends_with("  (before an apply)")), "{listed}");
    place.does("checkpoint create SESSION late");
    assert_eq!(last_json(&place, "checkpoint ls SESSION --json")["applied_since"], false);
    assert!(!place.said(0, "ls SESSION --at late").contains("warning"));
    place.does(&format!("fork SESSION {early} --at early --force"));

    place.does("apply --undo SESSION --yes");
    for words in ["ls SESSION --at early", "checkpoint ls SESSION"] {
        let said = place.said(0, words);
        assert!(!said.contains("warning") && !said.contains("before an apply"), "{said}");
    }
    place.end();
}

/// An apply to a copy is not one to the base, nor is its undo.
#[test]
fn the_undo_of_an_apply_to_a_copy_leaves_the_base() {
    let (place, _) = applied(false);
    let copy = place.world.scratch().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::write(copy.join("b"), "b").unwrap();
    place.does("mkdir SESSION more");
    let to = copy.display();
    place.does(&format!("apply SESSION --yes --to {to}"));
    place.does(&format!("apply --undo SESSION --yes --to {to}"));
    let refused = place.said(2, "restore SESSION early --yes");
    assert!(refused.contains("applied to the base"), "{refused}");
    place.end();
}
