//! Content that a change takes away is saved for a checkpoint before the change, in pieces.

use acetate::delta::{Checkpoint, MadeCheckpoint, NewCheckpoint, StoreError};
use acetate::vfs::Vfs;

use crate::support::client::{mode, size};
use crate::support::looked::{each_object, look};
use crate::support::world::World;

/// The size of the large file: 16 pieces of 256 KiB.
const MUCH_BYTES: usize = 4 << 20;

/// How many other changes must come between them, at least.
const BETWEEN: u32 = 8;

fn content() -> Vec<u8> {
    (0..MUCH_BYTES).map(|at| (at / 4096 * 7 + at) as u8).collect()
}

/// A session with a file of [`MUCH_BYTES`] bytes and two others, and a checkpoint.
fn world() -> (World, Checkpoint) {
    let world = World::plain();
    world.put("much", "");
    world.write("much", 0, &content()).unwrap();
    world.put("small", "small");
    world.put("other", "other");
    let at = world.checkpoint();
    (world, at)
}

/// Asserts that the file is in the tree at a checkpoint, with all its content.
#[track_caller]
fn assert_kept(world: &World, at: &Checkpoint) {
    let mut found = None;
    each_object(&look(&world.session(), Some(at)), &mut |object, data| {
        if object.path().as_bytes() == b"/much" {
            found = Some(data);
        }
    });
    assert!(found.is_some_and(|found| found == content()), "at checkpoint {}", at.id);
}

async fn remove(world: &World, name: &str) {
    let root = world.overlay.root();
    world.overlay.remove(&world.caller, &root, name.as_bytes()).await.result.unwrap();
}

/// Makes other changes, one after the other, until `change` ends; returns how many there were.
/// `third` runs after the third of them.
fn changes_beside(world: &World, change: impl Future<Output = ()>, third: impl AsyncFn()) -> u32 {
    let other = world.at("other");
    world.wait(async {
        let mut change = std::pin::pin!(change);
        let mut others = 0;
        loop {
            let next = async {
                let set = mode(0o600 + others % 8);
                let set = world.overlay.setattr(&world.caller, &other, set, None);
                set.await.result.unwrap();
                if others == 2 {
                    third().await;
                }
            };
            tokio::select! {
                biased;
                () = &mut change => return others,
                () = next => others += 1,
            }
        }
    })
}

#[test]
fn other_changes_come_between_the_pieces_of_a_removed_file() {
    let (mut world, at) = world();
    let remove = remove(&world, "much");
    let others = changes_beside(&world, remove, async || {});
    assert!(others >= BETWEEN, "{others} changes in between");
    assert!(!world.exists("much"));
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_old_fs_data"), 64);
    assert_kept(&world, &at);
    world.close();
}

#[test]
fn a_cut_file_is_saved_in_pieces_and_is_cut_once() {
    let (mut world, at) = world();
    let file = world.at("much");
    let cut = async {
        world.overlay.setattr(&world.caller, &file, size(100_000), None).await.result.unwrap();
    };
    let others = changes_beside(&world, cut, async || {});
    assert!(others >= BETWEEN, "{others} changes in between");
    assert_eq!(world.read("much").unwrap(), content()[..100_000]);
    let cuts = "SELECT count(*) FROM acetate_op WHERE procedure = 'SETATTR' AND path = '/much'";
    assert_eq!(world.sql_value::<i64>(cuts), 1);
    assert_kept(&world, &at);
    world.close();
}

#[test]
fn a_file_that_another_replaces_is_saved_in_pieces() {
    let (mut world, at) = world();
    let root = world.overlay.root();
    let rename = async {
        let (from, to) = ((&root, &b"small"[..]), (&root, &b"much"[..]));
        world.overlay.rename(&world.caller, from, to).await.result.unwrap();
    };
    let others = changes_beside(&world, rename, async || {});
    assert!(others >= BETWEEN, "{others} changes in between");
    assert_eq!(world.cat("much"), "small");
    assert_kept(&world, &at);
    world.close();
}

/// Pieces that were saved before the second checkpoint belong to the first; the second needs the
/// content, too.
#[test]
fn a_checkpoint_that_is_made_in_between_has_the_content_too() {
    let (mut world, at) = world();
    let remove = remove(&world, "much");
    let made = std::cell::RefCell::new(None);
    let make = async || {
        let new = NewCheckpoint { reuses: false, ..NewCheckpoint::before("between".to_owned()) };
        let done = world.overlay.create_checkpoint(new).await.unwrap();
        let MadeCheckpoint::Made(between) = done else { panic!("{done:?}") };
        *made.borrow_mut() = Some(between);
    };
    changes_beside(&world, remove, make);
    let between = made.take().unwrap();
    assert!(!world.exists("much"));
    assert_kept(&world, &at);
    assert_kept(&world, &between);
    world.close();
}

/// Nothing is saved of a file that is newer than the checkpoint.
#[test]
fn a_newer_file_is_removed_at_once() {
    let (mut world, _) = world();
    world.put("newer", "");
    world.write("newer", 0, &content()).unwrap();
    let remove = remove(&world, "newer");
    let others = changes_beside(&world, remove, async || {});
    assert!(others < BETWEEN, "{others} changes in between");
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_old_fs_data"), 0);
    world.close();
}

/// The change itself then finds the room, or has checkpoints give way.
#[test]
fn a_piece_without_room_does_not_fail_the_removal() {
    let (mut world, at) = world();
    world.faults.fail("save_content", 3, StoreError::full("full"));
    world.remove("much").unwrap();
    assert_eq!(world.faults.calls("save_content"), 3);
    assert_kept(&world, &at);
    world.close();
}
