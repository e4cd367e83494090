//! Incomplete checkpoints: another program changed the session, which saves nothing for them.

use acetate::delta::sqlite::{CheckOptions, Host, OpenMode, RepairOptions, Session};
use acetate::delta::{Checkpoint, Incomplete};
use acetate::inspect::check::check;
use acetate::inspect::repair::repair;

use crate::support::world::World;

const TREE: &str = "a \"a\"\ndir/b \"b\"\nlink -> a\n";

/// What other programs do to a tree.
const CHANGES: [&str; 7] = [
    "UPDATE fs_inode SET mode = mode | 1 WHERE ino > 1",
    "DELETE FROM fs_data WHERE ino = (SELECT ino FROM fs_dentry WHERE name = 'made');
     DELETE FROM fs_inode WHERE ino = (SELECT ino FROM fs_dentry WHERE name = 'made');
     DELETE FROM fs_dentry WHERE name = 'made'",
    "INSERT INTO fs_whiteout (path, created_at) VALUES ('/dir/b', 5)",
    "UPDATE fs_data SET data = CAST('otherwise' AS BLOB);
     UPDATE fs_inode SET size = 9 WHERE ino IN (SELECT ino FROM fs_data)",
    "UPDATE fs_inode SET mtime = mtime + 1 WHERE ino > 1",
    "UPDATE fs_symlink SET target = 'tarGet'",
    "INSERT INTO fs_inode (ino, mode, nlink, size, atime, mtime, ctime)
       VALUES (7, 16877, 1, 0, 5, 5, 5);
     INSERT INTO fs_dentry (name, parent_ino, ino) VALUES ('born', 1, 7)",
];

/// What is no change of the tree.
const OTHER_CHANGES: [&str; 4] = [
    "SELECT 1",
    "UPDATE fs_inode SET atime = atime + 1",
    "INSERT INTO kv_store (key, value) VALUES ('key', '1')",
    "VACUUM",
];

fn world() -> World {
    let mut world = World::new(TREE);
    world.put("made", "made");
    world.symlink("target", "dir/symlink").unwrap();
    world.checkpoint();
    world.close();
    world
}

/// What the session, at rest or served, says of its checkpoints.
fn listed(world: &World) -> Vec<Option<Incomplete>> {
    let host = Host::current().unwrap();
    let session = Session::open(&world.session(), OpenMode::Inspect, &host).unwrap();
    let incomplete = |one: &Checkpoint| one.incomplete;
    let all: Vec<_> = session.checkpoints().unwrap().iter().map(incomplete).collect();
    let space = session.checkpoint_space().unwrap().unwrap();
    assert_eq!(space.incomplete, all.iter().flatten().count() as u64);
    all
}

#[test]
fn what_another_program_changes_makes_checkpoints_incomplete() {
    const FOREIGN: Option<Incomplete> = Some(Incomplete::OtherProgram);
    for change in CHANGES {
        let mut world = world();
        assert_eq!(listed(&world), [None], "{change}");
        world.sql().execute_batch(change).unwrap();
        assert_eq!(listed(&world), [FOREIGN], "{change}: before it is opened");
        world.open_again();
        assert_eq!(listed(&world), [FOREIGN], "{change}");
        // The next one is complete, and stays so.
        world.checkpoint();
        world.put("later", "later");
        assert_eq!(listed(&world), [FOREIGN, None], "{change}");
        for _ in 0..2 {
            world.reopen();
            assert_eq!(listed(&world), [FOREIGN, None], "{change}");
        }
    }
}

#[test]
fn nothing_else_does() {
    for change in OTHER_CHANGES {
        let mut world = world();
        world.sql().execute_batch(change).unwrap();
        assert_eq!(listed(&world), [None], "{change}");
        world.open_again();
        world.put("more", "more");
        world.checkpoint();
        world.reopen();
        assert_eq!(listed(&world), [None, None], "{change}");
        world.kill();
        world.reopen();
        assert_eq!(listed(&world), [None, None], "{change}: after a kill");
    }
}

/// A foreign change is looked for after every clean end, also of a server that changed nothing.
#[test]
fn a_later_change_is_found_too() {
    let mut world = world();
    for _ in 0..2 {
        world.open_again();
        world.close();
    }
    world.sql().execute_batch(CHANGES[0]).unwrap();
    world.open_again();
    world.checkpoint();
    world.close();
    world.open_again();
    world.close();
    world.sql().execute_batch(CHANGES[1]).unwrap();
    assert_eq!(listed(&world), [Some(Incomplete::OtherProgram); 2]);
    world.open_again();
    assert_eq!(listed(&world), [Some(Incomplete::OtherProgram); 2]);
}

/// Until now, sessions had neither the column nor the sum.
#[test]
fn a_session_of_an_earlier_version_has_its_checkpoints() {
    let mut world = world();
    let earlier = "ALTER TABLE acetate_checkpoint DROP COLUMN incomplete;
         DELETE FROM acetate_meta WHERE key = 'tree_sum'";
    world.sql().execute_batch(earlier).unwrap();
    assert_eq!(listed(&world), [None], "it is only looked at");
    world.open_again();
    assert_eq!(listed(&world), [None]);
    world.remove("made").unwrap();
    world.checkpoint();
    world.close();
    world.sql().execute_batch(CHANGES[4]).unwrap();
    assert_eq!(listed(&world), [Some(Incomplete::OtherProgram); 2]);
}

/// An earlier version saves rows, but does not know the sum: its changes have rows in the log.
#[test]
fn a_change_of_an_earlier_version_is_none_of_another_program() {
    let mut world = world();
    let sum: String = world.sql_value("SELECT value FROM acetate_meta WHERE key = 'tree_sum'");
    world.open_again();
    world.remove("made").unwrap();
    world.close();
    let put = "UPDATE acetate_meta SET value = ?1 WHERE key = 'tree_sum'";
    assert_eq!(world.sql().execute(put, [sum]).unwrap(), 1);
    assert_eq!(listed(&world), [None]);
    world.open_again();
    assert_eq!(listed(&world), [None]);
}

/// K2: each word in the column is known.
#[test]
fn an_unknown_reason_is_found_and_mended() {
    let mut world = world();
    world.sql().execute_batch("UPDATE acetate_checkpoint SET incomplete = 'moon'").unwrap();
    assert_eq!(listed(&world), [Some(Incomplete::OtherProgram)]);
    let options = CheckOptions { most: 9, quick: false };
    let is_sound = || check(&world.session(), None, &options).unwrap().is_sound();
    assert!(!is_sound());
    let how = RepairOptions { backup: None, dry_run: false, most: 9 };
    let (report, _) = repair(&world.session(), None, &how, &mut |_, _| ()).unwrap();
    let rules: Vec<_> = report.mended.iter().map(|mended| mended.rule).collect();
    assert_eq!(rules, ["K2"]);
    assert!(is_sound());
    assert_eq!(listed(&world), [Some(Incomplete::OtherProgram)]);
    world.open_again();
}
