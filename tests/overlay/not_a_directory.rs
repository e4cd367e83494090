//! Where a directory is meant and something else is named: NOTDIR, with the attributes of what
//! is there (RFC 1813 §2.6: post-operation attributes for failures too).

use acetate::vfs::{Attr, Cookie, CreateHow, FsError, NewNode, Outcome, SetAttr, Vfs, Wcc};

use crate::support::world::World;

const TREE: &str = r#"
    file "file"
    link -> .
    other "other"
"#;

#[track_caller]
fn unchanged<T>(outcome: &Outcome<T, Wcc>, attr: &Attr) {
    assert_eq!(outcome.result.as_ref().err(), Some(&FsError::NotDirectory));
    assert_eq!(outcome.context, Wcc::unchanged(Some(attr.clone())));
}

#[test]
fn reading_tells_the_attributes() {
    let world = World::new(TREE);
    world.put("born", "born");
    for path in ["file", "link", "born"] {
        let (object, attr) = (world.at(path), world.stat(path));
        let found = world.wait(world.overlay.lookup(&world.caller, &object, b"x"));
        assert_eq!(found.result.err(), Some(FsError::NotDirectory), "{path}");
        assert_eq!(found.context, Some(attr.clone()), "{path}");
        let list = world.overlay.readdir(&world.caller, &object, Cookie(0), false, |_| true);
        let listed = world.wait(list);
        assert_eq!(listed.result.err(), Some(FsError::NotDirectory), "{path}");
        assert_eq!(listed.context, Some(attr), "{path}");
    }
}

#[test]
fn changing_tells_the_attributes() {
    let world = World::new(TREE);
    let (file, attr) = (world.at("file"), world.stat("file"));
    let (root, other) = (world.at(""), world.at("other"));
    let root_attr = world.stat("");
    let (overlay, caller) = (&world.overlay, &world.caller);
    let how = CreateHow::Unchecked(SetAttr::default());
    unchanged(&world.wait(overlay.create(caller, &file, b"x", how)), &attr);
    let made = overlay.make_node(caller, &file, b"x", NewNode::Directory, SetAttr::default());
    unchanged(&world.wait(made), &attr);
    unchanged(&world.wait(overlay.remove(caller, &file, b"x")), &attr);
    unchanged(&world.wait(overlay.rmdir(caller, &file, b"x")), &attr);
    let linked = world.wait(overlay.link(caller, &other, &file, b"x"));
    assert_eq!(linked.context.1, Wcc::unchanged(Some(attr.clone())));
    let moved = world.wait(overlay.rename(caller, (&file, b"x"), (&root, b"y")));
    assert_eq!(moved.result, Err(FsError::NotDirectory));
    let both = (Wcc::unchanged(Some(attr)), Wcc::unchanged(Some(root_attr)));
    assert_eq!(moved.context, both);
    let moved = world.wait(overlay.rename(caller, (&root, b"other"), (&file, b"y")));
    assert_eq!(moved.context, (both.1, both.0));
}
