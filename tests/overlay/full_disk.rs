//! A change that the store cannot keep: NOSPC, with the attributes as they are, and nothing
//! half-done (RFC 1813 §2.6: wcc data for failures too).

use acetate::delta::StoreError;
use acetate::vfs::{
    Attr, CreateHow, FsError, Locator, NewNode, Outcome, SetAttr, Stability, Vfs, Wcc,
};
use bytes::Bytes;

use super::paths;
use crate::support::faulty_store::Faults;
use crate::support::world::World;

const TREE: &str = r#"
    dir/sub/
    file "file"
    other "other"
"#;

fn world() -> (World, Faults) {
    let world = World::new(TREE);
    let faults = world.faults.clone();
    (world, faults)
}

/// Runs an operation whose commit finds the disk full.
fn full<F: Future>(world: &World, faults: &Faults, operation: F) -> F::Output {
    faults.fail("commit", 1, StoreError::full("full"));
    world.wait(operation)
}

#[track_caller]
fn unchanged<T>(outcome: &Outcome<T, Wcc>, attr: &Attr) {
    assert_eq!(outcome.result.as_ref().err(), Some(&FsError::NoSpace));
    assert_eq!(outcome.context, Wcc::unchanged(Some(attr.clone())));
}

#[test]
fn a_full_disk_changes_nothing_and_says_so() {
    let (mut world, faults) = world();
    let before = paths(&world);
    let (overlay, caller) = (&world.overlay, &world.caller);
    let (file, attr) = (world.at("file"), world.stat("file"));
    let (root, root_attr) = (Locator::ROOT, world.stat(""));
    let (dir, dir_attr) = (world.at("dir"), world.stat("dir"));
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    unchanged(&full(&world, &faults, overlay.setattr(caller, &file, mode, None)), &attr);
    let data = Bytes::from_static(b"data");
    let written = overlay.write(caller, &file, 0, data, Stability::Unstable);
    unchanged(&full(&world, &faults, written), &attr);
    let how = CreateHow::Guarded(SetAttr::default());
    unchanged(&full(&world, &faults, overlay.create(caller, &dir, b"x", how)), &dir_attr);
    let made = overlay.make_node(caller, &dir, b"x", NewNode::Directory, SetAttr::default());
    unchanged(&full(&world, &faults, made), &dir_attr);
    unchanged(&full(&world, &faults, overlay.remove(caller, &root, b"file")), &root_attr);
    unchanged(&full(&world, &faults, overlay.rmdir(caller, &dir, b"sub")), &dir_attr);
    let moved = overlay.rename(caller, (&root, b"file"), (&dir, b"x"));
    let moved = full(&world, &faults, moved);
    assert_eq!(moved.result, Err(FsError::NoSpace));
    let root_wcc = Wcc::unchanged(Some(root_attr));
    let dir_wcc = Wcc::unchanged(Some(dir_attr));
    assert_eq!(moved.context, (root_wcc, dir_wcc.clone()));
    let linked = full(&world, &faults, overlay.link(caller, &file, &dir, b"x"));
    assert_eq!(linked.result, Err(FsError::NoSpace));
    assert_eq!(linked.context, (Some(attr), dir_wcc));

    assert_eq!(paths(&world), before);
    world.put("dir/x", "there is room again");
    world.reopen();
    assert_eq!(world.cat("dir/x"), "there is room again");
}
