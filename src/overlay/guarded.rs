//! Guarded files: their content is never changed in pieces, only replaced as a whole after
//! validation.
//!
//! An operation that would change it fails with [`FsError::Guarded`]. The export then validates the
//! content and retries with the state that it validated. The retry succeeds only if that state is
//! still current.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use crate::delta::{AuditProcedure, InodeRow, MergedPath};
use crate::vfs::{
    Attr, Caller, FileKind, FsError, GuardedFile, Locator, Name, Outcome, PublishPreconditions,
    Time, Wcc, WriteVerifier,
};
use crate::worker::{Committed, Cost};

use super::Overlay;
use super::copy_up::copy_up_head;
use super::copy_up_pending::{read_content, resize_content, write_content};
use super::edit::{Edit, moved_on};
use super::error::Result;
use super::limits::MAX_GUARD_WALK;
use super::node::{Child, Node};
use super::readdir::each_entry;
use super::rename::rename;
use super::resolve::View;
use super::scope::{GuardedPaths, has_path};
use super::setattr::{check_file_size, clear_setid};

/// A file that a RENAME moves to a guarded path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The file.
    pub file: Locator,
    /// The file's path after the RENAME, relative to the scope's root.
    pub path: Vec<u8>,
    /// The file's ctime, which changes with its content.
    pub ctime: Time,
}

/// A merged path relative to the scope's root; `None` if it is outside.
fn below_scope(view: &View<'_>, path: &MergedPath) -> Result<Option<Vec<u8>>> {
    Ok(below(scope_root(view)?.as_ref(), path))
}

/// The merged path of the scope's root; `None` if the scope is the whole tree.
fn scope_root(view: &View<'_>) -> Result<Option<MergedPath>> {
    let Some(root) = &view.scope.root else { return Ok(None) };
    let root = view.found(root)?.ok_or(FsError::Stale)?;
    Ok(Some(view.place(&root)?.merged.clone()))
}

/// The guarded paths of a file.
fn guarded_paths(view: &View<'_>, node: &Node) -> Result<Vec<Vec<u8>>> {
    let Some(guarded) = &view.scope.guarded else { return Ok(Vec::new()) };
    if node.kind() != FileKind::Regular {
        return Ok(Vec::new());
    }
    let root = scope_root(view)?;
    let found = RefCell::new(Vec::new());
    has_path(view, node, &|path| {
        let path = below(root.as_ref(), path);
        found.borrow_mut().extend(path.filter(|path| guarded.is_guarded(path)));
        false
    })?;
    let mut found = found.into_inner();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The files that would be at guarded paths if `node` were at `to`.
///
/// # Errors
/// [`FsError::NotPermitted`] if a special file would be where only regular files may be;
/// [`FsError::Access`] if there are more than [`MAX_GUARD_WALK`] objects.
fn arrivals_below(view: &View<'_>, node: &Node, to: &MergedPath) -> Result<Vec<Arrival>> {
    let Some(guarded) = &view.scope.guarded else { return Ok(Vec::new()) };
    let Some(to) = below_scope(view, to)? else { return Ok(Vec::new()) };
    let (mut found, mut seen) = (Vec::new(), 0);
    let mut left = vec![(node.clone(), to)];
    while let Some((node, path)) = left.pop() {
        seen += 1;
        if seen > MAX_GUARD_WALK {
            return Err(FsError::Access.into());
        }
        match node.kind() {
            FileKind::Directory if guarded.may_guard_below(&path) => {
                for (name, child) in children_of(view, &node)? {
                    left.push((child.node, [&path, &b"/"[..], name.as_bytes()].concat()));
                }
            }
            FileKind::Directory => {}
            FileKind::Regular if guarded.is_guarded(&path) => {
                let ctime = view.attr(&node)?.ctime;
                found.push(Arrival { file: node.locator(), path, ctime });
            }
            FileKind::Regular => {}
            _ => check_kind(&**guarded, &path)?,
        }
    }
    Ok(found)
}

/// The entries of a directory, with their objects.
fn children_of(view: &View<'_>, dir: &Node) -> Result<Vec<(Name, Child)>> {
    let place = view.place(dir)?;
    let mut names = Vec::new();
    each_entry(view, &place, &mut |entry| names.push(entry.name))?;
    let mut all = Vec::with_capacity(names.len());
    for name in names {
        if let Some(child) = view.child(&place, &name)? {
            all.push((name, child));
        }
    }
    Ok(all)
}

/// The content of a file of at most `most` bytes.
fn content_of(view: &View<'_>, node: &Node, size: u64, most: u64) -> Result<Vec<u8>> {
    if node.kind() != FileKind::Regular {
        return Err(FsError::Invalid.into());
    }
    if size > most {
        return Err(FsError::TooLarge.into());
    }
    let mut content = vec![0; size as usize];
    match node {
        Node::Delta(row) if size > 0 => read_content(view, row, 0, &mut content)?,
        Node::Delta(_) => {}
        Node::Base { path, attr } => {
            let (got, now) = view.core.base.read(path, attr.fileid, 0, &mut content)?;
            if got as u64 != size || now.size != size {
                return Err(FsError::TryLater.into());
            }
        }
    }
    Ok(content)
}

/// [`FsError::Guarded`] for a guarded file.
pub(super) fn check_unguarded(edit: &Edit<'_>, node: &Node) -> Result<()> {
    let is_free = guarded_paths(&edit.view(), node)?.is_empty();
    if is_free { Ok(()) } else { Err(FsError::Guarded.into()) }
}

/// Checks a new object: no special file where only regular files may be, and no guarded file
/// with an initial size.
pub(super) fn check_birth(
    edit: &Edit<'_>,
    kind: FileKind,
    size: Option<u64>,
    path: &MergedPath,
) -> Result<()> {
    let Some(guarded) = &edit.scope.guarded else { return Ok(()) };
    let Some(path) = below_scope(&edit.view(), path)? else { return Ok(()) };
    match kind {
        FileKind::Directory => Ok(()),
        FileKind::Regular if size.unwrap_or(0) > 0 && guarded.is_guarded(&path) => {
            Err(FsError::Guarded.into())
        }
        FileKind::Regular => Ok(()),
        _ => check_kind(&**guarded, &path),
    }
}

/// [`FsError::NotPermitted`] for a LINK of a guarded file, or to a guarded path.
pub(super) fn check_link(edit: &Edit<'_>, node: &Node, path: &MergedPath) -> Result<()> {
    let Some(guarded) = &edit.scope.guarded else { return Ok(()) };
    let view = edit.view();
    if let Some(path) = below_scope(&view, path)? {
        let is_file = node.kind() == FileKind::Regular;
        if guarded.is_guarded(&path) || (!is_file && guarded.bars_links(&path)) {
            return Err(FsError::NotPermitted.into());
        }
    }
    let is_free = guarded_paths(&view, node)?.is_empty();
    if is_free { Ok(()) } else { Err(FsError::NotPermitted.into()) }
}

/// [`FsError::Guarded`] if a RENAME moves files to guarded paths, unless exactly these were
/// validated.
pub(super) fn check_arrivals(
    edit: &Edit<'_>,
    node: &Node,
    to: &MergedPath,
    validated: &[Arrival],
) -> Result<()> {
    let arrivals = arrivals_below(&edit.view(), node, to)?;
    if arrivals.is_empty() || arrivals == validated {
        return Ok(());
    }
    Err(FsError::Guarded.into())
}

/// Replaces the content of a guarded file.
fn publish_content(
    edit: &mut Edit<'_>,
    file: &Locator,
    content: &[u8],
    expected: &PublishPreconditions,
) -> Outcome<(), Wcc> {
    edit.on_object(file, |edit, node, before| {
        Ok(Some(publish_node(edit, node, before, content, expected)?))
    })
}

fn publish_node(
    edit: &mut Edit<'_>,
    node: Node,
    before: &Attr,
    content: &[u8],
    expected: &PublishPreconditions,
) -> Result<Box<InodeRow>> {
    edit.check_writable()?;
    if before.kind != FileKind::Regular {
        return Err(FsError::Invalid.into());
    }
    if expected.tree_changes != edit.core.tree_changes.load(Ordering::Acquire) {
        return Err(FsError::Invalid.into());
    }
    if guarded_paths(&edit.view(), &node)? != expected.paths {
        return Err(FsError::Guarded.into());
    }
    if expected.ctime.is_some_and(|ctime| ctime != before.ctime) {
        return Err(FsError::NotSync.into());
    }
    check_file_size(edit, before.size, content.len() as u64)?;
    let mut row = copy_up_head(edit, node, 0)?;
    resize_content(edit, &mut row, 0)?;
    if !content.is_empty() {
        write_content(edit, &mut row, 0, content)?;
    }
    row.ctime = moved_on(row.ctime.max(expected.after), edit.now);
    row.mtime = row.ctime;
    row.create_verifier = None;
    if !edit.caller.is_root() {
        row.mode = clear_setid(row.mode);
    }
    edit.txn.put_inode(&row)?;
    let path = edit.path_of(&row)?;
    let span = (None, Some(content.len() as u64));
    edit.record(AuditProcedure::Publish, row.fileid(), path, None, span)?;
    Ok(row)
}

/// Records in the audit log that a file's new content was rejected.
fn note_refusal(edit: &mut Edit<'_>, file: &Locator, why: &str) -> Result<()> {
    let view = edit.view();
    let node = view.node(file)?;
    let path = RefCell::new(None);
    has_path(&view, &node, &|found| {
        *path.borrow_mut() = Some(found.clone());
        true
    })?;
    let path = path.into_inner().ok_or(FsError::Stale)?;
    let id = node.fileid();
    edit.record_note(AuditProcedure::Refuse, id, path, why.to_owned())
}

impl Overlay {
    /// The guarded paths of a file, relative to the scope's root, and its attributes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn guarded_file(&self, file: &Locator) -> std::result::Result<GuardedFile, FsError> {
        let file = file.clone();
        let seen = self.look(Cost::Offload, move |view| {
            let node = view.node(&file)?;
            Ok(GuardedFile { paths: guarded_paths(view, &node)?, attr: view.attr(&node)? })
        });
        seen.await?.map_err(|error: super::error::OpError| error.into_fs())
    }

    /// As [`Self::guarded_file`], with the file's content.
    ///
    /// # Errors
    /// The file cannot be read; [`FsError::TooLarge`] if it has more than `most` bytes.
    pub async fn guarded_content(
        &self,
        file: &Locator,
        most: u64,
    ) -> std::result::Result<(GuardedFile, Vec<u8>), FsError> {
        let file = file.clone();
        let read = self.look_once(move |view| {
            let read = view.node(&file).and_then(|node| {
                let attr = view.attr(&node)?;
                let content = content_of(view, &node, attr.size, most)?;
                Ok((GuardedFile { paths: guarded_paths(view, &node)?, attr }, content))
            });
            Outcome { result: read.map_err(|error| error.into_fs()), context: () }
        });
        read.await.result
    }

    /// Replaces a file's content and syncs it, if `expected` still holds.
    pub async fn publish(
        &self,
        caller: &Caller,
        file: &Locator,
        content: Bytes,
        expected: PublishPreconditions,
    ) -> Outcome<WriteVerifier, Wcc> {
        let (at, bytes) = (file.clone(), content.len());
        let published = self.change(caller, Cost::Offload, bytes, true, move |edit| {
            publish_content(edit, &at, &content, &expected)
        });
        match published.await {
            Ok(Committed { value, verifier, .. }) => {
                Outcome { result: value.result.map(|()| verifier), context: value.context }
            }
            Err(error) => error.into(),
        }
    }

    /// The files that a RENAME would move to guarded paths.
    ///
    /// # Errors
    /// The tree cannot be read, a special file would be where only regular files may be, or there
    /// are too many objects to check.
    pub async fn arrivals(
        &self,
        from: (&Locator, &[u8]),
        to: (&Locator, &[u8]),
    ) -> std::result::Result<Vec<Arrival>, FsError> {
        let from = (from.0.clone(), from.1.to_vec());
        let to = (to.0.clone(), to.1.to_vec());
        let found = self.look_once(move |view| {
            let found = (|| {
                let (_, source) = view.dir(&from.0)?;
                let (_, target) = view.dir(&to.0)?;
                let child = view.child(&source, &Name::new(&from.1)?)?;
                let node = child.ok_or(FsError::NotFound)?.node;
                arrivals_below(view, &node, &target.merged.join(&Name::new(&to.1)?))
            })();
            Outcome {
                result: found.map_err(|error: super::error::OpError| error.into_fs()),
                context: (),
            }
        });
        found.await.result
    }

    /// RENAME that may move exactly the `validated` files to guarded paths, if they are unchanged.
    pub async fn rename_validated(
        &self,
        caller: &Caller,
        from: (&Locator, &[u8]),
        to: (&Locator, &[u8]),
        validated: Vec<Arrival>,
    ) -> Outcome<(), (Wcc, Wcc)> {
        let old = (from.0.clone(), from.1.to_vec());
        let new = (to.0.clone(), to.1.to_vec());
        // With guards, a renamed directory is walked.
        let cost = if self.scope.guarded.is_some() { Cost::Offload } else { Cost::Inline };
        let renamed = self.alter(caller, cost, move |edit| {
            rename(edit, (&old.0, &old.1), (&new.0, &new.1), &validated)
        });
        match renamed.await {
            Ok(outcome) => outcome,
            Err(error) => {
                Outcome::err(error, (self.unchanged(from.0).await, self.unchanged(to.0).await))
            }
        }
    }

    /// Records in the audit log that a file's new content was rejected, and why.
    ///
    /// # Errors
    /// The audit row cannot be written.
    pub async fn note_refusal(
        &self,
        caller: &Caller,
        file: &Locator,
        why: String,
    ) -> std::result::Result<(), FsError> {
        let file = file.clone();
        let noted = self.alter(caller, Cost::Offload, move |edit| {
            let noted = note_refusal(edit, &file, &why);
            Outcome { result: noted.map_err(|error| error.into_fs()), context: () }
        });
        noted.await?.result
    }

    /// The clock that stamps changes.
    pub fn clock(&self) -> super::Clock {
        self.core.clock.clone()
    }

    /// Whether both show the same open session.
    pub fn is_of_same_session(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// The path in the session of the scope's root.
    ///
    /// # Errors
    /// The directory is gone, or cannot be read.
    pub async fn root_path(&self) -> std::result::Result<MergedPath, FsError> {
        let path = self.look(Cost::Offload, scope_root).await?;
        let path = path.map_err(|error| error.into_fs())?;
        Ok(path.unwrap_or_else(MergedPath::root))
    }

    /// Number of changes of the whole tree by this process: restores and merges.
    pub fn tree_changes(&self) -> u64 {
        self.core.tree_changes.load(Ordering::Acquire)
    }

    /// The current write verifier.
    pub fn verifier(&self) -> WriteVerifier {
        self.worker.verifier()
    }
}

fn below(root: Option<&MergedPath>, path: &MergedPath) -> Option<Vec<u8>> {
    let path = path.as_bytes();
    let Some(root) = root.map(MergedPath::as_bytes).filter(|root| *root != b"/") else {
        return Some(path.to_vec());
    };
    match path.strip_prefix(root)? {
        [] => Some(b"/".to_vec()),
        rest => rest.starts_with(b"/").then(|| rest.to_vec()),
    }
}

fn check_kind(guarded: &dyn GuardedPaths, path: &[u8]) -> Result<()> {
    if guarded.bars_links(path) { Err(FsError::NotPermitted.into()) } else { Ok(()) }
}
