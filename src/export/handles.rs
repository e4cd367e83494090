//! File handles of several exports: each mount of each export has its own key.

use std::hash::Hasher;

use bytes::BytesMut;
use siphasher::sip::SipHasher24;

use super::{Exports, MountedObject, TaggedMount};
use crate::nfs::{FileHandle, HandleCodec, Handles};
use crate::vfs::FsError;

impl Handles<MountedObject> for Exports {
    fn encode_in(&self, memory: &mut BytesMut, object: &MountedObject) -> FileHandle {
        object.identity().codec.encode_in(memory, &object.at)
    }

    /// [`FsError::Stale`] for a handle that no mount gave out: a removed one may have, and clients
    /// show BADHANDLE as an unknown error. [`FsError::TryLater`] instead while any export cannot be
    /// served, or its sessions may be on a filesystem that is not mounted: the handle may be its.
    /// That answer opens nothing. [`FsError::BadHandle`] for what is too short to be one.
    fn decode(&self, handle: &FileHandle) -> Result<MountedObject, FsError> {
        let tag = HandleCodec::export_of(handle).ok_or(FsError::BadHandle)?;
        let table = self.table.read();
        for TaggedMount { entry, index, identity } in table.by_tag.get(&tag).into_iter().flatten() {
            if let Ok(at) = identity.codec.decode(handle) {
                return Ok(MountedObject::new(entry, (*index, *identity), at));
            }
        }
        match table.unavailable.is_empty() && table.awaited.is_empty() {
            true => Err(FsError::Stale),
            false => Err(FsError::TryLater),
        }
    }
}

/// Tag and key of a mount's handles. They depend on the session, the export's path, the mount point
/// and the subtree.
pub(super) fn codec(
    session_key: [u8; 16],
    export: &[u8],
    at: &str,
    subtree: &str,
) -> (u16, HandleCodec) {
    let digest = |purpose: u8| {
        let mut hasher = SipHasher24::new_with_key(&session_key);
        hasher.write_u8(purpose);
        for part in [export, at.as_bytes(), subtree.as_bytes()] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish()
    };
    let mut key = [0; 16];
    let (high, low) = key.split_at_mut(8);
    high.copy_from_slice(&digest(1).to_be_bytes());
    low.copy_from_slice(&digest(2).to_be_bytes());
    // The tag only narrows the search; the key decides.
    let tag = (digest(3) & 0xffff) as u16;
    (tag, HandleCodec::new(key, tag))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::codec;

    #[test]
    fn two_mounts_of_one_tag_are_two() {
        let mut by_tag = HashMap::new();
        let twins = (0..).find_map(|number| {
            let at = format!("/{number}");
            let (tag, codec) = codec([7; 16], b"/export", &at, "/");
            by_tag.insert(tag, codec).map(|other| (other, codec))
        });
        let (one, other) = twins.unwrap();
        assert!(one != other);
    }
}
