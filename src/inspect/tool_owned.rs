//! Recognizes files that git and context nodes keep for themselves, which are not reviewed one by
//! one: the contents of git directories, and context nodes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::{InspectError, Result};
use crate::delta::MergedPath;
use crate::overlay::TreeView;
use crate::vfs::{FileKind, FsError, Name};

/// The largest `.git` file that is read, in bytes.
const MAX_LINK_BYTES: u64 = 8 << 10;

/// The top directory of context nodes (docs/CONTEXT.md).
const NODES: &[u8] = b"accounts";

/// The owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnedBy {
    /// git: the file is in a `.git` directory, or in a directory that a `.git` file names.
    Git,
    /// A context node.
    Nodes,
}

/// The git directories that a tree has outside `.git`.
#[derive(Debug, Clone, Default)]
pub struct ToolOwnedFiles {
    /// Directories named by `.git` files, as worktrees and submodules have them.
    linked: Vec<MergedPath>,
}

impl ToolOwnedFiles {
    /// Reads the `.git` files in the parents of these paths. `outside` is the tree's root on this
    /// machine, to resolve absolute paths in them.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn find<'p>(
        view: &TreeView<'_>,
        outside: Option<&[u8]>,
        paths: impl Iterator<Item = &'p MergedPath>,
    ) -> Result<Self> {
        let mut seen = HashSet::new();
        let mut linked = Vec::new();
        let Ok(git) = Name::new(b".git") else { return Ok(Self::default()) };
        for path in paths {
            for dir in path.above() {
                if !seen.insert(dir.clone()) {
                    break;
                }
                match link(view, &dir, &git, outside) {
                    // What is in a closed directory is not shown either.
                    Err(InspectError::Path { source: FsError::Access, .. }) => {}
                    found => linked.extend(found?),
                }
            }
        }
        Ok(Self { linked })
    }

    /// The owner of a path, and the directory that all its files are grouped by.
    pub fn owner(&self, path: &MergedPath) -> Option<(OwnedBy, MergedPath)> {
        let mut above = MergedPath::root();
        for name in path.names() {
            above = above.join(&name);
            if name.as_bytes().eq_ignore_ascii_case(b".git") || self.linked.contains(&above) {
                return Some((OwnedBy::Git, above));
            }
        }
        is_node(path)
            .then(|| (OwnedBy::Nodes, node_root()))
            .filter(|(_, root)| path.is_within(root))
    }
}

fn node_root() -> MergedPath {
    Name::new(NODES).map_or_else(|_| MergedPath::root(), |name| MergedPath::root().join(&name))
}

/// Whether a path is in a context node or is a directory between two of them:
/// `/accounts/{account}/{users|agents}/{name}/{memories|skills}/…`.
fn is_node(path: &MergedPath) -> bool {
    let names: Vec<_> = path.names().collect();
    let is = |at: usize, words: &[&[u8]]| {
        names.get(at).is_some_and(|name: &Name| words.contains(&name.as_bytes()))
    };
    is(0, &[NODES]) && is(2, &[b"users", b"agents"]) && is(4, &[b"memories", b"skills"])
}

/// The git directory that a `.git` file in `dir` names, if it is in the tree.
fn link(
    view: &TreeView<'_>,
    dir: &MergedPath,
    git: &Name,
    outside: Option<&[u8]>,
) -> Result<Option<MergedPath>> {
    let path = dir.join(git);
    let found = match view.find(&path) {
        Ok(found) => found,
        Err(FsError::NotDirectory | FsError::NotFound) => None,
        Err(source) => return Err(InspectError::at(&path, source)),
    };
    let Some(file) = found
        .filter(|file| file.attr().kind == FileKind::Regular && file.attr().size <= MAX_LINK_BYTES)
    else {
        return Ok(None);
    };
    let mut text = vec![0; usize::try_from(file.attr().size).unwrap_or(0)];
    let got = view.read(&file, 0, &mut text).map_err(|source| InspectError::at(&path, source))?;
    let Some(named) = text[..got].strip_prefix(b"gitdir:") else { return Ok(None) };
    let named = named.trim_ascii();
    let path_of = |bytes| Path::new(OsStr::from_bytes(bytes));
    let (mut target, below) = match (path_of(named), outside) {
        (named, Some(outside)) if named.is_absolute() => {
            let Ok(below) = named.strip_prefix(path_of(outside)) else { return Ok(None) };
            (MergedPath::root(), below)
        }
        (named, None) if named.is_absolute() => return Ok(None),
        (named, _) => (dir.clone(), named),
    };
    for name in below.as_os_str().as_bytes().split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => target = target.parent(),
            name => match Name::new(name) {
                Ok(name) => target = target.join(&name),
                Err(_) => return Ok(None),
            },
        }
    }
    // A worktree's git directory is below the repository's own.
    let shared = target.parent();
    let is_shared = shared.name().is_some_and(|name| name.as_bytes() == b"worktrees");
    let target = if is_shared { shared.parent() } else { target };
    Ok((target != MergedPath::root() && is_repository(view, &target)?).then_some(target))
}

/// Whether a directory is a git directory by git's own test. A `.git` file that names any other
/// directory thus cannot hide it from review.
fn is_repository(view: &TreeView<'_>, dir: &MergedPath) -> Result<bool> {
    for name in [&b"HEAD"[..], b"objects", b"refs"] {
        let Ok(name) = Name::new(name) else { return Ok(false) };
        let path = dir.join(&name);
        match view.find(&path) {
            Ok(Some(_)) => {}
            Ok(None) | Err(FsError::NotDirectory | FsError::NotFound) => return Ok(false),
            Err(source) => return Err(InspectError::at(&path, source)),
        }
    }
    Ok(true)
}
