//! Calls that come again after a kill: made before it, but not answered as far as the client
//! knows.

use acetate::vfs::{
    CallId, CreateHow, FileKind, FsError, Locator, NewNode, SetAttr, SetTime, Time,
};

use crate::support::client::{Client, Result, mode};
use crate::support::world::World;

const TREE: &str = r#"
    dir/file "file"
    dir/other "other"
    dir/empty/
"#;

/// The client's call number `call`, whichever it makes with it.
fn calling(world: &World, call: u64) -> Client {
    let mut client = Client::clone(world);
    client.caller.call = Some(CallId(call));
    client
}

/// Makes the change as a call, kills the server, and makes the call again, and as another one.
#[track_caller]
fn again<T>(
    world: &mut World,
    call: u64,
    change: impl Fn(&Client) -> Result<T>,
) -> (Result<T>, Result<T>) {
    assert!(change(&calling(world, call)).is_ok());
    world.kill();
    (change(&calling(world, call)), change(&calling(world, call + 1)))
}

#[test]
fn what_was_removed_is_removed() {
    let mut world = World::new(TREE);
    let (same, other) = again(&mut world, 1, |client| client.remove("dir/file"));
    assert_eq!((same, other), (Ok(()), Err(FsError::NotFound)));
    let (same, other) = again(&mut world, 3, |client| client.rmdir("dir/empty"));
    assert_eq!((same, other), (Ok(()), Err(FsError::NotFound)));
    assert_eq!(world.ls("dir"), ["other"]);
}

#[test]
fn a_new_file_of_the_name_is_not_removed_for_the_old_one() {
    let mut world = World::new(TREE);
    calling(&world, 1).remove("dir/file").unwrap();
    world.put("dir/file", "of somebody else");
    world.kill();
    calling(&world, 1).remove("dir/file").unwrap();
    assert_eq!(world.cat("dir/file"), "of somebody else");
}

#[test]
fn what_was_renamed_is_renamed() {
    let mut world = World::new(TREE);
    let (same, other) = again(&mut world, 1, |client| client.rename("dir/file", "dir/other"));
    assert_eq!((same, other), (Ok(()), Err(FsError::NotFound)));
    assert_eq!(world.cat("dir/other"), "file");
    assert_eq!(world.ls("dir"), ["empty", "other"]);
}

#[test]
fn what_was_made_is_made_and_still_the_same() {
    let mut world = World::new(TREE);
    type Make = fn(&Client) -> Result<Locator>;
    let changes: [(&str, Make); 4] = [
        ("file", |client| Ok(client.create("file", CreateHow::Guarded(mode(0o600)))?.object)),
        ("dir2", |client| Ok(client.mkdir("dir2")?.object)),
        ("link", |client| Ok(client.symlink("dir/file", "link")?.object)),
        ("fifo", |client| Ok(client.make("fifo", NewNode::Fifo, mode(0o600))?.object)),
    ];
    for (call, (name, change)) in (1..).step_by(2).zip(changes) {
        let made = change(&calling(&world, call)).unwrap();
        world.kill();
        assert_eq!(change(&calling(&world, call)), Ok(made), "{name}");
        assert_eq!(change(&calling(&world, call + 1)), Err(FsError::Exists), "{name}");
    }
}

#[test]
fn a_file_of_somebody_else_is_not_taken_for_the_one_that_was_made() {
    let mut world = World::new(TREE);
    let make = |client: &Client| client.create("file", CreateHow::Guarded(mode(0o600)));
    make(&calling(&world, 1)).unwrap();
    world.remove("file").unwrap();
    world.put("file", "of somebody else");
    world.kill();
    assert_eq!(make(&calling(&world, 1)).err(), Some(FsError::Exists));
}

#[test]
fn what_was_linked_is_linked_once() {
    let mut world = World::new(TREE);
    let (same, other) = again(&mut world, 1, |client| client.link("dir/file", "name"));
    assert_eq!((same, other), (Ok(()), Err(FsError::Exists)));
    assert_eq!(world.stat("name").nlink, 2);
}

#[test]
fn attributes_that_were_set_under_a_guard_are_set() {
    let mut world = World::new(TREE);
    let guard = world.stat("dir/file").ctime;
    let set = SetAttr { mtime: SetTime::To(Time { secs: 5, nanos: 6 }), ..mode(0o640) };
    let at = world.at("dir/file");
    let (same, other) = again(&mut world, 1, |client| client.set(&at, set, Some(guard)).result);
    assert_eq!((same, other), (Ok(()), Err(FsError::NotSync)));
    assert_eq!(world.stat("dir/file").mode, 0o640);
}

#[test]
fn what_failed_is_tried_again() {
    let mut world = World::new(TREE);
    assert_eq!(calling(&world, 1).rmdir("dir"), Err(FsError::NotEmpty));
    world.rm_rf("dir/empty");
    world.remove("dir/file").unwrap();
    world.remove("dir/other").unwrap();
    world.kill();
    assert_eq!(calling(&world, 1).rmdir("dir"), Ok(()));
    assert!(!world.exists("dir"));
}

#[test]
fn what_was_not_heard_of_stays_so_through_a_clean_end() {
    let mut world = World::new(TREE);
    calling(&world, 1).remove("dir/file").unwrap();
    world.kill();
    calling(&world, 2).remove("dir/other").unwrap();
    world.reopen();
    // The killed server's last change; the other one's end says that its client heard of it.
    assert_eq!(calling(&world, 1).remove("dir/file"), Ok(()));
    assert_eq!(calling(&world, 2).remove("dir/other"), Err(FsError::NotFound));
    world.reopen();
    assert_eq!(calling(&world, 1).remove("dir/file"), Ok(()));
}

#[test]
fn nothing_is_taken_for_made_before_after_a_clean_end() {
    let mut world = World::new(TREE);
    calling(&world, 1).remove("dir/file").unwrap();
    world.reopen();
    assert_eq!(calling(&world, 1).remove("dir/file"), Err(FsError::NotFound));
}

#[test]
fn a_session_of_an_earlier_version_learns_to_note_calls() {
    let mut world = World::new(TREE);
    world.put("file", "file");
    world.close();
    world.sql().execute_batch("ALTER TABLE acetate_op DROP COLUMN call").unwrap();
    world.open_again();
    let (same, other) =
        again(&mut world, 1, |client| client.mkdir("made").map(|made| made.attr.kind));
    assert_eq!((same, other), (Ok(FileKind::Directory), Err(FsError::Exists)));
}
