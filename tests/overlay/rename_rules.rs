//! What rename(2) allows and refuses, whatever layer things are in.

use acetate::vfs::FsError;

use super::paths;
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "file"
    dir/sub/leaf "leaf"
    empty/
    other "other"
"#;

#[test]
fn a_file_replaces_a_file_in_either_layer() {
    let mut world = World::new(TREE);
    let file = world.at("dir/file");
    let other = world.at("other");
    world.rename("dir/file", "other").unwrap();
    assert_eq!(world.at("other"), file);
    assert_eq!(world.getattr(&other).err(), Some(FsError::Stale));
    world.put("born", "born");
    world.rename("born", "other").unwrap();
    assert_eq!(world.getattr(&file).err(), Some(FsError::Stale));
    world.rename("other", "dir/file").unwrap();
    world.reopen();
    assert_eq!(paths(&world), ["dir", "dir/file", "dir/sub", "dir/sub/leaf", "empty"]);
    assert_eq!(world.cat("dir/file"), "born");
    assert_eq!(world.whiteouts(), ["/other"]);
}

#[test]
fn kinds_must_match_and_directories_be_empty() {
    let world = World::new(TREE);
    world.mkdir("new").unwrap();
    world.put("new/file", "");
    for full in ["dir", "new"] {
        assert_eq!(world.rename("empty", full), Err(FsError::NotEmpty));
        assert_eq!(world.rename("other", full), Err(FsError::IsDirectory));
    }
    assert_eq!(world.rename("dir", "other"), Err(FsError::NotDirectory));
    assert_eq!(world.rename("other", "empty"), Err(FsError::IsDirectory));
    assert_eq!(world.rename("missing", "other"), Err(FsError::NotFound));
    assert_eq!(world.rename("other", "dir/sub/leaf/x").unwrap_err(), FsError::NotDirectory);
}

#[test]
fn no_directory_moves_into_itself() {
    let world = World::new(TREE);
    assert_eq!(world.rename("dir", "dir/sub/dir"), Err(FsError::Invalid));
    assert_eq!(world.rename("dir", "dir/dir"), Err(FsError::Invalid));
    world.mkdir("new").unwrap();
    world.mkdir("new/below").unwrap();
    assert_eq!(world.rename("new", "new/below/new"), Err(FsError::Invalid));
    // A longer name with the same beginning is no part of it.
    world.mkdir("newer").unwrap();
    world.rename("new", "newer/new").unwrap();
    assert_eq!(world.rename("dir/sub/leaf", "dir"), Err(FsError::IsDirectory));
    assert_eq!(world.rename("dir/sub", "dir"), Err(FsError::NotEmpty));
}

#[test]
fn a_name_onto_itself_or_its_own_link_changes_nothing() {
    let world = World::new(TREE);
    let before = world.stat("");
    world.rename("other", "other").unwrap();
    world.rename("dir", "dir").unwrap();
    assert_eq!(world.stat(""), before);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM acetate_op"), 0);
    world.link("other", "dir/again").unwrap();
    let attr = world.stat("other");
    world.rename("other", "dir/again").unwrap();
    assert_eq!(world.stat("other"), attr);
    assert_eq!(world.stat("dir/again"), attr);
}

#[test]
fn a_file_comes_back_to_its_base_name() {
    let mut world = World::new(TREE);
    let other = world.at("other");
    world.rename("other", "dir/moved").unwrap();
    assert_eq!(world.whiteouts(), ["/other"]);
    world.rename("dir/moved", "other").unwrap();
    assert_eq!(world.whiteouts(), Vec::<String>::new());
    world.reopen();
    assert_eq!(world.at("other"), other);
    assert_eq!(world.cat("other"), "other");
}

#[test]
fn symbolic_links_and_pipes_move_too() {
    let mut world = World::new("link -> some/where\npipe 600 fifo\ndir/");
    let (link, pipe) = (world.at("link"), world.at("pipe"));
    world.rename("link", "dir/link").unwrap();
    world.rename("pipe", "dir/pipe").unwrap();
    world.reopen();
    assert_eq!((world.at("dir/link"), world.at("dir/pipe")), (link, pipe));
    assert_eq!(&world.readlink("dir/link").unwrap()[..], b"some/where");
    assert_eq!(paths(&world), ["dir", "dir/link", "dir/pipe"]);
}
