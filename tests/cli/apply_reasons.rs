//! What `acetate apply` says of changes that both sides made.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::program::{run, said};

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
