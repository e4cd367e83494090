//! The trail of a base path: a byte per component, to find the path again without a table.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::base::{Base, BaseError, BasePath};
use crate::vfs::{FileId, FileKind, Trail};

use super::limits::MAX_VISITED_DIRS;

/// The digest of one component. Part of every handle: it must never change.
fn digest(component: &[u8]) -> u8 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(component);
    hasher.finish() as u8
}

/// The trail of a base path.
pub(super) fn trail_of(path: &BasePath) -> Trail {
    let mut trail = Trail { components: 0, digest: [0; Trail::MAX_BYTES] };
    for component in path.components() {
        trail = trail_below(&trail, component);
    }
    trail
}

/// The trail of the entry `name` of a directory with the trail `dir`.
pub(super) fn trail_below(dir: &Trail, name: &[u8]) -> Trail {
    let mut trail = *dir;
    if let Some(byte) = trail.digest.get_mut(usize::from(trail.components)) {
        *byte = digest(name);
    }
    trail.components = trail.components.saturating_add(1);
    trail
}

/// The trail of the directory that holds an object with the trail `trail`, where that says it
/// whole.
pub(super) fn trail_above(trail: &Trail) -> Option<Trail> {
    let mut above = *trail;
    above.components = trail.components.checked_sub(1)?;
    *above.digest.get_mut(usize::from(above.components))? = 0;
    Some(above)
}

/// Walks the base along `trail` to the object with number `id`.
///
/// Depth first over the directories whose digests fit: with a byte per component one wrong
/// directory in 256 is tried per level, and a wrong path survives another level as rarely.
pub(super) fn follow(
    base: &dyn Base,
    id: FileId,
    trail: &Trail,
) -> Result<Option<BasePath>, BaseError> {
    let last = usize::from(trail.components).saturating_sub(1);
    let mut open = vec![(BasePath::root(), 0)];
    for _ in 0..MAX_VISITED_DIRS {
        let Some((dir, level)) = open.pop() else { return Ok(None) };
        let listing = match base.list(&dir) {
            Ok(listing) => listing,
            Err(BaseError::Io(error)) => return Err(error.into()),
            Err(_) => continue,
        };
        for entry in &listing.entries {
            // The number tells more than a digest, and for less.
            if level == last && entry.fileid != id {
                continue;
            }
            let wanted = trail.bytes().get(level);
            if wanted.is_some_and(|&byte| byte != digest(entry.name.as_bytes())) {
                continue;
            }
            if level == last {
                return Ok(Some(dir.join(&entry.name)));
            } else if matches!(entry.kind, None | Some(FileKind::Directory)) {
                open.push((dir.join(&entry.name), level + 1));
            }
        }
    }
    Ok(None)
}
