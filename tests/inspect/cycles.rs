//! Tools on a session whose directories form a cycle, which only other programs write (S8).

use std::path::PathBuf;

use acetate::delta::MergedPath;
use acetate::delta::sqlite::{CheckOptions, RepairOptions};
use acetate::inspect::check::check;
use acetate::inspect::opened::{OpenSession, find};
use acetate::inspect::repair::repair;
use acetate::inspect::status::status;
use acetate::inspect::walk::{WalkControl, walk};
use acetate::workspace::Workspace;

use crate::support::exported::{dir_of, options, tar_of};
use crate::support::world::World;

/// A session where `/a/b/loop` is the directory `/a`, and the world that it was made in.
fn looped() -> (World, PathBuf) {
    let mut world = World::new("");
    world.mkdir("a").unwrap();
    world.mkdir("a/b").unwrap();
    world.put("a/b/file", "content");
    world.close();
    // The world's own session has to be sound.
    let copy = world.scratch().join("looped.db");
    std::fs::copy(world.session(), &copy).unwrap();
    rusqlite::Connection::open(&copy)
        .unwrap()
        .execute_batch(
            "INSERT INTO fs_dentry (name, parent_ino, ino)
             SELECT 'loop', b.ino, a.ino FROM fs_dentry a JOIN fs_dentry b ON b.parent_ino = a.ino
             WHERE a.name = 'a' AND b.name = 'b';",
        )
        .unwrap();
    (world, copy)
}

fn open((world, session): &(World, PathBuf)) -> OpenSession {
    OpenSession::open(session, Some(&world.base())).unwrap()
}

const LOOP: &str = "/a/b/loop: a directory is among its own parents";

#[test]
fn a_walk_refuses_the_directory_that_is_among_its_own_parents() {
    let looped = looped();
    let walked = open(&looped).with_tree(|view| {
        let mut paths = Vec::new();
        let root = view.root().unwrap();
        let walked = walk(view, &root, &mut |_, object, _| {
            paths.push(object.path().display().to_string());
            assert!(paths.len() < 10, "{paths:?}");
            Ok(WalkControl::Deeper)
        });
        assert_eq!(walked.unwrap_err().to_string(), LOOP);
        // A path through it is refused as well.
        let path = MergedPath::from_user(b"a/b/loop/b").unwrap();
        let found = find(view, &path).unwrap_err();
        assert_eq!(found.to_string(), "/a/b/loop/b: a directory is among its own parents");
        Ok(())
    });
    walked.unwrap();
}

#[test]
fn what_the_session_changed_is_refused_and_exports_leave_the_directory_out() {
    let looped = looped();
    let opened = open(&looped);
    let refused = status(&opened).unwrap_err();
    assert_eq!(refused.to_string(), LOOP);
    assert!(refused.hint().unwrap().contains("a repair detaches it"));
    for delta_only in [false, true] {
        let (archive, left_out) = tar_of(&opened, &options("/", delta_only)).unwrap();
        let what = "/a/b/loop: its entries cannot be listed: a directory is among its own parents";
        assert_eq!(left_out, [what]);
        assert!(archive.len() < 20_000);
        let to = looped.0.scratch().join(format!("out-{delta_only}"));
        assert_eq!(dir_of(&opened, &options("/", delta_only), &to).unwrap().left_out, 1);
        assert_eq!(std::fs::read_to_string(to.join("a/b/file")).unwrap(), "content");
    }
}

#[test]
fn every_change_that_a_server_makes_there_ends() {
    let (world, session) = looped();
    let mut work = Workspace::open(&session, Some(&world.base())).unwrap();
    assert!(work.list("a/b/loop/b/loop").is_err());
    // A client's handle leads through it to the directory itself, as often as it likes.
    work.write("a/b/loop/b/loop/b/more", "more".as_bytes()).unwrap();
    assert_eq!(work.read("a/b/more").unwrap(), b"more");
    let refused = work.rename("a", "a/b/loop/b/into-itself").unwrap_err();
    assert!(refused.to_string().contains("invalid argument"), "{refused}");
    work.rename("a/b/loop/b/more", "a/more").unwrap();
    assert_eq!(work.read("a/more").unwrap(), b"more");
    assert!(work.discard(&["a"]).is_err());
    work.close().unwrap();
}

#[test]
fn check_names_it_and_repair_cuts_it_loose() {
    let looped = looped();
    let options = CheckOptions { most: 10, quick: true };
    let (world, session) = &looped;
    let found = check(session, Some(&world.base()), &options).unwrap();
    assert!(found.broken.iter().any(|broken| broken.rule == "S8"), "{found:?}");
    let options = RepairOptions { dry_run: false, most: 10, backup: None };
    repair(session, Some(&world.base()), &options, &mut |_, _| {}).unwrap();
    assert!(status(&open(&looped)).is_ok());
}
