//! The merged tree as it must be if the differences that `inspect::diff` tells are all there are:
//! the base's objects moved, hidden and replaced as it says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use acetate::inspect::diff::{DiffOptions, DifferenceKind, diff};
use acetate::inspect::opened::OpenSession;
use acetate::overlay::{TreeObject, TreeView};
use acetate::vfs::FileKind;

use super::tree::{Object, Tree, assert_same};

/// What the differences do to the base.
#[derive(Default)]
struct Effects {
    gone: BTreeSet<Vec<u8>>,
    moved: BTreeMap<Vec<u8>, Vec<u8>>,
    now: Tree,
}

/// Asserts that the differences make the merged tree of the base. A symbolic link's mode says
/// nothing, and is no difference.
#[track_caller]
pub fn assert_told(session: &Path, base: &Path, merged: &Tree) {
    let without_modes_of_links = |mut tree: Tree| {
        let links = tree.values_mut().filter(|object| object.kind == FileKind::Symlink);
        links.for_each(|link| link.mode = 0o777);
        tree
    };
    let predicted = without_modes_of_links(tree(session, base));
    assert_same(&predicted, &without_modes_of_links(merged.clone()), "as the differences say");
}

/// The tree that the base and the session's differences make.
fn tree(session: &Path, base: &Path) -> Tree {
    let opened = OpenSession::open(session, Some(base)).unwrap();
    let mut effects = Effects::default();
    let options = DiffOptions { client_temp_files: true, ..DiffOptions::default() };
    diff(&opened, &options, &mut |view, difference| {
        let change = &difference.change;
        if let Some(replaced) = &change.replaced {
            effects.gone.insert(replaced.path.as_bytes().to_vec());
        }
        match (&change.before, difference.kind) {
            (Some(before), DifferenceKind::Deleted | DifferenceKind::Retyped) => {
                effects.gone.insert(before.path.as_bytes().to_vec());
            }
            (Some(before), DifferenceKind::Renamed) => {
                let to = difference.path.as_bytes()[1..].to_vec();
                effects.moved.insert(before.path.as_bytes().to_vec(), to);
            }
            _ => {}
        }
        if let Some(after) = &change.after {
            let path = after.path().as_bytes()[1..].to_vec();
            let known = effects.now.insert(path, object(view, after));
            assert!(known.is_none(), "{:?} comes twice", difference.path);
        }
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    let mut tree = Tree::new();
    read_base(base, b"", &mut |path, object| {
        if let Some(path) = effects.place(path) {
            tree.insert(path, object);
        }
    });
    tree.extend(effects.now);
    tree.remove(&b""[..]);
    tree
}

impl Effects {
    /// Where an object of the base is now.
    fn place(&self, path: &[u8]) -> Option<Vec<u8>> {
        let (mut at, mut now) = (0, Some(Vec::new()));
        while at < path.len() {
            let end = path[at..].iter().position(|&b| b == b'/').map_or(path.len(), |n| at + n);
            let above = &path[..end];
            if let Some(moved) = self.moved.get(above) {
                now = Some(moved.clone());
            } else if self.gone.contains(above) {
                now = None;
            } else if let Some(now) = &mut now {
                if !now.is_empty() {
                    now.push(b'/');
                }
                now.extend_from_slice(&path[at..end]);
            }
            at = end + 1;
        }
        now
    }
}

fn object(view: &TreeView<'_>, object: &TreeObject) -> Object {
    let attr = object.attr();
    let content = match attr.kind {
        FileKind::Regular => {
            let mut content = vec![0; attr.size as usize + 1];
            let got = view.read(object, 0, &mut content).unwrap();
            content.truncate(got);
            content
        }
        FileKind::Symlink => view.target(object).unwrap().to_vec(),
        _ => Vec::new(),
    };
    Object { kind: attr.kind, mode: attr.mode, content }
}

fn read_base(dir: &Path, path: &[u8], each: &mut dyn FnMut(&[u8], Object)) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        let below = [path, slash, name.as_bytes()].concat();
        let meta = entry.path().symlink_metadata().unwrap();
        let kind = FileKind::from_mode(meta.mode()).unwrap();
        let content = match kind {
            FileKind::Regular => fs::read(entry.path()).unwrap(),
            FileKind::Symlink => {
                fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        each(&below, Object { kind, mode: meta.mode() & 0o7777, content });
        if kind == FileKind::Directory {
            read_base(&entry.path(), &below, each);
        }
    }
}
