//! How much what is saved for checkpoints takes, and what is removed to bound it.

use acetate::delta::sqlite::{Host, OpenMode, Session};
use acetate::delta::{
    CheckpointId, CheckpointKeep, CheckpointKind, CheckpointSpace, MadeCheckpoint, NewCheckpoint,
    RestoreOutcome, RestoreRequest, Store,
};
use acetate::vfs::Time;

use crate::support::world::World;

const KIB: usize = 1024;

/// A session that saves at most so much, with files of 64 KiB.
fn world(max_bytes: u64, files: usize) -> World {
    let mut world = World::plain();
    for file in 0..files {
        world.put(file.to_string(), &"0".repeat(64 * KIB));
    }
    world.close();
    let mut session =
        Session::open(&world.session(), OpenMode::Serve, &Host::current().unwrap()).unwrap();
    let keep = CheckpointKeep { max_bytes: Some(max_bytes), ..CheckpointKeep::default() };
    session.record_checkpoint_keep(keep).unwrap();
    session.writer().unwrap().close().unwrap();
    drop(session);
    world.open_again();
    world
}

fn make(world: &World, kind: CheckpointKind, name: Option<&str>) -> i64 {
    let name = name.map(str::to_owned);
    let time = Time::default();
    let new =
        NewCheckpoint { name, kind, labels: Default::default(), time, reuses: false, needed: None };
    match world.wait(world.overlay.create_checkpoint(new)).unwrap() {
        MadeCheckpoint::Made(made) => made.id.0,
        other => panic!("{other:?}"),
    }
}

/// Replaces a whole file: 64 KiB are saved for the newest checkpoint.
fn replace(world: &World, file: usize, with: u8) {
    world.write(file.to_string(), 0, &vec![with; 64 * KIB]).unwrap();
}

fn ids(world: &World) -> Vec<i64> {
    let ids = "SELECT concat(id) FROM acetate_checkpoint WHERE kind <> 'removed' ORDER BY id";
    world.sql_list(ids).iter().map(|id| id.parse().unwrap()).collect()
}

/// Bounds them, as the background does.
#[track_caller]
fn bound(world: &World) -> CheckpointSpace {
    world.wait(world.overlay.bound_checkpoints()).unwrap();
    let space = world.wait(world.overlay.checkpoint_space()).unwrap().unwrap();
    assert!(!space.has_removed && space.removable.is_none(), "{space:?}");
    let removed = "SELECT count(*) FROM acetate_checkpoint WHERE kind = 'removed'";
    assert_eq!(world.sql_value::<i64>(removed), 0);
    space
}

#[test]
fn the_oldest_automatic_ones_go_first() {
    let mut world = world(300 * KIB as u64, 1);
    for round in 0..10 {
        make(&world, CheckpointKind::Tool, None);
        replace(&world, 0, round);
    }
    let space = bound(&world);
    assert!(space.saved_bytes <= space.max_bytes && !space.is_stuck(), "{space:?}");
    assert_eq!(ids(&world), [7, 8, 9, 10], "four times 64 KiB");
    // The one that is left is as it was.
    let newest = world.sql_value::<Vec<u8>>(
        "SELECT data FROM acetate_old_fs_data WHERE checkpoint = 7 AND present",
    );
    assert_eq!(newest, vec![5; 64 * KIB]);
    world.close();
}

#[test]
fn a_named_one_and_a_forks_stay_and_are_exact() {
    let mut world = world(100 * KIB as u64, 1);
    let named = make(&world, CheckpointKind::Tool, Some("named"));
    replace(&world, 0, 1);
    let manual = make(&world, CheckpointKind::Manual, None);
    replace(&world, 0, 2);
    let fork = make(&world, CheckpointKind::Fork, None);
    replace(&world, 0, 3);
    for round in 4..8 {
        make(&world, CheckpointKind::Idle, None);
        replace(&world, 0, round);
    }
    let newest = *ids(&world).last().unwrap();
    let space = bound(&world);
    assert_eq!(ids(&world), [named, manual, fork, newest]);
    // The three that stay and the newest take more than they may.
    assert!(space.is_stuck(), "{space:?}");
    let saved = "SELECT concat(checkpoint, ' ', substr(hex(data), 1, 2)) FROM acetate_old_fs_data
                 WHERE present ORDER BY checkpoint";
    let expected = [(named, "30"), (manual, "01"), (fork, "02"), (newest, "06")];
    assert_eq!(world.sql_list(saved), expected.map(|(id, byte)| format!("{id} {byte}")));
    world.close();
}

/// Each file changes once: what an automatic one has, the named one before needs.
#[test]
fn where_a_removal_frees_nothing_none_is_removed() {
    let mut world = world(100 * KIB as u64, 6);
    make(&world, CheckpointKind::Manual, Some("first"));
    for file in 0..5 {
        replace(&world, file, 1);
        make(&world, CheckpointKind::Tool, None);
    }
    let space = bound(&world);
    assert!(space.is_stuck(), "{space:?}");
    assert_eq!(ids(&world).len(), 6);
    // A later one is removed where that frees something, though older ones free nothing.
    for round in 2..4 {
        replace(&world, 5, round);
        make(&world, CheckpointKind::Tool, None);
    }
    replace(&world, 5, 4);
    let before = ids(&world);
    let space = bound(&world);
    assert!(space.is_stuck(), "{space:?}");
    let gone: Vec<_> = before.iter().filter(|id| !ids(&world).contains(id)).collect();
    assert_eq!(gone, [&7]);
    world.close();
}

/// The tree can still go back to where the last restore went, and came from.
#[test]
fn those_of_the_last_restore_stay() {
    let mut world = world(0, 1);
    for round in 0..5 {
        make(&world, CheckpointKind::Tool, None);
        replace(&world, 0, round);
    }
    let to = CheckpointId(3);
    let restore = RestoreRequest { to, seen: None, time: Time::default() };
    let done = world.wait(world.overlay.restore(&world.caller, restore)).unwrap();
    let RestoreOutcome::Restored(restored) = done else { panic!("{done:?}") };
    for round in 10..14 {
        make(&world, CheckpointKind::Tool, None);
        replace(&world, 0, round);
    }
    let newest = *ids(&world).last().unwrap();
    assert!(bound(&world).is_stuck());
    assert_eq!(ids(&world), [3, restored.before.0, newest]);
    world.close();
}

/// Without checkpoints there is nothing to bound, and a kill in the middle loses nothing.
#[test]
fn a_kill_between_two_pieces_is_no_harm() {
    let mut world = world(1 << 30, 40);
    assert_eq!(world.wait(world.overlay.checkpoint_space()).unwrap(), None);
    make(&world, CheckpointKind::Manual, Some("first"));
    let then = world.cat("39");
    make(&world, CheckpointKind::Tool, None);
    for file in 0..40 {
        replace(&world, file, 1);
    }
    make(&world, CheckpointKind::Tool, None);
    for file in 0..40 {
        replace(&world, file, 2);
    }
    // Not as the overlay removes one: only marked, and freed in part.
    world.close();
    let session =
        Session::open(&world.session(), OpenMode::Serve, &Host::current().unwrap()).unwrap();
    let mut writer = session.writer().unwrap();
    for step in 0..10 {
        writer.begin(false).unwrap();
        match step {
            0 => assert!(writer.txn().remove_checkpoint(CheckpointId(2)).unwrap()),
            _ => assert!(writer.txn().free_removed(3).unwrap()),
        }
        writer.commit().unwrap();
    }
    drop((writer, session));
    world.open_again();
    world.kill();
    let handed = "SELECT count(*) FROM acetate_old_fs_inode WHERE checkpoint = ";
    assert!(world.sql_value::<i64>(&format!("{handed}1")) > 0);
    assert!(world.sql_value::<i64>(&format!("{handed}2")) > 0);
    bound(&world);
    assert_eq!(ids(&world), [1, 3]);
    assert_eq!(world.sql_value::<i64>(&format!("{handed}2")), 0);
    let restore = RestoreRequest { to: CheckpointId(1), seen: None, time: Time::default() };
    world.wait(world.overlay.restore(&world.caller, restore)).unwrap();
    assert_eq!(world.cat("39"), then);
    world.close();
}
