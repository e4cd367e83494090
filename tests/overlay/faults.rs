//! A store that fails at any step of any operation: the caller hears of it, nothing is half
//! done, and everything goes on.

use acetate::delta::StoreError;
use acetate::vfs::{CreateHow, FsError, Locator};

use super::paths;
use crate::support::client::Result;
use crate::support::faulty_store::AFTER_COMMIT;
use crate::support::tree::{assert_same, read_tree};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "file"
    dir/sub/leaf "leaf"
    one "linked"
    two = one
    link -> dir
    gone/x "x"
"#;

/// The methods that a full disk can stop.
const METHODS: [&str; 15] = [
    "begin",
    "check_batch",
    "commit",
    "allocate_ino",
    "put_inode",
    "delete_inode",
    "insert_dentry",
    "delete_dentry",
    "write_data",
    "truncate",
    "add_whiteout",
    "put_redirect",
    "move_whiteouts_below",
    "hide_link",
    "record",
];

type Operation = (&'static str, fn(&World) -> Result<()>);

/// Each changes something in an untouched tree.
const OPERATIONS: [Operation; 13] = [
    ("write", |world| world.write("dir/sub/leaf", 0, b"L")),
    ("write to a linked file", |world| world.write("two", 0, b"L")),
    ("truncate", |world| world.truncate("dir/file", 2)),
    ("chmod", |world| world.chmod("dir/sub", 0o700)),
    ("create", |w| w.create("dir/sub/new", CreateHow::Guarded(Default::default())).map(|_| ())),
    ("mkdir", |world| world.mkdir("gone/new").map(|_| ())),
    ("symlink", |world| world.symlink("x", "dir/new").map(|_| ())),
    ("remove", |world| world.remove("dir/sub/leaf")),
    ("remove a linked file", |world| world.remove("one")),
    ("rename a file", |world| world.rename("dir/file", "gone/x")),
    ("rename a directory", |world| world.rename("dir", "moved")),
    ("rename a directory of a directory", |world| world.rename("dir/sub", "gone/sub")),
    ("link", |world| world.link("two", "dir/sub/three")),
];

/// A tree with something in the delta.
fn world() -> World {
    let world = World::new(TREE);
    world.remove("gone/x").unwrap();
    world.put("gone/x", "new");
    world
}

/// How often the operation calls each of the methods.
fn count_calls(operation: fn(&World) -> Result<()>) -> [u32; METHODS.len()] {
    let world = world();
    let before = METHODS.map(|method| world.faults.calls(method));
    operation(&world).unwrap();
    let mut calls = METHODS.map(|method| world.faults.calls(method));
    calls.iter_mut().zip(before).for_each(|(calls, before)| *calls -= before);
    calls
}

#[test]
fn a_full_disk_undoes_the_operation_and_no_other() {
    for (what, operation) in OPERATIONS {
        let calls = count_calls(operation);
        assert!(calls.iter().sum::<u32>() >= 5, "{what}: {calls:?}");
        let world = world();
        let before = read_tree(&world);
        let ctimes = || ["", "dir", "dir/sub", "gone", "one"].map(|path| world.stat(path).ctime);
        let unchanged = ctimes();
        for (method, calls) in METHODS.into_iter().zip(calls) {
            for nth in 1..=calls {
                let shown = format!("{what}, {method} {nth}");
                world.faults.fail(method, nth, StoreError::full("a test"));
                assert_eq!(operation(&world), Err(FsError::NoSpace), "{shown}");
                assert!(!world.faults.clear(), "{shown} did not happen");
                assert_same(&read_tree(&world), &before, &shown);
                assert_eq!(ctimes(), unchanged, "{shown}");
            }
        }
        operation(&world).unwrap();
    }
}

#[test]
fn reads_go_on_while_the_disk_is_full() {
    let mut world = World::new(TREE);
    world.put("dir/new", "new");
    for nth in 1..=5 {
        world.faults.fail("commit", nth, StoreError::full("a test"));
    }
    for _ in 0..5 {
        assert_eq!(world.write("dir/new", 0, b"x"), Err(FsError::NoSpace));
        assert_eq!(world.cat("dir/new"), "new");
        assert_eq!(world.cat("dir/sub/leaf"), "leaf");
    }
    world.write("dir/new", 0, b"N").unwrap();
    world.reopen();
    assert_eq!(world.cat("dir/new"), "New");
}

#[test]
fn what_was_committed_and_not_answered_shows_whole() {
    for (what, operation) in OPERATIONS {
        let mut world = world();
        // All of it is known to the caches.
        read_tree(&world);
        world.faults.fail(AFTER_COMMIT, 1, StoreError::io("a test"));
        assert!(operation(&world).is_err(), "{what}");
        let shown = read_tree(&world);
        assert_eq!(world.mkdir("more").err(), Some(FsError::ReadOnly), "{what}");
        world.abandon();
        world.open_again();
        assert_same(&shown, &read_tree(&world), what);
    }
}

#[test]
fn a_locked_session_asks_to_try_later() {
    let world = World::new(TREE);
    world.faults.fail("begin", 1, StoreError::busy("a test"));
    assert_eq!(world.mkdir("new").err(), Some(FsError::TryLater));
    world.mkdir("new").unwrap();
}

#[test]
fn a_reader_that_fails_spoils_one_answer() {
    let world = World::new(TREE);
    let expected = paths(&world);
    world.put("new", "new");
    world.remove("new").unwrap();
    for method in ["dentry", "inode", "is_whited_out", "whiteouts_in", "dentries"] {
        world.faults.fail(method, 1, StoreError::io("a test"));
        let listed = world.page(&Locator::ROOT, 0, 99, true);
        let found = world.find("dir/file/../sub").map(|_| ());
        drop((listed, found));
        world.faults.clear();
        assert_eq!(paths(&world), expected, "{method}");
    }
}
