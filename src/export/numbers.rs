//! File numbers that are unique in an export, across its mounts.
//!
//! The mount at `/` keeps its numbers below [`RANGE`]: nearly all. The numbers of every other mount
//! are shifted into a range of their own, of the same kind ([`HASHED_IDS`], [`DELTA_IDS`]). Larger
//! numbers are hashed, as [`base::hash_fileid`](crate::base::hash_fileid) does.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::base::{DELTA_IDS, HASHED_IDS};
use crate::vfs::FileId;

/// Size of a mount's range, for base numbers and for delta numbers each.
const RANGE: u64 = 1 << 40;

/// Ranges in an export; the first is that of the mount at `/`.
pub(super) const RANGES: u16 = 1 << 11;

const _: () = assert!(RANGE * RANGES as u64 == HASHED_IDS);

/// The range of a mount's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MountNumbers(u16);

impl MountNumbers {
    /// The range of the mount at `/`.
    pub(super) const ROOT: Self = Self(0);

    /// Chooses a mount's range by its mount point, so that it does not depend on other mounts. On a
    /// collision with `taken`, later mounts get the next free range.
    pub(super) fn choose(at: &str, taken: &[Self]) -> Self {
        let mut hasher = SipHasher24::new();
        hasher.write(at.as_bytes());
        let wanted = hasher.finish() % u64::from(RANGES - 1);
        let mut range = 1 + u16::try_from(wanted).unwrap_or(0);
        while taken.contains(&Self(range)) {
            range = 1 + range % (RANGES - 1);
        }
        Self(range)
    }

    /// The file number that the export shows.
    pub(super) fn show(self, id: FileId) -> FileId {
        let (kind, below) =
            if id.0 >= DELTA_IDS { (DELTA_IDS, id.0 - DELTA_IDS) } else { (0, id.0) };
        if below < RANGE {
            return FileId(kind + u64::from(self.0) * RANGE + below);
        }
        if self == Self::ROOT && (HASHED_IDS..DELTA_IDS).contains(&id.0) {
            return id;
        }
        let mut hasher = SipHasher24::new_with_keys(u64::from(self.0), 1);
        hasher.write_u64(id.0);
        FileId(HASHED_IDS | (hasher.finish() & (HASHED_IDS - 1)))
    }
}

/// The fsid of an export, derived from the fsid of the session at `/`. Exports that share a session
/// differ, because numbers are unique within one export only.
pub(super) fn fsid(session: u64, path: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(session, 2);
    hasher.write(path);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_objects_of_an_export_have_one_number() {
        let numbers =
            [MountNumbers::ROOT, MountNumbers::choose("/a", &[]), MountNumbers::choose("/b", &[])];
        let ids = [1, 2, 77, RANGE - 1, RANGE, RANGE + 1, 1 << 45, HASHED_IDS - 1, HASHED_IDS];
        let born = ids.map(|id| DELTA_IDS + id).into_iter().filter(|id| *id < FileId::LIMIT);
        let ids: Vec<u64> = ids.into_iter().chain(born).collect();
        let mut seen = HashSet::new();
        for numbers in numbers {
            for &id in &ids {
                let shown = numbers.show(FileId(id));
                assert!(shown.0 > 0 && shown.0 < FileId::LIMIT);
                assert!(seen.insert(shown), "{id:x} of {numbers:?}");
            }
        }
        assert_eq!(MountNumbers::ROOT.show(FileId::ROOT), FileId::ROOT);
    }

    #[test]
    fn a_mount_keeps_its_range_whatever_else_is_mounted() {
        let alone = MountNumbers::choose("/.user", &[MountNumbers::ROOT]);
        let others: Vec<_> = ["/x", "/y", "/z"].map(|at| MountNumbers::choose(at, &[])).into();
        assert_eq!(MountNumbers::choose("/.user", &others), alone);
        assert_ne!(MountNumbers::choose("/.user", &[alone]), alone);
        assert_ne!(alone, MountNumbers::ROOT);
    }
}
