//! Directories that a person moves in the base: nothing that is in them gets another ctime.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;

use acetate::inspect::InspectError;
use acetate::inspect::apply::{ApplyOptions, DriftReason};
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::status::touched;

use super::drift::{LONG_AGO, at_the_hosts_time, drifted};
use super::{apply_served, open, path};
use crate::support::applied::{all, applied, copy, planned};
use crate::support::world::World;

const TREE: &str = r#"
    d/a "a"
    d/sub/b "b"
    legacy/sub/y "their y"
    legacy/x "their x"
    legacy/empty/
"#;

/// What drifted in an apply; `status` and `diff` tell of drift in as many changes, namely `marked`.
#[track_caller]
fn drifted_as_marked(world: &mut World, marked: &[&str]) -> Vec<(String, DriftReason)> {
    let opened = open(world);
    let mut found = Vec::new();
    diff(&opened, &DiffOptions::default(), &mut |_, difference| {
        if difference.change.has_drifted() {
            found.push(difference.path.display().to_string());
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    assert_eq!(found, marked);
    assert_eq!(touched(&opened).unwrap().drifted, marked.len() as u64);
    drop(opened);
    drifted(world)
}

/// Nothing drifted, whatever is asked.
#[track_caller]
fn assert_no_drift(world: &World) {
    let opened = open(world);
    assert_eq!(planned(&opened, None, &all()).unwrap().drifted, []);
    assert_eq!(touched(&opened).unwrap().drifted, 0);
}

fn came(path: &str) -> (String, DriftReason) {
    (path.to_owned(), DriftReason::Came)
}

fn since_deleted(path: &str) -> (String, DriftReason) {
    (path.to_owned(), DriftReason::ChangedSinceDeleted)
}

/// Moves a directory of the base.
fn rename(world: &mut World, from: &str, to: &str) {
    let base = world.change_base();
    fs::rename(base.join(from), base.join(to)).unwrap();
}

/// Puts `legacy` in the place of `d`.
fn replace(world: &mut World) {
    rename(world, "d", "d.old");
    rename(world, "legacy", "d");
}

#[test]
fn one_that_came_where_the_session_made_one() {
    let mut world = World::new(TREE);
    world.mkdir("src").unwrap();
    world.put("src/x", "mine");
    world.mkdir("src/sub").unwrap();
    world.put("src/sub/y", "mine");
    rename(&mut world, "legacy", "src");
    let marked = ["/src/x", "/src/sub/y"];
    assert_eq!(drifted_as_marked(&mut world, &marked), [came("/src/sub/y"), came("/src/x")]);
}

#[test]
fn one_that_came_in_the_place_of_one_that_the_session_changed() {
    let mut world = World::new(TREE);
    world.put("d/x", "mine");
    world.put("d/sub/y", "mine");
    replace(&mut world);
    let marked = ["/d/x", "/d/sub/y"];
    assert_eq!(drifted_as_marked(&mut world, &marked), [came("/d/sub/y"), came("/d/x")]);
}

#[test]
fn one_that_came_where_the_session_moved_something() {
    let mut world = World::new("d/a \"a\"\nlegacy/c/deep \"theirs\"\nmoved/z \"z\"");
    world.rename("moved", "d/c").unwrap();
    replace(&mut world);
    let marked = drifted_as_marked(&mut world, &["/d/c"]);
    assert!(marked.contains(&came("/d/c")), "{marked:?}");
}

#[test]
fn one_that_came_where_the_session_removed_one() {
    for is_made_again in [false, true] {
        let mut world = World::new(TREE);
        world.rm_rf("d");
        if is_made_again {
            world.mkdir("d").unwrap();
        }
        world.keep_removed();
        replace(&mut world);
        let marked: &[_] = if is_made_again { &["/d/empty", "/d/sub", "/d/x"] } else { &["/d"] };
        let found = drifted_as_marked(&mut world, marked);
        let wanted = ["/d/empty", "/d/sub/y", "/d/x"].map(since_deleted);
        assert_eq!(found, wanted, "{is_made_again}");
    }
}

#[test]
fn one_that_came_where_the_session_made_a_file_of_one() {
    let mut world = World::new(TREE);
    world.rm_rf("d");
    world.put("d", "mine");
    world.keep_removed();
    replace(&mut world);
    let found = drifted_as_marked(&mut world, &["/d"]);
    assert_eq!(found, ["/d/empty", "/d/sub/y", "/d/x"].map(since_deleted));
}

/// A copy has other numbers, and what the session saw.
#[test]
fn a_copy_that_came_back_is_what_was_removed() {
    let mut world = World::new(TREE);
    let base = world.change_base();
    copy(&base.join("d"), &base.join("d.copy"));
    world.rm_rf("d");
    world.put("legacy/new", "mine");
    world.write("legacy/x", 0, b"mine").unwrap();
    world.remove("legacy/sub/y").unwrap();
    world.keep_removed();
    rename(&mut world, "d", "d.old");
    rename(&mut world, "d.copy", "d");
    copy(&base.join("legacy"), &base.join("legacy.copy"));
    rename(&mut world, "legacy", "legacy.old");
    rename(&mut world, "legacy.copy", "legacy");
    assert_no_drift(&world);
}

#[test]
fn one_that_went_and_came_back_is_what_the_session_saw() {
    let mut world = World::new(TREE);
    world.rm_rf("d");
    world.put("legacy/new", "mine");
    world.mkdir("legacy/made").unwrap();
    world.put("legacy/made/new", "mine");
    world.keep_removed();
    for dir in ["d", "legacy"] {
        rename(&mut world, dir, "away");
        rename(&mut world, "away", dir);
    }
    assert_no_drift(&world);
}

/// What is in it is as unknown after an apply of something else as before.
#[test]
fn one_that_came_with_what_is_left_out_is_no_better_known_after_an_apply() {
    let mut world = World::new("came/file \"person\"\ndir/x \"x\"\n");
    world.put("dir/file", "agent");
    world.put("dir/new", "agent");
    world.keep_removed();
    let base = world.change_base();
    fs::rename(base.join("dir"), base.join("gone")).unwrap();
    fs::rename(base.join("came"), base.join("dir")).unwrap();
    let options = ApplyOptions { skip_drifted: true, ..all() };
    for _ in 0..2 {
        let report = apply_served(&world, &options);
        let skipped: Vec<_> = report.skipped.iter().map(|skipped| &skipped.path).collect();
        assert_eq!(skipped, [&path("dir/file")]);
        let read = ["dir/file", "dir/new"].map(|at| fs::read_to_string(base.join(at)).unwrap());
        assert_eq!(read, ["person", "agent"]);
    }
}

/// The session moves a directory out of one that it removes or replaces; a person moves it away.
#[test]
fn one_that_is_gone_where_the_session_has_moved_it_out_of_a_directory_stays_hidden() {
    for replaces in [false, true] {
        let mut world = World::new("b/in/x \"x\"\nd/y \"y\"");
        world.rename("b/in", "d/moved").unwrap();
        world.rm_rf("b");
        if replaces {
            world.put("b", "a file");
        }
        rename(&mut world, "b/in", "elsewhere");
        let options = ApplyOptions { skip_drifted: true, ..all() };
        let report = apply_served(&world, &options);
        assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
        assert!(world.exists("d/moved") && !world.exists("b/in"));
        // It comes back, with the directory that held it.
        let base = world.change_base();
        let _was_removed = fs::remove_file(base.join("b"));
        fs::create_dir(base.join("b")).unwrap();
        rename(&mut world, "elsewhere", "b/in");
        world.reopen();
        assert!(world.exists("d/moved/x") && !world.exists("b/in"), "{replaces}");
    }
}

/// The host gives the number of a removed directory to a file, which is not that directory.
#[test]
fn a_file_with_the_number_of_one_that_the_session_moved_is_named_and_stays() {
    let mut world = World::new(TREE);
    world.rename("d", "dd").unwrap();
    let base = world.change_base();
    fs::remove_dir_all(base.join("d")).unwrap();
    fs::write(base.join("d"), "person").unwrap();
    at_the_hosts_time(&world, "fs_whiteout", "created_at", LONG_AGO);
    let options = ApplyOptions { take_session: vec![path("dd")], ..all() };
    let found = || {
        let (opened, mut lines) = (open(&world), Vec::new());
        diff(&opened, &DiffOptions::default(), &mut |_, difference| {
            lines.push(format!("{:?} {}", difference.kind, difference.path.display()));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        let plan = planned(&opened, None, &options).unwrap();
        (lines, plan.drifted, plan.overruled)
    };
    let wanted = found();
    assert_eq!(wanted.0, ["Retyped /dd", "Deleted /d"]);
    assert_eq!([&wanted.1, &wanted.2].map(|some| some[0].path.clone()), ["d", "dd"].map(path));
    let number = fs::metadata(base.join("d")).unwrap().ino();
    let copy = "SELECT delta_ino FROM acetate_origin WHERE CAST(base_path AS TEXT) IN ('d', '/d')";
    let copy: i64 = world.sql_value(copy);
    for table in ["fs_origin", "acetate_origin"] {
        let sql = format!("UPDATE {table} SET base_ino = {number} WHERE delta_ino = {copy}");
        assert_eq!(world.sql().execute(&sql, []).unwrap(), 1);
    }
    assert_eq!(found(), wanted);
    let refused = applied(&open(&world), None, &options);
    assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
    assert_eq!(fs::read_to_string(base.join("d")).unwrap(), "person");
}

/// The session moved `d` away and `k` to its place, and the base lost `d`.
#[test]
fn one_that_the_base_lost_is_the_sessions_own_once_another_one_has_its_path() {
    let mut world = World::new("d/f \"f\"\nk/k1 \"k1\"\n");
    world.tick(60);
    world.put("d/new", "new");
    world.rename("d", "z").unwrap();
    world.rename("k", "d").unwrap();
    let base = world.change_base();
    fs::remove_dir_all(base.join("d")).unwrap();
    for _ in 0..2 {
        apply_served(&world, &ApplyOptions { force: true, ..all() });
        assert_eq!(["d", "z"].map(|dir| world.ls(dir)), [["k1"], ["new"]]);
    }
    assert_eq!(planned(&open(&world), None, &all()).unwrap().changes, []);
    for (file, content) in [("z/new", "new"), ("d/k1", "k1")] {
        assert_eq!(fs::read_to_string(base.join(file)).unwrap(), content);
    }
}
