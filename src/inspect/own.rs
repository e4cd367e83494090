//! Files that programs keep for themselves in a tree, and that are not what a person reviews: the
//! insides of git repositories, and context nodes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::{InspectError, Result};
use crate::delta::MergedPath;
use crate::overlay::TreeView;
use crate::vfs::{FileKind, FsError, Name};

/// The largest file that may say where a repository is, in bytes.
const MAX_LINK_BYTES: u64 = 8 << 10;

/// Where the directories of context nodes are (docs/CONTEXT.md).
const NODES: &[u8] = b"accounts";

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OwnedBy {
    /// git's: in a directory `.git`, or in one that a file of this name names.
    Git,
    /// A context node's.
    Nodes,
}

/// What is known of such files in a tree.
#[derive(Debug, Clone, Default)]
pub struct OwnFiles {
    /// Directories that files with the name `.git` name, as those of worktrees and submodules do.
    linked: Vec<MergedPath>,
}

impl OwnFiles {
    /// Looks for links to repositories in the directories that lead to these paths. `outside` is
    /// where the tree's root is on this machine, for absolute links.
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
                linked.extend(link(view, &dir, &git, outside)?);
            }
        }
        Ok(Self { linked })
    }

    /// Whose a path is, and the directory that stands for all of these.
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

/// Whether a path is in a node, or in a directory that only leads to some:
/// `/accounts/{account}/{users|agents}/{name}/{memories|skills}/…`.
fn is_node(path: &MergedPath) -> bool {
    let names: Vec<_> = path.names().collect();
    let is = |at: usize, words: &[&[u8]]| {
        names.get(at).is_some_and(|name: &Name| words.contains(&name.as_bytes()))
    };
    is(0, &[NODES]) && is(2, &[b"users", b"agents"]) && is(4, &[b"memories", b"skills"])
}

/// The repository that a file `.git` in a directory names, where that is in the tree and not in a
/// directory `.git` anyway.
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
    // What belongs to one worktree is below what all of a repository share.
    let shared = target.parent();
    let is_shared = shared.name().is_some_and(|name| name.as_bytes() == b"worktrees");
    let target = if is_shared { shared.parent() } else { target };
    Ok((target != MergedPath::root() && is_repository(view, &target)?).then_some(target))
}

/// Whether a directory is a repository, as git tells one: a file `.git` that names any other hides
/// nothing.
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
