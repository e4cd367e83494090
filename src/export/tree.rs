//! One export: several mounts assembled into one tree.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;

use super::credentials::{Admission, Squash};
use super::guarding::Guarding;
use super::handles;
use super::numbers::{self, MountNumbers};
use super::validating_overlay::ValidatingOverlay;
use crate::nfs::HandleCodec;
use crate::overlay::{NeededDir, Overlay, Scope};
use crate::vfs::{
    Attr, Caller, FileId, FileKind, FsError, Locator, Name, NewNode, SetAttr, Vfs, Wcc,
};

/// Mode of directories that are created for mount points.
const MADE_MODE: u32 = 0o755;

/// The configuration of an export.
pub struct ExportParts {
    /// The path that clients mount.
    pub path: Bytes,
    /// Name in the audit log.
    pub name: Arc<str>,
    /// The path is a secret and is not listed.
    pub is_secret: bool,
    /// Which callers it accepts.
    pub admission: Admission,
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
    path: Bytes,
    name: Arc<str>,
    is_secret: bool,
    pub(super) admission: Admission,
    pub(super) squash: Squash,
    fsid: u64,
    mounts: Vec<Mount>,
    root: usize,
}

/// A session's tree, or a subtree of it, at its mount point.
pub(super) struct Mount {
    pub(super) overlay: ValidatingOverlay,
    root: Locator,
    tag: u16,
    codec: HandleCodec,
    numbers: MountNumbers,
    /// The directory that contains the mount point: index of its mount, and the directory.
    above: Option<(usize, Locator)>,
    /// Mount points in this mount, by directory.
    points: HashMap<FileId, Vec<Point>>,
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
    covers_dir: bool,
}

/// An object of an export, with its mount.
#[derive(Clone)]
pub struct MountedObject {
    export: Arc<Export>,
    mount: usize,
    /// The object in the mount's overlay.
    pub(super) at: Locator,
}

impl Export {
    /// Assembles an export: finds subtrees and the parents of mount points, creates missing
    /// directories, and connects the mounts.
    ///
    /// # Errors
    /// See [`AssemblyError`].
    pub async fn new(parts: ExportParts) -> Result<Self, AssemblyError> {
        let ExportParts { path, name, is_secret, admission, squash, mounts: given, .. } = parts;
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
            let (tag, codec) = handles::codec(part.handle_key, &path, &part.at, &part.subtree);
            let root = overlay.root();
            let (above, points, _needed) = (None, HashMap::new(), Arc::default());
            mounts.push(Mount { overlay, root, tag, codec, numbers, above, points, _needed });
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
        let session = mounts.get(root).map_or(0, |mount| mount.overlay.fsid());
        let fsid = numbers::fsid(session, &path);
        Ok(Self { path, name, is_secret, admission, squash, fsid, mounts, root })
    }

    /// The path that clients mount.
    pub fn path(&self) -> &Bytes {
        &self.path
    }

    /// Its name in the audit log.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the path is a secret.
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// Identifies the export; stable across restarts.
    pub(super) fn number(&self) -> NonZeroU64 {
        NonZeroU64::new(self.fsid).unwrap_or(NonZeroU64::MIN)
    }

    pub(super) fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The export's root directory.
    pub(super) fn root(self: &Arc<Self>) -> MountedObject {
        self.root_of(self.root)
    }

    /// The root directory of a mount.
    pub(super) fn root_of(self: &Arc<Self>, mount: usize) -> MountedObject {
        MountedObject::new(self, mount, self.mounts[mount].root.clone())
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
    /// The tag in the mount's handles.
    pub(super) fn tag(&self) -> u16 {
        self.tag
    }

    pub(super) fn codec(&self) -> &HandleCodec {
        &self.codec
    }

    /// The mount points in a directory.
    pub(super) fn points_in(&self, dir: &Locator) -> &[Point] {
        self.points.get(&dir.fileid()).map_or(&[], Vec::as_slice)
    }
}

impl MountedObject {
    pub(super) fn new(export: &Arc<Export>, mount: usize, at: Locator) -> Self {
        Self { export: Arc::clone(export), mount, at }
    }

    pub(super) fn export(&self) -> &Arc<Export> {
        &self.export
    }

    pub(super) fn mount(&self) -> &Mount {
        &self.export.mounts[self.mount]
    }

    /// Another object of this mount.
    pub(super) fn sibling(&self, at: Locator) -> Self {
        Self { export: Arc::clone(&self.export), mount: self.mount, at }
    }

    /// Whether both objects are in the same mount of the same export. Also true if the exports were
    /// reloaded in between.
    pub(super) fn same_mount(&self, other: &Self) -> bool {
        self.export.path == other.export.path && self.mount().codec == other.mount().codec
    }

    /// The root of the mount at a name of this directory.
    pub(super) fn mounted_at(&self, name: &[u8]) -> Option<Self> {
        let mut points = self.mount().points_in(&self.at).iter();
        let point = points.find(|point| point.name.as_bytes() == name)?;
        Some(self.export.root_of(point.mount))
    }

    /// The parent of a mount's root; `None` for any other object.
    pub(super) fn above_mount(&self) -> Option<Self> {
        let mount = self.mount();
        let (outer, dir) = mount.above.as_ref().filter(|_| self.at == mount.root)?;
        Some(Self::new(&self.export, *outer, dir.clone()))
    }

    /// Attributes as the export shows them: owners, file number, fsid, and mount points in `nlink`.
    pub(super) fn show(&self, attr: Attr) -> Attr {
        let mount = self.mount();
        let mut attr = self.export.squash.show(attr);
        if attr.kind == FileKind::Directory && !mount.points.is_empty() {
            let points = mount.points.get(&attr.fileid).into_iter().flatten();
            let added = points.filter(|point| !point.covers_dir).count();
            attr.nlink = attr.nlink.saturating_add(u32::try_from(added).unwrap_or(u32::MAX));
        }
        Attr { fsid: self.export.fsid, fileid: self.show_id(attr.fileid), ..attr }
    }

    /// The file number that the export shows.
    pub(super) fn show_id(&self, id: FileId) -> FileId {
        self.mount().numbers.show(id)
    }

    /// As [`Self::show`], for wcc data.
    pub(super) fn show_wcc(&self, wcc: Wcc) -> Wcc {
        Wcc { before: wcc.before, after: wcc.after.map(|attr| self.show(attr)) }
    }
}

impl fmt::Debug for MountedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("mount", &self.mount).field("at", &self.at).finish()
    }
}
