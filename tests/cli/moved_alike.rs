//! Directories that both sides moved, and moved ones that the base no longer has.

use std::fs;
use std::path::Path;

use tempfile::{TempDir, tempdir};

use super::program::run;

/// A base with files in `d`, which the session moves to `d2`.
fn moved() -> TempDir {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("base/d")).unwrap();
    for name in ["f1", "f2", "f3"] {
        fs::write(dir.path().join("base/d").join(name), "1\n2\n3\n").unwrap();
    }
    assert_eq!(said(dir.path(), &["init", "s.db", "--base", "base"]).0, 0);
    assert_eq!(said(dir.path(), &["mv", "s.db", "d", "d2"]).0, 0);
    dir
}

/// The exit code, and stdout and stderr.
fn said(dir: &Path, args: &[&str]) -> (i32, String) {
    let output = run(dir, args);
    let said = String::from_utf8([&output.stdout[..], &output.stderr].concat()).unwrap();
    (output.status.code().unwrap(), said)
}

#[test]
fn both_sides_moved_it() {
    let dir = moved();
    let dir = dir.path();
    fs::rename(dir.join("base/d"), dir.join("base/d2")).unwrap();
    assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
    assert!(said(dir, &["find", "s.db", "/"]).1.contains("/d2/f3"));
    assert_eq!(said(dir, &["check", "s.db"]).1.matches("R1").count(), 0);
    assert_eq!(said(dir, &["export", "s.db", "--dir", "out"]).0, 0);
    assert!(dir.join("out/d2/f2").exists());
    assert_eq!(said(dir, &["seal", "s.db"]).0, 0);
    assert_eq!(said(dir, &["diff", "s.db"]), (0, String::new()));
    assert!(said(dir, &["apply", "s.db", "-n"]).1.contains("nothing to apply"));
}

#[test]
fn the_base_no_longer_has_it() {
    let dir = moved();
    let dir = dir.path();
    fs::rename(dir.join("base/d"), dir.join("base/away")).unwrap();
    let gone = "/d2: its directory in the base, /d, is gone";
    for args in [&["diff", "s.db"][..], &["status", "s.db"], &["apply", "s.db", "-n"]] {
        let (_, said) = said(dir, args);
        assert!(said.contains(gone), "{args:?}: {said}");
    }
    for args in [&["seal", "s.db"][..], &["seal", "s.db", "--dry-run"]] {
        let (code, said) = said(dir, args);
        assert!(code == 2 && said.contains(gone), "{args:?}: {said}");
    }
    let (code, told) = said(dir, &["export", "s.db", "--dir", "out"]);
    assert!(code == 1 && told.contains("/d2: left out: "), "{told}");
    assert!(said(dir, &["check", "s.db"]).1.contains("R1"));
    fs::rename(dir.join("base/away"), dir.join("base/d")).unwrap();
    assert_eq!(said(dir, &["seal", "s.db"]).0, 0);
    assert!(said(dir, &["find", "s.db", "/"]).1.contains("/d2/f3"));
}
