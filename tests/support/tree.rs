//! The whole merged tree at once, and the same as a reader sees it that knows nothing but the
//! specification.

use std::collections::BTreeMap;

use acetate::vfs::{Attr, FileKind, Locator};

use super::client::Client;

/// What an object is, but for its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub kind: FileKind,
    pub mode: u32,
    /// Content of a file, target of a symbolic link.
    pub content: Vec<u8>,
}

/// Objects by path, without the root.
pub type Tree = BTreeMap<Vec<u8>, Object>;

/// Reads the whole tree; asserts on the way that its listings, attributes and lookups agree.
#[track_caller]
pub fn read_tree(client: &Client) -> Tree {
    let mut tree = Tree::new();
    read_dir(client, &Locator::ROOT, &Locator::ROOT, &[], &mut tree);
    tree
}

fn read_dir(client: &Client, dir: &Locator, parent: &Locator, path: &[u8], tree: &mut Tree) {
    let shown = path.escape_ascii().to_string();
    let (entries, eof) = client.page(dir, 0, usize::MAX, true).unwrap();
    assert!(eof, "{shown}");
    let (plain, _) = client.page(dir, 0, usize::MAX, false).unwrap();
    let brief = |e: &acetate::vfs::Entry| (e.name.clone(), e.fileid, e.cookie);
    let (with, without): (Vec<_>, Vec<_>) =
        (entries.iter().map(brief).collect(), plain.iter().map(brief).collect());
    assert_eq!(with, without, "READDIR and READDIRPLUS of {shown}");
    assert!(entries.windows(2).all(|pair| pair[0].cookie < pair[1].cookie), "{shown}");
    assert_eq!((&entries[0].name[..], entries[0].fileid), (&b"."[..], dir.fileid()), "{shown}");
    assert_eq!((&entries[1].name[..], entries[1].fileid), (&b".."[..], parent.fileid()), "{shown}");
    let above = client.lookup(dir, b"..").unwrap();
    assert_eq!(above.object, *parent, "{shown}/..");

    let mut subdirs = 0;
    for entry in &entries[2..] {
        let path = [path, if path.is_empty() { b"" } else { b"/" }, &entry.name[..]].concat();
        let shown = path.escape_ascii().to_string();
        let (object, attr) = entry.object.clone().unwrap_or_else(|| panic!("{shown}: no attr"));
        let found = client.lookup(dir, &entry.name).unwrap_or_else(|e| panic!("{shown}: {e}"));
        assert_eq!((&found.object, &found.attr), (&object, &attr), "{shown}");
        assert_eq!(client.getattr(&object).as_ref(), Ok(&attr), "{shown}");
        assert_eq!(object.fileid(), attr.fileid, "{shown}");
        let known = tree.insert(path.clone(), read_object(client, &object, &attr, &shown));
        assert_eq!(known, None, "{shown} is listed twice");
        if attr.kind == FileKind::Directory {
            subdirs += 1;
            read_dir(client, &object, dir, &path, tree);
        }
    }
    assert_eq!(client.getattr(dir).unwrap().nlink, subdirs + 2, "links of {shown}");
}

fn read_object(client: &Client, object: &Locator, attr: &Attr, shown: &str) -> Object {
    let content = match attr.kind {
        FileKind::Regular => {
            let content = client.read_all(object).unwrap_or_else(|e| panic!("{shown}: {e}"));
            assert_eq!(content.len() as u64, attr.size, "{shown}");
            content
        }
        FileKind::Symlink => {
            let target =
                client.wait(acetate::vfs::Vfs::readlink(&*client.overlay, &client.caller, object));
            target.result.unwrap().to_vec()
        }
        _ => Vec::new(),
    };
    Object { kind: attr.kind, mode: attr.mode, content }
}
