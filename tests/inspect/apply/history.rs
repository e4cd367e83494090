//! What changed in the base since the session hid it, though the session changed its own later.

use std::fs;

use acetate::inspect::apply::DriftReason;

use super::drift::{drifted, next_second};
use super::{open, path};
use crate::support::applied::{all, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    gone/a "a"
    one "one"
    two "two"
"#;

/// Lets all that the session did until now have happened before anything else of the host.
fn goes_on(world: &mut World) {
    let last = next_second();
    let sql = format!("UPDATE acetate_op SET time = {last}, time_nsec = 999999999");
    world.sql().execute(&sql, []).unwrap();
    world.change_base();
}

fn save(world: &World, path: &str) {
    world.put("saved", "mine");
    world.rename("saved", path).unwrap();
}

/// What drifted, with a clock of the session that is always ahead of the host's.
#[track_caller]
fn assert_drifted(mut world: World, wanted: &[(&str, DriftReason)]) {
    let mut wanted: Vec<_> = wanted.iter().map(|(path, why)| ((*path).to_owned(), *why)).collect();
    wanted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(drifted(&mut world), wanted);
}

/// Nothing did, whether the log still says so or what was kept of it.
#[track_caller]
fn assert_none_drifted(mut world: World) {
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
    world.prune_log();
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
}

#[test]
fn a_replaced_file_that_the_session_changed_later() {
    let mut world = World::new(TREE);
    save(&world, "one");
    world.rename("dir/file", "two").unwrap();
    save(&world, "gone/a");
    world.rename("gone", "elsewhere").unwrap();
    goes_on(&mut world);
    for file in ["one", "two", "gone/a"] {
        fs::write(world.base().join(file), "theirs").unwrap();
    }
    world.write("one", 4, b" again").unwrap();
    world.chmod("two", 0o600).unwrap();
    save(&world, "elsewhere/a");
    let conflicts = ["/one", "/elsewhere/a"].map(|path| (path, DriftReason::Conflict));
    assert_drifted(world, &[conflicts[0], conflicts[1], ("/two", DriftReason::Came)]);
}

#[test]
fn a_changed_file_that_the_session_deleted_later() {
    let mut world = World::new(TREE);
    world.write("one", 0, b"mine").unwrap();
    world.write("gone/a", 0, b"mine").unwrap();
    goes_on(&mut world);
    for file in ["one", "gone/a"] {
        fs::write(world.base().join(file), "theirs").unwrap();
    }
    world.remove("one").unwrap();
    world.rm_rf("gone");
    let gone = ["/one", "/gone/a"].map(|path| (path, DriftReason::ChangedSinceDeleted));
    assert_drifted(world, &gone);
}

/// What came into it did so after it was gone; that it went once more is no matter.
#[test]
fn a_deleted_directory_that_the_session_made_again() {
    let mut world = World::new(TREE);
    world.rm_rf("gone");
    goes_on(&mut world);
    fs::write(world.base().join("gone/new"), "theirs").unwrap();
    world.mkdir("gone").unwrap();
    world.rmdir("gone").unwrap();
    assert_drifted(world, &[("/gone", DriftReason::ChangedSinceDeleted)]);
}

#[test]
fn a_replaced_directory_that_the_session_changed_later() {
    let mut world = World::new(TREE);
    world.chmod("gone", 0o711).unwrap();
    world.rm_rf("gone");
    world.rename("dir", "gone").unwrap();
    goes_on(&mut world);
    fs::write(world.base().join("gone/new"), "theirs").unwrap();
    world.chmod("gone", 0o700).unwrap();
    assert_drifted(world, &[("/gone", DriftReason::Came)]);
}

/// New attributes hide nothing of what is in it.
#[test]
fn what_came_into_a_directory_before_it_was_deleted() {
    let mut world = World::new(TREE);
    world.chmod("gone", 0o711).unwrap();
    goes_on(&mut world);
    fs::write(world.base().join("gone/new"), "theirs").unwrap();
    world.rm_rf("gone");
    assert_none_drifted(world);
}

#[test]
fn what_was_seen_again_has_not_drifted() {
    let mut world = World::new(TREE);
    save(&world, "one");
    world.write("gone/a", 0, b"mine").unwrap();
    save(&world, "two");
    let paths = ["one", "gone"].map(path).to_vec();
    world.wait(world.overlay.discard(&world.caller, paths)).unwrap();
    goes_on(&mut world);
    for file in ["one", "gone/a"] {
        fs::write(world.base().join(file), "theirs").unwrap();
    }
    save(&world, "one");
    world.write("two", 0, b"again").unwrap();
    world.rm_rf("gone");
    assert_none_drifted(world);
}

#[test]
fn what_was_applied_has_not_drifted() {
    let mut world = World::new(TREE);
    save(&world, "one");
    world.rm_rf("gone");
    crate::support::applied::assert_is_let_go(&mut world);
    goes_on(&mut world);
    fs::write(world.base().join("one"), "theirs").unwrap();
    fs::create_dir(world.base().join("gone")).unwrap();
    fs::write(world.base().join("gone/a"), "theirs").unwrap();
    save(&world, "one");
    save(&world, "gone/a");
    assert_none_drifted(world);
}

/// The log of a session with limits loses its oldest rows. What only these could tell counts as
/// changed, so that it is named.
#[test]
fn what_only_rows_could_tell_that_the_log_has_no_more() {
    let mut world = World::new(TREE);
    // The log began later than the base.
    next_second();
    world.write("one", 0, b"mine").unwrap();
    save(&world, "two");
    goes_on(&mut world);
    let since = world.sql_value::<i64>("SELECT min(time) FROM acetate_op");
    fs::write(world.base().join("one"), "theirs").unwrap();
    world.remove("one").unwrap();
    let lost = format!(
        "INSERT INTO acetate_meta SELECT 'audit_dropped', count(*) - 1 FROM acetate_op;
         INSERT INTO acetate_meta VALUES ('audit_since', {since});
         DELETE FROM acetate_op WHERE id < (SELECT max(id) FROM acetate_op)"
    );
    world.sql().execute_batch(&lost).unwrap();
    assert_drifted(world, &[("/one", DriftReason::ChangedSinceDeleted)]);
}
