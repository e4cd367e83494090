//! Content at any offset and size, dense and sparse.

use acetate::vfs::{FsError, SetAttr, Stability};

use crate::support::client::size;
use crate::support::world::{Setup, World};

const MAX: u64 = i64::MAX as u64;

fn small_chunks(base: &str) -> World {
    World::with(Setup { base: Some(base.to_owned()), chunk_bytes: 512, ..Setup::default() })
}

#[test]
fn writes_at_every_boundary_read_back() {
    let mut world = small_chunks("base \"from the base\"");
    for path in ["born", "base"] {
        if path == "born" {
            world.put(path, "");
        }
        let mut expected = world.read(path).unwrap();
        let offsets = [0, 1, 511, 512, 513, 1023, 1024, 1536, 5000, 511, 0];
        let lengths = [1, 511, 512, 513, 1025, 0];
        for (n, offset) in offsets.into_iter().enumerate() {
            for len in lengths {
                let data = vec![n as u8 + 1; len];
                world.write(path, offset, &data).unwrap();
                let (start, end) = (offset as usize, offset as usize + len);
                if len > 0 {
                    expected.resize(expected.len().max(end), 0);
                    expected[start..end].copy_from_slice(&data);
                }
                assert!(world.read(path).unwrap() == expected, "{len} bytes at {offset}");
            }
        }
        for bytes in [5000, 1024, 1023, 513, 4096, 512, 511, 2000, 0, 1] {
            world.truncate(path, bytes).unwrap();
            expected.resize(bytes as usize, 0);
            assert!(world.read(path).unwrap() == expected, "cut to {bytes}");
        }
        world.reopen();
        assert!(world.read(path).unwrap() == expected);
    }
}

#[test]
fn reads_end_where_the_file_ends() {
    let world = small_chunks("base \"0123456789\"\nempty");
    world.put("born", "0123456789");
    for path in ["base", "born"] {
        let file = world.at(path);
        let read = |offset, count| world.read_at(&file, offset, count).unwrap();
        assert_eq!(read(0, 4), (b"0123".to_vec(), false));
        assert_eq!(read(6, 4), (b"6789".to_vec(), true));
        assert_eq!(read(6, u32::MAX), (b"6789".to_vec(), true));
        assert_eq!(read(10, 1), (Vec::new(), true));
        assert_eq!(read(u64::MAX, u32::MAX), (Vec::new(), true));
        assert_eq!(read(3, 0), (Vec::new(), false));
    }
    assert_eq!(world.read_at(&world.at("empty"), 0, 10), Ok((Vec::new(), true)));
    assert_eq!(world.read_at(&world.at(""), 0, 10), Err(FsError::Invalid));
}

#[test]
fn holes_take_no_space_and_read_as_zeros() {
    let mut world = World::plain();
    world.put("sparse", "");
    world.truncate("sparse", 10 << 30).unwrap();
    world.write("sparse", 5 << 30, b"middle").unwrap();
    let check = |world: &World| {
        let file = world.at("sparse");
        assert_eq!(world.stat("sparse").size, 10 << 30);
        assert!(world.stat("sparse").used <= 64 << 10);
        assert_eq!(world.read_at(&file, (5 << 30) - 3, 9).unwrap().0, b"\0\0\0middle"[..9]);
        assert_eq!(world.read_at(&file, (10 << 30) - 2, 9).unwrap(), (vec![0; 2], true));
    };
    check(&world);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_data"), 1);
    world.reopen();
    check(&world);
    world.truncate("sparse", (5 << 30) + 2).unwrap();
    world.truncate("sparse", 6 << 30).unwrap();
    let tail = world.read_at(&world.at("sparse"), 5 << 30, 6).unwrap().0;
    assert_eq!(tail, b"mi\0\0\0\0", "what was cut off does not come back");
}

#[test]
fn files_end_at_the_largest_size() {
    let mut world = World::plain();
    world.put("file", "x");
    let file = world.at("file");
    assert_eq!(world.truncate("file", MAX + 1), Err(FsError::TooLarge));
    assert_eq!(world.truncate("file", u64::MAX), Err(FsError::TooLarge));
    for offset in [MAX, u64::MAX, u64::MAX - 3] {
        let written = world.write_to(&file, offset, b"xyz", Stability::Unstable);
        assert_eq!(written.result.err(), Some(FsError::TooLarge), "{offset}");
    }
    let made = world.create("huge", acetate::vfs::CreateHow::Guarded(size(MAX + 1)));
    assert_eq!(made.err(), Some(FsError::TooLarge));
    assert!(!world.exists("huge"));
    world.write("file", MAX - 1, b"!").unwrap();
    world.reopen();
    assert_eq!(world.stat("file").size, MAX);
    assert_eq!(world.read_at(&world.at("file"), MAX - 2, 9).unwrap(), (b"\0!".to_vec(), true));
    world.truncate("file", 1).unwrap();
    assert_eq!(world.cat("file"), "x");
}

#[test]
fn stable_writes_say_so() {
    let world = World::plain();
    world.put("file", "");
    let file = world.at("file");
    for stability in [Stability::DataSync, Stability::FileSync] {
        let written = world.write_to(&file, 0, b"x", stability).result.unwrap();
        assert_eq!(written.committed, Stability::FileSync);
    }
}

#[test]
fn a_large_base_file_comes_up_whole() {
    let mut world = World::new("");
    let base = world.change_base();
    let content: Vec<u8> =
        (0..5_000_003u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(base.join("big"), &content).unwrap();
    world.write("big", 3_000_000, b"!").unwrap();
    let mut expected = content;
    expected[3_000_000] = b'!';
    assert!(world.read("big").unwrap() == expected);
    world.reopen();
    assert!(world.read("big").unwrap() == expected);
}

#[test]
fn content_is_replaced_only_in_the_file_that_was_seen() {
    let world = World::new("file \"one\"\n");
    let replace = |content: &'static [u8], seen| {
        let (file, set) = (world.at("file"), SetAttr::default());
        let replaced =
            world.overlay.replace_if(&world.caller, &file, content.into(), set, Some(seen));
        world.wait(replaced).result
    };
    let seen = world.stat("file").ctime;
    world.tick(1);
    world.write("file", 0, b"two").unwrap();
    assert_eq!(replace(b"three", seen), Err(FsError::NotSync));
    assert_eq!(world.cat("file"), "two");
    assert_eq!(replace(b"three", world.stat("file").ctime), Ok(()));
    assert_eq!(world.cat("file"), "three");
}
