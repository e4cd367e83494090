//! What a session changed as a patch in git's format, which `git apply` takes: files, symbolic
//! links, whether a file may be executed. Directories come and go with what is in them; owners,
//! times and special files are beyond the format.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::ops::ControlFlow;

use super::diff::{Difference, Kind, Options, base_error, base_target, diff, read_base};
use super::error::{InspectError, Result};
use super::git::{Blob, write_file};
use super::opened::Opened;
use super::walk::{Next, walk};
use crate::base::{BaseAttr, BaseError, BasePath};
use crate::delta::MergedPath;
use crate::overlay::{TreeObject, TreeView};
use crate::vfs::{FileKind, FsError};

/// The largest file that goes into a patch, in bytes: it is held in memory, before and after.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// What a patch leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Special files, which the format does not know.
    pub special: u64,
    /// Files larger than [`MAX_FILE_BYTES`], before or after the change.
    pub too_large: Vec<MergedPath>,
}

/// What may have changed, by path.
#[derive(Default)]
struct Paths {
    /// What is there now.
    new: BTreeMap<MergedPath, TreeObject>,
    /// What the base has there, and the merged tree may not have any more.
    old: BTreeSet<MergedPath>,
    /// Where what is there now was.
    moved: BTreeMap<MergedPath, MergedPath>,
    left_out: LeftOut,
}

/// Writes the patch that makes the merged tree of the base; says what is not in it.
///
/// # Errors
/// The session or the base cannot be read, or `out` takes no more.
pub fn patch(
    opened: &Opened,
    options: &Options,
    out: &mut dyn Write,
) -> Result<std::result::Result<LeftOut, io::Error>> {
    let mut paths = Paths::default();
    let mut written = Ok(());
    diff(opened, options, &mut |view, difference| {
        paths.add(opened, view, &difference)?;
        Ok(ControlFlow::Continue(()))
    })?;
    opened.look(|view| {
        paths.settle(view)?;
        let mut too_large = Vec::new();
        written = paths.write(opened, view, out, &mut too_large)?;
        paths.left_out.too_large = too_large;
        Ok(())
    })?;
    Ok(written.map(|()| paths.left_out))
}

impl Paths {
    fn add(&mut self, opened: &Opened, view: &TreeView<'_>, difference: &Difference) -> Result<()> {
        let change = &difference.change;
        let before = change.before.as_ref().filter(|_| difference.kind != Kind::Added);
        for base in before.into_iter().chain(&change.replaced) {
            let is_dir = base.attr.kind == FileKind::Directory;
            let stays = difference.kind == Kind::Modified;
            if !(is_dir && stays) {
                self.add_old(opened, &base.path, &base.attr)?;
            }
        }
        let Some(after) = &change.after else { return Ok(()) };
        let from = before.filter(|_| difference.kind == Kind::Renamed);
        if after.attr().kind != FileKind::Directory {
            let from = from.map(|base| MergedPath::of_base(&base.path));
            self.add_new(difference.path.clone(), after.clone(), from);
            return Ok(());
        }
        let Some(from) = from else { return Ok(()) };
        // What moved along, and is as it was; the rest has differences of its own.
        walk(view, after, &mut |_, object, _| {
            let is_file = object.attr().kind != FileKind::Directory;
            if is_file
                && !self.new.contains_key(object.path())
                && let Some(base) = moved_along(opened, &from.path, after.path(), object)?
            {
                self.add_new(
                    object.path().clone(),
                    object.clone(),
                    Some(MergedPath::of_base(&base)),
                );
            }
            Ok(Next::Deeper)
        })?;
        Ok(())
    }

    fn add_new(&mut self, path: MergedPath, object: TreeObject, from: Option<MergedPath>) {
        if !has_blob(object.attr().kind) {
            self.left_out.special += 1;
            return;
        }
        // A link that only moves does not say in a patch that it was one, and git refuses what
        // comes below its old path.
        let is_file = object.attr().kind == FileKind::Regular;
        if let Some(from) = from.filter(|from| is_file && *from != path) {
            self.moved.insert(path.clone(), from);
        }
        self.new.insert(path, object);
    }

    /// Adds an object of the base, and of a directory all files below it.
    fn add_old(&mut self, opened: &Opened, path: &BasePath, attr: &BaseAttr) -> Result<()> {
        let mut open = vec![(path.clone(), attr.kind)];
        while let Some((path, kind)) = open.pop() {
            if has_blob(kind) {
                self.old.insert(MergedPath::of_base(&path));
            }
            if kind != FileKind::Directory {
                continue;
            }
            let listing = match opened.base().list(&path) {
                Ok(listing) => listing,
                Err(BaseError::NotFound) => continue,
                Err(source) => return Err(base_error(opened, &path, source)),
            };
            for entry in &listing.entries {
                let path = path.join(&entry.name);
                match entry.kind.map_or_else(|| opened.base().stat(&path).map(|a| a.kind), Ok) {
                    Ok(kind) => open.push((path, kind)),
                    Err(BaseError::NotFound) => {}
                    Err(source) => return Err(base_error(opened, &path, source)),
                }
            }
        }
        Ok(())
    }

    /// Leaves of the old paths those that lead to nothing now; and of the moves those from such a
    /// path, one from each, to where the base has nothing: git moves nothing over another file.
    fn settle(&mut self, view: &TreeView<'_>) -> Result<()> {
        let mut gone = BTreeSet::new();
        for path in &self.old {
            let now = view
                .find(path)
                .map_err(|source| InspectError::Path { path: path.clone(), source })?;
            if now.is_none_or(|now| !has_blob(now.attr().kind)) {
                gone.insert(path.clone());
            }
        }
        let mut free = gone.clone();
        let old = std::mem::replace(&mut self.old, gone);
        self.moved.retain(|path, from| !old.contains(path) && free.remove(from));
        Ok(())
    }

    fn write(
        &self,
        opened: &Opened,
        view: &TreeView<'_>,
        out: &mut dyn Write,
        too_large: &mut Vec<MergedPath>,
    ) -> Result<io::Result<()>> {
        let sources: BTreeSet<&MergedPath> = self.moved.values().collect();
        let both = self.old.iter().chain(self.new.keys()).collect::<BTreeSet<_>>();
        for path in both {
            let now = self.new.get(path);
            if now.is_none() && sources.contains(path) {
                continue;
            }
            let from = self.moved.get(path).unwrap_or(path);
            let blobs = base_blob(opened, from)
                .and_then(|old| Ok((old, now.map(|now| blob(view, now)).transpose()?)));
            let (old, new) = match blobs {
                Err(InspectError::Path { source: FsError::TooLarge, .. }) => {
                    too_large.push(path.clone());
                    continue;
                }
                blobs => blobs?,
            };
            // A file and a link are not changed into one another, but replaced.
            let written = match (&old, &new) {
                (Some(a), Some(b)) if a.is_link() != b.is_link() => {
                    write_file((from, old.as_ref()), (path, None), out)
                        .and_then(|()| write_file((from, None), (path, new.as_ref()), out))
                }
                _ => write_file((from, old.as_ref()), (path, new.as_ref()), out),
            };
            if written.is_err() {
                return Ok(written);
            }
        }
        Ok(Ok(()))
    }
}

/// Where the base has an object that moved along with the directory `from`, which is at `to` now;
/// `None` if it came there otherwise.
fn moved_along(
    opened: &Opened,
    from: &BasePath,
    to: &MergedPath,
    object: &TreeObject,
) -> Result<Option<BasePath>> {
    if let Some(base) = object.base_path() {
        return Ok(Some(base.clone()));
    }
    let rest = object.path().as_bytes().strip_prefix(to.as_bytes()).unwrap_or_default();
    let Some(base) = BasePath::from_bytes(&[from.as_bytes(), rest].concat()) else {
        return Ok(None);
    };
    match opened.base().stat(&base) {
        Ok(attr) => Ok((attr.fileid == object.attr().fileid).then_some(base)),
        Err(BaseError::NotFound) => Ok(None),
        Err(source) => Err(base_error(opened, &base, source)),
    }
}

/// Whether git keeps content of it.
fn has_blob(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Symlink)
}

/// The base's file or link at a path, if there is one.
fn base_blob(opened: &Opened, path: &MergedPath) -> Result<Option<Blob>> {
    let Some(base) = BasePath::from_bytes(&path.as_bytes()[1..]) else { return Ok(None) };
    let attr = match opened.base().stat(&base) {
        Ok(attr) => attr,
        Err(BaseError::NotFound) => return Ok(None),
        Err(source) => return Err(base_error(opened, &base, source)),
    };
    match attr.kind {
        FileKind::Symlink => Ok(Some(Blob::link(base_target(opened, &base)?))),
        FileKind::Regular => {
            let mut content = room_for(path, attr.size)?;
            let mut at = 0;
            while at < content.len() {
                let got = read_base(opened, &base, &attr, at as u64, &mut content[at..])?;
                if got == 0 {
                    break;
                }
                at += got;
            }
            content.truncate(at);
            Ok(Some(Blob::file(content, attr.mode)))
        }
        _ => Ok(None),
    }
}

/// What is in the merged tree.
fn blob(view: &TreeView<'_>, object: &TreeObject) -> Result<Blob> {
    let path = object.path();
    let failed = |source| InspectError::Path { path: path.clone(), source };
    if object.attr().kind == FileKind::Symlink {
        return Ok(Blob::link(view.target(object).map_err(failed)?.to_vec()));
    }
    let mut content = room_for(path, object.attr().size)?;
    let got = view.read(object, 0, &mut content).map_err(failed)?;
    content.truncate(got);
    Ok(Blob::file(content, object.attr().mode))
}

fn room_for(path: &MergedPath, bytes: u64) -> Result<Vec<u8>> {
    if bytes > MAX_FILE_BYTES {
        return Err(InspectError::Path { path: path.clone(), source: FsError::TooLarge });
    }
    Ok(vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)])
}
