//! Times, link counts of directories, and wcc data, with a clock that stands still.

use std::time::Duration;

use acetate::delta::RestoreRequest;
use acetate::vfs::{Attr, CreateHow, FsError, Outcome, SetAttr, SetTime, Time, Vfs, Wcc};

use crate::support::client::{mode, size};
use crate::support::world::{START_SECS, World, begin};

const TREE: &str = r#"
    dir/sub/leaf "leaf"
    dir/file "file"
    dir/hard = dir/file
    other/
"#;

/// Asserts that a change moves the ctime of exactly `moved` among these paths.
#[track_caller]
fn assert_moves(world: &World, watched: &[&str], moved: &[&str], change: impl FnOnce()) {
    let stat = |path: &&str| world.stat(path);
    let before: Vec<Attr> = watched.iter().map(stat).collect();
    change();
    for (path, before) in watched.iter().zip(before) {
        let after = world.stat(path);
        if moved.contains(path) {
            assert!(after.ctime > before.ctime, "{path}: {before:?} {after:?}");
        } else {
            assert_eq!((after.ctime, after.mtime), (before.ctime, before.mtime), "{path}");
        }
    }
}

#[test]
fn every_change_moves_ctime_forward_though_the_clock_stands_still() {
    let world = World::new(TREE);
    let watched = ["", "dir", "dir/sub", "dir/file", "other"];
    let all = &watched[..];
    for _ in 0..3 {
        assert_moves(&world, all, &["dir/file"], || world.write("dir/file", 0, b"x").unwrap());
        assert_moves(&world, all, &["dir/file"], || world.truncate("dir/file", 2).unwrap());
        assert_moves(&world, all, &["dir/file"], || world.chmod("dir/file", 0o600).unwrap());
        assert_moves(&world, all, &["dir"], || world.chmod("dir", 0o700).unwrap());
        assert_moves(&world, all, &["other"], || world.put("other/new", ""));
        assert_moves(&world, all, &["dir", "other"], || {
            world.rename("other/new", "dir/new").unwrap();
        });
        assert_moves(&world, all, &["dir/file", "other"], || {
            world.link("dir/file", "other/link").unwrap();
        });
        assert_moves(&world, all, &["dir/file", "other"], || world.remove("other/link").unwrap());
        assert_moves(&world, all, &["dir"], || world.remove("dir/new").unwrap());
        assert_moves(&world, all, &["dir/sub"], || {
            world.mkdir("dir/sub/d").unwrap();
        });
        assert_moves(&world, all, &["dir/sub"], || world.rmdir("dir/sub/d").unwrap());
        assert_moves(&world, all, &["dir/sub", "dir", "other"], || {
            world.rename("dir/sub", "other/sub").unwrap();
            world.rename("other/sub", "dir/sub").unwrap();
        });
        assert_moves(&world, all, &[], || world.rename("dir", "dir").unwrap());
    }
}

#[test]
fn a_clock_that_goes_back_takes_no_ctime_along() {
    let world = World::new(TREE);
    world.put("new", "");
    world.tick(-1_000_000);
    assert_moves(&world, &["new", ""], &["new"], || world.write("new", 0, b"x").unwrap());
    assert_moves(&world, &["new", ""], &[""], || world.put("newer", ""));
    assert_eq!(world.stat("newer").ctime.secs, START_SECS - 1_000_000);
}

#[test]
fn times_have_nanoseconds_and_survive_a_restart() {
    let mut world = World::new(TREE);
    for time in [
        Time { secs: 1, nanos: 999_999_999 },
        Time { secs: 0, nanos: 1 },
        Time { secs: -5, nanos: 7 },
        Time { secs: 4_294_967_295, nanos: 0 },
    ] {
        world.utimes("dir/file", time).unwrap();
        world.utimes("dir", time).unwrap();
        world.reopen();
        for path in ["dir/file", "dir"] {
            let attr = world.stat(path);
            assert_eq!((attr.atime, attr.mtime), (time, time), "{path}");
            assert!(attr.ctime.secs >= START_SECS);
        }
    }
    let now = SetAttr { mtime: SetTime::ServerNow, ..SetAttr::default() };
    world.tick(9);
    world.setattr("dir/file", now).unwrap();
    assert_eq!(world.stat("dir/file").mtime, Time { secs: START_SECS + 9, nanos: 0 });
}

#[test]
fn directories_count_their_visible_subdirectories() {
    let mut world = World::new("d/a/\nd/b/x/\nd/file\nempty/");
    let links = |world: &World| (world.stat("").nlink, world.stat("d").nlink);
    assert_eq!(links(&world), (4, 4));
    world.mkdir("d/c").unwrap();
    assert_eq!(links(&world), (4, 5));
    world.rename("d/a", "a").unwrap();
    assert_eq!(links(&world), (5, 4));
    world.rmdir("d/c").unwrap();
    world.rm_rf("d/b");
    assert_eq!(links(&world), (5, 2));
    world.rename("a", "empty").unwrap();
    assert_eq!(links(&world), (4, 2));
    world.put("d/file2", "");
    world.reopen();
    assert_eq!(links(&world), (4, 2));
    world.rename("empty", "d/file").unwrap_err();
    world.rename("empty", "d/empty").unwrap();
    assert_eq!(links(&world), (3, 3));
    assert_eq!(world.sql_value::<i64>("SELECT max(nlink) FROM fs_inode"), 1, "the spec's count");
}

#[test]
fn reads_move_atime_as_relatime_does_and_write_nothing() {
    let mut world = World::new(TREE);
    let base = world.stat("dir/file").atime;
    world.tick(100);
    world.cat("dir/file");
    assert_eq!(world.stat("dir/file").atime, base, "base objects keep theirs");
    world.put("new", "content");
    world.tick(100);
    let written: i64 = world.sql_value("SELECT count(*) FROM acetate_op");
    world.cat("new");
    let read_at = Time { secs: START_SECS + 200, nanos: 0 };
    assert_eq!(world.stat("new").atime, read_at);
    world.tick(50);
    world.cat("new");
    assert_eq!(world.stat("new").atime, read_at, "later than the last change already");
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_op"), written);
    world.tick(24 * 60 * 60);
    world.cat("new");
    let day_later = Time { secs: START_SECS + 250 + 24 * 60 * 60, nanos: 0 };
    assert_eq!(world.stat("new").atime, day_later);
    let ctime = world.stat("new").ctime;
    world.mkdir("any").unwrap();
    world.reopen();
    assert_eq!(world.stat("new").atime, day_later, "written with the next change");
    assert_eq!(world.stat("new").ctime, ctime);
}

#[test]
fn a_pending_atime_gives_way_to_one_that_is_set() {
    let mut world = World::new("");
    world.put("new", "content");
    world.tick(100);
    world.cat("new");
    let set = Time { secs: 1_000, nanos: 3 };
    world.utimes("new", set).unwrap();
    assert_eq!(world.stat("new").atime, set);
    world.reopen();
    assert_eq!(world.stat("new").atime, set);
}

#[test]
fn a_refused_change_writes_no_pending_atime() {
    let mut world = World::new("");
    world.put("new", "content");
    world.tick(100);
    world.cat("new");
    let read_at = world.stat("new").atime;
    let calls = |world: &World| ["put_inode", "abort"].map(|what| world.faults.calls(what));
    let [puts, aborts] = calls(&world);
    assert_eq!(world.mkdir("new").err(), Some(FsError::Exists));
    assert_eq!(calls(&world), [puts, aborts + 1]);
    world.mkdir("any").unwrap();
    world.reopen();
    assert_eq!(world.stat("new").atime, read_at);
}

#[test]
fn a_failed_change_keeps_a_pending_atime() {
    let mut world = World::new("");
    world.put("new", "content");
    world.tick(100);
    world.cat("new");
    let read_at = world.stat("new").atime;
    world.remove("missing").unwrap_err();
    assert_eq!(world.stat("new").atime, read_at);
    world.mkdir("any").unwrap();
    world.reopen();
    assert_eq!(world.stat("new").atime, read_at);
}

/// Asserts that wcc data is what GETATTR said right before and says right after.
#[track_caller]
fn assert_exact<T>(world: &World, path: &str, change: impl FnOnce() -> (Outcome<T, ()>, Wcc)) {
    let before = world.stat(path);
    let (outcome, wcc) = change();
    assert_eq!(wcc.before, Some((&before).into()), "{path}");
    assert_eq!(wcc.after, Some(world.stat(path)), "{path}");
    assert_eq!(outcome.result.is_err(), world.stat(path).ctime == before.ctime, "{path}");
}

fn apart<T>(outcome: Outcome<T, Wcc>) -> (Outcome<T, ()>, Wcc) {
    (Outcome { result: outcome.result, context: () }, outcome.context)
}

#[test]
fn wcc_data_is_exact_on_success_and_failure() {
    let world = World::new(TREE);
    let (dir, file) = (world.at("dir"), world.at("dir/file"));
    for guard in [Some(Time::default()), None] {
        assert_exact(&world, "dir/file", || apart(world.set(&file, mode(0o604), guard)));
        assert_exact(&world, "dir/file", || apart(world.set(&file, size(3), guard)));
    }
    for _ in 0..2 {
        let how = CreateHow::Guarded(mode(0o644));
        assert_exact(&world, "dir", || apart(world.create_in(&dir, b"new", how)));
    }
    for name in [&b"new"[..], b"new", b"sub"] {
        let removed = world.wait(world.overlay.remove(&world.caller, &dir, name));
        let failed = removed.result.is_err();
        let wcc = removed.context;
        assert_eq!(wcc.after, Some(world.stat("dir")));
        assert_eq!(failed, wcc.before == wcc.after.as_ref().map(Into::into));
    }
    let other = world.at("other");
    for _ in 0..2 {
        let before = (world.stat("dir"), world.stat("other"));
        let renamed =
            world.wait(world.overlay.rename(&world.caller, (&dir, b"sub"), (&other, b"sub")));
        let (from, to) = renamed.context;
        assert_eq!(from.before, Some((&before.0).into()));
        assert_eq!(to.before, Some((&before.1).into()));
        assert_eq!(from.after, Some(world.stat("dir")));
        assert_eq!(to.after, Some(world.stat("other")));
    }
    let linked = world.wait(world.overlay.link(&world.caller, &file, &dir, b"sub2"));
    linked.result.unwrap();
    assert_eq!(linked.context.0, Some(world.stat("dir/file")));
    let linked = world.wait(world.overlay.link(&world.caller, &file, &dir, b"sub2"));
    assert_eq!(linked.result.err(), Some(FsError::Exists));
    assert_eq!(linked.context.0, Some(world.stat("dir/file")));
    assert_eq!(linked.context.1.after, Some(world.stat("dir")));
}

#[test]
fn a_guard_lets_only_the_expected_state_be_changed() {
    let mut world = World::new(TREE);
    let file = world.at("dir/file");
    let ctime = world.stat("dir/file").ctime;
    assert_eq!(world.set(&file, mode(0o600), Some(ctime.next())).result, Err(FsError::NotSync));
    world.set(&file, mode(0o600), Some(ctime)).result.unwrap();
    assert_eq!(world.set(&file, mode(0o644), Some(ctime)).result, Err(FsError::NotSync));
    world.reopen();
    let ctime = world.stat("dir/file").ctime;
    world.set(&file, mode(0o644), Some(ctime)).result.unwrap();
    assert_eq!(world.stat("dir/file").mode, 0o644);
}

#[test]
fn figures_of_the_filesystem_come_with_attributes() {
    let world = World::new(TREE);
    let (file, caller) = (world.at("dir/file"), &world.caller);
    let stat = world.wait(world.overlay.fsstat(caller, &file));
    let figures = stat.result.unwrap();
    assert!(figures.total_bytes >= figures.free_bytes && figures.free_bytes > 0);
    assert!(figures.free_bytes >= figures.available_bytes);
    assert_eq!(stat.context.unwrap().fileid, file.fileid());
    let info = world.wait(world.overlay.fsinfo(caller, &file)).result.unwrap();
    assert_eq!(info.max_file_bytes, i64::MAX as u64);
    let conf = world.wait(world.overlay.pathconf(caller, &file)).result.unwrap();
    assert_eq!(conf.max_name_bytes, 255);
    let commit = world.wait(world.overlay.commit(caller, &file));
    commit.result.unwrap();
    assert_eq!(commit.context.after, Some(world.stat("dir/file")));
}

#[test]
fn a_commit_shows_what_changed_after_it_looked_and_before_it_synced() {
    let world = World::new(TREE);
    for path in ["other/new", "other/large"] {
        world.put(path, "content");
    }
    let (file, large) = (world.at("other/new"), world.at("other/large"));
    let (overlay, caller) = (&world.overlay, &world.caller);
    let committed = world.wait(async {
        let begun = world.faults.calls("begin");
        let hold = world.faults.hold("begin");
        let first = begin(Box::pin(overlay.setattr(caller, &large, size(1), None))).await;
        while world.faults.calls("begin") == begun {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Both wait behind it, in this order.
        let change = begin(Box::pin(overlay.setattr(caller, &file, mode(0o600), None))).await;
        let commit = begin(Box::pin(overlay.commit(caller, &file))).await;
        drop(hold);
        let (first, change, committed) = tokio::join!(first, change, commit);
        first.result.unwrap();
        change.result.unwrap();
        committed
    });
    committed.result.unwrap();
    let now = world.stat("other/new");
    assert_eq!(now.mode, 0o600);
    assert_eq!((committed.context.before, committed.context.after), (None, Some(now)));
}

#[test]
fn a_restore_drops_a_pending_atime() {
    let world = World::new(TREE);
    world.put("new", "first");
    let then = world.stat("new").atime;
    let to = RestoreRequest { to: world.checkpoint().id, seen: None, time: Time::default() };
    world.write("new", 0, b"later").unwrap();
    world.tick(60);
    world.cat("new");
    assert!(world.stat("new").atime > then);
    world.wait(world.overlay.restore(&world.caller, to)).unwrap();
    assert_eq!(world.stat("new").atime, then);
    assert_eq!(world.cat("new"), "first");
}
