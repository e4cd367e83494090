//! Copies that are not what the base is now, such as a fresh worktree.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, UNIX_EPOCH};

use acetate::inspect::apply::{ApplyOptions, DriftReason};

use super::{copy, open};
use crate::support::applied::{all, applied, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/text "one\ntwo\nthree\nfour\nfive\n"
    dir/gone "one\ntwo\n"
    dir/link -> text
    dir/old/one "1"
    dir/old/two "2"
"#;

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

fn drift(world: &World, to: &Path, options: &ApplyOptions) -> Vec<(String, DriftReason)> {
    let plan = planned(&open(world), Some(to), options).unwrap();
    plan.drifted.iter().map(|d| (d.path.display().to_string(), d.reason)).collect()
}

/// The session changes the first line and the link; the base gets another last line and link.
fn changed_on_both_sides() -> World {
    let mut world = World::new(TREE);
    world.write("dir/text", 0, b"ONE").unwrap();
    world.remove("dir/link").unwrap();
    world.symlink("gone", "dir/link").unwrap();
    let base = world.change_base();
    copy(&world, "start");
    fs::write(base.join("dir/text"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    fs::remove_file(base.join("dir/link")).unwrap();
    symlink("old/one", base.join("dir/link")).unwrap();
    world
}

#[test]
fn a_copy_that_is_what_the_session_started_from_gets_what_the_session_has() {
    let world = changed_on_both_sides();
    let to = world.scratch().join("start");
    assert_eq!(drift(&world, &to, &all()), []);
    assert_eq!(planned(&open(&world), Some(&to), &all()).unwrap().merged, []);
    assert_eq!(applied(&open(&world), Some(&to), &all()).unwrap().skipped, []);
    assert_eq!(read(&to, "dir/text"), "ONE\ntwo\nthree\nfour\nfive\n");
    assert_eq!(fs::read_link(to.join("dir/link")).unwrap(), Path::new("gone"));
}

/// The session removed a directory; the copy has a file in its place.
#[test]
fn a_file_in_a_copy_in_place_of_a_removed_directory_is_drift() {
    let world = World::new(TREE);
    world.rm_rf("dir/old");
    let to = copy(&world, "file");
    fs::remove_dir_all(to.join("dir/old")).unwrap();
    fs::write(to.join("dir/old"), "file").unwrap();
    let found = drift(&world, &to, &all());
    assert_eq!(found, [("/dir/old".to_owned(), DriftReason::Copy)]);
    // By force it goes, as the directory would.
    let force = ApplyOptions { force: true, ..all() };
    assert_eq!(applied(&open(&world), Some(&to), &force).unwrap().skipped, []);
    assert!(!to.join("dir/old").exists());
}

/// The other way round: the copy has a directory in a removed one, and the base a file.
#[test]
fn a_directory_in_a_copy_in_place_of_a_file_is_drift() {
    let mut world = World::new(TREE);
    world.rm_rf("dir/old");
    let to = copy(&world, "dir");
    world.change_base();
    fs::remove_file(to.join("dir/old/one")).unwrap();
    fs::create_dir(to.join("dir/old/one")).unwrap();
    let found = drift(&world, &to, &all());
    assert!(found.iter().any(|(path, _)| path == "/dir/old/one"), "{found:?}");
}

#[test]
fn a_copy_of_what_the_base_is_now_is_merged_as_the_base() {
    let world = changed_on_both_sides();
    let to = copy(&world, "now");
    assert_eq!(drift(&world, &to, &all()), [("/dir/link".to_owned(), DriftReason::Came)]);
    let skip = ApplyOptions { skip_drifted: true, ..all() };
    assert_eq!(applied(&open(&world), Some(&to), &skip).unwrap().skipped.len(), 1);
    assert_eq!(read(&to, "dir/text"), "ONE\ntwo\nthree\nfour\nFIVE\n");
    assert_eq!(fs::read_link(to.join("dir/link")).unwrap(), Path::new("old/one"));
}

#[test]
fn a_copy_with_a_text_of_its_own_is_merged_or_refused() {
    let world = changed_on_both_sides();
    let to = world.scratch().join("start");
    fs::write(to.join("dir/text"), "one\ntwo\nthree\nFOUR\nfive\n").unwrap();
    assert_eq!(applied(&open(&world), Some(&to), &all()).unwrap().skipped, []);
    assert_eq!(read(&to, "dir/text"), "ONE\ntwo\nthree\nFOUR\nfive\n");
    fs::write(to.join("dir/text"), "other\n").unwrap();
    let drifted = drift(&world, &to, &all());
    assert!(drifted.contains(&("/dir/text".to_owned(), DriftReason::Copy)), "{drifted:?}");
    applied(&open(&world), Some(&to), &all()).unwrap_err();
    assert_eq!(read(&to, "dir/text"), "other\n");
    fs::remove_file(to.join("dir/text")).unwrap();
    let drifted = drift(&world, &to, &all());
    assert!(drifted.contains(&("/dir/text".to_owned(), DriftReason::Copy)), "{drifted:?}");
}

/// A copy has other inodes and later ctimes than the base that clients saw.
#[test]
fn what_was_removed_in_a_directory_that_moved_goes_from_a_later_copy() {
    let mut world = World::new(TREE);
    world.rename("dir", "moved").unwrap();
    world.rm_rf("moved/old");
    world.change_base();
    sleep(Duration::from_millis(1100));
    let to = copy(&world, "later");
    let plan = planned(&open(&world), Some(&to), &all()).unwrap();
    assert_eq!(plan.left_out, []);
    assert_eq!(applied(&open(&world), Some(&to), &all()).unwrap().skipped, []);
    assert!(to.join("moved/text").exists() && !to.join("moved/old").exists());
}

/// The mode, the owner and the time in seconds of a file.
fn attributes(dir: &Path, name: &str) -> (u32, u32, u32, i64) {
    let meta = fs::metadata(dir.join(name)).unwrap();
    (meta.mode() & 0o7777, meta.uid(), meta.gid(), meta.mtime())
}

#[test]
fn attributes_that_the_base_got_later_do_not_reach_a_copy() {
    let mut world = World::new(TREE);
    world.write("dir/text", 0, b"ONE").unwrap();
    world.rename("dir/gone", "dir/went").unwrap();
    world.chmod("dir/old/one", 0o600).unwrap();
    let to = copy(&world, "start");
    let old = ["dir/text", "dir/gone", "dir/old/one"].map(|name| attributes(&to, name));
    let base = world.change_base();
    for name in ["dir/text", "dir/gone", "dir/old/one"] {
        let file = base.join(name);
        if name != "dir/old/one" {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        if rustix::process::geteuid().is_root() {
            chown(&file, Some(1234), Some(4321)).unwrap();
        }
        let touched = UNIX_EPOCH + Duration::from_secs(1_000_000);
        fs::File::open(&file).unwrap().set_modified(touched).unwrap();
    }
    assert_eq!(drift(&world, &to, &all()), []);
    assert_eq!(applied(&open(&world), Some(&to), &all()).unwrap().skipped, []);
    let new = ["dir/text", "dir/went", "dir/old/one"].map(|name| attributes(&to, name));
    assert_eq!((new[0].0, new[0].1, new[0].2), (old[0].0, old[0].1, old[0].2));
    assert_eq!(new[1], old[1]);
    assert_eq!(new[2], (0o600, old[2].1, old[2].2, old[2].3));
    assert!(read(&to, "dir/text").starts_with("ONE\n"));
}

/// The base's own new name is no change of the session.
#[test]
fn a_copy_does_not_get_a_name_that_the_base_gave_a_linked_file() {
    for content in [None, Some(b"X")] {
        let mut world = World::new("d/f \"x\"\n");
        let to = copy(&world, "copy");
        world.change_base();
        world.link("d/f", "g").unwrap();
        if let Some(content) = content {
            world.write("d/f", 0, content).unwrap();
        }
        world.close();
        fs::hard_link(world.base().join("d/f"), world.base().join("person")).unwrap();
        let report = applied(&open(&world), Some(&to), &all()).unwrap();
        assert_eq!(report.skipped, []);
        let wanted = content.map_or(b"x", |content| content);
        assert_eq!(fs::read(to.join("g")).unwrap(), wanted);
        assert_eq!(fs::read(to.join("d/f")).unwrap(), wanted);
        assert!(!to.join("person").exists());
    }
}
