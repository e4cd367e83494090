//! Deletions, and what is made again where something was deleted.

use acetate::vfs::FsError;

use super::{assert_spec_reader_agrees, paths};
use crate::support::world::World;

const TREE: &str = r#"
    tree/a/one "1"
    tree/a/two "2"
    tree/b/c/three "3"
    tree/link -> a/one
    keep "keep"
"#;

#[test]
fn removing_a_whole_base_tree_leaves_one_row() {
    let mut world = World::new(TREE);
    world.rm_rf("tree");
    assert_eq!(world.whiteouts(), ["/tree"]);
    assert_eq!(world.sql_list("SELECT parent_path FROM fs_whiteout"), ["/"]);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_inode"), 1);
    assert_spec_reader_agrees(&world);
    world.reopen();
    assert_eq!(paths(&world), ["keep"]);
}

#[test]
fn a_directory_made_again_shows_none_of_its_old_children() {
    let mut world = World::new(TREE);
    world.rm_rf("tree");
    world.mkdir("tree").unwrap();
    assert_eq!(world.ls("tree"), Vec::<String>::new());
    assert_spec_reader_agrees(&world);
    world.mkdir("tree/a").unwrap();
    world.put("tree/a/two", "new");
    assert_spec_reader_agrees(&world);
    world.reopen();
    assert_eq!(paths(&world), ["keep", "tree", "tree/a", "tree/a/two"]);
    world.rm_rf("tree");
    assert_eq!(world.whiteouts(), ["/tree"]);
    assert_spec_reader_agrees(&world);
}

#[test]
fn a_file_takes_the_place_of_a_directory_and_the_other_way_round() {
    let mut world = World::new(TREE);
    let one = world.at("tree/a/one");
    world.rm_rf("tree");
    world.put("tree", "a file now");
    assert_eq!(world.getattr(&one).err(), Some(FsError::Stale));
    world.remove("keep").unwrap();
    world.mkdir("keep").unwrap();
    assert_eq!(world.whiteouts(), Vec::<String>::new());
    assert_spec_reader_agrees(&world);
    world.reopen();
    assert_eq!(paths(&world), ["keep", "tree"]);
    world.remove("tree").unwrap();
    world.rmdir("keep").unwrap();
    assert_eq!(world.whiteouts(), ["/keep", "/tree"]);
    world.reopen();
    assert_eq!(paths(&world), Vec::<String>::new());
}

#[test]
fn deletions_do_not_come_back_after_a_restart() {
    let mut world = World::new(TREE);
    world.remove("tree/a/one").unwrap();
    world.remove("tree/link").unwrap();
    world.rm_rf("tree/b");
    for _ in 0..2 {
        assert_eq!(paths(&world), ["keep", "tree", "tree/a", "tree/a/two"]);
        assert_eq!(world.find("tree/a/one").err(), Some(FsError::NotFound));
        assert_eq!(world.remove("tree/a/one"), Err(FsError::NotFound));
        assert_eq!(world.rmdir("tree/b"), Err(FsError::NotFound));
        assert_spec_reader_agrees(&world);
        world.reopen();
    }
    assert_eq!(world.whiteouts(), ["/tree/a/one", "/tree/b", "/tree/link"]);
}

#[test]
fn an_object_born_in_the_delta_leaves_no_whiteout() {
    let world = World::new(TREE);
    world.put("tree/new", "");
    world.mkdir("tree/dir").unwrap();
    world.symlink("x", "tree/sym").unwrap();
    world.remove("tree/new").unwrap();
    world.rmdir("tree/dir").unwrap();
    world.remove("tree/sym").unwrap();
    assert_eq!(world.whiteouts(), Vec::<String>::new());
}

#[test]
fn a_copied_up_file_is_gone_in_both_layers() {
    let mut world = World::new(TREE);
    world.write("keep", 0, b"K").unwrap();
    let keep = world.at("keep");
    world.remove("keep").unwrap();
    assert_eq!(world.getattr(&keep).err(), Some(FsError::Stale));
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_data"), 0);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_origin"), 0);
    world.reopen();
    assert_eq!(world.getattr(&keep).err(), Some(FsError::Stale));
    assert_eq!(world.whiteouts(), ["/keep"]);
}

#[test]
fn names_that_are_no_utf8_are_whited_out_too() {
    use std::os::unix::ffi::OsStrExt;
    let mut world = World::new("dir/x \"x\"");
    let base = world.change_base();
    let name = b"dir/\xff\xfe%_\\";
    std::fs::write(base.join(std::ffi::OsStr::from_bytes(name)), "odd").unwrap();
    assert_eq!(world.read(name).unwrap(), b"odd");
    world.remove(name).unwrap();
    assert_eq!(world.ls("dir"), ["x"]);
    world.rename("dir", "moved").unwrap();
    world.reopen();
    assert_eq!(world.ls("moved"), ["x"]);
    world.rename("moved", "dir").unwrap();
    assert_eq!(world.ls("dir"), ["x"]);
    assert_spec_reader_agrees(&world);
}

#[test]
fn rmdir_and_remove_keep_to_their_kinds() {
    let world = World::new(TREE);
    assert_eq!(world.rmdir("keep"), Err(FsError::NotDirectory));
    assert_eq!(world.remove("tree"), Err(FsError::IsDirectory));
    assert_eq!(world.rmdir("tree"), Err(FsError::NotEmpty));
    assert_eq!(world.rmdir("tree/link"), Err(FsError::NotDirectory));
    world.remove("tree/link").unwrap();
    assert_eq!(world.cat("tree/a/one"), "1", "the link's target stays");
}
