//! A part of the changes.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use acetate::inspect::InspectError;
use acetate::inspect::apply::{ApplyAdvice, ApplyOptions, Consent, apply};
use acetate::inspect::hunks::Pick;
use acetate::inspect::selection::{Selection, SelectionText};

use super::{copy, only, open, path};
use crate::support::applied::{all, applied, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    dir/sub/deep "deep"
    gone/a "a"
    gone/b "b"
    top "top"
"#;

#[test]
fn only_what_is_named() {
    let world = World::new(TREE);
    world.write("dir/file", 0, b"CONTENT").unwrap();
    world.write("dir/other", 0, b"OTHER").unwrap();
    world.remove("top").unwrap();
    let to = copy(&world, "copy");
    applied(&open(&world), Some(&to), &only(&["dir/file"])).unwrap();
    assert_eq!(fs::read(to.join("dir/file")).unwrap(), b"CONTENT");
    assert_eq!(fs::read(to.join("dir/other")).unwrap(), b"other");
    assert!(to.join("top").exists());
    applied(&open(&world), Some(&to), &only(&["top"])).unwrap();
    assert!(!to.join("top").exists());
}

#[test]
fn new_directories_above_come_along() {
    let world = World::new(TREE);
    world.mkdir("new").unwrap();
    world.mkdir("new/deeper").unwrap();
    world.chmod("new", 0o710).unwrap();
    world.put("new/deeper/file", "file");
    world.put("new/deeper/other", "other");
    let to = copy(&world, "copy");
    applied(&open(&world), Some(&to), &only(&["new/deeper/file"])).unwrap();
    assert_eq!(fs::read_dir(to.join("new/deeper")).unwrap().count(), 1);
    assert_eq!(fs::metadata(to.join("new")).unwrap().permissions().mode() & 0o777, 0o710);
}

#[test]
fn what_is_in_a_moved_directory_goes_with_it() {
    let world = World::new(TREE);
    world.rename("dir", "moved").unwrap();
    world.write("moved/file", 0, b"CONTENT").unwrap();
    world.remove("moved/other").unwrap();
    let to = copy(&world, "copy");
    for inside in ["moved/file", "moved/other"] {
        let refused = applied(&open(&world), Some(&to), &only(&[inside])).unwrap_err();
        let advice = ApplyAdvice::NameMovedDir;
        assert!(matches!(&refused, InspectError::Refused { advice: a, .. } if *a == advice));
        assert!(refused.to_string().contains("in /moved, which was moved"), "{refused}");
    }
    applied(&open(&world), Some(&to), &only(&["moved"])).unwrap();
    assert_eq!(fs::read(to.join("moved/file")).unwrap(), b"CONTENT");
    assert!(!to.join("moved/other").exists() && !to.join("dir").exists());
}

#[test]
fn what_comes_to_where_something_moved_on_goes_with_that() {
    let mut world = World::new("log \"0\"\nlog.1 \"1\"\nlog.2 \"2\"");
    for (from, to) in [("log.2", "log.3"), ("log.1", "log.2"), ("log", "log.1")] {
        world.rename(from, to).unwrap();
    }
    world.put("log", "new");
    world.change_base();
    let refused = applied(&open(&world), None, &only(&["log.1"])).unwrap_err();
    let advice = ApplyAdvice::NameMovedTo;
    assert!(matches!(&refused, InspectError::Refused { advice: a, .. } if *a == advice));
    let moved = refused.to_string();
    assert!(moved.ends_with("log.2: the object there was moved to /log.3"), "{moved}");
    let read = |name: &str| fs::read_to_string(world.base().join(name)).ok();
    let all = || ["log", "log.1", "log.2", "log.3"].map(read);
    assert_eq!(all(), [Some("0".into()), Some("1".into()), Some("2".into()), None]);
    applied(&open(&world), None, &only(&["log.1", "log.3"])).unwrap();
    assert_eq!(all(), [None, Some("0".into()), Some("1".into()), Some("2".into())]);
}

/// What moved out of it is nowhere but in the base.
#[test]
fn a_directory_is_not_removed_with_what_moved_out_of_it_and_is_not_chosen() {
    let mut world = World::new(TREE);
    world.rename("dir/sub", "sub").unwrap();
    world.rm_rf("dir");
    let base = world.change_base();
    let opened = open(&world);
    let paths = vec![":!sub".into()];
    let asked = SelectionText { paths, ..SelectionText::default() };
    let selection = Selection::read(&opened, &asked).unwrap();
    let excluding = ApplyOptions { selection, ..all() };
    let chosen = Some(Arc::new([(path("dir"), Pick::Whole)].into_iter().collect()));
    for (options, what) in
        [(excluding, "left out"), (ApplyOptions { chosen, ..all() }, "not chosen")]
    {
        let left = applied(&opened, None, &options).unwrap().skipped;
        let why = format!("holds /dir/sub, whose move to /sub is {what}");
        assert!(left.iter().any(|left| left.path == path("dir") && left.why == why), "{left:?}");
        assert_eq!(fs::read(base.join("dir/sub/deep")).unwrap(), b"deep");
    }
    applied(&opened, None, &all()).unwrap();
    assert!(base.join("sub/deep").exists() && !base.join("dir").exists());
}

/// The session need not have changed it.
#[test]
fn a_directory_that_is_not_chosen_keeps_its_mode() {
    let mut world = World::new(TREE);
    world.put("dir/new", "new");
    world.chmod("dir", 0o777).unwrap();
    let to = copy(&world, "copy");
    let base = world.change_base();
    let chosen = Some(Arc::new([(path("dir/new"), Pick::Whole)].into_iter().collect()));
    for place in [&to, &base] {
        fs::set_permissions(place.join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
        let options = ApplyOptions { chosen: chosen.clone(), ..all() };
        let to = (place == &to).then_some(&**place);
        assert_eq!(applied(&open(&world), to, &options).unwrap().skipped, []);
        assert_eq!(fs::read(place.join("dir/new")).unwrap(), b"new");
        assert_eq!(mode(&place.join("dir")), 0o700);
    }
}

#[test]
fn a_directory_that_changed_after_the_plan_was_shown_keeps_its_mode() {
    let mut world = World::new(TREE);
    world.put("dir/new", "new");
    let to = copy(&world, "copy");
    let base = world.change_base();
    let before = mode(&base.join("dir"));
    for place in [&to, &base] {
        let opened = open(&world);
        let to = (place == &to).then_some(&**place);
        let plan = planned(&opened, to, &all()).unwrap();
        world.chmod("dir", if to.is_some() { 0o777 } else { 0o711 }).unwrap();
        let opened = open(&world);
        let consent = Consent::Shown(&plan);
        let go_on = &mut |_| ControlFlow::Continue(());
        let report = apply(&opened, to, &all(), consent, None, go_on).unwrap();
        assert!(report.skipped.iter().any(|left| left.path == path("dir")), "{report:?}");
        assert_eq!(fs::read(place.join("dir/new")).unwrap(), b"new");
        assert_eq!(mode(&place.join("dir")), before);
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_clients_leave_behind_is_left_out() {
    let world = World::new(TREE);
    world.put("dir/._file", "macOS");
    world.put("dir/.nfs0001", "open");
    world.put("dir/.acetate-write-0123456789abcdef", "in part");
    world.put("dir/new", "new");
    let to = copy(&world, "copy");
    applied(&open(&world), Some(&to), &ApplyOptions::default()).unwrap();
    for left_out in ["._file", ".nfs0001", ".acetate-write-0123456789abcdef"] {
        assert!(!to.join("dir").join(left_out).exists(), "{left_out}");
    }
    assert_eq!(fs::read(to.join("dir/new")).unwrap(), b"new");
    // A directory that holds something left out is not done with.
    let plan =
        planned(&open(&world), Some(&copy(&world, "other")), &ApplyOptions::default()).unwrap();
    let whole = |of: &str| plan.changes.iter().find(|c| c.path == path(of)).unwrap().is_whole;
    assert!(whole("dir/new") && !whole("dir"));
    let plan = planned(&open(&world), Some(&copy(&world, "third")), &all()).unwrap();
    assert!(plan.changes.iter().all(|change| change.is_whole));
}

/// A client renames a file that is open, where another one takes its name.
#[test]
fn what_replaces_an_open_file_takes_its_place() {
    for renamed in ["dir/.nfs0001", "dir/._file"] {
        let mut world = World::new(TREE);
        world.rename("dir/file", renamed).unwrap();
        world.put("dir/file", "new");
        world.change_base();
        let done = applied(&open(&world), None, &ApplyOptions::default()).unwrap();
        assert_eq!(fs::read(world.base().join("dir/file")).unwrap(), b"new", "{done:?}");
        assert!(!world.base().join(renamed).exists());
    }
}

#[test]
fn what_is_noted_for_the_session() {
    let world = World::new(TREE);
    world.rename("dir/file", "file").unwrap();
    world.rm_rf("gone");
    world.put("dir/sub/new", "new");
    let plan = planned(&open(&world), None, &all()).unwrap();
    let told: Vec<_> = plan
        .changes
        .iter()
        .map(|change| {
            let from = change.from.as_ref().map(|from| from.display().to_string());
            (change.path.display().to_string(), from, change.object.is_some())
        })
        .collect();
    let moved = ("/file".to_owned(), Some("/dir/file".to_owned()), true);
    assert!(told.contains(&moved), "{told:?}");
    assert!(told.contains(&("/gone".to_owned(), None, false)), "{told:?}");
    assert!(told.contains(&("/dir/sub/new".to_owned(), None, true)), "{told:?}");
}

#[test]
fn a_directory_that_moved_stays_where_something_in_it_is_excluded() {
    let world = World::new(TREE);
    world.rename("dir", "moved").unwrap();
    world.put("new", "new");
    let opened = open(&world);
    let options = |exclude: &str| {
        let asked = SelectionText { paths: vec![exclude.into()], ..SelectionText::default() };
        ApplyOptions { selection: Selection::read(&opened, &asked).unwrap(), ..all() }
    };
    for exclude in [":!moved/sub", ":!dir/sub/deep", ":(exclude,icase)MOVED/SUB"] {
        let plan = planned(&opened, None, &options(exclude)).unwrap();
        let why = "holds /moved/sub/deep, which is not chosen: \
                   a directory is removed or moved only as a whole";
        let left: Vec<_> = plan.left_out.iter().map(|left| (&left.path, &*left.why)).collect();
        assert_eq!(left, [(&path("moved"), why)], "{exclude}");
        assert_eq!(plan.changes.iter().filter(|change| change.path == path("new")).count(), 1);
    }
    let plan = planned(&opened, None, &options(":!gone")).unwrap();
    assert!(plan.left_out.is_empty() && plan.changes.iter().any(|c| c.path == path("moved")));
}
