//! The merged tree of a session that nobody serves, as the tools see it.

use std::path::Path;

use acetate::inspect::opened::OpenSession;

use super::looked::each_object;
use super::tree::{Object, Tree};

/// Reads all of it.
#[track_caller]
pub fn read_tree(session: &Path, base: &Path) -> Tree {
    let mut tree = Tree::new();
    let opened = OpenSession::open(session, Some(base)).unwrap();
    each_object(&opened, &mut |object, content| {
        let (path, attr) = (object.path(), object.attr());
        if path.name().is_some() {
            let object = Object { kind: attr.kind, mode: attr.mode, content };
            let earlier = tree.insert(path.as_bytes()[1..].to_vec(), object);
            assert_eq!(earlier, None, "listed twice");
        }
    });
    tree
}
