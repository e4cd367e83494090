//! CREATE, MKDIR, SYMLINK and MKNOD: new objects in the delta.

use bytes::Bytes;

use crate::delta::{AuditProcedure, AuditSet, Ino, InodeRow};
use crate::vfs::{
    CreateHow, Created, Device, FileKind, FsError, Locator, Name, NewNode, Outcome, SetAttr, Wcc,
};

use super::access::Want;
use super::copy_up::{ensure_dir, make_opaque};
use super::edit::{Edit, Parent};
use super::error::Result;
use super::guarded::check_birth;
use super::limits::{MAX_TARGET_BYTES, check_path};
use super::node::Node;
use super::setattr::{allowed_mode, check_file_size, chosen, setattr};

/// The setgid bit: new entries of a setgid directory inherit its group.
const SETGID: u32 = 0o2000;

/// Type-specific properties of a new object.
struct NewObject {
    kind: FileKind,
    rdev: Device,
    /// Mode if the caller sets none.
    default_mode: u32,
    procedure: AuditProcedure,
    verifier: Option<[u8; 8]>,
}

impl NewObject {
    fn new(kind: FileKind, default_mode: u32, procedure: AuditProcedure) -> Self {
        Self { kind, rdev: Device::default(), default_mode, procedure, verifier: None }
    }
}

/// CREATE.
pub(super) fn create(
    edit: &mut Edit<'_>,
    dir: &Locator,
    name: &[u8],
    how: CreateHow,
) -> Outcome<Created, Wcc> {
    edit.in_dir(dir, |edit, parent| create_in(edit, parent, &Name::new(name)?, how))
}

/// MKDIR, SYMLINK and MKNOD.
pub(super) fn make_node(
    edit: &mut Edit<'_>,
    dir: &Locator,
    name: &[u8],
    node: &NewNode,
    set: &SetAttr,
) -> Outcome<Created, Wcc> {
    edit.in_dir(dir, |edit, parent| make_node_in(edit, parent, &Name::new(name)?, node, set))
}

pub(super) fn create_in(
    edit: &mut Edit<'_>,
    parent: &Parent,
    name: &Name,
    how: CreateHow,
) -> Result<Created> {
    let mut birth = NewObject::new(FileKind::Regular, 0o644, AuditProcedure::Create);
    let set = match how {
        CreateHow::Unchecked(set) | CreateHow::Guarded(set) => set,
        CreateHow::Exclusive(verifier) => {
            birth.verifier = Some(verifier.0);
            // No other user can open the file before its owner has set its attributes.
            SetAttr { mode: Some(0o600), ..SetAttr::default() }
        }
    };
    Want::SEARCH.check(edit.caller, &parent.attr)?;
    let Some(child) = edit.view().child(&parent.place, name)? else {
        return create_object(edit, parent, name, &birth, &set, None);
    };
    if edit.already_applied() == Some(child.node.fileid()) {
        return created(edit, &child.node);
    }
    match how {
        CreateHow::Exclusive(verifier) => {
            let ours = matches!(&child.node, Node::Delta(row)
                if row.create_verifier == Some(verifier.0));
            if ours { created(edit, &child.node) } else { Err(FsError::Exists.into()) }
        }
        CreateHow::Guarded(_) => Err(FsError::Exists.into()),
        CreateHow::Unchecked(_) => open_existing(edit, child.node, &set),
    }
}

/// UNCHECKED CREATE of an existing file: of the attributes, only the size is applied.
fn open_existing(edit: &mut Edit<'_>, node: Node, set: &SetAttr) -> Result<Created> {
    if node.kind() != FileKind::Regular {
        return Err(FsError::Exists.into());
    }
    let locator = node.locator();
    if set.size.is_some() {
        let size_only = SetAttr { size: set.size, ..SetAttr::default() };
        setattr(edit, &locator, &size_only, None).result?;
    }
    let node = edit.view().node(&locator)?;
    created(edit, &node)
}

pub(super) fn make_node_in(
    edit: &mut Edit<'_>,
    parent: &Parent,
    name: &Name,
    node: &NewNode,
    set: &SetAttr,
) -> Result<Created> {
    Want::SEARCH.check(edit.caller, &parent.attr)?;
    if let Some(child) = edit.view().child(&parent.place, name)? {
        if edit.already_applied() == Some(child.node.fileid()) {
            return created(edit, &child.node);
        }
        return Err(FsError::Exists.into());
    }
    let device =
        |kind, rdev| NewObject { rdev, ..NewObject::new(kind, 0o600, AuditProcedure::Mknod) };
    let birth = match node {
        NewNode::Directory => NewObject::new(FileKind::Directory, 0o755, AuditProcedure::Mkdir),
        NewNode::Symlink(_) => NewObject::new(FileKind::Symlink, 0o777, AuditProcedure::Symlink),
        NewNode::Fifo => device(FileKind::Fifo, Device::default()),
        NewNode::Socket => device(FileKind::Socket, Device::default()),
        NewNode::Character(rdev) => device(FileKind::Character, *rdev),
        NewNode::Block(rdev) => device(FileKind::Block, *rdev),
    };
    let is_device = matches!(birth.kind, FileKind::Character | FileKind::Block);
    if is_device && !edit.caller.is_root() {
        return Err(FsError::NotPermitted.into());
    }
    let target = match node {
        NewNode::Symlink(target) if target.is_empty() || target.contains(&0) => {
            return Err(FsError::Invalid.into());
        }
        NewNode::Symlink(target) if target.len() > MAX_TARGET_BYTES => {
            return Err(FsError::NameTooLong.into());
        }
        NewNode::Symlink(target) => Some(target),
        _ => None,
    };
    create_object(edit, parent, name, &birth, set, target)
}

/// Creates a new object and its dentry.
fn create_object(
    edit: &mut Edit<'_>,
    parent: &Parent,
    name: &Name,
    birth: &NewObject,
    set: &SetAttr,
    target: Option<&Bytes>,
) -> Result<Created> {
    edit.check_writable()?;
    Want::CHANGE_ENTRIES.check(edit.caller, &parent.attr)?;
    let mut row = new_row(edit, parent, birth, set)?;
    let path = parent.place.merged.join(name);
    check_path(&path)?;
    check_birth(edit, birth.kind, set.size, &path)?;
    let parent_ino = ensure_dir(edit, &parent.place)?;
    if let Some(target) = target {
        row.size = target.len() as u64;
        edit.txn.put_symlink(row.ino, target)?;
    } else if let (FileKind::Regular, Some(size)) = (birth.kind, set.size) {
        check_file_size(edit, 0, size)?;
        edit.txn.truncate(&mut row, size)?;
    }
    edit.txn.put_inode(&row)?;
    place_at(edit, parent, parent_ino, name, &row)?;
    let made = AuditSet { mode: Some(row.mode), ..AuditSet::default() };
    edit.record_set(birth.procedure, row.fileid(), path, None, made)?;
    created(edit, &Node::Delta(Box::new(row)))
}

/// Adds the dentry of a new object. A new directory becomes opaque if the base has a directory
/// at its path, or may have it again: the whiteout that it replaces hid it.
fn place_at(
    edit: &mut Edit<'_>,
    parent: &Parent,
    parent_ino: Ino,
    name: &Name,
    row: &InodeRow,
) -> Result<()> {
    let is_dir = row.kind == FileKind::Directory;
    let was_hidden = is_dir && edit.txn.is_whited_out(&parent.place.merged.join(name))?;
    edit.add_entry(&parent.place, parent_ino, name, row)?;
    let has_base_dir = match &parent.place.base {
        Some(base) if is_dir && !was_hidden => edit.view().base_dir_at(base.join(name))?.is_some(),
        _ => false,
    };
    if was_hidden || has_base_dir {
        make_opaque(edit, row)?;
    }
    edit.entries_changed(parent_ino, i32::from(is_dir))
}

fn new_row(
    edit: &mut Edit<'_>,
    parent: &Parent,
    birth: &NewObject,
    set: &SetAttr,
) -> Result<InodeRow> {
    let inherits = parent.attr.mode & SETGID != 0;
    let own_gid = if inherits { parent.attr.gid } else { edit.caller.gid };
    // macOS clients send uid and gid (the directory's) with every new object and accept other
    // values in the reply. As in the Linux server, ids that the caller may not set are ignored.
    let is_root = edit.caller.is_root();
    let uid = set.uid.filter(|_| is_root).unwrap_or(edit.caller.uid);
    let may_give = |gid: &u32| is_root || edit.caller.in_group(*gid);
    let gid = set.gid.filter(may_give).unwrap_or(own_gid);
    let mut mode = set.mode.unwrap_or(birth.default_mode);
    mode = match birth.kind {
        FileKind::Symlink => 0o777,
        FileKind::Directory if inherits => mode & 0o7777 | SETGID,
        _ => allowed_mode(edit.caller, mode, gid),
    };
    Ok(InodeRow {
        ino: edit.txn.allocate_ino()?,
        kind: birth.kind,
        mode,
        nlink: 1,
        uid,
        gid,
        size: 0,
        rdev: birth.rdev,
        atime: chosen(set.atime, edit.now, edit.now),
        mtime: chosen(set.mtime, edit.now, edit.now),
        ctime: edit.now,
        subdirs: (birth.kind == FileKind::Directory).then_some(0),
        holes: 0,
        create_verifier: birth.verifier,
        copy_up: None,
        origin: None,
    })
}

fn created(edit: &Edit<'_>, node: &Node) -> Result<Created> {
    Ok(Created { object: node.locator(), attr: edit.view().attr(node)? })
}
