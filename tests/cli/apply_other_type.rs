//! `acetate apply` where the base has an object of another type now, and what is kept of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::{TempDir, tempdir};

use super::program::{run, said};

/// A session `s.db` over `base`, which has the files `a`, `d/f` and `other/old`.
fn place() -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let base = dir.path().join("base");
    for file in ["a", "d/f", "other/old"] {
        fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
        fs::write(base.join(file), format!("{file}\n")).unwrap();
    }
    fs::write(dir.path().join("agent"), "agent\n").unwrap();
    said(&run(dir.path(), &["init", "s.db", "--base", "base"]), 0);
    (dir, base)
}

fn acetate(dir: &TempDir, line: &str, code: i32) -> String {
    let args: Vec<_> = line.split(' ').collect();
    said(&run(dir.path(), &args), code).0
}

fn copied(base: &Path, to: &Path) {
    let mut cp = std::process::Command::new("cp");
    assert!(cp.arg("-a").args([base, to]).status().unwrap().success());
}

const CHANGES: [&str; 3] = ["cp s.db agent :/a", "chmod s.db 700 a", "ln -s -f s.db elsewhere a"];

#[test]
fn a_directory_in_the_place_of_a_changed_file_goes_whole_and_comes_back() {
    for change in CHANGES {
        for option in ["--force", "--take session a", "--take session /"] {
            let (dir, base) = place();
            acetate(&dir, change, 0);
            fs::remove_file(base.join("a")).unwrap();
            fs::rename(base.join("other"), base.join("a")).unwrap();
            fs::write(base.join("a/new"), "person\n").unwrap();
            let out = acetate(&dir, &format!("apply s.db --yes {option}"), 0);
            for path in ["/a: ", "/a/new: ", "/a/old: "] {
                assert_eq!(out.matches(&format!("! {path}")).count(), 1, "{change}: {out}");
            }
            for path in ["/a", "/a/new", "/a/old"] {
                assert!(out.contains(&format!("{path}: a copy is at ")), "{change}: {out}");
            }
            assert!(!base.join("a").symlink_metadata().unwrap().is_dir());
            assert_eq!(acetate(&dir, "diff s.db", 0), "", "{change}");
            acetate(&dir, "apply s.db --undo --yes", 0);
            assert_eq!(fs::read_to_string(base.join("a/new")).unwrap(), "person\n");
            assert_eq!(fs::read_to_string(base.join("a/old")).unwrap(), "other/old\n");
        }
    }
}

#[test]
fn a_directory_that_only_a_copy_of_the_base_has_goes_whole_and_comes_back() {
    let (dir, base) = place();
    acetate(&dir, CHANGES[0], 0);
    let copy = dir.path().join("copy");
    copied(&base, &copy);
    fs::remove_file(copy.join("a")).unwrap();
    fs::create_dir(copy.join("a")).unwrap();
    fs::write(copy.join("a/new"), "person\n").unwrap();
    let out = acetate(&dir, "apply s.db --to copy --yes", 1);
    assert!(out.contains("! /a: ") && out.contains("! /a/new: "), "{out}");
    acetate(&dir, "apply s.db --to copy --yes --force", 0);
    assert_eq!(fs::read_to_string(copy.join("a")).unwrap(), "agent\n");
    acetate(&dir, "apply s.db --to copy --undo --yes", 0);
    assert_eq!(fs::read_to_string(copy.join("a/new")).unwrap(), "person\n");
}

#[test]
fn copies_are_named_only_of_what_was_overwritten() {
    for is_link in [false, true] {
        let (dir, base) = place();
        acetate(&dir, "cp s.db agent :/d/f", 0);
        fs::rename(base.join("d"), base.join("theirs")).unwrap();
        match is_link {
            false => fs::write(base.join("d"), "person\n").unwrap(),
            true => symlink("theirs", base.join("d")).unwrap(),
        }
        let out = acetate(&dir, "apply s.db --yes --force", 0);
        assert!(out.contains("! /d: ") && out.contains("! /d/f: "), "{out}");
        assert!(out.contains("\n/d: a copy is at "), "{out}");
        assert!(!out.contains("\n/d/f: a copy is at "), "{out}");
        acetate(&dir, "apply s.db --undo --yes", 0);
        assert!(!base.join("d").symlink_metadata().unwrap().is_dir());
    }
}
