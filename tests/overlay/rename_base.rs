//! Renaming directories of the base: at once, whole, and as often as one likes.

use acetate::vfs::FsError;

use super::{assert_spec_reader_agrees, paths};
use crate::support::tree::read_tree;
use crate::support::world::World;

const TREE: &str = r#"
    src/lib.rs "lib"
    src/deep/er/leaf "leaf"
    src/deep/other "other"
    docs/index "index"
    empty/
"#;

#[test]
fn a_populated_directory_moves_whole_and_at_once() {
    let mut world = World::new(TREE);
    let before = (world.at("src"), world.at("src/deep/er/leaf"));
    world.rename("src", "lib").unwrap();
    assert_eq!((world.at("lib"), world.at("lib/deep/er/leaf")), before);
    assert_eq!(world.cat("lib/deep/er/leaf"), "leaf");
    assert_eq!(world.find("src").err(), Some(FsError::NotFound));
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_inode"), 2, "only the directory");
    let tree = read_tree(&world);
    world.reopen();
    assert_eq!(read_tree(&world), tree);
    // Handles from before both the rename and the restart.
    assert_eq!(world.read_all(&before.1).unwrap(), b"leaf");
    assert_eq!((world.at("lib"), world.at("lib/deep/er/leaf")), before);
}

#[test]
fn a_directory_moves_twice_and_back_to_where_it_came_from() {
    let mut world = World::new(TREE);
    let original = read_tree(&world);
    world.rename("src", "a").unwrap();
    world.rename("a", "docs/b").unwrap();
    assert_eq!(world.cat("docs/b/lib.rs"), "lib");
    world.rename("docs/b", "src").unwrap();
    assert_eq!(read_tree(&world), original);
    assert_eq!(world.whiteouts(), Vec::<String>::new());
    assert_spec_reader_agrees(&world);
    world.reopen();
    assert_eq!(read_tree(&world), original);
}

#[test]
fn directories_trade_places() {
    let mut world = World::new(TREE);
    world.rename("src", "tmp").unwrap();
    world.rename("docs", "src").unwrap();
    world.rename("tmp", "docs").unwrap();
    assert_eq!(world.cat("src/index"), "index");
    assert_eq!(world.cat("docs/deep/er/leaf"), "leaf");
    world.reopen();
    assert_eq!(world.cat("src/index"), "index");
    assert_eq!(world.cat("docs/deep/er/leaf"), "leaf");
    assert_eq!(world.ls("src"), ["index"]);
    assert_eq!(world.ls("docs"), ["deep", "lib.rs"]);
}

#[test]
fn a_directory_moves_into_one_that_moved_itself() {
    let mut world = World::new(TREE);
    world.rename("src", "lib").unwrap();
    world.rename("docs", "lib/deep/docs").unwrap();
    world.rename("lib/deep/er", "er").unwrap();
    world.rename("lib", "docs").unwrap();
    let expected = [
        "docs",
        "docs/deep",
        "docs/deep/docs",
        "docs/deep/docs/index",
        "docs/deep/other",
        "docs/lib.rs",
        "empty",
        "er",
        "er/leaf",
    ];
    assert_eq!(paths(&world), expected);
    world.reopen();
    assert_eq!(paths(&world), expected);
    assert_eq!(world.cat("er/leaf"), "leaf");
    assert_eq!(world.cat("docs/deep/docs/index"), "index");
}

#[test]
fn whiteouts_below_a_directory_move_with_it() {
    let mut world = World::new(TREE);
    world.remove("src/deep/other").unwrap();
    world.remove("src/lib.rs").unwrap();
    world.rename("src", "lib").unwrap();
    assert_eq!(
        paths(&world),
        ["docs", "docs/index", "empty", "lib", "lib/deep", "lib/deep/er", "lib/deep/er/leaf"]
    );
    assert_eq!(world.whiteouts(), ["/lib/deep/other", "/lib/lib.rs", "/src"]);
    world.put("lib/lib.rs", "new");
    world.reopen();
    assert_eq!(world.cat("lib/lib.rs"), "new");
    assert_eq!(world.ls("lib/deep"), ["er"]);
    assert_eq!(world.whiteouts(), ["/lib/deep/other", "/src"]);
}

#[test]
fn a_directory_moves_over_an_empty_one() {
    let mut world = World::new(TREE);
    world.mkdir("new").unwrap();
    world.rename("src", "empty").unwrap();
    world.rename("docs", "new").unwrap();
    assert_eq!(world.ls("empty"), ["deep", "lib.rs"]);
    assert_eq!(world.ls("new"), ["index"]);
    world.rm_rf("empty/deep");
    world.remove("empty/lib.rs").unwrap();
    world.rename("new", "empty").unwrap();
    assert_eq!(paths(&world), ["empty", "empty/index"]);
    world.reopen();
    assert_eq!(paths(&world), ["empty", "empty/index"]);
}

#[test]
fn changes_in_a_moved_directory_copy_up_at_its_new_place() {
    let mut world = World::new(TREE);
    world.rename("src", "lib").unwrap();
    let leaf = world.at("lib/deep/er/leaf");
    world.write("lib/deep/er/leaf", 4, b"-2").unwrap();
    assert_eq!(world.at("lib/deep/er/leaf"), leaf);
    world.put("lib/deep/new", "new");
    world.reopen();
    assert_eq!(world.cat("lib/deep/er/leaf"), "leaf-2");
    assert_eq!(world.ls("lib/deep"), ["er", "new", "other"]);
    world.rename("lib/deep", "deep").unwrap();
    world.rename("lib", "src").unwrap();
    world.rename("deep", "src/deep").unwrap();
    world.reopen();
    assert_eq!(world.cat("src/deep/er/leaf"), "leaf-2");
    assert_spec_reader_agrees(&world);
}

#[test]
fn the_old_place_takes_a_new_directory_that_shows_nothing_old() {
    let mut world = World::new(TREE);
    let leaf = world.at("src/deep/er/leaf");
    world.rename("src", "lib").unwrap();
    world.mkdir("src").unwrap();
    assert_eq!(world.ls("src"), Vec::<String>::new());
    world.mkdir("src/deep").unwrap();
    assert_eq!(world.ls("src/deep"), Vec::<String>::new());
    world.put("src/deep/other", "mine");
    world.reopen();
    assert_eq!(world.ls("src"), ["deep"]);
    assert_eq!(world.cat("src/deep/other"), "mine");
    assert_eq!(world.cat("lib/deep/other"), "other");
    assert_eq!(world.read_all(&leaf).unwrap(), b"leaf");
}

#[test]
fn removing_a_moved_directory_leaves_one_row_for_its_origin() {
    let mut world = World::new(TREE);
    let leaf = world.at("src/deep/er/leaf");
    world.rename("src", "lib").unwrap();
    world.rm_rf("lib");
    assert_eq!(world.whiteouts(), ["/src"]);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_redirect"), 0);
    assert_eq!(world.getattr(&leaf).err(), Some(FsError::Stale));
    world.reopen();
    assert_eq!(paths(&world), ["docs", "docs/index", "empty"]);
    assert_eq!(world.getattr(&leaf).err(), Some(FsError::Stale));
}

#[test]
fn a_directory_deep_below_moves_out_while_its_parents_are_untouched() {
    let mut world = World::new(TREE);
    world.rename("src/deep/er", "docs/er").unwrap();
    assert_eq!(world.ls("src/deep"), ["other"]);
    assert_eq!(world.cat("docs/er/leaf"), "leaf");
    world.rename("docs", "src/deep/er").unwrap();
    world.reopen();
    assert_eq!(
        paths(&world),
        [
            "empty",
            "src",
            "src/deep",
            "src/deep/er",
            "src/deep/er/er",
            "src/deep/er/er/leaf",
            "src/deep/er/index",
            "src/deep/other",
            "src/lib.rs"
        ]
    );
    assert_eq!(world.cat("src/deep/er/er/leaf"), "leaf");
}

#[test]
fn a_directory_that_moved_out_outlives_its_old_parents() {
    let mut world = World::new(TREE);
    let leaf = world.at("src/deep/er/leaf");
    world.rename("src/deep/er", "er").unwrap();
    world.rm_rf("src");
    assert_eq!(world.cat("er/leaf"), "leaf");
    world.reopen();
    assert_eq!(world.read_all(&leaf).unwrap(), b"leaf");
    assert_eq!(paths(&world), ["docs", "docs/index", "empty", "er", "er/leaf"]);
    world.write("er/leaf", 0, b"L").unwrap();
    world.put("src", "a file now");
    assert_eq!(world.cat("er/leaf"), "Leaf");
}
