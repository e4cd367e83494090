//! Doing an apply again: what an undo put back has drifted by its content, and not by its times.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use acetate::inspect::apply::plan_undo;

use super::undo::{apply_kept, keeping, undoing, undone};
use super::{copy, open};
use crate::support::applied::{assert_same, on_host};
use crate::support::world::World;

const TREE: &str = r#"
    gone/a "a"
    gone/sub/b "b"
    gone/sub/shared "shared"
    stays/shared = gone/sub/shared
    alone "alone"
    stays/alone = alone
    file "old"
"#;

/// An apply that was undone.
fn taken_back() -> (World, PathBuf) {
    let world = World::new(TREE);
    world.tick(60);
    world.rm_rf("gone");
    world.remove("alone").unwrap();
    world.put("file", "new");
    let to = copy(&world, "copy");
    apply_kept(&open(&world), Some(&to), &keeping());
    undone(&open(&world), Some(&to), &undoing());
    (world, to)
}

fn touch(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now()).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn drifted(world: &World, to: &Path) -> Vec<String> {
    let plan = plan_undo(&open(world), Some(to), &undoing()).unwrap().unwrap();
    assert!(plan.is_redo);
    plan.drifted.iter().map(|drift| drift.path.display().to_string()).collect()
}

#[test]
fn the_same_content_with_another_time_is_no_drift() {
    let (world, to) = taken_back();
    touch(&to.join("gone/a"));
    touch(&to.join("file"));
    fs::write(to.join("gone/sub/b"), "b").unwrap();
    fs::rename(to.join("gone/a"), to.join("gone/sub/temporary")).unwrap();
    fs::copy(to.join("gone/sub/temporary"), to.join("gone/a")).unwrap();
    fs::remove_file(to.join("gone/sub/temporary")).unwrap();
    assert_eq!(drifted(&world, &to), [""; 0]);
    let before = on_host(&to);
    assert_eq!(undone(&open(&world), Some(&to), &undoing()).skipped, []);
    assert!(!to.join("gone").exists());
    assert_eq!(fs::read(to.join("file")).unwrap(), b"new");
    undone(&open(&world), Some(&to), &undoing());
    assert_same(&on_host(&to), &before);
}

#[test]
fn other_content_of_the_same_size_is_drift() {
    let (world, to) = taken_back();
    fs::write(to.join("gone/sub/b"), "B").unwrap();
    assert_eq!(drifted(&world, &to), ["/gone/sub/b"]);
}

#[test]
fn a_mode_that_another_name_keeps_is_no_drift() {
    let (world, to) = taken_back();
    chmod(&to.join("stays/shared"), 0o600);
    chmod(&to.join("stays/alone"), 0o600);
    assert_eq!(drifted(&world, &to), [""; 0]);
    let before = on_host(&to);
    assert_eq!(undone(&open(&world), Some(&to), &undoing()).skipped, []);
    assert!(!to.join("gone").exists() && !to.join("alone").exists());
    for stays in ["stays/shared", "stays/alone"] {
        assert_eq!(fs::metadata(to.join(stays)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    undone(&open(&world), Some(&to), &undoing());
    assert_same(&on_host(&to), &before);
    // Where no name stays, the mode would be lost.
    chmod(&to.join("gone/a"), 0o600);
    assert_eq!(drifted(&world, &to), ["/gone/a"]);
    chmod(&to.join("gone/a"), 0o644);
    fs::remove_file(to.join("stays/alone")).unwrap();
    chmod(&to.join("alone"), 0o640);
    assert_eq!(drifted(&world, &to), ["/alone"]);
}
