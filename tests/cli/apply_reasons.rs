//! What `acetate apply` says of changes that both sides made.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::program::{run, said};
use crate::support::skip::skip;

/// A base with one file, and a session over it, `s.db`.
fn session_over(file: &str, content: &str) -> TempDir {
    let dir = tempdir().unwrap();
    let file = dir.path().join("base").join(file);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, content).unwrap();
    done(dir.path(), &["init", "s.db", "--base", "base"]);
    dir
}

#[track_caller]
fn done(dir: &Path, args: &[&str]) -> String {
    said(&run(dir, args), 0).0
}

/// Gives a file of the session a content.
fn put(dir: &Path, path: &str, content: &str) {
    fs::write(dir.join("agent"), content).unwrap();
    done(dir, &["cp", "s.db", "agent", &format!(":/{path}")]);
}

#[test]
fn an_edit_that_both_sides_made_is_in_no_list() {
    let dir = session_over("f", "1\n2\n");
    put(dir.path(), "f", "1\n2\nx\n");
    sleep(Duration::from_millis(1100));
    fs::write(dir.path().join("base/f"), "1\n2\nx\n").unwrap();
    assert_eq!(done(dir.path(), &["diff", "s.db"]), "");
    assert!(!done(dir.path(), &["status", "s.db"]).contains("drift"));
    for option in ["--dry-run", "--yes"] {
        let out = done(dir.path(), &["apply", "s.db", option]);
        assert!(out.starts_with("nothing to apply to "), "{out}");
    }
    assert!(done(dir.path(), &["status", "s.db"]).contains("0 copied up"));
}

#[test]
fn an_edit_that_the_base_has_with_others_is_named() {
    let dir = session_over("f", "1\n2\n3\n4\n5\n");
    put(dir.path(), "f", "1\nx\n3\n4\n5\n");
    sleep(Duration::from_millis(1100));
    fs::write(dir.path().join("base/f"), "1\nx\n3\n4\ny\n").unwrap();
    let (shown, _) = said(&run(dir.path(), &["diff", "s.db"]), 1);
    assert_eq!(shown, "M /f (changed in the base too)\n");
    let why = "= /f: the base has the session's change, and others: what the base has shows again";
    for option in ["--dry-run", "--yes"] {
        let out = done(dir.path(), &["apply", "s.db", option]);
        assert!(out.starts_with(&format!("{why}\nnothing to apply to ")), "{out}");
    }
    assert!(done(dir.path(), &["status", "s.db"]).contains("0 copied up"));
}

#[test]
fn a_file_without_its_original_is_said_to_lack_it() {
    let text = "line\n".repeat(300_000);
    let dir = session_over("big", &text);
    put(dir.path(), "big", &format!("{text}agent\n"));
    sleep(Duration::from_millis(1100));
    fs::write(dir.path().join("base/big"), format!("person\n{text}")).unwrap();
    let (out, err) = said(&run(dir.path(), &["apply", "s.db", "--yes"]), 1);
    let why = "the base changed it too: what it had before is not kept, so it cannot be merged";
    assert!(out.contains(&format!("! /big: {why}\n")), "{out}");
    let hint = "--keep-originals=SIZE of serve, mount and run keeps larger files to merge later";
    assert!(err.contains(hint), "{err}");
    // The hint is for these files alone.
    let dir = session_over("f", "1\n");
    put(dir.path(), "f", "2\n");
    fs::write(dir.path().join("base/f"), "3\n").unwrap();
    let (_, err) = said(&run(dir.path(), &["apply", "s.db", "--yes"]), 1);
    assert!(!err.contains("--keep-originals"), "{err}");
}

#[test]
fn an_object_in_a_deleted_directory_is_not_said_to_be_deleted_itself() {
    let dir = session_over("dir/one", "1\n");
    done(dir.path(), &["rm", "-r", "s.db", "dir"]);
    sleep(Duration::from_millis(1100));
    fs::write(dir.path().join("base/dir/two"), "2\n").unwrap();
    let (out, _) = said(&run(dir.path(), &["apply", "s.db", "--dry-run"]), 1);
    let why = "created or changed in the base since /dir was deleted";
    assert!(out.contains(&format!("! /dir/two: {why}\n")), "{out}");
    let (out, _) = said(&run(dir.path(), &["apply", "s.db", "-n", "--skip-drifted"]), 1);
    assert!(out.contains(&format!("- /dir: holds /dir/two: {why}\n")), "{out}");
}

#[test]
fn what_the_host_refuses_is_said_in_words() {
    let dir = session_over("f", "1\n");
    put(dir.path(), "f", "2\n");
    let file = dir.path().join("base/f");
    let chattr = |flag| Command::new("chattr").arg(flag).arg(&file).output();
    if !chattr("+i").is_ok_and(|output| output.status.success()) {
        skip("only root makes a file immutable, and not on each filesystem");
        return;
    }
    let (out, _) = said(&run(dir.path(), &["apply", "s.db", "--yes"]), 1);
    chattr("-i").unwrap();
    assert!(out.contains("skipped /f: Operation not permitted\n"), "{out}");
}
