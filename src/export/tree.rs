//! One export: several mounts assembled into one tree.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::credentials::Squash;
use super::entry::{ExportIdentity, MountKeys};
use super::guarding::Guarding;
use super::numbers::MountNumbers;
use super::validating_overlay::ValidatingOverlay;
use crate::overlay::{NeededDir, Overlay, Scope};
use crate::vfs::{Caller, FileId, FileKind, FsError, Locator, Name, NewNode, SetAttr, Vfs};

/// Time that a call waits for the lease of a session; the client then tries again.
const LEASE_WAIT: Duration = Duration::from_secs(2);

/// Mode of directories that are created for mount points.
const MADE_MODE: u32 = 0o755;

/// The configuration of an export.
pub struct ExportParts {
    /// The path that clients mount.
    pub path: Bytes,
    /// Name in the audit log.
    pub name: Arc<str>,
    /// How ids are mapped and squashed.
    pub squash: Squash,
    /// The mounts; exactly one is at `/`.
    pub mounts: Vec<MountParts>,
    /// The guards of the export.
    pub guarding: Guarding,
    /// Owner of directories that are created for mount points.
    pub owner: Caller,
}

/// The configuration of a mount.
pub struct MountParts {
    /// Mount point in the export: `/`, or `/a/b`.
    pub at: String,
    /// The session, unrestricted.
    pub overlay: Overlay,
    /// The session's directory that is the root of the mount: `/`, or `/a/b`.
    pub subtree: String,
    /// Refuse every change with NFS3ERR_ROFS.
    pub read_only: bool,
    /// Largest size of a file, in bytes; `None` if only the session's limit applies.
    pub file_bytes: Option<u64>,
    /// The session's secret key, for handles.
    pub handle_key: [u8; 16],
}

/// Why an export cannot be assembled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssemblyError {
    /// No mount is at `/`.
    #[error("nothing is mounted at /")]
    NoRoot,
    /// A directory cannot be found or created.
    #[error("{what} {path}: {source}")]
    Directory {
        /// Its role.
        what: &'static str,
        /// Its path in the export or in the session.
        path: String,
        /// The error.
        source: FsError,
    },
}

/// An export: the tree that clients mount.
pub struct Export {
    name: Arc<str>,
    identity: ExportIdentity,
    pub(super) squash: Squash,
    mounts: Vec<Mount>,
    root: usize,
}

/// A session's tree, or a subtree of it, at its mount point.
pub(super) struct Mount {
    pub(super) overlay: ValidatingOverlay,
    pub(super) root: Locator,
    pub(super) numbers: MountNumbers,
    /// The directory that contains the mount point: index of its mount, and the directory.
    pub(super) above: Option<(usize, Locator)>,
    /// Mount points in this mount, by directory.
    pub(super) points: HashMap<FileId, Vec<Point>>,
    /// Keeps its root and the directories above mount points where they are.
    _needed: Arc<[NeededDir]>,
}

/// A mount point: a name in a directory.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) name: Name,
    /// Index of the mounted mount.
    pub(super) mount: usize,
    /// Whether the mount point covers a directory, which `nlink` already counts.
    pub(super) covers_dir: bool,
}

impl Export {
    /// Assembles an export: finds subtrees and the parents of mount points, creates missing
    /// directories, and connects the mounts.
    ///
    /// # Errors
    /// See [`AssemblyError`].
    pub async fn new(parts: ExportParts) -> Result<Self, AssemblyError> {
        let ExportParts { path, name, squash, mounts: given, .. } = parts;
        let (owner, guarding) = (parts.owner, parts.guarding);
        let root = given.iter().position(|mount| mount.at == "/").ok_or(AssemblyError::NoRoot)?;
        let mut mounts = Vec::with_capacity(given.len());
        let mut scopes = Vec::with_capacity(given.len());
        let mut needed = vec![Vec::new(); given.len()];
        let mut taken = vec![MountNumbers::ROOT];
        for part in &given {
            let scope = Scope {
                root: subtree(part, &owner).await?,
                read_only: part.read_only,
                file_bytes: part.file_bytes,
                export: Some(Arc::clone(&name)),
                guarded: guarding.paths(&part.at),
                ..Scope::default()
            };
            let overlay = guarding.guarded_overlay(part.overlay.within(scope.clone()), &part.at);
            let numbers = match part.at.as_str() {
                "/" => MountNumbers::ROOT,
                at => MountNumbers::choose(at, &taken),
            };
            taken.push(numbers);
            let root = overlay.root();
            let (above, points, _needed) = (None, HashMap::new(), Arc::default());
            mounts.push(Mount { overlay, root, numbers, above, points, _needed });
            scopes.push(scope);
        }
        for index in 0..given.len() {
            if index != root {
                let way = find_enclosing_mount(&given, &mut mounts, index, &owner).await?;
                scopes[way.outer].pinned.extend(way.dirs.iter().map(Locator::fileid));
                needed[way.outer].extend(way.dirs);
            }
        }
        for ((mount, part), (scope, above)) in
            mounts.iter_mut().zip(&given).zip(scopes.into_iter().zip(needed))
        {
            let dir = |dir, is_root| NeededDir { dir, export: Arc::clone(&name), is_root };
            let root = scope.root.clone().map(|root| dir(root, true));
            let dirs = root.into_iter().chain(above.into_iter().map(|above| dir(above, false)));
            mount._needed = part.overlay.need_dirs(dirs.collect());
            mount.overlay = guarding.guarded_overlay(part.overlay.within(scope), &part.at);
        }
        let keys: Vec<_> = given.iter().map(MountParts::keys).collect();
        let identity = ExportIdentity::new(&path, &keys);
        Ok(Self { name, identity, squash, mounts, root })
    }

    /// What identifies it.
    pub(super) fn identity(&self) -> &ExportIdentity {
        &self.identity
    }

    /// Whether a session of it is lost: another server may have it.
    pub fn is_lost(&self) -> bool {
        self.mounts.iter().any(|mount| mount.overlay.is_lost())
    }

    /// Waits until no other server can have its sessions.
    ///
    /// # Errors
    /// [`FsError::TryLater`]: another server may still have one.
    pub(super) async fn await_leases(&self) -> Result<(), FsError> {
        for mount in &self.mounts {
            mount.overlay.await_lease(LEASE_WAIT).await?;
        }
        Ok(())
    }

    /// Whether no mount has a draft.
    pub(super) fn is_idle(&self) -> bool {
        self.mounts.iter().all(Mount::is_idle)
    }

    /// Its name in the audit log.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// Index of the mount at `/`.
    pub(super) fn root(&self) -> usize {
        self.root
    }
}

impl MountParts {
    fn keys(&self) -> MountKeys<'_> {
        let (at, subtree) = (self.at.as_str(), self.subtree.as_str());
        let session_fsid = self.overlay.fsid();
        MountKeys { at, subtree, handle_key: self.handle_key, session_fsid }
    }
}

/// The root directory of a mount; `None` for the whole session.
async fn subtree(part: &MountParts, owner: &Caller) -> Result<Option<Locator>, AssemblyError> {
    if part.subtree == "/" {
        return Ok(None);
    }
    let names: Vec<&str> = part.subtree.split('/').filter(|name| !name.is_empty()).collect();
    let makes = !part.read_only;
    let path = walk_or_create(&part.overlay, &names, makes, owner).await;
    let path = path.map_err(|source| AssemblyError::Directory {
        what: "the subtree",
        path: part.subtree.clone(),
        source,
    })?;
    Ok(path.into_iter().next_back())
}

/// The way from the root of a mount to a mount point in it.
struct MountPointWay {
    /// Index of the enclosing mount.
    outer: usize,
    /// The directories below its root. The last one contains the mount point.
    dirs: Vec<Locator>,
}

/// Finds the enclosing mount of a mount, and the directory that contains the mount point.
async fn find_enclosing_mount(
    given: &[MountParts],
    mounts: &mut [Mount],
    index: usize,
    owner: &Caller,
) -> Result<MountPointWay, AssemblyError> {
    let at = &given[index].at;
    let outer = |(number, part): &(usize, &MountParts)| {
        *number != index && (part.at == "/" || at.starts_with(&format!("{}/", part.at)))
    };
    let enclosing = given.iter().enumerate().filter(outer);
    let (outer, part) =
        enclosing.max_by_key(|(_, part)| part.at.len()).ok_or(AssemblyError::NoRoot)?;
    let failed =
        |source| AssemblyError::Directory { what: "the directory above", path: at.clone(), source };
    let below = at.strip_prefix(part.at.trim_end_matches('/')).unwrap_or(at);
    let mut names: Vec<&str> = below.split('/').filter(|name| !name.is_empty()).collect();
    let last = names.pop().ok_or(AssemblyError::NoRoot)?;
    let name = Name::new(last.as_bytes()).map_err(|error| failed(error.into()))?;
    let makes = !part.read_only;
    let dirs =
        walk_or_create(&mounts[outer].overlay, &names, makes, owner).await.map_err(failed)?;
    let dir = dirs.last().unwrap_or(&mounts[outer].root).clone();
    let covered = mounts[outer].overlay.lookup(owner, &dir, name.as_bytes()).await.result;
    let covers_dir = covered.is_ok_and(|covered| covered.attr.kind == FileKind::Directory);
    let point = Point { name, mount: index, covers_dir };
    mounts[outer].points.entry(dir.fileid()).or_default().push(point);
    mounts[index].above = Some((outer, dir));
    Ok(MountPointWay { outer, dirs })
}

/// The directories along a path from the root. With `makes`, missing ones are created.
async fn walk_or_create(
    overlay: &Overlay,
    names: &[&str],
    makes: bool,
    owner: &Caller,
) -> Result<Vec<Locator>, FsError> {
    let mut way = Vec::with_capacity(names.len());
    let mut at = overlay.root();
    for name in names {
        let found = overlay.lookup(owner, &at, name.as_bytes()).await.result;
        let (object, attr) = match found {
            Ok(found) => (found.object, found.attr),
            Err(FsError::NotFound) if makes => {
                let set = SetAttr { mode: Some(MADE_MODE), ..SetAttr::default() };
                let (new, name) = (NewNode::Directory, name.as_bytes());
                let made = overlay.make_node(owner, &at, name, new, set).await.result?;
                (made.object, made.attr)
            }
            Err(error) => return Err(error),
        };
        if attr.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        way.push(object.clone());
        at = object;
    }
    Ok(way)
}

impl Mount {
    /// The mount points in a directory.
    pub(super) fn points_in(&self, dir: &Locator) -> &[Point] {
        self.points.get(&dir.fileid()).map_or(&[], Vec::as_slice)
    }

    /// Whether the mount has no drafts.
    fn is_idle(&self) -> bool {
        self.overlay.drafts.as_ref().is_none_or(|drafts| drafts.is_idle())
    }
}
