//! The merged tree of a session that nobody serves, as the tools see it.

use std::path::Path;

use acetate::inspect::opened::OpenSession;
use acetate::inspect::walk::{WalkControl, walk};
use acetate::overlay::{TreeObject, TreeView};
use acetate::vfs::FileKind;

use super::tree::{Object, Tree};

/// Reads all of it.
#[track_caller]
pub fn read_tree(session: &Path, base: &Path) -> Tree {
    let opened = OpenSession::open(session, Some(base)).unwrap();
    let mut tree = Tree::new();
    let looked = opened.with_tree(|view| {
        let root = view.root().unwrap();
        walk(view, &root, &mut |name, object, _| {
            if name.is_some() {
                let path = object.path().as_bytes()[1..].to_vec();
                assert_eq!(tree.insert(path, read(view, object)), None, "listed twice");
            }
            Ok(WalkControl::Deeper)
        })
    });
    assert!(looked.unwrap());
    tree
}

fn read(view: &TreeView<'_>, object: &TreeObject) -> Object {
    let attr = object.attr();
    let content = match attr.kind {
        FileKind::Regular => {
            let mut content = vec![0xAA; attr.size as usize];
            let mut at = 0;
            while at < content.len() {
                let got = view.read(object, at as u64, &mut content[at..]).unwrap();
                assert!(got > 0, "{}", object.path().display());
                at += got;
            }
            content
        }
        FileKind::Symlink => view.target(object).unwrap().to_vec(),
        _ => Vec::new(),
    };
    Object { kind: attr.kind, mode: attr.mode, content }
}
