//! The further hard links of kept files, to which an undo links the files again.

use std::collections::HashMap;

use super::record::{KeptHardLink, Record};
use super::target_dir::ApplyTarget;
use crate::base::{BasePath, STAGING};
use crate::inspect::error::Result;
use crate::writeback::{SeenObject, StagingSlot};

/// Why a file has no further names again: they are outside the target, or where the user may not
/// look, or another program has changed them.
pub(super) const NOT_FOUND: &str = "none of its other names is found as it was";

/// The files with further hard links, of all kept objects.
pub(super) struct FurtherNames<'a> {
    /// The files in each kept object.
    kept: HashMap<StagingSlot, HashMap<&'a BasePath, &'a KeptHardLink>>,
    /// The path of a further name in the target, by inode number.
    found: HashMap<u64, BasePath>,
}

impl<'a> FurtherNames<'a> {
    pub fn find(target: &ApplyTarget<'_>, record: &'a Record) -> Result<Self> {
        let mut kept: HashMap<_, HashMap<_, _>> = HashMap::new();
        for link in &record.shared {
            kept.entry(link.slot).or_default().insert(&link.below, link);
        }
        Ok(Self { kept, found: other_names(target, record)? })
    }

    /// A further name of the file at `path` in the kept object of `slot`.
    pub fn name_of(&self, slot: StagingSlot, path: &BasePath) -> Option<BasePath> {
        let link = self.kept.get(&slot)?.get(path)?;
        self.found.get(&link.seen.ino).cloned()
    }

    /// The paths in the kept object of `slot` of the files that have no further name in the target.
    pub fn not_found(&self, slot: StagingSlot) -> impl Iterator<Item = &BasePath> {
        let links = self.kept.get(&slot).into_iter().flat_map(HashMap::values);
        links.filter(|link| !self.found.contains_key(&link.seen.ino)).map(|link| &link.below)
    }
}

/// The files of the target that are hard links of kept files, by inode number.
fn other_names(target: &ApplyTarget<'_>, record: &Record) -> Result<HashMap<u64, BasePath>> {
    let wanted: HashMap<u64, &SeenObject> =
        record.shared.iter().map(|shared| (shared.seen.ino, &shared.seen)).collect();
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return Ok(found);
    }
    target.dir.walk(&BasePath::root(), &mut |path, object| {
        if let Some(seen) = wanted.get(&object.seen.ino)
            && (seen.kind, seen.size, seen.mtime)
                == (object.seen.kind, object.seen.size, object.seen.mtime)
        {
            found.entry(object.seen.ino).or_insert_with(|| path.clone());
        }
        path.as_bytes() != STAGING.as_bytes()
    })?;
    Ok(found)
}
