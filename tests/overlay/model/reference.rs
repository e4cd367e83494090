//! The reference: a filesystem of two maps, with POSIX's rules for the superuser.

use std::collections::{BTreeMap, BTreeSet};

use acetate::vfs::{Attr, FileId, FileKind, FsError, Locator};

use crate::support::tree::{Object, Tree};

/// Identifies an object for the life of the reference.
pub type Id = u32;

/// An object, and what was seen of it when the trees were last compared.
#[derive(Debug, Clone)]
pub struct Node {
    pub object: Object,
    pub handle: Option<Locator>,
    pub attr: Option<Attr>,
    /// Whether its ctime must have moved since.
    pub changed: bool,
}

/// Paths are without a leading slash; the root's is empty.
#[derive(Debug, Clone, Default)]
pub struct Reference {
    pub names: BTreeMap<Vec<u8>, Id>,
    pub nodes: BTreeMap<Id, Node>,
    /// Handles of objects that are gone.
    pub dead: BTreeMap<Id, Locator>,
    next: Id,
}

pub type Result = std::result::Result<(), FsError>;

/// The path of `name` in `dir`.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// The path of the directory that holds `path`.
pub fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&b| b == b'/').map_or(b"", |at| &path[..at])
}

fn is_within(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

impl Reference {
    /// A reference that begins with what `tree` holds; `linked` tells names of one object.
    pub fn new(tree: Tree, linked: &[&[&str]]) -> Self {
        let mut reference = Self::default();
        let root = Object { kind: FileKind::Directory, mode: 0o755, content: Vec::new() };
        reference.add(b"", root);
        for (path, object) in tree {
            let other = linked.iter().find(|names| names.iter().any(|n| n.as_bytes() == path));
            let known = other.and_then(|names| {
                names.iter().find_map(|name| reference.names.get(name.as_bytes()).copied())
            });
            match known {
                Some(id) => drop(reference.names.insert(path, id)),
                None => drop(reference.add(&path, object)),
            }
        }
        reference
    }

    fn add(&mut self, path: &[u8], object: Object) -> Id {
        let id = self.next;
        self.next += 1;
        let node = Node { object, handle: None, attr: None, changed: true };
        self.nodes.insert(id, node);
        self.names.insert(path.to_vec(), id);
        id
    }

    /// Becomes a copy of its own past; what both have are the same objects.
    pub fn become_of(&mut self, then: Self) {
        let now = std::mem::replace(self, then);
        self.next = self.next.max(now.next);
        let mut handles = std::mem::take(&mut self.dead);
        handles.extend(now.dead);
        handles.extend(now.nodes.into_iter().filter_map(|(id, node)| Some((id, node.handle?))));
        for (id, node) in &mut self.nodes {
            node.handle = node.handle.take().or(handles.remove(id));
            // Which of them changed in between is not known here.
            node.attr = None;
        }
        handles.retain(|id, _| !self.nodes.contains_key(id));
        self.dead = handles;
    }

    /// The reference of a fork, the `number`th one: its objects are those of this one, seen by none
    /// of its clients, and new ones are others.
    pub fn forked(mut self, number: u32) -> Self {
        for node in self.nodes.values_mut() {
            (node.handle, node.attr) = (None, None);
        }
        self.dead.clear();
        self.next += number << 16;
        self
    }

    /// Becomes a tree whose objects are known by their numbers, which `find` gives with the handle.
    /// All attributes were seen before.
    pub fn adopt(&mut self, tree: Tree, find: impl Fn(&[u8]) -> (FileId, Locator)) {
        let mut then = std::mem::take(self);
        let seen = |(id, node): (&Id, &Node)| node.attr.as_ref().map(|attr| (attr.fileid, *id));
        let mut ids: BTreeMap<FileId, Id> = then.nodes.iter().filter_map(seen).collect();
        (self.next, self.dead) = (then.next, std::mem::take(&mut then.dead));
        let root = then.nodes[&then.names[&b""[..]]].object.clone();
        for (path, object) in [(Vec::new(), root)].into_iter().chain(tree) {
            let (number, found) = find(&path);
            let id = *ids.entry(number).or_insert_with(|| {
                self.next += 1;
                self.next - 1
            });
            let handle = then.nodes.remove(&id).map_or(Some(found), |node| node.handle);
            self.names.insert(path, id);
            let node = Node { object, handle, attr: None, changed: true };
            self.nodes.entry(id).or_insert(node);
        }
        let gone = then.nodes.into_iter();
        self.dead.extend(gone.filter_map(|(id, node)| Some((id, node.handle?))));
    }

    pub fn node(&mut self, path: &[u8]) -> &mut Node {
        let id = self.names[path];
        self.nodes.get_mut(&id).unwrap()
    }

    pub fn kind(&self, path: &[u8]) -> Option<FileKind> {
        let id = self.names.get(path)?;
        Some(self.nodes[id].object.kind)
    }

    fn is_dir(&self, path: &[u8]) -> bool {
        self.kind(path) == Some(FileKind::Directory)
    }

    pub fn dirs(&self) -> Vec<Vec<u8>> {
        self.names.keys().filter(|path| self.is_dir(path)).cloned().collect()
    }

    fn is_empty(&self, dir: &[u8]) -> bool {
        !self.names.keys().any(|path| !path.is_empty() && parent(path) == dir)
    }

    /// Names of an object; of a directory 2 + subdirectories.
    pub fn links(&self, id: Id) -> u32 {
        let paths: Vec<_> = self.names.iter().filter(|(_, at)| **at == id).collect();
        if self.nodes[&id].object.kind != FileKind::Directory {
            return paths.len() as u32;
        }
        let dir = paths[0].0;
        let subdirs = self.names.keys().filter(|p| !p.is_empty() && parent(p) == &dir[..]);
        2 + subdirs.filter(|path| self.is_dir(path)).count() as u32
    }

    /// What the tree must be.
    pub fn tree(&self) -> Tree {
        let named = self.names.iter().filter(|(path, _)| !path.is_empty());
        named.map(|(path, id)| (path.clone(), self.nodes[id].object.clone())).collect()
    }

    pub fn create(&mut self, path: &[u8], object: Object) -> Result {
        if self.names.contains_key(path) {
            return Err(FsError::Exists);
        }
        self.add(path, object);
        self.node(parent(path)).changed = true;
        Ok(())
    }

    pub fn write(&mut self, path: &[u8], offset: usize, data: &[u8]) -> Result {
        let node = self.node(path);
        if node.object.kind != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        if !data.is_empty() {
            let end = node.object.content.len().max(offset + data.len());
            node.object.content.resize(end, 0);
            node.object.content[offset..offset + data.len()].copy_from_slice(data);
            node.changed = true;
        }
        Ok(())
    }

    pub fn truncate(&mut self, path: &[u8], size: usize) -> Result {
        let node = self.node(path);
        if node.object.kind != FileKind::Regular {
            return Err(FsError::Invalid);
        }
        node.object.content.resize(size, 0);
        node.changed = true;
        Ok(())
    }

    pub fn chmod(&mut self, path: &[u8], mode: u32) -> Result {
        let node = self.node(path);
        node.object.mode = mode;
        node.changed = true;
        Ok(())
    }

    pub fn remove(&mut self, path: &[u8]) -> Result {
        match self.kind(path) {
            None => Err(FsError::NotFound),
            Some(FileKind::Directory) => Err(FsError::IsDirectory),
            Some(_) => {
                self.unlink(path);
                Ok(())
            }
        }
    }

    pub fn rmdir(&mut self, path: &[u8]) -> Result {
        match self.kind(path) {
            None => Err(FsError::NotFound),
            Some(FileKind::Directory) if !self.is_empty(path) => Err(FsError::NotEmpty),
            Some(FileKind::Directory) => {
                self.unlink(path);
                Ok(())
            }
            Some(_) => Err(FsError::NotDirectory),
        }
    }

    /// Takes a name away, and the object with its last one.
    fn unlink(&mut self, path: &[u8]) {
        self.node(parent(path)).changed = true;
        let id = self.names.remove(path).unwrap();
        if self.names.values().any(|other| *other == id) {
            self.nodes.get_mut(&id).unwrap().changed = true;
        } else {
            let handle = self.nodes.remove(&id).unwrap().handle;
            self.dead.extend(handle.map(|handle| (id, handle)));
        }
    }

    pub fn link(&mut self, object: &[u8], path: &[u8]) -> Result {
        if self.is_dir(object) {
            return Err(FsError::Invalid);
        }
        if self.names.contains_key(path) {
            return Err(FsError::Exists);
        }
        self.names.insert(path.to_vec(), self.names[object]);
        self.node(object).changed = true;
        self.node(parent(path)).changed = true;
        Ok(())
    }

    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result {
        let Some(&id) = self.names.get(from) else { return Err(FsError::NotFound) };
        if self.names.get(to) == Some(&id) {
            return Ok(());
        }
        let moves_dir = self.is_dir(from);
        if moves_dir && is_within(parent(to), from) {
            return Err(FsError::Invalid);
        }
        match (moves_dir, self.kind(to)) {
            (_, None) => {}
            (true, Some(FileKind::Directory)) if !self.is_empty(to) => {
                return Err(FsError::NotEmpty);
            }
            (true, Some(FileKind::Directory)) => self.unlink(to),
            (true, Some(_)) => return Err(FsError::NotDirectory),
            (false, Some(FileKind::Directory)) => return Err(FsError::IsDirectory),
            (false, Some(_)) => self.unlink(to),
        }
        let moved: BTreeSet<Vec<u8>> = match moves_dir {
            true => self.names.keys().filter(|path| is_within(path, from)).cloned().collect(),
            false => [from.to_vec()].into(),
        };
        for path in moved {
            let id = self.names.remove(&path).unwrap();
            self.names.insert([to, &path[from.len()..]].concat(), id);
        }
        for path in [parent(from), parent(to), to] {
            self.node(path).changed = true;
        }
        Ok(())
    }
}
