//! The data of a file, without its holes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use acetate::delta::MergedPath;
use acetate::inspect::opened::OpenSession;
use acetate::overlay::CopyLimits;
use acetate::vfs::FsError;

use crate::support::client::size;
use crate::support::world::{Setup, World};

const CHUNK: u64 = 4096;

/// The largest size that a client can set, about.
const HUGE: u64 = 1 << 62;

/// The pieces of a file, (offset, length), without those of zeros alone, and how many bytes are
/// data.
fn pieces(world: &World, path: &str) -> Result<(Vec<(u64, usize)>, u64), FsError> {
    let opened = OpenSession::open(&world.session(), Some(&world.base())).unwrap();
    let path = MergedPath::from_user(path.as_bytes()).unwrap();
    let mut found = Ok((Vec::new(), 0));
    opened
        .with_tree(|view| {
            let file = view.find(&path).unwrap().unwrap();
            found = (|| {
                let (mut pieces, mut reader) = (Vec::new(), view.data_reader(&file));
                while let Some(piece) = reader.next_piece()? {
                    assert!(piece.bytes.len() <= 256 << 10);
                    if piece.bytes.iter().any(|&byte| byte != 0) {
                        pieces.push((piece.offset, piece.bytes.len()));
                    }
                }
                Ok((pieces, view.data_bytes(&file)?))
            })();
            Ok(())
        })
        .unwrap();
    found
}

fn world(base: &str) -> World {
    let copy_up = CopyLimits::of(CHUNK, CHUNK);
    let base = Some(base.to_owned());
    World::with(Setup { base, chunk_bytes: CHUNK, copy_up, ..Setup::default() })
}

#[test]
fn the_hole_of_a_huge_file_costs_nothing() {
    let world = world("");
    world.put("file", "begin");
    world.setattr("file", size(HUGE)).unwrap();
    world.write("file", HUGE - 3, b"end").unwrap();
    let (found, bytes) = pieces(&world, "file").unwrap();
    let last = (HUGE - 1) / CHUNK * CHUNK;
    assert_eq!(found, [(0, CHUNK as usize), (last, (HUGE - last) as usize)]);
    assert_eq!(bytes, CHUNK + HUGE - last);
}

#[test]
fn data_comes_in_order_and_in_pieces() {
    let world = world("");
    world.put("file", &"x".repeat((256 << 10) + 10));
    let (found, bytes) = pieces(&world, "file").unwrap();
    assert_eq!(found, [(0, 256 << 10), (256 << 10, 10)]);
    assert_eq!(bytes, (256 << 10) + 10);
    world.put("empty", "");
    assert_eq!(pieces(&world, "empty").unwrap(), (Vec::new(), 0));
}

/// A file of the base with a hole of 1 GiB, and 16 KiB of data in all.
fn sparse(world: &mut World) {
    let file = File::create(world.change_base().join("sparse")).unwrap();
    file.write_all_at(&[b'x'; 2 * CHUNK as usize], 0).unwrap();
    file.write_all_at(&[b'y'; 2 * CHUNK as usize], 1 << 30).unwrap();
}

#[test]
fn holes_of_the_base_are_left_out_before_and_while_it_is_copied_up() {
    let mut world = world("");
    sparse(&mut world);
    let data = [(0, 2 * CHUNK as usize), (1 << 30, 2 * CHUNK as usize)];
    assert_eq!(pieces(&world, "sparse").unwrap().0, data);
    world.write("sparse", 1 << 29, b"z").unwrap();
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_copy_up"), 1);
    let written = (1 << 29, CHUNK as usize);
    assert_eq!(pieces(&world, "sparse").unwrap().0, [data[0], written, data[1]]);
}

#[test]
fn what_was_cut_in_the_base_meanwhile_is_an_error() {
    let mut world = world("");
    sparse(&mut world);
    world.write("sparse", 1 << 29, b"z").unwrap();
    File::options().write(true).open(world.base().join("sparse")).unwrap().set_len(3).unwrap();
    assert_eq!(pieces(&world, "sparse"), Err(FsError::Io));
}
