//! Base files with several names stay one object, whatever happens to which name.

use acetate::vfs::{Attr, FsError, Locator};

use super::paths;
use crate::support::world::World;

const TREE: &str = r#"
    one "content"
    dir/two = one
    dir/deep/three = one
    other/
"#;

const NAMES: [&str; 3] = ["one", "dir/two", "dir/deep/three"];

/// Asserts that these names and no other lead to the object, by handle and by name.
#[track_caller]
fn assert_one_object(world: &World, handle: &Locator, names: &[&str], content: &str) {
    let attr = world.getattr(handle).unwrap();
    assert_eq!(attr.nlink as usize, names.len(), "links of {names:?}");
    for name in names {
        assert_eq!(world.at(name), *handle, "{name}");
        let atime = attr.atime;
        assert_eq!(Attr { atime, ..world.stat(name) }, attr, "{name}");
        assert_eq!(world.cat(name), content, "{name}");
    }
    let files = paths(world).into_iter().filter(|path| world.at(path) == *handle).count();
    assert_eq!(files, names.len());
}

#[test]
fn a_write_by_one_name_shows_by_every_name_and_after_a_restart() {
    for written in NAMES {
        let mut world = World::new(TREE);
        let handle = world.at(NAMES[0]);
        assert_one_object(&world, &handle, &NAMES, "content");
        world.write(written, 0, b"C").unwrap();
        assert_one_object(&world, &handle, &NAMES, "Content");
        world.reopen();
        assert_one_object(&world, &handle, &NAMES, "Content");
        for name in NAMES {
            world.write(name, 7, b"!").unwrap();
        }
        assert_eq!(
            world.sql_value::<i64>(
                "SELECT count(*) FROM fs_origin WHERE base_ino =
            (SELECT base_ino FROM acetate_origin WHERE nlink = 3)"
            ),
            1
        );
        world.reopen();
        assert_one_object(&world, &handle, &NAMES, "Content!");
    }
}

#[test]
fn names_of_an_untouched_file_go_one_by_one() {
    let mut world = World::new(TREE);
    let handle = world.at("one");
    let mut ctime = world.stat("one").ctime;
    for left in [&NAMES[1..], &NAMES[2..]] {
        world.remove(NAMES[2 - left.len()]).unwrap();
        assert_one_object(&world, &handle, left, "content");
        let now = world.getattr(&handle).unwrap().ctime;
        assert!(now > ctime, "a lost name moves the ctime");
        ctime = now;
        world.reopen();
        assert_one_object(&world, &handle, left, "content");
        assert_eq!(world.getattr(&handle).unwrap().ctime, ctime);
    }
    world.remove(NAMES[2]).unwrap();
    assert_eq!(world.getattr(&handle).err(), Some(FsError::Stale));
    world.reopen();
    assert_eq!(world.getattr(&handle).err(), Some(FsError::Stale));
    assert_eq!(paths(&world), ["dir", "dir/deep", "other"]);
}

#[test]
fn names_of_a_changed_file_go_in_any_order() {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let mut world = World::new(TREE);
        let handle = world.at("dir/two");
        world.write("dir/two", 0, b"C").unwrap();
        world.remove(NAMES[order[0]]).unwrap();
        let mut left = vec![NAMES[order[1]], NAMES[order[2]]];
        assert_one_object(&world, &handle, &left, "Content");
        world.reopen();
        assert_one_object(&world, &handle, &left, "Content");
        world.remove(left.remove(0)).unwrap();
        assert_one_object(&world, &handle, &left, "Content");
        world.reopen();
        assert_one_object(&world, &handle, &left, "Content");
        world.remove(left[0]).unwrap();
        assert_eq!(world.getattr(&handle).err(), Some(FsError::Stale));
        world.reopen();
        assert_eq!(world.getattr(&handle).err(), Some(FsError::Stale));
    }
}

#[test]
fn one_name_moves_and_the_others_stay() {
    for moved in 0..3 {
        for written in [false, true] {
            let mut world = World::new(TREE);
            let handle = world.at("one");
            if written {
                world.write("dir/two", 0, b"C").unwrap();
            }
            let content = if written { "Content" } else { "content" };
            world.rename(NAMES[moved], "other/moved").unwrap();
            let mut names = NAMES.to_vec();
            names[moved] = "other/moved";
            assert_one_object(&world, &handle, &names, content);
            world.reopen();
            assert_one_object(&world, &handle, &names, content);
            world.rename("other/moved", NAMES[moved]).unwrap();
            world.reopen();
            assert_one_object(&world, &handle, &NAMES, content);
        }
    }
}

#[test]
fn a_name_that_is_replaced_is_lost() {
    let mut world = World::new(TREE);
    let handle = world.at("one");
    world.put("new", "new");
    world.rename("new", "dir/two").unwrap();
    assert_one_object(&world, &handle, &["one", "dir/deep/three"], "content");
    world.write("dir/deep/three", 0, b"C").unwrap();
    world.put("new", "newer");
    world.rename("new", "dir/deep/three").unwrap();
    world.reopen();
    assert_one_object(&world, &handle, &["one"], "Content");
    assert_eq!(
        (world.cat("dir/two"), world.cat("dir/deep/three")),
        ("new".to_owned(), "newer".to_owned())
    );
}

#[test]
fn new_names_join_the_old_ones() {
    let mut world = World::new(TREE);
    let handle = world.at("one");
    world.link("dir/two", "other/four").unwrap();
    assert_one_object(&world, &handle, &[NAMES[0], NAMES[1], NAMES[2], "other/four"], "content");
    world.remove("one").unwrap();
    world.remove("dir/two").unwrap();
    world.reopen();
    assert_one_object(&world, &handle, &["dir/deep/three", "other/four"], "content");
    world.link("other/four", "one").unwrap();
    world.remove("dir/deep/three").unwrap();
    world.remove("other/four").unwrap();
    assert_one_object(&world, &handle, &["one"], "content");
}

#[test]
fn names_move_with_their_directories() {
    let mut world = World::new(TREE);
    let handle = world.at("one");
    world.rename("dir/deep", "other/deep").unwrap();
    world.rename("dir", "moved").unwrap();
    let names = ["one", "moved/two", "other/deep/three"];
    assert_one_object(&world, &handle, &names, "content");
    world.write("other/deep/three", 0, b"C").unwrap();
    world.reopen();
    assert_one_object(&world, &handle, &names, "Content");
    world.remove("other/deep/three").unwrap();
    world.remove("one").unwrap();
    world.reopen();
    assert_one_object(&world, &handle, &["moved/two"], "Content");
    world.rm_rf("moved");
    assert_eq!(world.getattr(&handle).err(), Some(FsError::Stale));
}

#[test]
fn links_of_born_files_count() {
    let mut world = World::plain();
    world.put("a", "a");
    let handle = world.at("a");
    world.link("a", "b").unwrap();
    world.mkdir("dir").unwrap();
    world.link("b", "dir/c").unwrap();
    assert_one_object(&world, &handle, &["a", "b", "dir/c"], "a");
    assert_eq!(world.link("a", "b"), Err(FsError::Exists));
    assert_eq!(world.link("dir", "dir2"), Err(FsError::Invalid));
    world.remove("a").unwrap();
    world.reopen();
    assert_one_object(&world, &handle, &["b", "dir/c"], "a");
}

#[test]
fn a_symbolic_link_and_a_pipe_have_names_too() {
    let world = World::new("link -> x\npipe 600 fifo");
    world.link("link", "link2").unwrap();
    world.link("pipe", "pipe2").unwrap();
    assert_eq!(world.at("link2"), world.at("link"));
    assert_eq!((world.stat("pipe").nlink, world.stat("link").nlink), (2, 2));
}
