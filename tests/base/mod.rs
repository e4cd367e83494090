//! The base layer, over trees in temporary directories.
//!
//! Most cases run twice: as the host does it, and component by component (what macOS and old
//! kernels do).

mod acl;
mod attributes;
mod content;
mod entries;
mod escapes;
mod hiding;
mod limits;
mod links;
mod listing;
mod mounts;
mod traces;
mod watched;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use acetate::base::{Base, BaseError, BasePath, Empty, HostDir, HostDirOptions};
use acetate::vfs::{FileId, Name};
use tempfile::TempDir;

/// Set in the second run of a test that runs itself again in other circumstances.
const AGAIN: &str = "ACETATE_TEST_AGAIN";

fn path(text: impl AsRef<[u8]>) -> BasePath {
    BasePath::from_bytes(text.as_ref()).expect("a valid path")
}

fn tree() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Runs `check` on the directory `root`, walked in both ways.
fn both(root: &Path, check: impl Fn(&HostDir)) {
    check(&HostDir::open(root, HostDirOptions::default()).expect("opens"));
    check(&HostDir::open_stepwise(root, HostDirOptions::default()).expect("opens stepwise"));
}

/// The names in `dir` with the numbers that the listing has for them.
fn names(base: &HostDir, dir: &BasePath) -> BTreeMap<Vec<u8>, FileId> {
    let listing = base.list(dir).expect("lists");
    listing.entries.iter().map(|e| (e.name.as_bytes().to_vec(), e.fileid)).collect()
}

/// Reads the whole file, in one call.
fn content(base: &HostDir, at: &BasePath) -> Result<Vec<u8>, BaseError> {
    let id = base.stat(at)?.fileid;
    let mut buffer = vec![0; 64 << 10];
    let (length, _) = base.read(at, id, 0, &mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}

fn make_fifo(at: &Path) {
    assert!(Command::new("mkfifo").arg(at).status().expect("runs").success());
}

/// Runs the test `name` again, in `command`, which gets the program to run as its arguments.
fn again_in(command: &mut Command, name: &str) {
    let program = std::env::current_exe().expect("our own path");
    command.arg(program).args(["--exact", name, "--nocapture"]).env(AGAIN, "1");
    let output = command.output().expect("runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{name} failed: {text}");
}

fn is_again() -> bool {
    std::env::var_os(AGAIN).is_some()
}

#[test]
fn the_empty_base_has_nothing() {
    let (root, id) = (BasePath::root(), FileId(2));
    assert!(matches!(Empty.stat(&root), Err(BaseError::NotFound)));
    assert!(matches!(Empty.list(&root), Err(BaseError::NotFound)));
    assert!(matches!(Empty.read_link(&root), Err(BaseError::NotFound)));
    assert!(matches!(Empty.read(&root, id, 0, &mut [0]), Err(BaseError::NotFound)));
    assert!(matches!(Empty.next_data(&root, id, 0), Err(BaseError::NotFound)));
    assert!(matches!(Empty.find_linked(id, &mut |_| true), Ok(None)));
}

#[test]
fn a_base_has_to_be_a_directory_that_is_there() {
    let dir = tree();
    std::fs::write(dir.path().join("file"), "x").unwrap();
    for name in ["none", "file", "file/below"] {
        let opened = HostDir::open(&dir.path().join(name), HostDirOptions::default());
        assert!(matches!(opened, Err(BaseError::NotFound)), "{name}: {opened:?}");
    }
}

#[test]
fn a_base_may_be_named_through_a_symbolic_link() {
    let dir = tree();
    std::fs::create_dir(dir.path().join("real")).unwrap();
    std::fs::write(dir.path().join("real/file"), "x").unwrap();
    std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
    both(&dir.path().join("link"), |base| {
        assert_eq!(content(base, &path("file")).unwrap(), b"x");
    });
}

#[test]
fn a_base_that_vanishes_gives_errors_for_each_object() {
    let dir = tree();
    let root = dir.path().join("base");
    let lay_out = || {
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("file"), "x").unwrap();
    };
    for open in [HostDir::open, HostDir::open_stepwise] {
        lay_out();
        let base = open(&root, HostDirOptions::default()).unwrap();
        let (file, name) = (path("file"), Name::new(b"file").unwrap());
        let id = base.stat(&file).unwrap().fileid;
        assert_eq!(content(&base, &file).unwrap(), b"x");
        std::fs::remove_dir_all(&root).unwrap();

        assert!(matches!(base.stat(&file), Err(BaseError::NotFound)));
        assert!(matches!(base.list(&file), Err(BaseError::NotFound)));
        assert!(matches!(base.read(&file, id, 0, &mut [0]), Err(BaseError::NotFound)));
        assert!(matches!(base.read_link(&file), Err(BaseError::NotFound)));
        assert!(matches!(base.find_linked(id, &mut |_| true), Ok(None)));
        let listed = base.list(&BasePath::root());
        assert!(listed.is_err() || listed.unwrap().entries.iter().all(|e| e.name != name));
    }
}

/// What keeps clients waiting is the journal of `acetate apply`, and nothing else of that name.
#[test]
fn the_journal_of_an_apply_is_seen_and_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let staging = dir.path().join(".acetate-apply");
    both(dir.path(), |base| assert!(!base.has_unfinished_apply().unwrap()));
    fs::create_dir_all(staging.join("journal")).unwrap();
    both(dir.path(), |base| assert!(!base.has_unfinished_apply().unwrap(), "a directory"));
    fs::remove_dir(staging.join("journal")).unwrap();
    fs::write(staging.join("journal"), "{}").unwrap();
    both(dir.path(), |base| {
        assert!(base.has_unfinished_apply().unwrap());
        assert!(names(base, &BasePath::root()).is_empty());
    });
}
