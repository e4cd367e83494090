//! What changed behind the session's back.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use acetate::inspect::InspectError;
use acetate::inspect::apply::{ApplyOptions, Consent, DriftReason, apply};
use acetate::inspect::diff::{DiffOptions, diff};
use acetate::inspect::seal::seal;
use acetate::overlay::{MergedParts, RebaseItem};
use acetate::vfs::Time;

use super::{apply_served, copy, open, path};
use crate::support::applied::{Book, all, applied, assert_same, merged, on_host, planned};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    gone/a "a"
    gone/b/c "c"
    one "one"
"#;

/// Before all that the tests do, in seconds since 1970.
pub const LONG_AGO: i64 = 1_000_000_000;

fn force() -> ApplyOptions {
    ApplyOptions { force: true, ..all() }
}

/// What drifted; nothing is written then, unless it is forced: that makes the merged tree.
#[track_caller]
pub fn drifted(world: &mut World) -> Vec<(String, DriftReason)> {
    world.change_base();
    let opened = open(world);
    let before = on_host(&world.base());
    let plan = planned(&opened, None, &all()).unwrap();
    let found = plan.drifted.iter().map(|d| (d.path.display().to_string(), d.reason)).collect();
    // What the log no longer says, what was kept of it does.
    world.prune_log();
    let opened = open(world);
    assert_eq!(planned(&opened, None, &all()).unwrap().drifted, plan.drifted);
    let refused = applied(&opened, None, &all());
    assert!(matches!(refused, Err(InspectError::Refused { .. })), "{refused:?}");
    assert_same(&on_host(&world.base()), &before);
    let mut wanted = merged(&world.session(), Some(&world.base()));
    // The session set no time of the top.
    let top = &mut wanted.get_mut(&b""[..]).unwrap().mtime;
    *top = (*top).max(before[&b""[..]].mtime);
    assert_eq!(applied(&opened, None, &force()).unwrap().skipped, []);
    assert_same(&on_host(&world.base()), &wanted);
    found
}

#[test]
fn a_file_that_was_copied_up() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    fs::write(world.change_base().join("dir/file"), "theirs").unwrap();
    assert_eq!(drifted(&mut world), [("/dir/file".to_owned(), DriftReason::Conflict)]);
}

#[test]
fn a_file_that_was_replaced_or_is_gone() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    world.rename("dir/other", "other").unwrap();
    world.write("other", 0, b"mine").unwrap();
    let base = world.change_base();
    fs::remove_file(base.join("dir/file")).unwrap();
    fs::write(base.join("new"), "theirs").unwrap();
    fs::rename(base.join("new"), base.join("dir/other")).unwrap();
    let drifted = drifted(&mut world);
    let both = [
        ("/dir/file".to_owned(), DriftReason::Removed),
        ("/other".to_owned(), DriftReason::Conflict),
    ];
    assert!(both.iter().all(|one| drifted.contains(one)), "{drifted:?}");
}

/// The tests' clock runs ahead of the host's.
pub fn at_the_hosts_time(world: &World, table: &str, column: &str, secs: i64) {
    let sql = format!("UPDATE {table} SET {column} = {secs}");
    world.sql().execute(&sql, []).unwrap();
}

#[test]
fn what_was_deleted() {
    let mut world = World::new(TREE);
    world.remove("one").unwrap();
    world.rm_rf("gone");
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
    at_the_hosts_time(&world, "fs_whiteout", "created_at", LONG_AGO);
    let found = drifted(&mut world);
    let since = |path: &str| (path.to_owned(), DriftReason::ChangedSinceDeleted);
    let dirs = [since("/gone"), since("/gone/b")];
    let files = [since("/one"), since("/gone/a"), since("/gone/b/c")];
    assert!(dirs.iter().chain(&files).all(|one| found.contains(one)), "{found:?}");
    assert_eq!(found.len(), 5, "{found:?}");
}

/// Begins a second of the host's that comes after all that was done until now, and returns the
/// one before it.
pub fn next_second() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    std::thread::sleep(
        Duration::from_millis(1_050) - Duration::from_nanos(now.subsec_nanos().into()),
    );
    now.as_secs() as i64
}

/// What a whiteout and a mark of an opaque directory tell is the second.
#[test]
fn what_came_within_the_second_of_a_removal() {
    for (is_made_anew, names) in [(true, &["/gone/new"][..]), (false, &["/gone", "/gone/new"])] {
        let mut world = World::new(TREE);
        let base = world.change_base();
        let mode = fs::metadata(base.join("gone/a")).unwrap().permissions();
        fs::set_permissions(base.join("gone/a"), mode).unwrap();
        world.rm_rf("gone");
        if is_made_anew {
            world.mkdir("gone").unwrap();
        }
        let last = fs::metadata(base.join("gone/a")).unwrap();
        for (table, column) in [
            ("fs_whiteout", "created_at"),
            ("acetate_opaque", "created_at"),
            ("acetate_op", "time"),
        ] {
            at_the_hosts_time(&world, table, column, last.ctime());
        }
        at_the_hosts_time(&world, "acetate_op", "time_nsec", last.ctime_nsec());
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
        fs::write(base.join("gone/new"), "theirs").unwrap();
        let named = planned(&open(&world), None, &super::only(&["gone"])).unwrap();
        assert_eq!(named.drifted.len(), names.len(), "{:?}", named.drifted);
        let since = |path: &&str| ((*path).to_owned(), DriftReason::ChangedSinceDeleted);
        let wanted: Vec<_> = names.iter().map(since).collect();
        assert_eq!(drifted(&mut world), wanted);
    }
}

/// A rename changes the directory that moves, and nothing of what is in it.
#[test]
fn a_directory_that_came_where_one_was_deleted() {
    let mut world = World::new(TREE);
    let theirs = world.scratch().join("theirs");
    fs::create_dir_all(theirs.join("b")).unwrap();
    fs::write(theirs.join("b/c"), "theirs").unwrap();
    fs::create_dir(world.change_base().join("gone/old")).unwrap();
    world.rm_rf("gone");
    next_second();
    at_the_hosts_time(&world, "fs_whiteout", "created_at", next_second());
    let base = world.base();
    fs::rename(theirs.join("b"), base.join("gone/old")).unwrap();
    let since = |path: &str| (path.to_owned(), DriftReason::ChangedSinceDeleted);
    assert_eq!(drifted(&mut world), [since("/gone"), since("/gone/old")]);
}

/// Afterwards only the directory's own whiteout tells since when its files are gone.
#[test]
fn what_came_into_a_directory_that_was_moved_and_sealed() {
    let mut world = World::new(TREE);
    world.rename("gone", "moved").unwrap();
    world.remove("moved/a").unwrap();
    at_the_hosts_time(&world, "fs_whiteout", "created_at", next_second());
    world.close();
    seal(&world.session(), Some(&world.base()), false, &mut |_, _| {}).unwrap();
    world.open_again();
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
    fs::write(world.change_base().join("gone/new"), "theirs").unwrap();
    let opened = open(&world);
    let plan = planned(&opened, None, &all()).unwrap();
    let found: Vec<_> =
        plan.drifted.iter().map(|d| (d.path.display().to_string(), d.reason)).collect();
    assert_eq!(found, [("/gone/new".to_owned(), DriftReason::ChangedSinceDeleted)]);
}

#[test]
fn what_came_where_the_session_made_something() {
    let mut world = World::new(TREE);
    world.put("dir/new", "mine");
    fs::write(world.change_base().join("dir/new"), "theirs").unwrap();
    world.reopen();
    at_the_hosts_time(&world, "fs_inode", "ctime", LONG_AGO);
    assert_eq!(drifted(&mut world), [("/dir/new".to_owned(), DriftReason::Came)]);
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
    assert_eq!(found, ["/dir/file", "/gone/b/d", "/new"]);
    assert!(plan.drifted.iter().all(|d| d.reason == DriftReason::Copy));
    assert!(applied(&opened, Some(&to), &all()).is_err());
    // The session has only another mode: the content that the copy has stays.
    let merged_paths: Vec<_> = plan.merged.iter().map(|m| m.path.display().to_string()).collect();
    assert_eq!(merged_paths, ["/dir/other"]);
    fs::write(to.join("dir/other"), "other").unwrap();
    assert_eq!(applied(&opened, Some(&to), &force()).unwrap().skipped, []);
    assert_same(&on_host(&to), &merged(&world.session(), Some(&world.base())));
}

/// What is planned for a copy of the base as it is now, and for the base itself.
fn drifted_in_both(world: &mut World) -> Vec<String> {
    let to = copy(world, "copy");
    let opened = open(world);
    let [base, copy] = [None, Some(&*to)].map(|to| {
        let plan = planned(&opened, to, &ApplyOptions { skip_drifted: true, ..all() }).unwrap();
        let found = plan.drifted.iter();
        found.map(|d| format!("{}: {}", d.path.display(), d.reason.as_str())).collect::<Vec<_>>()
    });
    assert_eq!(copy, base);
    let before = on_host(&to);
    assert!(applied(&opened, Some(&to), &all()).is_err());
    assert_same(&on_host(&to), &before);
    copy
}

#[test]
fn a_copy_of_the_base_as_it_is_now_has_drifted_as_the_base() {
    for (name, has_originals) in
        [("gone/b/c", true), ("gone/b/c", false), ("gone/b/new", true), ("gone/b/new", false)]
    {
        let mut world = World::new(TREE);
        world.change_base();
        world.rm_rf("gone");
        if has_originals {
            world.keep_removed();
        }
        let second = next_second();
        at_the_hosts_time(&world, "fs_whiteout", "created_at", second);
        fs::write(world.base().join(name), "theirs").unwrap();
        let drifted = drifted_in_both(&mut world);
        let wanted = format!("/{name}: changed in the base since it was deleted");
        assert!(drifted.contains(&wanted), "{drifted:?}");
    }
}

#[test]
fn a_side_is_taken_for_all_that_drifted_in_a_directory() {
    let mut world = World::new(TREE);
    world.change_base();
    world.rm_rf("gone");
    at_the_hosts_time(&world, "fs_whiteout", "created_at", next_second());
    world.close();
    for name in ["gone/a", "gone/b/c"] {
        fs::write(world.base().join(name), "theirs").unwrap();
    }
    let options = ApplyOptions { take_base: vec![path("gone")], ..all() };
    let plan = planned(&open(&world), None, &options).unwrap();
    assert!(plan.drifted.len() > 1, "{:?}", plan.drifted);
    assert!(plan.drifted.iter().all(|d| plan.is_taken_from_base(d)), "{:?}", plan.drifted);
    assert_eq!(applied(&open(&world), None, &options).unwrap().skipped.len(), 1);
    assert_eq!(fs::read(world.base().join("gone/b/c")).unwrap(), b"theirs");
    // What is not named stays to be decided.
    let options = ApplyOptions { take_base: vec![path("gone/a")], ..all() };
    let plan = planned(&open(&world), None, &options).unwrap();
    let taken = plan.drifted.iter().filter(|d| plan.is_taken_from_base(d));
    assert_eq!(taken.map(|d| d.path.clone()).collect::<Vec<_>>(), [path("gone/a")]);
    assert!(plan.has_drifted(&path("gone/b/c")), "{:?}", plan.drifted);
    let options = ApplyOptions { take_session: vec![path("gone/a")], ..all() };
    let plan = planned(&open(&world), None, &options).unwrap();
    assert!(!plan.has_drifted(&path("gone/a")) && plan.has_drifted(&path("gone/b/c")));
    let options = ApplyOptions { take_session: vec![path("gone")], ..all() };
    assert_eq!(planned(&open(&world), None, &options).unwrap().drifted, []);
    applied(&open(&world), None, &options).unwrap();
    assert!(!world.base().join("gone").exists());
}

#[test]
fn what_came_to_a_copy_with_the_base_where_a_directory_was_made_again() {
    let mut world = World::new(TREE);
    world.change_base();
    world.rm_rf("gone");
    world.mkdir("gone").unwrap();
    at_the_hosts_time(&world, "acetate_opaque", "created_at", next_second());
    fs::write(world.base().join("gone/new"), "theirs").unwrap();
    let drifted = drifted_in_both(&mut world);
    let wanted = "/gone/new: changed in the base since it was deleted";
    assert!(drifted.iter().any(|found| found == wanted), "{drifted:?}");
}

#[test]
fn what_the_base_has_is_told_of_a_copy_with_the_same() {
    let mut world = World::new(TREE);
    world.change_base();
    world.write("dir/file", 0, b"mine").unwrap();
    fs::write(world.base().join("dir/file"), "theirs").unwrap();
    assert_eq!(drifted_in_both(&mut world), ["/dir/file: the base changed the same lines"]);
}

#[test]
fn a_directory_that_was_only_added_to_has_not_drifted() {
    let mut world = World::new(TREE);
    world.write("dir/file", 0, b"mine").unwrap();
    let base = world.change_base();
    fs::write(base.join("dir/theirs"), "theirs").unwrap();
    let opened = open(&world);
    let mut wanted = merged(&world.session(), Some(&base));
    // Only the base changed the directory's time.
    let mtime = on_host(&base)[&b"dir"[..]].mtime;
    wanted.get_mut(&b"dir"[..]).unwrap().mtime = mtime;
    assert_eq!(applied(&opened, None, &all()).unwrap().skipped, []);
    assert_same(&on_host(&base), &wanted);
    assert_eq!(fs::read(base.join("dir/theirs")).unwrap(), b"theirs");
}

#[test]
fn a_directory_whose_mode_both_changed() {
    let mut world = World::new(TREE);
    world.put("dir/mine", "mine");
    world.chmod("dir", 0o711).unwrap();
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(world.change_base().join("dir"), private).unwrap();
    assert_eq!(drifted(&mut world), [("/dir".to_owned(), DriftReason::Changed)]);
}

/// The session has the directory for its entries alone.
#[test]
fn a_directory_keeps_the_mode_that_it_got_in_the_base() {
    let mut world = World::new(TREE);
    world.put("dir/mine", "mine");
    world.put("gone/b/more", "more");
    world.rename("gone", "moved").unwrap();
    let base = world.change_base();
    let copy = copy(&world, "copy");
    for dir in ["dir", "gone/b", "gone"] {
        fs::set_permissions(base.join(dir), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let opened = open(&world);
    assert_eq!(planned(&opened, None, &all()).unwrap().drifted, []);
    drop(opened);
    let mut seen = Vec::new();
    diff(&open(&world), &DiffOptions::default(), &mut |_, difference| {
        assert!(!difference.differs.mode, "{}", difference.path.display());
        seen.push(difference.path.display().to_string());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    seen.sort();
    assert_eq!(seen, ["/dir/mine", "/moved", "/moved/b/more"]);
    let mode = |path: std::path::PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    let was = mode(copy.join("dir"));
    assert_eq!(applied(&open(&world), Some(&copy), &all()).unwrap().skipped, []);
    assert_eq!([mode(copy.join("dir")), mode(copy.join("moved"))], [was; 2]);
    assert_eq!(apply_served(&world, &super::only(&["/dir"])).skipped, []);
    assert_eq!(apply_served(&world, &all()).skipped, []);
    for dir in ["dir", "moved/b", "moved"] {
        assert_eq!(mode(base.join(dir)), 0o700, "{dir}");
    }
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_inode"), 1);
}

/// Then the change of the base cannot be told from one of the session.
#[test]
fn a_session_of_an_older_version_lacks_the_mode_of_the_copy_up() {
    let mut world = World::new(TREE);
    world.put("dir/mine", "mine");
    world.close();
    for column in ["mode", "uid", "gid"] {
        let drop = format!("ALTER TABLE acetate_origin DROP COLUMN {column}");
        world.sql().execute(&drop, []).unwrap();
    }
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
    let private = fs::Permissions::from_mode(0o700);
    fs::set_permissions(world.change_base().join("dir"), private).unwrap();
    let drifted = planned(&open(&world), None, &all()).unwrap().drifted;
    let found: Vec<_> = drifted.iter().map(|d| (d.path.display().to_string(), d.reason)).collect();
    assert_eq!(found, [("/dir".to_owned(), DriftReason::Changed)]);
    world.open_again();
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted.len(), 1);
}

/// An apply of a part is no change of somebody else's.
#[test]
fn a_directory_that_got_its_mode_from_the_session() {
    let mut world = World::new(TREE);
    world.put("dir/mine", "mine");
    world.put("dir/more", "more");
    world.change_base();
    let opened = open(&world);
    let part = super::only(&["/dir/mine"]);
    let plan = planned(&opened, None, &part).unwrap();
    let mut watch = |_| std::ops::ControlFlow::Continue(());
    apply(&opened, None, &part, Consent::Shown(&plan), Some(&mut Book(&world)), &mut watch)
        .unwrap();
    drop(opened);
    world.chmod("dir", 0o700).unwrap();
    assert_eq!(planned(&open(&world), None, &all()).unwrap().drifted, []);
}

/// The session has the top since it was made, and has not changed it by that.
#[test]
fn the_top_keeps_the_hosts_mode() {
    let mut world = World::new(TREE);
    world.put("mine", "mine");
    let private = fs::Permissions::from_mode(0o700);
    let base = world.change_base();
    fs::set_permissions(&base, private).unwrap();
    assert_eq!(applied(&open(&world), None, &all()).unwrap().skipped, []);
    assert_eq!(base.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    world.chmod("", 0o711).unwrap();
    assert_eq!(applied(&open(&world), None, &all()).unwrap().skipped, []);
    assert_eq!(base.metadata().unwrap().permissions().mode() & 0o777, 0o711);
}

/// A client removes a file after `apply` put it, and before `apply` set its attributes.
#[test]
fn what_apply_itself_did_after_a_removal() {
    let still_as_left = |is_as_left: bool| {
        let mut world = World::new(TREE);
        world.tick(LONG_AGO - world.now());
        world.write("dir/file", 0, b"mine").unwrap();
        let object = world.stat("dir/file");
        let base = world.change_base().join("dir/file");
        fs::write(&base, "mine").unwrap();
        let left = fs::symlink_metadata(&base).unwrap();
        let left = Time { secs: left.ctime(), nanos: left.ctime_nsec() as u32 };
        world.remove("dir/file").unwrap();
        let let_go = RebaseItem {
            path: super::path("dir/file"),
            from: None,
            object: Some((object.fileid, object.ctime)),
            was_entry: true,
            base_ctime: is_as_left.then_some(left),
            was_linked: false,
            not_given: None,
            merged: MergedParts::default(),
        };
        let kept = world.wait(world.overlay.rebase(&world.caller, vec![let_go])).unwrap();
        assert_eq!(kept, [super::path("dir/file")]);
        planned(&open(&world), None, &all()).unwrap().drifted.len()
    };
    assert_eq!(still_as_left(true), 0);
    assert_eq!(still_as_left(false), 1);
}
