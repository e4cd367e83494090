//! Numbers and handles: the same for the life of the session.

use std::collections::BTreeMap;

use acetate::base::DELTA_IDS;
use acetate::vfs::{FileId, FsError, Locator};

use crate::support::world::World;

const TREE: &str = r#"
    a/b/file "file"
    a/b/hard = a/b/file
    a/link -> b
    top "top"
    pipe 600 fifo
"#;

const PATHS: [&str; 7] = ["a", "a/b", "a/b/file", "a/b/hard", "a/link", "top", "pipe"];

fn handles(world: &World) -> BTreeMap<&'static str, Locator> {
    PATHS.into_iter().map(|path| (path, world.at(path))).collect()
}

#[test]
fn base_objects_show_their_host_number() {
    use std::os::unix::fs::MetadataExt;
    let world = World::new(TREE);
    for path in PATHS {
        let host = world.base().join(path).symlink_metadata().unwrap();
        assert_eq!(world.stat(path).fileid, FileId(host.ino()), "{path}");
    }
    assert_eq!(world.stat("").fileid, FileId::ROOT);
}

#[test]
fn handles_stay_over_copy_up_and_restart() {
    let mut world = World::new(TREE);
    let before = handles(&world);
    for path in PATHS {
        if path != "a/link" {
            world.chmod(path, 0o700).unwrap();
        }
    }
    world.rename("a/link", "a/moved").unwrap();
    world.rename("a/moved", "a/link").unwrap();
    assert_eq!(handles(&world), before);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_inode"), 7);
    world.reopen();
    // By handle first: nothing has been looked up yet.
    for (path, handle) in before.iter().rev() {
        assert_eq!(world.getattr(handle).unwrap().fileid, handle.fileid(), "{path}");
    }
    assert_eq!(handles(&world), before);
}

#[test]
fn handles_of_untouched_objects_need_no_lookup_after_a_restart() {
    let mut world = World::new(TREE);
    let before = handles(&world);
    for path in PATHS {
        world.reopen();
        assert_eq!(world.getattr(&before[path]).unwrap().fileid, before[path].fileid(), "{path}");
    }
    world.reopen();
    assert_eq!(world.read_all(&before["a/b/hard"]).unwrap(), b"file");
    assert_eq!(world.lookup(&before["a/b"], "file").unwrap().object, before["a/b/file"]);
}

#[test]
fn handles_follow_renames_of_the_object_and_of_its_parents() {
    let mut world = World::new(TREE);
    let before = handles(&world);
    world.rename("a", "z").unwrap();
    world.rename("z/b/file", "z/other").unwrap();
    world.rename("top", "z/b/top").unwrap();
    world.reopen();
    assert_eq!(world.read_all(&before["a/b/file"]).unwrap(), b"file");
    assert_eq!(world.read_all(&before["top"]).unwrap(), b"top");
    let now = ["z", "z/b", "z/other", "z/b/hard", "z/link", "z/b/top", "pipe"];
    for (old, new) in PATHS.iter().zip(now) {
        assert_eq!(world.at(new), before[old], "{old} is {new} now");
    }
}

#[test]
fn born_objects_have_numbers_of_their_own_that_are_never_used_again() {
    let mut world = World::new(TREE);
    let mut seen = Vec::new();
    for round in 0..4 {
        let made = world.mkdir("dir").unwrap();
        let below = world.create("dir/x", acetate::vfs::CreateHow::Guarded(Default::default()));
        for id in [made.attr.fileid, below.unwrap().attr.fileid] {
            assert!((DELTA_IDS..FileId::LIMIT).contains(&id.0), "{id:?}");
            assert!(!seen.contains(&id), "{id:?} was used before");
            seen.push(id);
        }
        world.rm_rf("dir");
        if round % 2 == 0 {
            world.reopen();
        }
        assert_eq!(world.getattr(&made.object).err(), Some(FsError::Stale));
    }
}

#[test]
fn a_new_object_at_an_old_path_is_another_one() {
    let mut world = World::new(TREE);
    let before = handles(&world);
    world.remove("top").unwrap();
    world.put("top", "new");
    world.rm_rf("a");
    world.mkdir("a").unwrap();
    world.mkdir("a/b").unwrap();
    world.put("a/b/file", "new");
    for _ in 0..2 {
        for path in ["a", "a/b", "a/b/file", "top"] {
            assert_eq!(world.getattr(&before[path]).err(), Some(FsError::Stale), "{path}");
            assert_ne!(world.at(path), before[path]);
        }
        world.reopen();
    }
}

#[test]
fn a_failed_change_takes_no_number_away_from_another_object() {
    let mut world = World::new(TREE);
    let first = world.mkdir("one").unwrap().attr.fileid;
    world.mkdir("one").unwrap_err();
    world.reopen();
    let second = world.mkdir("two").unwrap().attr.fileid;
    assert!(second > first);
}

#[test]
fn forged_handles_of_absent_objects_are_stale() {
    let world = World::new(TREE);
    let Locator::Base(id, trail) = world.at("a/b") else { panic!("a base handle") };
    let mut elsewhere = trail;
    elsewhere.digest[0] ^= 1;
    for forged in [
        Locator::Delta(FileId(DELTA_IDS + 999)),
        Locator::Delta(id),
        Locator::Base(FileId(id.0 + 1_000_000), trail),
        Locator::Base(id, elsewhere),
        Locator::BaseLinked(FileId(3)),
        Locator::Delta(FileId(0)),
    ] {
        assert_eq!(world.getattr(&forged).err(), Some(FsError::Stale), "{forged:?}");
    }
}
