//! Replaces kept files that have further hard links in the target by copies, since the files may
//! change through those links.
//!
//! The list of these files is synced before the first copy replaces one. Afterwards nothing else
//! shows that they were hard links of files in the target: a resumed run would record separate
//! files, and an undo would restore them as such.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::ApplyWatch;
use super::journal::{Notes, attrs, bytes, to_attrs, to_path};
use super::keep::{Keeping, KeptItem};
use super::plan::Loss;
use super::record::KeptHardLink;
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::writeback::{Attrs, Cloner, Staging, StagingSlot, Target, TargetObject};

/// Mode bits that let an owner create and remove entries of a directory.
const OWNER_RIGHTS: u32 = 0o700;

/// The kept files with further hard links in the target.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SharedFiles {
    /// The names of one file are adjacent.
    pub files: Vec<KeptHardLink>,
    /// The kept directories that contain them.
    pub dirs: Vec<KeptDir>,
}

/// A kept directory, in which files are replaced.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KeptDir {
    /// The kept object's slot, and the path of the directory below it.
    pub slot: StagingSlot,
    pub below: BasePath,
    /// Attributes before a file in it is replaced.
    pub attrs: Attrs,
}

impl KeptDir {
    fn json(&self) -> Value {
        let below = bytes(self.below.as_bytes());
        json!({ "slot": self.slot, "below": below, "attrs": attrs(&self.attrs) })
    }

    fn read(value: &Value) -> Option<Self> {
        Some(Self {
            slot: value.get("slot")?.as_u64()?,
            below: to_path(value.get("below")?)?,
            attrs: to_attrs(value.get("attrs")?)?,
        })
    }
}

impl SharedFiles {
    pub fn json(&self) -> Value {
        let files: Vec<_> = self.files.iter().map(KeptHardLink::json).collect();
        let dirs: Vec<_> = self.dirs.iter().map(KeptDir::json).collect();
        json!({ "files": files, "dirs": dirs })
    }

    pub fn read(value: &Value) -> Option<Self> {
        let list = |key| value.get(key)?.as_array();
        Some(Self {
            files: list("files")?.iter().map(KeptHardLink::read).collect::<Option<_>>()?,
            dirs: list("dirs")?.iter().map(KeptDir::read).collect::<Option<_>>()?,
        })
    }
}

/// A file in an item: the item's number, and the path below it.
type KeptFile = (usize, BasePath);

/// Joins the path of a kept object and a path below it.
pub(super) fn below(top: &BasePath, path: &BasePath) -> BasePath {
    match path.is_root() {
        true => top.clone(),
        false => {
            let joined = [top.as_bytes(), b"/", path.as_bytes()].concat();
            BasePath::from_bytes(&joined).unwrap_or_default()
        }
    }
}

impl Keeping<'_> {
    /// Moves items to the undo directory, and replaces hard links of files in the target by copies.
    /// Adds what copies lack to `losses`. `None` if `watch` broke it off.
    pub fn receive(
        &self,
        items: &[KeptItem],
        losses: &mut Vec<Loss>,
        watch: &mut ApplyWatch<'_>,
    ) -> Result<Option<Vec<KeptHardLink>>> {
        let shared = match &self.noted {
            Some(noted) => noted.clone(),
            None => {
                let found = self.shared_files(items)?;
                if !found.files.is_empty() {
                    self.staging.note(&Notes::shared(&found))?;
                }
                found
            }
        };
        let (mut cloner, mut lost_links) = (Cloner::new(self.staging), Vec::new());
        for item in items {
            if self.tell(watch).is_break() {
                return Ok(None);
            }
            if self.is_staged(item)? {
                let from = Staging::path_of(item.dir, item.slot);
                self.dir.receive((&self.target.dir, &from), &item.to, &mut cloner)?;
                losses.extend(cloner.lost.drain(..).map(|(path, names)| Loss {
                    path: MergedPath::of_base(&below(&item.path, &path)),
                    names,
                    why: "the copy kept for an undo is on a filesystem that cannot store it",
                }));
                for (path, _) in cloner.lost_links.drain(..) {
                    let object = self.target.dir.object(&below(&from, &path))?;
                    lost_links.extend(object.map(|object| KeptHardLink {
                        slot: item.slot,
                        below: path,
                        seen: object.seen,
                    }));
                }
            }
        }
        let is_done = self.separate(&shared, items, watch)?.is_continue();
        // Copies that are no hard links of each other any more: the undo names them.
        let known: HashSet<_> = shared.files.iter().map(|link| (link.slot, &link.below)).collect();
        lost_links.retain(|link: &KeptHardLink| !known.contains(&(link.slot, &link.below)));
        Ok(is_done.then(|| [shared.files, lost_links].concat()))
    }

    fn is_staged(&self, item: &KeptItem) -> Result<bool> {
        Ok(self.staging.look(item.dir, item.slot)?.is_some())
    }

    /// Where an item is now.
    fn at(&self, item: &KeptItem) -> Result<(&Target, BasePath)> {
        Ok(match self.is_staged(item)? {
            true => (&self.target.dir, Staging::path_of(item.dir, item.slot)),
            false => (self.dir.target(), item.to.clone()),
        })
    }

    /// Finds files with further hard links that are not kept.
    fn shared_files(&self, items: &[KeptItem]) -> Result<SharedFiles> {
        let mut files: BTreeMap<(u64, u64), (TargetObject, Vec<KeptFile>)> = BTreeMap::new();
        for (number, item) in items.iter().enumerate() {
            let (target, top) = self.at(item)?;
            target.walk(&top, &mut |path, object| {
                if !object.is_dir() && object.nlink > 1 {
                    let rest = path.as_bytes().get(top.as_bytes().len() + 1..).unwrap_or_default();
                    let below = BasePath::from_bytes(rest).unwrap_or_default();
                    let known = files.entry(object.id());
                    known.or_insert_with(|| (object.clone(), Vec::new())).1.push((number, below));
                }
                true
            })?;
        }
        files.retain(|_, (object, names)| object.nlink > names.len() as u64);
        let (mut shared, mut dirs) = (SharedFiles::default(), BTreeSet::new());
        for (object, names) in files.into_values() {
            for (number, below) in names {
                dirs.extend(below.split().map(|(dir, _)| (number, dir)));
                let (slot, seen) = (items[number].slot, object.seen.clone());
                shared.files.push(KeptHardLink { slot, below, seen });
            }
        }
        for (number, dir) in dirs {
            let (target, top) = self.at(&items[number])?;
            let object = target.object(&below(&top, &dir))?;
            let kept = |attrs| KeptDir { slot: items[number].slot, below: dir, attrs };
            shared.dirs.extend(object.map(|object| kept(object.attrs)));
        }
        Ok(shared)
    }

    /// Replaces the kept names of each file by those of one copy; skips names already replaced.
    fn separate(
        &self,
        shared: &SharedFiles,
        items: &[KeptItem],
        watch: &mut ApplyWatch<'_>,
    ) -> Result<ControlFlow<()>> {
        let target = self.dir.target();
        let items: HashMap<_, _> = items.iter().map(|item| (item.slot, &item.to)).collect();
        let path_of = |slot: &_, path| items.get(slot).map(|top| below(top, path));
        let set_dirs = |added: u32| -> Result<()> {
            for KeptDir { slot, below, attrs } in &shared.dirs {
                if let Some(path) = path_of(slot, below) {
                    target.set(&path, &Attrs { mode: attrs.mode | added, ..attrs.clone() })?;
                }
            }
            Ok(())
        };
        set_dirs(OWNER_RIGHTS)?;
        let mut copies: HashMap<u64, BasePath> = HashMap::new();
        for KeptHardLink { slot, below, seen } in &shared.files {
            let Some(path) = path_of(slot, below) else { continue };
            let Some(now) = target.object(&path)? else { continue };
            // A file from another filesystem, or one that an interrupted run replaced, is already a
            // copy.
            if now.id() == (self.target.top.dev, seen.ino) {
                if self.tell(watch).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                self.dir.separate(&path, copies.get(&seen.ino), self.staging)?;
            }
            copies.entry(seen.ino).or_insert(path);
        }
        // Restores the mtime too, which the replacements changed.
        set_dirs(0)?;
        Ok(ControlFlow::Continue(()))
    }
}
