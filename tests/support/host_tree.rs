//! What a host directory holds, byte for byte: to see that nobody wrote to it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// All that could show a change of a tree. Access times are left out: a read may move them where
/// the host does not let us say otherwise.
#[derive(Debug, PartialEq, Eq)]
pub struct HostTree(BTreeMap<Vec<u8>, Object>);

#[derive(Debug, PartialEq, Eq)]
struct Object {
    mode: u32,
    ino: u64,
    nlink: u64,
    owner: (u32, u32),
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
    content: Vec<u8>,
}

impl HostTree {
    /// Reads the tree below `root`.
    pub fn read(root: &Path) -> Self {
        let mut objects = BTreeMap::new();
        let mut todo = vec![root.to_owned()];
        while let Some(path) = todo.pop() {
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
                Vec::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else if meta.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            let object = Object {
                mode: meta.mode(),
                ino: meta.ino(),
                nlink: meta.nlink(),
                owner: (meta.uid(), meta.gid()),
                size: meta.size(),
                mtime: (meta.mtime(), meta.mtime_nsec()),
                ctime: (meta.ctime(), meta.ctime_nsec()),
                content,
            };
            objects.insert(path.as_os_str().as_bytes().to_vec(), object);
        }
        Self(objects)
    }
}
