//! `run` up to the system's own mounting, and around it. With a kernel's client:
//! integration/kernel.

use std::fs::{self, File};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::mounting::Place;
use super::unmounting::{Left, feigned};

#[test]
fn a_new_session_needs_a_word_on_its_base() {
    let Some(place) = Place::new("exit 1") else { return };
    let said = place.failure(&["run", "new.db", "--", "true"]);
    let here = place.path("");
    let base = format!("--base {}", here.display().to_string().trim_end_matches('/'));
    assert!(said.contains("new.db: there is no such session"), "{said}");
    assert!(said.contains(&base) && said.contains("--no-base"), "{said}");
    assert!(!place.path("new.db").exists());
    let init = place.run(&["init", "s.db", "--base", "base"]);
    assert!(init.status.success(), "{init:?}");
    let said = place.failure(&["run", "s.db", "--no-base", "--", "true"]);
    assert!(said.contains("the session has a base") && said.contains("leave --no-base"), "{said}");
    place.assert_nothing_is_left();
}

#[test]
fn a_base_that_nothing_can_be_mounted_over_needs_a_directory() {
    let Some(place) = Place::new("exit 1") else { return };
    let said = place.failure(&["run", "s.db", "--base", "/", "--", "true"]);
    assert!(said.contains("the base is `/`") && said.contains("--at DIR"), "{said}");
    let said = place.failure(&["run", "s.db", "--base", "base", "--keep-mounted", "--", "true"]);
    assert!(said.contains("--at <DIR>"), "{said}");
    place.assert_nothing_is_left();
}

#[cfg(target_os = "linux")]
#[test]
fn descriptors_into_the_base_are_refused() {
    let Some(place) = Place::new("exit 1") else { return };
    let args = ["run", "s.db", "--base", "base", "--", "true"];
    let log = File::create(place.path("base/log")).unwrap();
    let output = place.command(&args).stdout(log).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("standard output is open at") && said.contains("sh -c"), "{said}");
    assert_eq!(output.status.code(), Some(2));
    let dir = File::open(place.path("base")).unwrap();
    let output = place.command(&args).stdin(dir).stdout(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("standard input is open at"), "{said}");
    assert!(!place.path("s.db").exists());
    place.assert_nothing_is_left();
}

#[test]
fn a_sandbox_takes_the_base_out_of_reach_or_is_refused() {
    let Some(place) = Place::new("exit 1") else { return };
    let run = ["run", "s.db", "--base", "base", "--sandbox"];
    for (more, part) in [
        (&["--at", "at"][..], "with --at the base stays reachable"),
        (&["--allow-write", "none"], "none: No such file"),
        (&["--allow-write", "/"], "/: the whole tree"),
        (&["--allow-write", "b", "--deny-read", "b"], "both --allow-write and --deny-read"),
    ] {
        let said = place.failure(&[&run[..], more, &["--", "true"]].concat());
        assert!(said.contains(part) && said.contains("hint: "), "{said}");
    }
    let said = place.failure(&["run", "s.db", "--base", "base", "--no-network", "--", "true"]);
    assert!(said.contains("--sandbox"), "{said}");
    place.assert_nothing_is_left();
}

/// What a command of a feigned run does at last: its mount is gone.
const UNMOUNT: &str = "umount -l $PWD; umount /proc/$PPID/mountinfo";

#[test]
fn the_summary_tells_this_run_from_the_session() {
    let acetate = env!("CARGO_BIN_EXE_acetate");
    let line = format!(
        "echo 1 | {acetate} write $ACETATE_SESSION /one; {acetate} mkdir $ACETATE_SESSION /dir
         echo 2 | {acetate} write $ACETATE_SESSION /dir/two
         {UNMOUNT}"
    );
    let Some((place, mut command)) =
        feigned(&["run", "s.db", "--no-base", "--", "sh", "-c", &line])
    else {
        return;
    };
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("A /dir/ (1 file, 2 B)\nA /one\n"), "folded as by diff: {said}");
    assert!(said.contains("this run: 3 added\n"), "{said}");
    assert!(said.contains("s.db holds in all: 3 added"), "{said}");
    for next in ["acetate diff ", "acetate apply ", "acetate discard "] {
        assert!(said.contains(next), "{said}");
    }
    assert!(!said.contains("--undo"), "nothing was applied: {said}");

    let line = format!("{acetate} rm $ACETATE_SESSION /one; {UNMOUNT}; exit 3");
    let args = ["run", "s.db", "--report", "report", "--", "sh", "-c", &line];
    let mut command = place.command_by(&["unshare", "--mount"], &args);
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("this run changed nothing\n"), "as if it had never been: {said}");
    assert!(said.contains("holds in all: 2 added"), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(place.path("report")).unwrap()).unwrap();
    assert_eq!((&report["type"], &report["exit_code"]), (&"run".into(), &3.into()), "{report}");
    assert_eq!(report["in_all"]["added"], 2, "{report}");
    assert_eq!((&report["this_run"]["added"], &report["complete"]), (&0.into(), &true.into()));

    // What was in a directory that is gone counts, and is named.
    for (dir, file) in [("old", "old/a"), ("old/sub", "old/sub/b")] {
        fs::create_dir(place.path("base").join(dir)).unwrap();
        fs::write(place.path("base").join(file), "content").unwrap();
    }
    let line = format!("{acetate} rm -r $ACETATE_SESSION /old; {UNMOUNT}");
    let at = ["--base", "base", "--at", "at", "--report", "report"];
    let args = [&["run", "t.db"][..], &at, &["--", "sh", "-c", &line]].concat();
    let output = place.command_by(&["unshare", "--mount"], &args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("D /old/ (2 files, 14 B)\n"), "{said}");
    assert!(said.contains("this run: 4 deleted\n"), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(place.path("report")).unwrap()).unwrap();
    assert_eq!(report["in_all"]["deleted"], 4, "{report}");
    assert_eq!(report["changes"].as_array().unwrap().len(), 4, "{report}");
    place.assert_nothing_is_left();
}

#[test]
fn the_server_of_a_run_that_was_killed_is_stopped() {
    let Some(place) = Place::new("exit 1") else { return };
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    for args in [&["umount", "--dead"][..], &["run", "s.db", "--", "true"]] {
        let mut left = Left::new(&place, "s.db", "gone");
        for note in fs::read_dir(place.path("run")).unwrap() {
            fs::remove_file(note.unwrap().path()).unwrap();
        }
        left.note_run(&place, &place.path("s.db"), &place.path("base"), gone.id());
        let output = place.run(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("s.db was killed; its server has ended\n"), "{said}");
        assert_eq!(left.code(), Some(0));
        place.assert_nothing_is_left();
    }
    let output = place.run(&["umount", "--dead"]);
    assert_eq!(output.status.code(), Some(0), "there is none");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "no run was killed: nothing to stop\n");
}
