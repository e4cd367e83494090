//! Ids of hunks, for `--hunk`: 12 hexadecimal digits, the same as long as path and change are
//! (docs/decisions/0054).

use std::fmt;

use sha1::{Digest, Sha1};

/// Bytes of the digest that an id keeps.
const ID_BYTES: usize = 6;

/// The id of a hunk: the first bytes of a SHA-1 of its path and its change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HunkId([u8; ID_BYTES]);

impl HunkId {
    /// The id of a piece of the kind `sort` with the content `parts`.
    pub(super) fn of(sort: &str, parts: &[&[u8]]) -> Self {
        let mut digest = Sha1::new_with_prefix(format!("acetate {sort}\0"));
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let digest: [u8; 20] = digest.finalize().into();
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&digest[..ID_BYTES]);
        Self(id)
    }
}

impl fmt::Display for HunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
