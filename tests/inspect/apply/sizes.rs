//! What a file takes to be written follows what it stores, and not its size.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use super::{copy, open};
use crate::support::applied::{all, applied, planned};
use crate::support::client::size;
use crate::support::world::World;

/// About the largest size that a client can set, in bytes.
const HUGE: u64 = 1 << 62;

#[test]
fn a_file_that_the_host_cannot_hold_is_named_and_the_rest_is_applied() {
    let world = World::new("file \"content\"\nother \"other\"\n");
    world.setattr("file", size(HUGE)).unwrap();
    world.put("dir-less", "new");
    world.setattr("other", size(8)).unwrap();
    world.link("file", "again").unwrap();
    let to = copy(&world, "copy");
    let begun = Instant::now();
    let plan = planned(&open(&world), Some(&to), &all()).unwrap();
    assert!(plan.bytes > HUGE && plan.data_bytes < 1 << 20, "{plan:?}");
    let report = applied(&open(&world), Some(&to), &all()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10));
    let paths: Vec<_> = report.skipped.iter().map(|s| s.path.display().to_string()).collect();
    // A host that takes a file of this size has it then.
    if fs::metadata(to.join("file")).unwrap().len() != HUGE {
        assert_eq!(paths, ["/again", "/file"], "{report:?}");
        assert!(report.skipped[0].why.contains("too large"), "{report:?}");
        assert_eq!(fs::read(to.join("file")).unwrap(), b"content");
    }
    assert_eq!(fs::read(to.join("dir-less")).unwrap(), b"new");
    assert_eq!(fs::read(to.join("other")).unwrap(), b"other\0\0\0");
}

#[test]
fn holes_are_not_read_and_stay_holes() {
    let mut world = World::new("sparse \"begin\"\n");
    let file = File::options().write(true).open(world.change_base().join("sparse")).unwrap();
    let gib = 1 << 30;
    file.write_all_at(b"end", 4096 * gib).unwrap();
    drop(file);
    world.rename("sparse", "moved").unwrap();
    world.write("moved", 2048 * gib, b"middle").unwrap();
    world.setattr("moved", size(4096 * gib + 10)).unwrap();
    world.finish_copies();
    let begun = Instant::now();
    let report = applied(&open(&world), None, &all()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(report.skipped, []);
    let file = File::open(world.base().join("moved")).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!(meta.len(), 4096 * gib + 10);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    for (offset, text) in [(0, "begin"), (2048 * gib, "middle"), (4096 * gib, "end")] {
        let mut read = vec![0; text.len()];
        file.read_exact_at(&mut read, offset).unwrap();
        assert_eq!(read, text.as_bytes());
    }
}
