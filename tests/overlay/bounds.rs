//! Bounds on paths, and on what one call rewrites.

use std::fs;
use std::ops::ControlFlow;

use acetate::delta::{Limits, MAX_PATH_BYTES, MergedPath};
use acetate::inspect::log::{AuditLog, LogOptions};
use acetate::inspect::opened::open_session;
use acetate::vfs::{CreateHow, FsError, SetAttr};

use crate::support::client::mode;
use crate::support::counted::assert_counted;
use crate::support::world::{Setup, World};

/// The path of a directory below `top`, of `levels` names with 200 bytes; makes them.
fn chain(world: &World, top: &str, levels: usize) -> String {
    let mut path = top.to_owned();
    world.mkdir(&path).unwrap();
    for _ in 0..levels {
        path = format!("{path}/{}", "d".repeat(200));
        world.mkdir(&path).unwrap();
    }
    path
}

/// The longest path in a table of the session, in bytes.
fn longest(world: &World, table: &str) -> usize {
    let sql = format!("SELECT ifnull(max(octet_length(path)), 0) FROM {table}");
    usize::try_from(world.sql_value::<i64>(&sql)).unwrap()
}

#[test]
fn nothing_is_made_at_a_path_of_more_than_4096_bytes() {
    let world = World::plain();
    let deep = chain(&world, "a", 20);
    world.put("file", "content");
    world.mkdir("dir").unwrap();
    // With the first slash, the second, and a name.
    let fits = format!("{deep}/{}", "x".repeat(MAX_PATH_BYTES - deep.len() - 2));
    let too_long = format!("{fits}x");
    let refused = Err(FsError::NameTooLong);
    assert_eq!(world.create(&too_long, CreateHow::Guarded(mode(0o644))).map(drop), refused);
    assert_eq!(world.mkdir(&too_long).map(drop), refused);
    assert_eq!(world.symlink("to", &too_long).map(drop), refused);
    assert_eq!(world.link("file", &too_long), refused);
    assert_eq!(world.rename("file", &too_long), refused);
    assert_eq!(world.rename("dir", &too_long), refused);
    world.put(&fits, "content");
    world.rename("file", &fits).unwrap();
    world.remove(&fits).unwrap();
    assert_eq!(longest(&world, "acetate_op"), MAX_PATH_BYTES);
}

/// Directories that move take longer paths along: those are read, changed and removed.
#[test]
fn the_log_has_no_longer_path_however_deep_directories_were_moved() {
    let mut world = World::plain();
    let (a, b) = (chain(&world, "a", 19), chain(&world, "b", 19));
    world.put(format!("{a}/file"), "content");
    world.rename("a", format!("{b}/a")).unwrap();
    let moved = format!("{b}/{a}");
    assert!(moved.len() > MAX_PATH_BYTES);
    world.write(format!("{moved}/file"), 0, b"CONTENT").unwrap();
    let made = world.create(format!("{moved}/other"), CreateHow::Guarded(mode(0o644)));
    assert_eq!(made.map(drop), Err(FsError::NameTooLong));
    world.chmod(format!("{moved}/file"), 0o600).unwrap();
    assert!(longest(&world, "acetate_op") <= MAX_PATH_BYTES);
    world.reopen();
    assert_eq!(world.cat(format!("{moved}/file")), "CONTENT");
    // What the log says of them is the path of a directory above, and that.
    let session = open_session(&world.session()).unwrap();
    let mut rows = Vec::new();
    let mut log = AuditLog::open(&session, LogOptions::default()).unwrap();
    log.read(&mut |_, row| {
        rows.push(row.unwrap());
        ControlFlow::Continue(())
    })
    .unwrap();
    let shortened: Vec<_> = rows.iter().filter(|row| row.is_shortened()).collect();
    assert_eq!(shortened.len(), 2, "WRITE and SETATTR");
    let whole = MergedPath::from_user(moved.as_bytes()).unwrap();
    assert!(shortened.iter().all(|row| whole.is_within(&row.path) && row.path != whole));
    // Moving up again is no new name for what is below.
    world.rename(format!("{moved}/file"), format!("{moved}/f")).unwrap();
    world.remove(format!("{moved}/f")).unwrap();
    world.rmdir(&moved).unwrap();
}

#[test]
fn a_whiteout_is_no_longer_than_that_but_where_the_base_is() {
    let half = ["d"; 10].map(|d| d.repeat(220)).join("/");
    let mut world = World::new(&format!("{half}/one \"1\"\ntop/{half}/x \"\"\nx/one \"1\"\n"));
    let base = world.change_base();
    let (top, long) = (&half[..220], format!("top/{half}/{half}"));
    fs::rename(base.join(top), base.join(format!("top/{half}/{top}"))).unwrap();
    world.remove(format!("{long}/one")).unwrap();
    assert!(longest(&world, "fs_whiteout") > MAX_PATH_BYTES);

    let (a, b) = (chain(&world, "a", 19), chain(&world, "b", 19));
    world.rename("x", format!("{a}/x")).unwrap();
    world.rename("a", format!("{b}/a")).unwrap();
    assert_eq!(world.remove(format!("{b}/{a}/x/one")), Err(FsError::NameTooLong));
    world.rename(format!("{b}/a"), "a").unwrap();
    world.remove(format!("{a}/x/one")).unwrap();
    assert_eq!(world.rename("a", format!("{b}/a")), Err(FsError::NameTooLong));
    world.rename("a", "c").unwrap();
}

/// A RENAME rewrites the whiteouts below a directory, in one transaction.
#[test]
fn a_rename_does_not_move_more_whiteouts_than_one_call_may_take() {
    let names: Vec<_> = (0..600).map(|i| format!("{i:0>240}")).collect();
    let base: String = names.iter().map(|name| format!("x/{name} \"\"\n")).collect();
    let world = World::new(&base);
    let deep = chain(&world, "a", 18);
    world.rename("x", format!("{deep}/x")).unwrap();
    for name in &names[..500] {
        world.remove(format!("{deep}/x/{name}")).unwrap();
    }
    world.rename("a", "b").unwrap();
    world.rename("b", "a").unwrap();
    for name in &names[500..] {
        world.remove(format!("{deep}/x/{name}")).unwrap();
    }
    // mv(1) copies then.
    assert_eq!(world.rename("a", "b"), Err(FsError::CrossDevice));
    assert!(world.ls(format!("{deep}/x")).is_empty());
    world.rmdir(format!("{deep}/x")).unwrap();
    world.rename("a", "b").unwrap();
}

#[test]
fn names_targets_and_whiteouts_count() {
    let long = "n".repeat(200);
    let world = World::with(Setup {
        base: Some(format!("dir/one \"1\"\ndir/{long} \"2\"\n{long}/{long} \"3\"\n")),
        ..Setup::default()
    });
    let limit = |bytes, files| {
        let limits = Limits { bytes, files, ..Limits::default() };
        world.wait(world.overlay.set_limits(move |_| limits)).unwrap();
    };
    limit(Some(1000), Some(8));
    world.put("file", "content");
    world.link("file", "again").unwrap();
    assert_eq!(assert_counted(&world).files, 2, "a name each");
    let target = vec![b't'; 900];
    world.symlink(&target, "link").unwrap();
    assert_eq!((assert_counted(&world).bytes, assert_counted(&world).files), (907, 3));
    assert_eq!(world.symlink(&target, "link2").map(drop), Err(FsError::Quota));
    world.remove("again").unwrap();
    world.remove("link").unwrap();
    assert_eq!((assert_counted(&world).bytes, assert_counted(&world).files), (7, 1));
    // With the directory that is copied up.
    world.remove("dir/one").unwrap();
    assert_eq!(assert_counted(&world).files, 3);
    world.put("dir/one", "mine");
    world.remove("dir/one").unwrap();
    assert_eq!(assert_counted(&world).files, 3);
    // A long path counts as several names: it takes as much room.
    world.remove(format!("{long}/{long}")).unwrap();
    assert_eq!(assert_counted(&world).files, 6);
    world.rename(&long, "l").unwrap();
    assert_eq!(assert_counted(&world).files, 6, "one at its old path, one that became shorter");
    world.rmdir("l").unwrap();
    assert_eq!(assert_counted(&world).files, 4);
    world.rename("dir", "d").unwrap();
    world.remove(format!("d/{long}")).unwrap();
    world.rmdir("d").unwrap();
    assert_eq!(assert_counted(&world).files, 3);
    limit(None, Some(3));
    assert_eq!(world.link("file", "again"), Err(FsError::Quota));
    let fits = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.setattr("file", fits).unwrap();
}

#[test]
fn a_limit_of_bytes_alone_limits_names_too() {
    let limits = |bytes, files| Limits { bytes, files, ..Limits::default() }.files();
    assert_eq!(limits(None, None), None);
    assert_eq!(limits(Some(1 << 20), None), Some(65_536));
    assert_eq!(limits(Some(1 << 30), None), Some(1 << 20));
    assert_eq!(limits(Some(1 << 30), Some(7)), Some(7));
}
