//! What a person changes after a step put it, and before the apply or undo ends, is no part of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use acetate::inspect::apply::{Consent, UndoOptions, apply, plan_undo, resume, undo};

use super::undo::{apply_kept, go_on, keeping, undoing, undone};
use super::undo_killed::stop_at;
use super::{copy, open};
use crate::support::applied::planned;
use crate::support::world::World;

const TREE: &str = r#"
    old "old"
    moved "moved"
    dir/old "old"
    dir/gone "gone"
"#;

/// Each path with its content after the apply, and after its undo.
const AFTER: &[(&str, &str)] =
    &[("old", "OLD"), ("dir/old", "OLD"), ("new", "new"), ("to", "moved")];
const BEFORE: &[(&str, &str)] =
    &[("old", "old"), ("dir/old", "old"), ("moved", "moved"), ("dir/gone", "gone")];

fn changed() -> World {
    let world = World::new(TREE);
    world.tick(60);
    world.write("old", 0, b"OLD").unwrap();
    world.write("dir/old", 0, b"OLD").unwrap();
    world.put("new", "new");
    world.rename("moved", "to").unwrap();
    world.remove("dir/gone").unwrap();
    world
}

fn append(path: &Path) {
    let old = fs::read(path).unwrap();
    fs::write(path, [&old[..], b" person"].concat()).unwrap();
}

/// As editors save.
fn replace(path: &Path) {
    let new = path.with_extension("person");
    fs::write(&new, "person").unwrap();
    fs::rename(new, path).unwrap();
}

fn close(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Edits what the steps have put; returns the paths.
fn edit<'p>(to: &Path, put: &[(&'p str, &str)], how: &dyn Fn(&Path)) -> Vec<&'p str> {
    let is_put = |(path, content): &&(&str, &str)| {
        fs::read_to_string(to.join(path)).is_ok_and(|now| now == *content)
    };
    let edited: Vec<_> = put.iter().filter(is_put).map(|(path, _)| *path).collect();
    edited.iter().for_each(|path| how(&to.join(path)));
    edited
}

fn state(path: &Path) -> (Vec<u8>, u32) {
    (fs::read(path).unwrap(), fs::metadata(path).unwrap().permissions().mode())
}

/// The next undo names what was edited, and leaves it as it is.
#[track_caller]
fn assert_stays(world: &World, to: &Path, edited: &[&str]) {
    let opened = open(world);
    let plan = plan_undo(&opened, Some(to), &undoing()).unwrap().unwrap();
    let mut drifted: Vec<_> =
        plan.drifted.iter().map(|d| format!("{}: {}", d.path.display(), d.why)).collect();
    let mut wanted: Vec<_> =
        edited.iter().map(|path| format!("/{path}: changed since it was applied")).collect();
    drifted.sort();
    wanted.sort();
    assert_eq!(drifted, wanted);
    let before: Vec<_> = edited.iter().map(|path| state(&to.join(path))).collect();
    undone(&opened, Some(to), &UndoOptions { skip_drifted: true, ..undoing() });
    let after: Vec<_> = edited.iter().map(|path| state(&to.join(path))).collect();
    assert_eq!(before, after);
}

fn during_apply(put: &[(&str, &str)], how: &dyn Fn(&Path)) {
    let world = changed();
    let opened = open(&world);
    let mut all = 0;
    for at in 0.. {
        let to = copy(&world, &at.to_string());
        let plan = planned(&opened, Some(&to), &keeping()).unwrap();
        let mut stop = stop_at(at);
        let report =
            apply(&opened, Some(&to), &keeping(), Consent::Shown(&plan), None, &mut stop).unwrap();
        if report.broken_off.is_none() {
            break;
        }
        let edited = edit(&to, put, how);
        all = all.max(edited.len());
        resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
        assert_stays(&world, &to, &edited);
        fs::remove_dir_all(to).unwrap();
    }
    assert_eq!(all, put.len());
}

#[test]
fn content_that_is_edited_during_an_apply_stays_at_its_undo() {
    during_apply(AFTER, &append);
}

#[test]
fn a_file_that_is_replaced_during_an_apply_stays_at_its_undo() {
    during_apply(&AFTER[..3], &replace);
}

#[test]
fn a_mode_that_is_set_during_an_apply_stays_at_its_undo() {
    during_apply(&AFTER[..3], &close);
}

#[test]
fn a_time_that_is_set_during_an_apply_is_no_drift() {
    let world = changed();
    let opened = open(&world);
    let to = copy(&world, "copy");
    let plan = planned(&opened, Some(&to), &keeping()).unwrap();
    let (consent, mut stop) = (Consent::Shown(&plan), stop_at(5));
    let report = apply(&opened, Some(&to), &keeping(), consent, None, &mut stop).unwrap();
    assert!(report.broken_off.is_some());
    let touch = |path: &Path| fs::write(path, fs::read(path).unwrap()).unwrap();
    assert_ne!(edit(&to, &AFTER[..3], &touch), [""; 0]);
    resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
    assert_stays(&world, &to, &[]);
}

#[test]
fn content_that_is_edited_during_an_undo_stays_at_its_redo() {
    let world = changed();
    let opened = open(&world);
    let mut all = 0;
    for at in 0.. {
        let to = copy(&world, &at.to_string());
        apply_kept(&opened, Some(&to), &keeping());
        let report = undo(&opened, Some(&to), &undoing(), None, None, &mut stop_at(at)).unwrap();
        if report.broken_off.is_none() {
            break;
        }
        let edited = edit(&to, BEFORE, &append);
        all = all.max(edited.len());
        resume(&opened, Some(&to), None, &mut go_on).unwrap().unwrap();
        assert_stays(&world, &to, &edited);
        fs::remove_dir_all(to).unwrap();
    }
    assert_eq!(all, BEFORE.len());
}
