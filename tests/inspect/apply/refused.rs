//! What cannot be applied is refused before anything changes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use acetate::inspect::InspectError;
use acetate::inspect::apply::{ApplyAdvice, ApplyOptions, DriftReason};

use super::{copy, only, open};
use crate::support::applied::{all, applied, assert_same, on_host, planned};
use crate::support::world::{Setup, World};

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
"#;

/// What is said; nothing changes.
#[track_caller]
fn refused(world: &World, to: Option<&Path>, options: &ApplyOptions) -> String {
    let dir = to.map_or(world.base(), Path::to_owned);
    let read = || {
        let mut tree = on_host(&dir);
        tree.retain(|path, _| !path.starts_with(b"dir/s.db"));
        tree
    };
    let before = read();
    let error = applied(&open(world), to, options).unwrap_err();
    assert!(matches!(error, InspectError::Refused { .. }), "{error}");
    assert_same(&read(), &before);
    error.to_string()
}

#[test]
fn the_session_itself_is_never_overwritten() {
    let mut world = World::with(Setup {
        base: Some(TREE.to_owned()),
        session_in_base: Some("dir/s.db".to_owned()),
        ..Setup::default()
    });
    world.change_base();
    world.put("dir/s.db-wal", "not the log");
    assert!(refused(&world, None, &all()).contains("dir/s.db-wal: holds the session"));
    world.put("dir/new", "new");
    applied(&open(&world), None, &only(&["dir/new"])).unwrap();
    world.remove("dir/s.db-wal").unwrap();
    world.rm_rf("dir");
    assert!(refused(&world, None, &all()).contains("dir: holds the session"));
}

#[test]
fn its_own_place_is_not_for_the_session() {
    let world = World::new(TREE);
    world.mkdir(".acetate-apply").unwrap();
    world.put(".acetate-apply/journal", "{}");
    let to = copy(&world, "copy");
    assert!(refused(&world, Some(&to), &all()).contains(".acetate-apply: holds the session"));
}

#[test]
fn a_planted_staging() {
    let world = World::new(TREE);
    world.put("dir/new", "new");
    let to = copy(&world, "copy");
    let outside = world.scratch().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, to.join(".acetate-apply")).unwrap();
    assert!(applied(&open(&world), Some(&to), &all()).is_err());
    fs::remove_file(to.join(".acetate-apply")).unwrap();
    // Everybody could write into it.
    fs::create_dir(to.join(".acetate-apply")).unwrap();
    fs::set_permissions(to.join(".acetate-apply"), PermissionsExt::from_mode(0o777)).unwrap();
    let error = applied(&open(&world), Some(&to), &all()).unwrap_err();
    assert!(error.to_string().contains("open to other users (mode 0777)"), "{error}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(!to.join("dir/new").exists());
}

#[test]
fn a_copy_that_is_not_apart_from_the_base() {
    let world = World::new(TREE);
    world.put("dir/new", "new");
    let refuse = |to: &Path| {
        let error = planned(&open(&world), Some(to), &all()).unwrap_err();
        assert!(matches!(error, InspectError::Refused { .. }), "{error}");
        error.to_string()
    };
    assert!(refuse(&world.base()).contains("is the base"));
    assert!(refuse(&world.base().join("dir")).contains("not apart"));
    assert!(refuse(world.scratch()).contains("not apart"));
    assert!(planned(&open(&world), Some(Path::new("/nowhere")), &all()).is_err());
}

/// Who applies has the session: its audit log is read by a connection of its own.
fn give_session(world: &World, user: u32) {
    for entry in fs::read_dir(world.scratch()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            chown(&path, Some(user), Some(user)).unwrap();
        }
    }
}

#[test]
fn a_directory_that_takes_nothing() {
    let world = World::new(TREE);
    world.put("dir/new", "new");
    let to = copy(&world, "copy");
    const NOBODY: u32 = 65534;
    for dir in [world.scratch().to_owned(), to.clone(), to.join("dir")] {
        chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(to.join("dir"), PermissionsExt::from_mode(0o555)).unwrap();
    let opened = open(&world);
    give_session(&world, NOBODY);
    let said = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let nobody = rustix::thread::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            applied(&opened, Some(&to), &all()).unwrap_err().to_string()
        });
        asked.join().unwrap()
    });
    assert!(said.contains("dir: nothing can be made or removed in it"), "{said}");
    assert!(!to.join(".acetate-apply").exists());
}

/// A base file that may not be read has drifted; it does not stop the rest.
#[test]
fn a_base_file_that_cannot_be_read_stops_nothing_else() {
    const NOBODY: u32 = 65534;
    let mut world = World::new("file \"content\"\nother \"other\"");
    world.put("file", "session");
    world.put("other", "session");
    let base = world.change_base();
    fs::set_permissions(base.join("file"), PermissionsExt::from_mode(0o000)).unwrap();
    for dir in [world.scratch(), &base] {
        chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let opened = open(&world);
    give_session(&world, NOBODY);
    let plan = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let nobody = rustix::thread::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            planned(&opened, None, &all()).map_err(|error| error.to_string())
        });
        asked.join().unwrap()
    });
    let plan = plan.unwrap();
    let drifted: Vec<_> =
        plan.drifted.iter().map(|drifted| (&drifted.path, drifted.reason)).collect();
    assert_eq!(drifted, [(&super::path("file"), DriftReason::Changed)]);
    assert_eq!(plan.changes.len(), 2);
}

#[test]
fn what_may_not_be_removed_stops_nothing_else() {
    let world = World::new(TREE);
    world.remove("dir/file").unwrap();
    world.put("new", "new");
    let to = copy(&world, "copy");
    const NOBODY: u32 = 65534;
    for dir in [world.scratch(), &to] {
        chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // Everybody may put something into it, and remove what is his own.
    fs::set_permissions(to.join("dir"), PermissionsExt::from_mode(0o1777)).unwrap();
    let opened = open(&world);
    give_session(&world, NOBODY);
    let report = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let nobody = rustix::thread::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let force = ApplyOptions { force: true, ..all() };
            applied(&opened, Some(&to), &force).unwrap()
        });
        asked.join().unwrap()
    });
    assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
    assert_eq!(report.skipped[0].path, super::path("dir/file"));
    assert!(report.not_set.owners > 0);
    assert_eq!(fs::read(to.join("dir/file")).unwrap(), b"content");
    assert_eq!(fs::read(to.join("new")).unwrap(), b"new");
}

#[test]
fn a_session_without_a_base() {
    let world = World::plain();
    world.mkdir("dir").unwrap();
    world.put("dir/new", "new");
    let opened = acetate::inspect::opened::OpenSession::open(&world.session(), None).unwrap();
    let error = planned(&opened, None, &all()).unwrap_err();
    assert!(error.to_string().contains("has no base"), "{error}");
    let advice = ApplyAdvice::NameTarget;
    assert!(matches!(error, InspectError::Refused { advice: a, .. } if a == advice), "{error}");
    let to = world.scratch().join("to");
    fs::create_dir(&to).unwrap();
    applied(&opened, Some(&to), &all()).unwrap();
    assert_eq!(fs::read(to.join("dir/new")).unwrap(), b"new");
    // What is there by now is not overwritten.
    assert!(applied(&opened, Some(&to), &all()).is_err());
}
