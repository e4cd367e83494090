//! Attributes that an apply set in place, and that a person changed since.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use acetate::inspect::InspectError;
use acetate::inspect::apply::{UndoOptions, undo};

use super::undo::{apply_kept, go_on, keeping, plan, undoing, undone};
use super::{copy, open};
use crate::support::applied::{assert_same, on_host};
use crate::support::skip::skip;
use crate::support::world::World;

const TREE: &str = r#"
    file "file"
    dir/in "in"
    moved/in "in"
    other "other"
    one "linked"
    two = one
"#;

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Applied to a copy: modes that were set in place, of a directory that moved, and of the top.
fn applied() -> (World, PathBuf) {
    let world = World::new(TREE);
    world.tick(60);
    world.chmod("file", 0o600).unwrap();
    world.chmod("dir", 0o700).unwrap();
    world.rename("moved", "new").unwrap();
    world.chmod("new", 0o750).unwrap();
    world.chmod("", 0o711).unwrap();
    world.mkdir("made").unwrap();
    world.put("made/file", "made");
    let to = copy(&world, "copy");
    apply_kept(&open(&world), Some(&to), &keeping());
    (world, to)
}

/// The drift, as lines.
#[track_caller]
fn drifted(world: &World, to: &Path) -> Vec<String> {
    let line = |path: &str, why: &str, is_lost: bool| {
        format!("{path}: {why}{}", if is_lost { ", lost" } else { "" })
    };
    let drifted = plan(world, to).drifted;
    drifted.iter().map(|d| line(&d.path.display().to_string(), d.why, d.is_lost)).collect()
}

const CHANGED: &str = "changed since it was applied";

#[test]
fn a_mode_that_was_set_in_place_and_changed_since_is_drift() {
    for (at, set, before) in
        [("file", 0o640, 0o644), ("dir", 0o770, 0o755), ("new", 0o700, 0o755), ("", 0o751, 0o755)]
    {
        let (world, to) = applied();
        assert_eq!(drifted(&world, &to), [""; 0]);
        chmod(&to.join(at), set);
        assert_eq!(drifted(&world, &to), [format!("/{at}: {CHANGED}")]);
        let changed = on_host(&to);
        let refused = undo(&open(&world), Some(&to), &undoing(), None, None, &mut go_on);
        assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
        assert_same(&on_host(&to), &changed);

        let options = UndoOptions { skip_drifted: true, ..undoing() };
        let skipped = undone(&open(&world), Some(&to), &options).skipped;
        assert_eq!(skipped.len(), 1, "{skipped:?}");
        assert_eq!(mode(&to.join(at)), set, "{at}: the person's mode stays");
        assert!(!to.join("made").exists(), "the rest is undone");

        let (world, to) = applied();
        chmod(&to.join(at), set);
        let options = UndoOptions { force: true, ..undoing() };
        assert_eq!(undone(&open(&world), Some(&to), &options).skipped, []);
        let at = if at == "new" { "moved" } else { at };
        assert_eq!(mode(&to.join(at)), before, "{at}: the old mode is back");
    }
}

#[test]
fn the_mode_of_a_directory_that_goes_is_drift() {
    let (world, to) = applied();
    let before = on_host(&to);
    chmod(&to.join("made"), 0o700);
    assert_eq!(drifted(&world, &to), [format!("/made: {CHANGED}")]);
    chmod(&to.join("made"), 0o755);
    assert_eq!(drifted(&world, &to), [""; 0]);
    undone(&open(&world), Some(&to), &undoing());
    undone(&open(&world), Some(&to), &undoing());
    assert_same(&on_host(&to), &before);
    assert_eq!(drifted(&world, &to), [""; 0]);
    chmod(&to.join("made"), 0o700);
    assert_eq!(drifted(&world, &to), [format!("/made: {CHANGED}")]);
}

#[test]
fn what_an_undo_put_back_with_a_directory_is_compared_too() {
    let world = World::new("gone/sub/file \"f\"\ngone/sub/moved \"m\"\n");
    world.tick(60);
    world.rename("gone/sub/moved", "moved").unwrap();
    world.rm_rf("gone");
    let to = copy(&world, "copy");
    apply_kept(&open(&world), Some(&to), &keeping());
    undone(&open(&world), Some(&to), &undoing());
    assert_eq!(drifted(&world, &to), [""; 0]);
    chmod(&to.join("gone/sub"), 0o700);
    assert_eq!(drifted(&world, &to), [format!("/gone/sub: {CHANGED}")]);
}

#[test]
fn an_owner_that_was_changed_since_is_drift() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("only root sets owners");
        return;
    }
    for at in ["made/file", "made"] {
        let (world, to) = applied();
        chown(to.join(at), Some(7), Some(8)).unwrap();
        assert_eq!(drifted(&world, &to), [format!("/{at}: {CHANGED}")]);
    }
    // The apply set the mode alone: the person's owner stays, and the mode goes back.
    let (world, to) = applied();
    chown(to.join("file"), Some(7), Some(8)).unwrap();
    assert_eq!(drifted(&world, &to), [""; 0]);
    undone(&open(&world), Some(&to), &undoing());
    let meta = fs::metadata(to.join("file")).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (7, 8, 0o644));
}

#[test]
fn times_alone_are_no_drift_and_stay_where_they_changed() {
    let (world, to) = applied();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(to.join("file")).unwrap().set_modified(time).unwrap();
    fs::File::open(to.join("dir")).unwrap().set_modified(time).unwrap();
    assert_eq!(drifted(&world, &to), [""; 0]);
    undone(&open(&world), Some(&to), &undoing());
    for (at, mode_before) in [("file", 0o644), ("dir", 0o755)] {
        let meta = fs::metadata(to.join(at)).unwrap();
        assert_eq!((meta.mtime(), meta.mode() & 0o7777), (1_000_000_000, mode_before), "{at}");
    }
}

#[test]
fn what_a_person_put_back_already_is_neither_drift_nor_a_change() {
    let (world, to) = applied();
    chmod(&to.join("file"), 0o644);
    chmod(&to.join("dir"), 0o755);
    assert_eq!(drifted(&world, &to), [""; 0]);
    let shown = plan(&world, &to).changes;
    let shown: Vec<_> = shown.iter().map(|change| change.path.display().to_string()).collect();
    assert_eq!(shown, ["/", "/made", "/made/file", "/moved"]);
}

#[test]
fn what_is_gone_or_of_another_type_cannot_get_its_mode_back() {
    let (world, to) = applied();
    fs::remove_file(to.join("file")).unwrap();
    fs::rename(to.join("dir"), to.join("elsewhere")).unwrap();
    fs::write(to.join("dir"), "a file").unwrap();
    let lost = [format!("/dir: {CHANGED}, lost"), "/file: gone since it was applied, lost".into()];
    assert_eq!(drifted(&world, &to), lost);
    let options = UndoOptions { force: true, ..undoing() };
    assert_eq!(undone(&open(&world), Some(&to), &options).skipped.len(), 2);
    assert_eq!(fs::read(to.join("dir")).unwrap(), b"a file");
    assert_eq!(mode(&to.join("elsewhere")), 0o700);
}

#[test]
fn a_removed_name_that_comes_back_leaves_the_mode_that_the_other_name_has() {
    let world = World::new(TREE);
    world.tick(60);
    world.remove("two").unwrap();
    let to = copy(&world, "copy");
    apply_kept(&open(&world), Some(&to), &keeping());
    chmod(&to.join("one"), 0o600);
    assert_eq!(drifted(&world, &to), [""; 0]);
    undone(&open(&world), Some(&to), &undoing());
    let (one, two) = (to.join("one"), to.join("two"));
    assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
    assert_eq!(mode(&one), 0o600, "the person's mode stays");
}
