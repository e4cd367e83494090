//! Compares objects of the merged tree with their originals.

use super::changes::BaseObject;
use super::tree::{TreeObject, TreeView};
use crate::base::BaseError;
use crate::delta::Original;
use crate::overlay::error::{Result, from_store};
use crate::overlay::original::{
    BlobDigest, PIECE_BYTES, is_changed_since_hidden, is_same_file, kept_original_of,
};
use crate::vfs::{FileKind, FsError, Time};

impl TreeView<'_> {
    /// Whether the session's file has the content of a base file, whose mode is the original's (or
    /// the session's, if there is no original). An apply then loses nothing, even if the base
    /// file's times changed. Always `false` with a digest, which decides alone.
    pub(super) fn has_base_content(
        &self,
        object: Option<&TreeObject>,
        base: &BaseObject,
        original: Option<&Original>,
    ) -> Result<bool> {
        let is_known = original.is_some_and(|original| original.digest.is_some());
        // Pending content is valid only while the base file's times are unchanged (C3).
        let is_whole = |file: &&TreeObject| file.row().is_some_and(|row| row.copy_up.is_none());
        let Some(object) = object.filter(is_whole).filter(|_| !is_known) else { return Ok(false) };
        let (here, there) = (object.attr(), &base.attr);
        let mode = original.map_or(here.mode, |original| original.mode);
        let is_file = here.kind == FileKind::Regular && there.kind == FileKind::Regular;
        if !is_file || (here.size, mode) != (there.size, there.mode) {
            return Ok(false);
        }
        let (mut ours, mut theirs, mut at) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES], 0);
        while at < there.size {
            let read = self.view.core.base.read(&base.path, there.fileid, at, &mut theirs);
            let got = match read {
                Ok((got, now)) if got > 0 && is_same_file(there, &now) => got,
                Ok(_) | Err(BaseError::NotFound | BaseError::Changed | BaseError::Denied) => {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            };
            if self.read_node(object, at, &mut ours[..got])? != got || ours[..got] != theirs[..got]
            {
                return Ok(false);
            }
            at += got as u64;
        }
        Ok(true)
    }

    /// The original of a base object, and whether the base object still equals it.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn original_of(
        &self,
        base: &BaseObject,
    ) -> std::result::Result<Option<(Original, bool)>, FsError> {
        kept_original_of(&self.view, base).map_err(|error| error.into_fs())
    }

    /// Whether the base changed an object after the session hid it at `since`.
    ///
    /// # Errors
    /// The session or the base cannot be read.
    pub fn is_changed_since_hidden(
        &self,
        base: &BaseObject,
        since: Time,
    ) -> std::result::Result<bool, FsError> {
        is_changed_since_hidden(&self.view, base, since).map_err(|error| error.into_fs())
    }

    /// The stored content or link target of an original; `None` if none is stored, or if it does
    /// not match the digest.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn original_content(
        &self,
        original: &Original,
    ) -> std::result::Result<Option<Vec<u8>>, FsError> {
        let found = self.view.txn.original_content(&original.path);
        let found = found.map_err(|error| from_store(&error))?;
        Ok(found.filter(|content| Some(BlobDigest::of(content)) == original.digest))
    }
}
