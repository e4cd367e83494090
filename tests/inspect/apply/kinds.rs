//! Each kind of change, applied to a copy of the base.

use acetate::vfs::{NewNode, SetAttr, Time};

use super::check;
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "content"
    dir/other "other"
    dir/sub/deep "deep"
    dir/sub/deeper "deeper"
    gone/a "a"
    gone/b/c "c"
    hard/one "linked"
    hard/two = hard/one
    pipe fifo
    link -> dir/file
    two/file "two"
"#;

#[track_caller]
fn after(change: impl FnOnce(&World)) {
    let world = World::new(TREE);
    world.tick(60);
    change(&world);
    check(&world);
}

#[test]
fn nothing_changes_nothing() {
    after(|_| ());
    after(|world| drop(world.cat("dir/file")));
}

#[test]
fn content() {
    after(|world| world.write("dir/file", 3, b"TENTS, more").unwrap());
    after(|world| world.truncate("dir/sub/deep", 2).unwrap());
    after(|world| {
        world.put("dir/new", "new");
        world.put("dir/sub/\u{fc}", "new");
    });
}

#[test]
fn removal() {
    after(|world| world.remove("dir/file").unwrap());
    after(|world| world.rm_rf("gone"));
    after(|world| world.remove("pipe").unwrap());
    after(|world| world.remove("link").unwrap());
}

#[test]
fn attributes_alone() {
    after(|world| world.chmod("dir/file", 0o4711).unwrap());
    after(|world| world.chmod("dir/sub", 0o700).unwrap());
    after(|world| world.chmod("pipe", 0o600).unwrap());
    after(|world| world.chown("dir/file", 12, 34).unwrap());
    after(|world| world.chown("link", 12, 34).unwrap());
    after(|world| world.utimes("dir/other", Time { secs: 5, nanos: 6 }).unwrap());
    after(|world| world.utimes("dir", Time { secs: 5, nanos: 6 }).unwrap());
    after(|world| world.utimes("", Time { secs: 5, nanos: 6 }).unwrap());
    after(|world| {
        world.chmod("", 0o700).unwrap();
        world.chown("", 12, 34).unwrap();
    });
}

#[test]
fn names_that_are_no_text() {
    after(|world| {
        world.mkdir(b"dir/\xff").unwrap();
        world.symlink(b"\xfe", b"dir/\xff/\x01\n").unwrap();
        world.rename("two", b"\xfd").unwrap();
    });
}

#[test]
fn symbolic_links_and_special_files() {
    after(|world| {
        world.symlink("/etc/passwd", "dir/new").unwrap();
    });
    after(|world| {
        world.remove("link").unwrap();
        world.symlink("elsewhere", "link").unwrap();
    });
    after(|world| {
        world.make("dir/pipe", NewNode::Fifo, SetAttr::default()).unwrap();
        world.make("dir/socket", NewNode::Socket, SetAttr::default()).unwrap();
        world.rename("pipe", "dir/sub/pipe").unwrap();
    });
}

#[test]
fn hard_links() {
    // A further name of what stays what it is.
    after(|world| world.link("dir/file", "dir/again").unwrap());
    after(|world| world.link("hard/one", "dir/again").unwrap());
    // One of several names goes, moves, or is replaced.
    after(|world| world.remove("hard/one").unwrap());
    after(|world| world.rename("hard/one", "dir/one").unwrap());
    after(|world| world.rename("dir/file", "hard/two").unwrap());
    // Content through one of them.
    after(|world| world.write("hard/two", 0, b"LINKED").unwrap());
    after(|world| {
        world.write("hard/two", 0, b"LINKED").unwrap();
        world.link("hard/one", "dir/three").unwrap();
        world.remove("hard/one").unwrap();
    });
    after(|world| world.chmod("hard/two", 0o600).unwrap());
    // A file that moves to two names.
    after(|world| {
        world.link("dir/file", "dir/x").unwrap();
        world.rename("dir/file", "y").unwrap();
    });
    // New ones.
    after(|world| {
        world.put("dir/new", "new");
        world.link("dir/new", "two/new").unwrap();
    });
    // Nothing differs but what is one file.
    after(|world| {
        world.put("dir/new", "linked");
        world.chmod("dir/new", world.base_mode("hard/one")).unwrap();
        let attr = world.stat("hard/one");
        world.utimes("dir/new", attr.mtime).unwrap();
        world.rename("dir/new", "hard/one").unwrap();
    });
    after(|world| {
        world.link("link", "dir/link").unwrap();
        world.link("pipe", "dir/pipe").unwrap();
    });
}

#[test]
fn renamed_directories() {
    after(|world| world.rename("dir", "moved").unwrap());
    after(|world| {
        world.rename("dir", "moved").unwrap();
        world.put("moved/new", "new");
        world.write("moved/sub/deep", 0, b"DEEP").unwrap();
        world.remove("moved/file").unwrap();
        world.chmod("moved/other", 0o600).unwrap();
    });
    // One out of another, and that then.
    after(|world| {
        world.rename("dir/sub", "sub").unwrap();
        world.rename("dir", "sub/dir").unwrap();
        world.rename("sub/dir/file", "sub/file").unwrap();
    });
    after(|world| {
        world.rename("dir/sub", "sub").unwrap();
        world.rm_rf("dir");
    });
    // Swapped.
    after(|world| {
        world.rename("dir", "t").unwrap();
        world.rename("two", "dir").unwrap();
        world.rename("t", "two").unwrap();
    });
    // Over an empty one, and into a new one.
    after(|world| {
        world.rm_rf("gone/b");
        world.remove("gone/a").unwrap();
        world.rename("two", "gone").unwrap();
        world.mkdir("two").unwrap();
        world.rename("dir", "two/dir").unwrap();
    });
}

#[test]
fn what_is_back_at_its_path_in_another_directory() {
    after(|world| {
        world.rename("dir", "moved").unwrap();
        world.mkdir("dir").unwrap();
        world.rename("moved/file", "dir/file").unwrap();
        world.rename("moved/sub", "dir/sub").unwrap();
        world.rename("dir/sub/deep", "deep").unwrap();
    });
}

#[test]
fn a_hard_link_that_moves_with_its_directory() {
    after(|world| {
        world.link("hard/two", "dir/x").unwrap();
        world.rename("hard", "moved").unwrap();
    });
    after(|world| {
        world.write("hard/one", 0, b"LINKED").unwrap();
        world.rename("hard", "moved").unwrap();
    });
}

#[test]
fn other_types() {
    after(|world| {
        world.remove("dir/file").unwrap();
        world.mkdir("dir/file").unwrap();
        world.put("dir/file/below", "below");
    });
    after(|world| {
        world.rm_rf("gone");
        world.put("gone", "a file now");
    });
    after(|world| {
        world.rm_rf("gone");
        world.rename("dir/file", "gone").unwrap();
    });
    after(|world| {
        world.remove("link").unwrap();
        world.rename("gone", "link").unwrap();
    });
    after(|world| {
        world.remove("dir/file").unwrap();
        world.symlink("x", "dir/file").unwrap();
    });
}

#[test]
fn a_directory_made_anew() {
    after(|world| {
        world.rm_rf("gone");
        world.mkdir("gone").unwrap();
        world.put("gone/a", "another a");
    });
}

#[test]
fn a_directory_whose_time_was_put_back() {
    after(|world| {
        let before = world.stat("dir").mtime;
        world.put("dir/new", "new");
        world.remove("dir/sub/deep").unwrap();
        world.utimes("dir", before).unwrap();
    });
}
