//! Large files are copied up in the background: until that is done, and whatever happens before
//! it is, they read as if it were.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use acetate::delta::{Ino, StoreError};
use acetate::overlay::CopyLimits;
use acetate::vfs::{FsError, Vfs};

use super::assert_spec_reader_agrees;
use crate::support::client::size;
use crate::support::world::{Setup, World, begin};

const CHUNK: u64 = 512;

/// What of the base is pending, in bytes, in all files together.
const PENDING: &str = "SELECT ifnull(sum(end_byte - next_byte), 0) FROM acetate_copy_up";

/// Twenty chunks and a half, each byte of which tells its chunk.
fn large() -> Vec<u8> {
    (0..20 * CHUNK + CHUNK / 2).map(|at| b'a' + (at / CHUNK) as u8).collect()
}

/// A base with a large file and a small one; pieces of two chunks.
fn world() -> World {
    let base = format!(
        "dir/large 640 \"{}\"\nsmall \"small\"\nother/",
        String::from_utf8(large()).unwrap()
    );
    let copy_up = CopyLimits::of(1000, 2 * CHUNK);
    World::with(Setup { base: Some(base), chunk_bytes: CHUNK, copy_up, ..Setup::default() })
}

fn chunks(world: &World) -> i64 {
    world.sql_value("SELECT count(*) FROM fs_data")
}

fn pending(world: &World) -> i64 {
    world.sql_value(PENDING)
}

#[test]
fn the_first_byte_copies_its_chunk_and_the_rest_follows() {
    let mut world = world();
    let before = world.stat("dir/large");
    world.write("dir/large", 3 * CHUNK + 7, b"!").unwrap();
    assert_eq!(chunks(&world), 1);
    let mut expected = large();
    expected[3 * CHUNK as usize + 7] = b'!';
    assert!(world.read("dir/large").unwrap() == expected);
    let meanwhile = world.stat("dir/large");
    assert_eq!(meanwhile.size, before.size);
    assert!(meanwhile.used >= before.size, "as if all were there");
    for pieces in 0.. {
        assert!(pieces < 12, "more pieces than there are");
        assert!(world.read("dir/large").unwrap() == expected, "after {pieces} pieces");
        if !world.copy_pieces(1) {
            break;
        }
    }
    assert_eq!((chunks(&world), pending(&world)), (21, 0));
    let after = world.stat("dir/large");
    assert_eq!(
        (after.used, after.mtime, after.ctime),
        (meanwhile.used, meanwhile.mtime, meanwhile.ctime)
    );
    assert_eq!(world.sql_list("SELECT procedure FROM acetate_op"), ["WRITE"]);
    world.reopen();
    assert!(world.read("dir/large").unwrap() == expected);
    assert_spec_reader_agrees(&world);
}

#[test]
fn small_files_and_short_rests_are_copied_at_once() {
    let world = world();
    world.chmod("small", 0o600).unwrap();
    world.truncate("dir/large", 900).unwrap();
    assert_eq!((chunks(&world), pending(&world)), (3, 0));
    assert_eq!(world.read("dir/large").unwrap(), large()[..900]);
}

#[test]
fn a_change_of_attributes_or_names_copies_nothing_itself() {
    let mut world = world();
    let handle = world.at("dir/large");
    world.chmod("dir/large", 0o600).unwrap();
    world.rename("dir/large", "other/moved").unwrap();
    world.link("other/moved", "dir/again").unwrap();
    assert_eq!((chunks(&world), pending(&world)), (0, large().len() as i64));
    for _ in 0..2 {
        assert!(world.read_all(&handle).unwrap() == large());
        world.reopen();
    }
    assert!(world.copy_pieces(3));
    world.reopen();
    assert!(world.read("dir/again").unwrap() == large());
    assert_eq!(world.finish_copies(), 0);
    assert!(world.read("dir/again").unwrap() == large());
    assert_spec_reader_agrees(&world);
}

#[test]
fn a_piece_whose_batch_begins_anew_is_copied() {
    let world = world();
    world.put("other/new", "content");
    world.chmod("dir/large", 0o600).unwrap();
    while pending(&world) > 2 * CHUNK as i64 {
        assert!(world.copy_pieces(1));
    }
    let new = world.at("other/new");
    let (overlay, caller) = (&world.overlay, &world.caller);
    let savepoints = world.faults.calls("savepoint");
    world.wait(async {
        let begun = world.faults.calls("begin");
        let hold = world.faults.hold("begin");
        let first = begin(Box::pin(overlay.setattr(caller, &new, size(1), None))).await;
        while world.faults.calls("begin") == begun {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Both wait behind it; the last step of the one that comes last fails once.
        let piece = begin(Box::pin(overlay.copy_piece())).await;
        let last = begin(Box::pin(overlay.setattr(caller, &new, size(2), None))).await;
        world.faults.fail("record", 2, StoreError::full("a test"));
        drop(hold);
        let (first, piece, last) = tokio::join!(first, piece, last);
        first.result.unwrap();
        assert!(piece.unwrap());
        last.result.unwrap();
    });
    assert_eq!(world.faults.calls("savepoint"), savepoints + 2, "it began anew");
    assert_eq!(pending(&world), 0);
    assert!(world.read("dir/large").unwrap() == large());
}

#[test]
fn a_round_of_turns_copies_all_and_is_synced() {
    let world = world();
    world.chmod("dir/large", 0o600).unwrap();
    let (mut next, mut turns, synced) = (Some(Ino(0)), 0, world.faults.calls("sync"));
    while let Some(from) = next {
        assert_eq!(world.faults.calls("sync"), synced, "after {turns} turns");
        let turn = world.wait(world.overlay.copy_for(from, Duration::ZERO)).unwrap();
        assert_eq!(turn.has_copied, turn.next.is_some());
        assert_eq!(turn.left.bytes, pending(&world) as u64);
        next = turn.next;
        turns += 1;
    }
    assert!(turns > 5, "{turns} turns");
    assert_eq!((chunks(&world), pending(&world)), (21, 0));
    assert_eq!(world.faults.calls("sync"), synced + 1);
}

#[test]
fn removing_the_file_ends_its_copy() {
    let mut world = world();
    world.chmod("dir/large", 0o600).unwrap();
    assert!(world.copy_pieces(2));
    world.remove("dir/large").unwrap();
    assert_eq!((chunks(&world), pending(&world)), (0, 0));
    assert_eq!(world.finish_copies(), 0);
    world.reopen();
    assert!(!world.exists("dir/large"));
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let mut world = world();
    let cut = 5 * CHUNK + 100;
    world.truncate("dir/large", cut).unwrap();
    assert_eq!((chunks(&world), pending(&world)), (0, cut as i64));
    world.truncate("dir/large", 9 * CHUNK).unwrap();
    world.write("dir/large", 12 * CHUNK + 3, b"end").unwrap();
    let mut expected = large()[..cut as usize].to_vec();
    expected.resize(12 * CHUNK as usize + 3, 0);
    expected.extend(b"end");
    assert!(world.read("dir/large").unwrap() == expected);
    let used = world.stat("dir/large").used;
    assert_eq!(used, 7 * CHUNK, "six chunks of the base, and one that is new");
    world.reopen();
    assert_eq!(world.finish_copies(), 0);
    assert!(world.read("dir/large").unwrap() == expected);
    assert_eq!((chunks(&world), world.stat("dir/large").used), (7, used));
    assert_spec_reader_agrees(&world);
}

#[test]
fn writing_it_all_from_the_beginning_needs_no_copy() {
    let mut world = world();
    let step = 3 * CHUNK as usize;
    let new: Vec<u8> = large().iter().map(u8::to_ascii_uppercase).collect();
    let mut expected = large();
    for (i, piece) in new.chunks(step).enumerate() {
        world.write("dir/large", (i * step) as u64, piece).unwrap();
        expected[i * step..i * step + piece.len()].copy_from_slice(piece);
        assert!(world.read("dir/large").unwrap() == expected, "{i}");
        assert_eq!(pending(&world), large().len().saturating_sub((i + 1) * step) as i64);
    }
    assert!(!world.copy_pieces(1));
    world.reopen();
    assert_spec_reader_agrees(&world);
}

#[test]
fn the_holes_of_the_base_stay_holes() {
    let mut world = world();
    let base = world.change_base();
    let (size, block) = (8 << 20, 4096);
    let file = fs::File::create(base.join("sparse")).unwrap();
    file.set_len(size).unwrap();
    for at in [0, 1 << 20, 5 << 20] {
        file.write_all_at(&vec![b'x'; block], at).unwrap();
    }
    let expected = fs::read(base.join("sparse")).unwrap();
    world.chmod("sparse", 0o600).unwrap();
    assert!(world.read("sparse").unwrap() == expected);
    assert!(world.copy_pieces(6));
    assert!(world.read("sparse").unwrap() == expected);
    world.write("sparse", 6 << 20, b"new").unwrap();
    world.finish_copies();
    let mut expected = expected;
    expected[6 << 20..(6 << 20) + 3].copy_from_slice(b"new");
    assert!(world.read("sparse").unwrap() == expected);
    let stored = chunks(&world);
    assert!(stored <= 3 * (block as i64 / CHUNK as i64) + 1, "{stored} chunks");
    assert_eq!(world.stat("sparse").used, stored as u64 * CHUNK);
    world.reopen();
    assert!(world.read("sparse").unwrap() == expected);
}

#[test]
fn nothing_of_a_changed_base_file_gets_in() {
    let mut world = world();
    world.write("dir/large", 0, b"!").unwrap();
    assert!(world.copy_pieces(2));
    let (copied, size) = (5 * CHUNK, large().len());
    let base = world.change_base();
    fs::write(base.join("dir/large"), vec![b'#'; size]).unwrap();
    let file = world.at("dir/large");
    assert_eq!(world.read_at(&file, 1, copied as u32 - 1).unwrap().0, large()[1..copied as usize]);
    assert_eq!(world.read_at(&file, copied, 10).err(), Some(FsError::Io));
    assert_eq!(world.write("dir/large", copied + 1, b"x").err(), Some(FsError::Io));
    assert_eq!(world.finish_copies(), 1, "it is left alone");
    world.reopen();
    assert_eq!(world.finish_copies(), 1);

    // A chunk that is overwritten whole needs no base, and one that was copied neither.
    world.write("dir/large", copied, &[b'y'; CHUNK as usize]).unwrap();
    world.write("dir/large", 1, b"?").unwrap();
    let begin = world.read_at(&world.at("dir/large"), 0, (copied + CHUNK) as u32).unwrap().0;
    assert_eq!(&begin[..2], b"!?");
    assert!(begin[2..copied as usize] == large()[2..copied as usize]);
    assert_eq!(begin[copied as usize..], [b'y'; CHUNK as usize]);

    // Overwriting the rest, in whatever order, cures it.
    world.write("dir/large", 8 * CHUNK, &vec![b'z'; size - 8 * CHUNK as usize]).unwrap();
    assert_eq!(world.finish_copies(), 1);
    world.write("dir/large", 6 * CHUNK, &[b'z'; 2 * CHUNK as usize]).unwrap();
    assert_eq!(world.finish_copies(), 0);
    assert_eq!(world.read("dir/large").unwrap().len(), size);
    world.reopen();
}

#[test]
fn cutting_cures_a_file_whose_base_vanished() {
    let mut world = world();
    world.chmod("dir/large", 0o600).unwrap();
    assert!(world.copy_pieces(2));
    let base = world.change_base();
    fs::remove_dir_all(base.join("dir")).unwrap();
    assert_eq!(world.read("dir/large").err(), Some(FsError::Io));
    assert_eq!(world.finish_copies(), 1);
    world.rename("dir/large", "small").unwrap();
    world.truncate("small", 4 * CHUNK).unwrap();
    assert_eq!(world.finish_copies(), 0);
    assert_eq!(world.read("small").unwrap(), large()[..4 * CHUNK as usize]);
    world.reopen();
}

#[test]
fn a_file_that_cannot_be_finished_holds_up_no_other() {
    let mut world = world();
    let base = world.change_base();
    fs::write(base.join("second"), large()).unwrap();
    world.chmod("dir/large", 0o600).unwrap();
    world.chmod("second", 0o600).unwrap();
    fs::remove_file(base.join("dir/large")).unwrap();
    assert_eq!(world.finish_copies(), 1);
    assert_eq!(chunks(&world), 21);
    assert!(world.read("second").unwrap() == large());
}

#[test]
fn a_piece_that_fails_anywhere_is_done_again() {
    const METHODS: [&str; 8] = [
        "begin",
        "commit",
        "pending_copy",
        "inode",
        "stored_chunks",
        "count_stored_chunks",
        "write_data",
        "put_copy_up",
    ];
    let mut expected = large();
    expected[2 * CHUNK as usize + 1] = b'!';
    for method in METHODS {
        let mut world = world();
        world.write("dir/large", 2 * CHUNK + 1, b"!").unwrap();
        let (mut failures, mut nth) = (0, 1);
        loop {
            world.faults.fail(method, nth, StoreError::full("a test"));
            let copied = world.wait(world.overlay.copy_piece());
            let happened = !world.faults.clear();
            assert_eq!(copied.is_err(), happened, "{method} {nth}");
            assert!(world.read("dir/large").unwrap() == expected, "{method} {nth}");
            match copied {
                Ok(true) => nth = 1,
                Ok(false) => break,
                Err(error) => {
                    assert_eq!(error, FsError::NoSpace, "{method} {nth}");
                    (failures, nth) = (failures + 1, nth + 1);
                }
            }
        }
        assert!(failures >= 9, "{method}: {failures}");
        assert_eq!(pending(&world), 0);
        world.reopen();
        assert!(world.read("dir/large").unwrap() == expected, "{method}");
        assert_spec_reader_agrees(&world);
    }
}

#[test]
fn a_first_change_that_fails_leaves_nothing_behind() {
    let world = world();
    for method in ["put_copy_up", "truncate", "record", "commit"] {
        world.faults.fail(method, 1, StoreError::full("a test"));
        assert_eq!(world.write("dir/large", 9, b"x").err(), Some(FsError::NoSpace), "{method}");
        assert!(!world.faults.clear(), "{method} did not happen");
        assert_eq!((chunks(&world), pending(&world)), (0, 0), "{method}");
        assert!(world.read("dir/large").unwrap() == large());
    }
}
