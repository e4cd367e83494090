//! Path digests: one byte per component of a base path, enough to find the path again from a handle
//! without a table.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::base::{Base, BaseAttr, BaseError, BasePath};
use crate::vfs::{FileId, FileKind, PathDigest, Time};

use super::attr::tick_after;
use super::limits::{MAX_ABSENT_DIRS, MAX_VISITED_DIRS};

/// The directories that a search listed, with the state of each before the search.
#[derive(Debug, Default)]
pub(super) struct SearchedDirs {
    dirs: Vec<(BasePath, DirAsSeen)>,
    /// Some directories are not recorded.
    is_partial: bool,
}

/// A directory's number and times.
type DirAsSeen = (FileId, Time, Time);

fn state_of(attr: &BaseAttr) -> DirAsSeen {
    (attr.fileid, attr.mtime, attr.ctime)
}

impl SearchedDirs {
    /// Records a directory before it is listed.
    fn note(&mut self, base: &dyn Base, dir: &BasePath) {
        match base.stat(dir) {
            Ok(attr) if self.dirs.len() < MAX_ABSENT_DIRS => {
                self.dirs.push((dir.clone(), state_of(&attr)));
            }
            _ => self.is_partial = true,
        }
    }

    /// Whether every later change of a directory is visible in its times, if the search began at
    /// `began`.
    pub fn is_certain(&self, began: Time) -> bool {
        let last = self.dirs.iter().map(|(_, (_, mtime, ctime))| *mtime.max(ctime)).max();
        !self.is_partial && last.is_some_and(|last| tick_after(last) <= began)
    }

    /// Whether no directory has changed since: the search would give the same result.
    pub fn is_as_it_was(&self, base: &dyn Base) -> bool {
        self.dirs
            .iter()
            .all(|(dir, state)| base.stat(dir).is_ok_and(|attr| state_of(&attr) == *state))
    }

    /// Bytes of the paths, for the size bound of the cache.
    pub fn path_bytes(&self) -> usize {
        self.dirs.iter().map(|(dir, _)| dir.as_bytes().len()).sum()
    }
}

/// The digest of one component. Part of every handle: it must never change.
fn digest(component: &[u8]) -> u8 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(component);
    hasher.finish() as u8
}

/// The digest of a base path.
pub(super) fn digest_of(path: &BasePath) -> PathDigest {
    let mut trail = PathDigest { components: 0, digest: [0; PathDigest::MAX_BYTES] };
    for component in path.components() {
        trail = child_digest(&trail, component);
    }
    trail
}

/// The digest of the entry `name` in a directory with the digest `dir`.
pub(super) fn child_digest(dir: &PathDigest, name: &[u8]) -> PathDigest {
    let mut trail = *dir;
    if let Some(byte) = trail.digest.get_mut(usize::from(trail.components)) {
        *byte = digest(name);
    }
    trail.components = trail.components.saturating_add(1);
    trail
}

/// The digest of the parent directory; `None` at the root, and for paths longer than a digest.
pub(super) fn parent_digest(trail: &PathDigest) -> Option<PathDigest> {
    let mut above = *trail;
    above.components = trail.components.checked_sub(1)?;
    *above.digest.get_mut(usize::from(above.components))? = 0;
    Some(above)
}

/// Finds the base object with number `id` at a path with this digest.
///
/// Depth-first search of the directories whose names match. With one byte per component, one in 256
/// wrong directories matches per level, so wrong branches end early. `searched` gets the
/// directories that were listed.
pub(super) fn follow(
    base: &dyn Base,
    id: FileId,
    trail: &PathDigest,
    searched: &mut SearchedDirs,
) -> Result<Option<BasePath>, BaseError> {
    let last = usize::from(trail.components).saturating_sub(1);
    let mut open = vec![(BasePath::root(), 0)];
    for _ in 0..MAX_VISITED_DIRS {
        let Some((dir, level)) = open.pop() else { return Ok(None) };
        searched.note(base, &dir);
        let listing = match base.list(&dir) {
            Ok(listing) => listing,
            Err(error @ (BaseError::Io(_) | BaseError::Busy | BaseError::Unresponsive)) => {
                return Err(error);
            }
            Err(_) => continue,
        };
        for entry in &listing.entries {
            // The file number is the cheaper and the stricter test.
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
    searched.is_partial = true;
    Ok(None)
}
