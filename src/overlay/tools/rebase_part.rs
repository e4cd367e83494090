//! Updates the session after a part of a file was applied: the session keeps the file, and its
//! original becomes the applied state.

use std::collections::BTreeSet;
use std::slice;

use bytes::Bytes;

use crate::base::{BaseAttr, BasePath};
use crate::delta::AuditProcedure;
use crate::vfs::{Caller, Device, FileId, FileKind, FsError, Time};

use super::discard::{record_given_up, update_changed_dirs};
use super::rebase::{MergedParts, RebaseItem, advance_whiteout, as_named_now, hide_again};
use super::tree::visible_dir;
use crate::overlay::Overlay;
use crate::overlay::base_names::count_hidden_links;
use crate::overlay::cache::Invalidation;
use crate::overlay::edit::Edit;
use crate::overlay::error::Result;
use crate::overlay::original::{BlobDigest, base_digest, keep_original};

/// The applied state of a file: its original with the applied hunks.
#[derive(Debug, Clone)]
pub struct AppliedPart {
    /// Its content.
    pub content: Bytes,
    /// Permission bits, owner and group.
    pub attributes: [u32; 3],
}

impl Overlay {
    /// Makes the applied state of a file its original. Idempotent.
    ///
    /// # Errors
    /// The session cannot be changed, or it or the base cannot be read: nothing has changed.
    pub async fn rebase_part(
        &self,
        caller: &Caller,
        applied: RebaseItem,
        part: AppliedPart,
    ) -> std::result::Result<(), FsError> {
        self.core.base.invalidate();
        self.change_unlimited(caller, move |edit| {
            keep_rest(edit, &applied, &part)?;
            record_given_up(edit, AuditProcedure::Apply, applied.path.clone())
        })
        .await
    }
}

fn keep_rest(edit: &mut Edit<'_>, applied: &RebaseItem, part: &AppliedPart) -> Result<()> {
    let named = as_named_now(edit, slice::from_ref(applied))?;
    let Some(applied) = named.first() else { return Ok(()) };
    if applied.was_entry {
        hide_again(edit, applied)?;
        advance_whiteout(edit, applied)?;
    }
    let dir = applied.path.parent();
    let (Some(place), Some(name)) = (visible_dir(edit, &dir)?, applied.path.name()) else {
        return Ok(());
    };
    let has_entry = match place.ino {
        Some(parent) => edit.txn.dentry(parent, &name)?.is_some(),
        None => false,
    };
    // If the file was discarded since, the base shows again.
    let is_shown = has_entry || edit.txn.is_whited_out(&applied.path)?;
    if let Some(base) = place.base.as_ref().filter(|_| is_shown) {
        let path = base.join(&name);
        let attr = attr_of_part(edit, &path, part, applied.merged)?;
        keep_original(edit, &path, &attr, Some(&part.content), true)?;
    }
    edit.invalidate(Invalidation::All);
    count_hidden_links(edit)?;
    update_changed_dirs(edit, BTreeSet::from([dir]), true)
}

/// Attributes of the new original: the base file's, if that has this mode and content. An owner or
/// group that only the base changed is not the original's.
fn attr_of_part(
    edit: &Edit<'_>,
    path: &BasePath,
    part: &AppliedPart,
    merged: MergedParts,
) -> Result<BaseAttr> {
    let [mode, uid, gid] = part.attributes;
    let size = part.content.len() as u64;
    let now = edit.view().base_attr_at(path)?;
    if let Some(now) =
        now.filter(|now| (now.kind, now.mode, now.size) == (FileKind::Regular, mode, size))
        && base_digest(&edit.view(), path, &now)? == Some(BlobDigest::of(&part.content))
    {
        let [_, has_owner, has_group] = merged.attributes;
        let uid = if has_owner { uid } else { now.uid };
        let gid = if has_group { gid } else { now.gid };
        return Ok(BaseAttr { uid, gid, ..now });
    }
    // No base file has these times, so it is compared by its content.
    Ok(BaseAttr {
        kind: FileKind::Regular,
        mode,
        nlink: 1,
        uid,
        gid,
        size,
        used: size,
        rdev: Device::default(),
        dev: 0,
        ino: 0,
        fileid: FileId(0),
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
    })
}
