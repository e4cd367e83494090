//! What changed behind the session's back.

use std::fs;

use acetate::inspect::InspectError;
use acetate::inspect::apply::{Options, Why};

use super::{copy, open};
use crate::support::applied::{all, applied, assert_same, merged, on_host, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    gone/a "a"
    gone/b/c "c"
    one "one"
"#;

fn force() -> Options {
    Options { force: true, ..all() }
}

/// What drifted; nothing is written then, unless it is forced: that makes the merged tree.
#[track_caller]
fn drifted(world: &mut World) -> Vec<(String, Why)> {
    world.change_base();
    let opened = open(world);
    let before = on_host(&world.base());
    let plan = planned(&opened, None, &all()).unwrap();
    let found = plan.drifted.iter().map(|d| (d.path.display().to_string(), d.why)).collect();
    let refused = applied(&opened, None, &all());
    assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
    assert_same(&on_host(&world.base()), &before);
    let wanted = merged(&world.session(), Some(&world.base()));
    assert_eq!(applied(&opened, None, &force()).unwrap().skipped, []);
    assert_same(&on_host(&world.base()), &wanted);
    found
}

#[test]
fn a_file_that_was_copied_up() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    fs::write(world.change_base().join("dir/file"), "theirs").unwrap();
    assert_eq!(drifted(&mut world), [("/dir/file".to_owned(), Why::Changed)]);
}

#[test]
fn a_file_that_was_replaced_or_is_gone() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    world.rename("dir/other", "other").unwrap();
    let base = world.change_base();
    fs::remove_file(base.join("dir/file")).unwrap();
    fs::write(base.join("new"), "theirs").unwrap();
    fs::rename(base.join("new"), base.join("dir/other")).unwrap();
    let drifted = drifted(&mut world);
    let both = [("/dir/file".to_owned(), Why::Changed), ("/other".to_owned(), Why::Changed)];
    assert!(both.iter().all(|one| drifted.contains(one)), "{drifted:?}");
}

/// The tests' clock runs ahead of the host's.
fn at_the_hosts_time(world: &World, table: &str, column: &str) {
    let sql = format!("UPDATE {table} SET {column} = 1000000000");
    world.sql().execute(&sql, []).unwrap();
}

#[test]
fn what_was_deleted() {
    let mut world = World::new(TREE);
    world.remove("one").unwrap();
    world.rm_rf("gone");
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
    at_the_hosts_time(&world, "fs_whiteout", "created_at");
    let found = drifted(&mut world);
    let since = |path: &str| (path.to_owned(), Why::ChangedSinceDeleted);
    assert_eq!(found, [since("/one"), since("/gone/a"), since("/gone/b/c")]);
}

#[test]
fn what_came_where_the_session_made_something() {
    let mut world = World::new(TREE);
    world.put("dir/new", "mine");
    fs::write(world.change_base().join("dir/new"), "theirs").unwrap();
    world.reopen();
    at_the_hosts_time(&world, "fs_inode", "ctime");
    assert_eq!(drifted(&mut world), [("/dir/new".to_owned(), Why::Came)]);
}

#[test]
fn a_copy_that_is_none() {
    let world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    world.chmod("dir/other", 0o600).unwrap();
    world.put("new", "mine");
    world.rm_rf("gone");
    let to = copy(&world, "copy");
    let opened = open(&world);
    assert_eq!(planned(&opened, Some(&to), &all()).unwrap().drifted, []);
    fs::write(to.join("dir/file"), "Content").unwrap();
    fs::write(to.join("dir/other"), "Other").unwrap();
    fs::write(to.join("new"), "theirs").unwrap();
    fs::write(to.join("gone/b/d"), "theirs").unwrap();
    let plan = planned(&opened, Some(&to), &all()).unwrap();
    let mut found: Vec<_> = plan.drifted.iter().map(|d| d.path.display().to_string()).collect();
    found.sort();
    assert_eq!(found, ["/dir/file", "/dir/other", "/gone/b/d", "/new"]);
    assert!(plan.drifted.iter().all(|d| d.why == Why::Copy));
    assert!(applied(&opened, Some(&to), &all()).is_err());
    assert_eq!(applied(&opened, Some(&to), &force()).unwrap().skipped, []);
    assert_same(&on_host(&to), &merged(&world.session(), Some(&world.base())));
}

#[test]
fn a_directory_that_was_only_added_to_has_not_drifted() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    let base = world.change_base();
    fs::write(base.join("dir/theirs"), "theirs").unwrap();
    let opened = open(&world);
    let wanted = merged(&world.session(), Some(&base));
    assert_eq!(applied(&opened, None, &all()).unwrap().skipped, []);
    assert_same(&on_host(&base), &wanted);
    assert_eq!(fs::read(base.join("dir/theirs")).unwrap(), b"theirs");
}
