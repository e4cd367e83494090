//! Guarded content: only replaced as a whole, and only by what was validated.

use std::sync::Arc;

use acetate::delta::RestoreRequest;
use acetate::overlay::{GuardedPaths, NeededDir, Scope};
use acetate::vfs::{FsError, Locator, NewNode, PublishPreconditions, SetAttr, Time, Vfs};
use bytes::Bytes;

use crate::support::client::{Client, size};
use crate::support::world::World;

/// `/g/*` is guarded.
struct Paths;

impl GuardedPaths for Paths {
    fn is_guarded(&self, path: &[u8]) -> bool {
        path.strip_prefix(b"/g/").is_some_and(|name| !name.contains(&b'/'))
    }

    fn may_guard_below(&self, dir: &[u8]) -> bool {
        matches!(dir, b"/" | b"/g")
    }

    fn bars_links(&self, path: &[u8]) -> bool {
        path == b"/g" || self.is_guarded(path)
    }
}

/// The world as an export with guards has it.
fn guarded(world: &World, root: Option<Locator>) -> Client {
    let scope = Scope { root, guarded: Some(Arc::new(Paths)), ..Scope::default() };
    let mut client = world.user(0, 0, &[]);
    client.overlay = Arc::new(world.overlay.within(scope));
    client
}

/// What has to hold for `/g/a`.
fn expected(ctime: Option<Time>) -> PublishPreconditions {
    let (paths, after) = (vec![b"/g/a".to_vec()], Time::default());
    PublishPreconditions { paths, ctime, after, tree_changes: 0 }
}

fn publish(
    client: &Client,
    file: &Locator,
    content: &[u8],
    expected: PublishPreconditions,
) -> Option<FsError> {
    let content = Bytes::copy_from_slice(content);
    let published = client.overlay.publish(&client.caller, file, content, expected);
    client.wait(published).result.err()
}

#[test]
fn a_guarded_file_is_not_changed_in_pieces() {
    let world = World::new("g/a \"old\"\n free \"x\"");
    let client = guarded(&world, None);
    let file = world.at("g/a");
    let write = client.overlay.write(
        &client.caller,
        &file,
        0,
        Bytes::from_static(b"x"),
        acetate::vfs::Stability::Unstable,
    );
    assert_eq!(client.wait(write).result.unwrap_err(), FsError::Guarded);
    let cut = client.overlay.setattr(&client.caller, &file, size(0), None);
    assert_eq!(client.wait(cut).result.unwrap_err(), FsError::Guarded);
    let touch = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert!(client.wait(client.overlay.setattr(&client.caller, &file, touch, None)).result.is_ok());
    assert_eq!(client.cat("g/a"), "old");
    // The same file without guards.
    assert!(world.wait(world.overlay.setattr(&world.caller, &file, size(1), None)).result.is_ok());
}

#[test]
fn content_is_replaced_as_a_whole_if_all_is_as_expected() {
    let world = World::new("g/a \"old content\"");
    let client = guarded(&world, None);
    let file = world.at("g/a");
    let before = client.stat("g/a");
    assert_eq!(publish(&client, &file, b"new", expected(Some(before.ctime))), None);
    let after = client.stat("g/a");
    assert_eq!((client.cat("g/a").as_str(), after.size), ("new", 3));
    assert!(after.ctime > before.ctime && after.mtime == after.ctime);
    let late = publish(&client, &file, b"late", expected(Some(before.ctime)));
    assert_eq!(late, Some(FsError::NotSync));
    let later = Time { secs: after.ctime.secs + 9, nanos: 7 };
    let shown = PublishPreconditions { after: later, ..expected(None) };
    assert_eq!(publish(&client, &file, b"", shown), None);
    assert!(client.cat("g/a").is_empty() && client.stat("g/a").ctime > later);
    world.rename("g/a", "g/b").unwrap();
    assert_eq!(publish(&client, &file, b"x", expected(None)), Some(FsError::Guarded));
    world.rename("g/b", "free").unwrap();
    assert_eq!(publish(&client, &file, b"x", expected(None)), Some(FsError::Guarded));
    let free = PublishPreconditions { paths: Vec::new(), ..expected(None) };
    assert_eq!(publish(&client, &file, b"x", free), None);
}

#[test]
fn a_rename_brings_just_what_was_validated() {
    let world = World::new("g/a \"old\"\n temp \"new\"\n dir/sub/x \"1\"\n dir/y \"2\"");
    let client = guarded(&world, None);
    let root = Locator::ROOT;
    let (g, temp) = (world.at("g"), world.at("temp"));
    let from = (&root, &b"temp"[..]);
    let to = (&g, &b"a"[..]);
    let rename = |validated| {
        let renamed = client.overlay.rename_validated(&client.caller, from, to, validated);
        client.wait(renamed).result
    };
    assert_eq!(rename(Vec::new()), Err(FsError::Guarded));
    let arrivals = client.wait(client.overlay.arrivals(from, to)).unwrap();
    assert_eq!(
        (arrivals.len(), &arrivals[0].file, &arrivals[0].path[..]),
        (1, &temp, &b"/g/a"[..])
    );
    // It changes after it was looked at.
    world.write("temp", 0, b"bad").unwrap();
    assert_eq!(rename(arrivals), Err(FsError::Guarded));
    assert_eq!(client.cat("g/a"), "old");
    let arrivals = client.wait(client.overlay.arrivals(from, to)).unwrap();
    assert_eq!(rename(arrivals), Ok(()));
    assert_eq!(client.cat("g/a"), "bad");
}

#[test]
fn a_directory_brings_just_what_was_validated() {
    let world = World::new("dir/sub/x \"1\"\n dir/y \"2\"\n dir/z \"3\"");
    let client = guarded(&world, None);
    let root = Locator::ROOT;
    let (from, to) = ((&root, &b"dir"[..]), (&root, &b"g"[..]));
    let rename = |validated| {
        let renamed = client.overlay.rename_validated(&client.caller, from, to, validated);
        client.wait(renamed).result
    };
    let arrivals = client.wait(client.overlay.arrivals(from, to)).unwrap();
    let mut paths: Vec<_> = arrivals.iter().map(|arrival| arrival.path.clone()).collect();
    paths.sort();
    assert_eq!(paths, [b"/g/y".to_vec(), b"/g/z".to_vec()]);
    world.rename("dir/sub/x", "dir/x").unwrap();
    assert_eq!(rename(arrivals), Err(FsError::Guarded), "one more by now");
    let arrivals = client.wait(client.overlay.arrivals(from, to)).unwrap();
    assert_eq!((arrivals.len(), rename(arrivals)), (3, Ok(())));
}

#[test]
fn nothing_but_files_and_directories_stands_at_guarded_paths() {
    let world = World::new("g/a \"x\"\n free \"x\"\n link -> free");
    let client = guarded(&world, None);
    let root = Locator::ROOT;
    let g = world.at("g");
    let make = |dir: &Locator, name: &[u8], node| {
        let made = client.overlay.make_node(&client.caller, dir, name, node, SetAttr::default());
        client.wait(made).result.map(drop)
    };
    let link = || NewNode::Symlink(Bytes::from_static(b"x"));
    assert_eq!(make(&g, b"l", link()), Err(FsError::NotPermitted));
    assert_eq!(make(&g, b"l", NewNode::Fifo), Err(FsError::NotPermitted));
    assert_eq!(make(&g, b"d", NewNode::Directory), Ok(()));
    assert_eq!(make(&root, b"l", link()), Ok(()));
    let (from, to) = ((&root, &b"link"[..]), (&g, &b"m"[..]));
    let moved = client.wait(client.overlay.rename(&client.caller, from, to)).result;
    assert_eq!(moved, Err(FsError::NotPermitted));
    for (file, dir, name) in [("free", &g, &b"n"[..]), ("g/a", &root, b"n")] {
        let object = world.at(file);
        let linked = client.overlay.link(&client.caller, &object, dir, name);
        assert_eq!(client.wait(linked).result, Err(FsError::NotPermitted), "{file}");
    }
}

#[test]
fn every_name_of_a_file_counts() {
    let world = World::new("g/a \"x\"\n other = g/a");
    let client = guarded(&world, None);
    let file = world.at("other");
    assert_eq!(client.write("other", 0, b"y").unwrap_err(), FsError::Guarded);
    world.write("other", 0, b"y").unwrap();
    assert_eq!(client.write("other", 0, b"z").unwrap_err(), FsError::Guarded);
    assert_eq!(publish(&client, &file, b"z", expected(None)), None);
    assert_eq!(world.cat("other"), "z");
    world.remove("g/a").unwrap();
    client.write("other", 0, b"free").unwrap();
}

#[test]
fn paths_are_those_below_the_scopes_root_whatever_that_is_called() {
    let world = World::new("top/g/a \"x\"\n g/a \"y\"");
    let client = guarded(&world, Some(world.at("top")));
    let (inside, outside) = (world.at("top/g/a"), world.at("g/a"));
    let cut = |file: &Locator| {
        let cut = client.overlay.setattr(&client.caller, file, size(0), None);
        client.wait(cut).result.err()
    };
    assert_eq!(cut(&inside), Some(FsError::Guarded));
    assert_eq!(cut(&outside), Some(FsError::Stale));
    world.rename("top", "renamed").unwrap();
    assert_eq!(cut(&inside), Some(FsError::Guarded));
    assert_eq!(publish(&client, &inside, b"new", expected(None)), None);
    assert_eq!(world.cat("renamed/g/a"), "new");
}

#[test]
fn a_large_base_file_is_replaced_without_being_copied() {
    let mut world = World::new("g/a \"b\"");
    std::fs::write(world.change_base().join("g/a"), vec![b'b'; 3 << 20]).unwrap();
    let client = guarded(&world, None);
    let file = world.at("g/a");
    assert_eq!(publish(&client, &file, b"small", expected(None)), None);
    assert_eq!(world.cat("g/a"), "small");
    assert_eq!(world.finish_copies(), 0);
    let large = client.wait(client.overlay.guarded_content(&file, 4)).map(drop);
    assert_eq!(large, Err(FsError::TooLarge));
}

#[test]
fn a_refusal_is_in_the_audit_log() {
    let world = World::new("g/a \"x\"");
    let client = guarded(&world, None);
    let file = world.at("g/a");
    let note = client.overlay.note_refusal(&client.caller, &file, "line 3: no".to_owned());
    client.wait(note).unwrap();
    let rows = "SELECT procedure || ' ' || CAST(path AS TEXT) || ' ' || note FROM acetate_op";
    assert_eq!(world.sql_list(rows), ["REFUSE /g/a line 3: no"]);
    assert_eq!(world.sql_value::<i64>("SELECT count(*) FROM fs_data"), 0, "nothing changed");
}

#[test]
fn content_for_the_tree_before_a_restore_is_not_published() {
    let world = World::new("g/a \"old\"");
    let client = guarded(&world, None);
    let file = world.at("g/a");
    assert_eq!(publish(&client, &file, b"first", expected(None)), None);
    let to = RestoreRequest { to: world.checkpoint().id, seen: None, time: Time::default() };
    assert_eq!(publish(&client, &file, b"second", expected(None)), None);
    world.wait(world.overlay.restore(&world.caller, to)).unwrap();
    assert_eq!(client.cat("g/a"), "first");
    assert_eq!(publish(&client, &file, b"third", expected(None)), Some(FsError::Invalid));
    let tree_changes = client.overlay.tree_changes();
    let begun_now = PublishPreconditions { tree_changes, ..expected(None) };
    assert_eq!(publish(&client, &file, b"third", begun_now), None);
}

#[test]
fn a_restore_that_an_export_keeps_from_being_made_ends_no_drafts() {
    let world = World::new("g/a \"old\"");
    let client = guarded(&world, None);
    let file = world.at("g/a");
    let to = RestoreRequest { to: world.checkpoint().id, seen: None, time: Time::default() };
    world.mkdir("later").unwrap();
    let dir = NeededDir { dir: world.at("later"), export: "e".into(), is_root: true };
    let needed = world.overlay.need_dirs(vec![dir]);
    let refused = world.wait(world.overlay.restore(&world.caller, to)).unwrap_err();
    assert_eq!(refused.to_string(), "/later: the export e needs it there");
    assert_eq!(publish(&client, &file, b"new", expected(None)), None);
    assert_eq!(client.cat("g/a"), "new");
    assert_eq!(world.ls(""), ["g", "later"]);
    // Without the export, it is made.
    drop(needed);
    world.wait(world.overlay.restore(&world.caller, to)).unwrap();
    assert_eq!(client.cat("g/a"), "old");
}
