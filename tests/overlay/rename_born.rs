//! Renaming directories that were born in the delta, with base directories around and in them.

use super::{assert_spec_reader_agrees, paths};
use crate::support::world::World;

const TREE: &str = r#"
    a/s/f "f"
    a/x "x"
    q/x "qx"
    q/sub/y "qy"
"#;

#[test]
fn it_shows_nothing_of_a_base_directory_at_its_new_path() {
    let mut world = World::new(TREE);
    world.mkdir("new").unwrap();
    world.put("new/own", "own");
    world.rm_rf("q");
    // What a reader remembers of the names below must not outlive the move.
    assert!(!world.exists("new/x") && !world.exists("new/sub"));
    world.rename("new", "q").unwrap();
    assert!(!world.exists("q/x") && !world.exists("q/sub"));
    assert_eq!(world.ls("q"), ["own"]);
    assert_spec_reader_agrees(&world);
    world.reopen();
    assert_eq!(paths(&world), ["a", "a/s", "a/s/f", "a/x", "q", "q/own"]);
    world.rmdir("q").unwrap_err();
    world.remove("q/own").unwrap();
    world.rmdir("q").unwrap();
    assert_eq!(world.whiteouts(), ["/q"]);
}

#[test]
fn it_moves_over_an_emptied_base_directory() {
    let mut world = World::new(TREE);
    world.mkdir("new").unwrap();
    world.mkdir("new/sub").unwrap();
    world.put("new/sub/z", "z");
    world.rm_rf("q/sub");
    world.remove("q/x").unwrap();
    world.rename("new", "q").unwrap();
    assert_eq!(world.ls("q"), ["sub"]);
    assert_eq!(world.ls("q/sub"), ["z"]);
    assert_spec_reader_agrees(&world);
    world.reopen();
    assert_eq!(world.ls("q/sub"), ["z"]);
}

#[test]
fn it_leaves_nothing_behind_when_it_moves_off_a_base_directory() {
    let mut world = World::new(TREE);
    world.rm_rf("q");
    world.mkdir("q").unwrap();
    world.mkdir("q/sub").unwrap();
    world.put("q/sub/own", "own");
    world.rename("q", "elsewhere").unwrap();
    assert_eq!(world.ls("elsewhere"), ["sub"]);
    assert_eq!(world.ls("elsewhere/sub"), ["own"]);
    assert!(!world.exists("q"));
    assert_spec_reader_agrees(&world);
    world.reopen();
    assert_eq!(
        paths(&world),
        ["a", "a/s", "a/s/f", "a/x", "elsewhere", "elsewhere/sub", "elsewhere/sub/own"]
    );
    // The names that it had to hide at its old path are free at the new one.
    world.put("elsewhere/x", "1");
    world.mkdir("elsewhere/sub/y").unwrap();
    world.reopen();
    assert_eq!(world.ls("elsewhere"), ["sub", "x"]);
}

#[test]
fn a_base_directory_back_at_its_place_in_a_new_parent_moves_on_with_it() {
    let mut world = World::new(TREE);
    world.rename("a/s", "tmp").unwrap();
    world.rm_rf("a");
    world.mkdir("a").unwrap();
    world.rename("tmp", "a/s").unwrap();
    assert_eq!(world.cat("a/s/f"), "f");
    world.rename("a", "z").unwrap();
    assert_eq!(world.cat("z/s/f"), "f");
    world.reopen();
    assert_eq!(paths(&world), ["q", "q/sub", "q/sub/y", "q/x", "z", "z/s", "z/s/f"]);
    world.rename("z", "a").unwrap();
    assert_eq!(paths(&world), ["a", "a/s", "a/s/f", "q", "q/sub", "q/sub/y", "q/x"]);
}

#[test]
fn a_base_directory_inside_moves_along_with_its_whiteouts() {
    let mut world = World::new(TREE);
    world.mkdir("new").unwrap();
    world.rename("q", "new/q").unwrap();
    world.remove("new/q/x").unwrap();
    world.rename("new", "newer").unwrap();
    assert_eq!(
        paths(&world),
        ["a", "a/s", "a/s/f", "a/x", "newer", "newer/q", "newer/q/sub", "newer/q/sub/y"]
    );
    world.rm_rf("a");
    world.rename("newer", "a").unwrap();
    world.reopen();
    assert_eq!(paths(&world), ["a", "a/q", "a/q/sub", "a/q/sub/y"]);
    assert_eq!(world.cat("a/q/sub/y"), "qy");
}
