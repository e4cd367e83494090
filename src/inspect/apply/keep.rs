//! Keeps the objects that an apply replaces and removes in the undo directory beside the session.
//!
//! After the last step, the staging has the removed objects, and a further name of each replaced
//! file. Both are moved to the undo directory. A file with other names in the target is then
//! replaced by a copy, because it may change there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

use super::journal::Journal;
use super::kept_hard_links::SharedFiles;
use super::plan::Loss;
use super::record::{Before, Moves, PlacedDescendant, Record, RemovedByApply, round};
use super::steps::Steps;
use super::target_dir::ApplyTarget;
use super::{ApplyEvent, ApplyWatch};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::error::Result;
use crate::overlay::BlobDigest;
use crate::vfs::FileKind;
use crate::writeback::{
    Attrs, Cloner, LEFT_OUT, Staging, StagingDir, StagingSlot, Target, TargetError, TargetObject,
    UndoDir,
};

/// The default bound on what an apply keeps for undo, in bytes on disk.
pub const KEEP_LIMIT_BYTES: u64 = 4 << 30;

/// The largest file whose digest is recorded to detect later changes, in bytes. A larger file is
/// compared by size and times.
const MAX_DIGEST_BYTES: u64 = 1 << 20;

/// The space of an object besides its data, in bytes: an inode of XFS; ext4's has 256.
const INODE_BYTES: u64 = 512;

/// An object that is kept beside the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptCopy {
    /// Its path in the target before the apply.
    pub path: MergedPath,
    /// The change that replaced or removed it.
    pub change: MergedPath,
    /// The path where it is kept.
    pub copy: PathBuf,
}

/// What an apply keeps.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub copies: Vec<KeptCopy>,
    /// What copies on another filesystem lack.
    pub losses: Vec<Loss>,
}

impl From<Vec<KeptCopy>> for Kept {
    fn from(copies: Vec<KeptCopy>) -> Self {
        Self { copies, losses: Vec::new() }
    }
}

/// The space of the objects that steps replace and remove, in bytes: data in whole blocks, and
/// [`INODE_BYTES`] for each object.
pub(super) fn measure(target: &ApplyTarget<'_>, steps: &Steps) -> Result<u64> {
    let block = UndoDir::block_bytes(&target.undo_dir())?;
    let (mut bytes, mut seen) = (0_u64, HashSet::new());
    each_kept(&target.dir, steps, &mut |_, object| {
        if seen.insert(object.id()) {
            let blocks = object.data_bytes.checked_next_multiple_of(block).unwrap_or(u64::MAX);
            bytes = bytes.saturating_add(blocks).saturating_add(INODE_BYTES);
        }
    })?;
    Ok(bytes)
}

/// Calls `each` for each name of the objects that steps replace and remove.
pub(super) fn each_kept(
    target: &Target,
    steps: &Steps,
    each: &mut dyn FnMut(&BasePath, &TargetObject),
) -> Result<()> {
    let put: HashSet<_> = steps.puts.iter().map(|put| (put.dir, put.slot)).collect();
    let takes = steps.takes.iter().filter(|take| !take.stays);
    let sources: HashSet<&BasePath> = takes.clone().map(|take| &take.from).collect();
    for take in takes.filter(|take| !put.contains(&(StagingDir::Taken, take.slot))) {
        target.walk(&take.from, &mut |path, object| {
            // An object that was moved out of a directory is not removed with it.
            let is_here = *path == take.from || !sources.contains(path);
            if is_here {
                each(path, object);
            }
            is_here
        })?;
    }
    for put in steps.puts.iter().filter(|put| put.over.is_some()) {
        if let Some(object) = target.object(&put.to)? {
            each(&put.to, &object);
        }
    }
    Ok(())
}

/// The paths of objects before and after the steps.
pub(super) fn moves(steps: &Steps) -> Moves {
    let put: HashMap<_, _> = steps.puts.iter().map(|put| ((put.dir, put.slot), put)).collect();
    let mut moves = Moves::default();
    for put in steps.puts.iter().filter(|put| put.dir == StagingDir::New) {
        moves.place(put.to.clone(), None);
    }
    for take in &steps.takes {
        match put.get(&(StagingDir::Taken, take.slot)) {
            Some(put) if take.stays => moves.place(put.to.clone(), None),
            Some(put) => moves.place(put.to.clone(), Some(take.from.clone())),
            None => moves.remove(take.from.clone()),
        }
    }
    moves
}

/// The attributes, before the first step, of objects that steps set or move, and of directories
/// whose entries change.
pub(super) fn note_before(target: &ApplyTarget<'_>, steps: &Steps) -> Result<Vec<Before>> {
    let moves = moves(steps);
    let mut paths: BTreeMap<BasePath, Option<usize>> = BTreeMap::new();
    let mut note = |path: Option<BasePath>, change: Option<usize>| {
        if let Some(path) = path {
            let noted = paths.entry(path).or_default();
            *noted = noted.or(change);
        }
    };
    let parent = |path: &BasePath| path.split().map(|(parent, _)| parent);
    for take in &steps.takes {
        note(parent(&take.from), None);
        if !take.stays {
            note(Some(take.from.clone()), None);
        }
    }
    for put in &steps.puts {
        note(parent(&put.to).and_then(|dir| moves.before(&dir)), None);
    }
    let linked: HashMap<_, _> = steps.takes.iter().map(|take| (take.slot, &take.from)).collect();
    let of_link = steps.puts.iter().filter(|put| put.dir == StagingDir::Taken);
    let of_link: HashMap<_, _> =
        of_link.filter_map(|put| Some((&put.to, *linked.get(&put.slot)?))).collect();
    for set in &steps.sets {
        let before = of_link.get(&set.path).map(|from| (*from).clone());
        note(before.or_else(|| moves.before(&set.path)), set.change);
    }
    note(Some(BasePath::root()), None);
    let mut found = Vec::new();
    for (path, change) in paths {
        let attrs = match path.is_root() {
            true => Some(target.host_top.clone()),
            false => target.dir.object(&path)?.map(|object| object.attrs),
        };
        found.extend(attrs.map(|attrs| Before { path, attrs, left: None, change }));
    }
    Ok(found)
}

/// An object to keep, in its slot of the staging.
pub(super) struct KeptItem {
    pub dir: StagingDir,
    pub slot: StagingSlot,
    /// Its path in the target before the apply.
    pub path: BasePath,
    /// Its path in the undo directory.
    pub to: BasePath,
}

/// The state of keeping, for one run.
pub(super) struct Keeping<'a> {
    pub target: &'a ApplyTarget<'a>,
    pub staging: &'a Staging,
    pub journal: &'a Journal,
    /// The changes that were not made.
    pub skipped: &'a HashSet<usize>,
    /// The shared files that an interrupted run noted.
    pub noted: Option<SharedFiles>,
    closed: &'a HashMap<BasePath, Attrs>,
    pub dir: &'a UndoDir,
    round: String,
}

/// Keeps replaced and removed objects after the last step. `top` has the final attributes of the
/// top, and `closed` those of directories that are still open. Returns the kept objects; `None` if
/// the watcher stopped the run. Can be repeated.
pub(super) fn keep(
    target: &ApplyTarget<'_>,
    staging: &Staging,
    journal: &Journal,
    (skipped, noted): (&HashSet<usize>, Option<SharedFiles>),
    (top, closed): (&Attrs, &HashMap<BasePath, Attrs>),
    watch: &mut ApplyWatch<'_>,
) -> Result<Option<Kept>> {
    let path = target.undo_dir();
    let dir = UndoDir::open(&path, true)?;
    let dir = dir.ok_or_else(|| TargetError {
        path: path.clone(),
        source: std::io::ErrorKind::NotFound.into(),
    })?;
    let round = round(journal.begun);
    let old = read(&dir)?;
    if let Some(done) = old.as_ref().filter(|old| old.round() == round) {
        sweep_old(&dir, &round, journal.is_undo);
        return Ok(Some(copies(&dir, done).into()));
    }
    let keeping = Keeping { target, staging, journal, skipped, noted, closed, dir: &dir, round };
    keeping.run(old.as_ref(), top, watch)
}

/// Removes what earlier runs kept, but not what undos left out if this is an undo too. The next
/// run tries again what the host refuses, as for an immutable file.
fn sweep_old(dir: &UndoDir, round: &str, is_undo: bool) {
    if let Err(error) = dir.sweep_all_but(round, is_undo) {
        tracing::warn!(%error, "what an earlier apply kept is not removed");
    }
}

/// Removes the undo directory, as far as the host allows.
pub(super) fn remove(target: &ApplyTarget<'_>) {
    let dir = UndoDir::open(&target.undo_dir(), false);
    if let Err(error) = dir.and_then(|dir| dir.map_or(Ok(()), UndoDir::remove)) {
        tracing::warn!(%error, "what an earlier apply kept is not removed");
    }
}

/// Removes the undo directory if it is empty.
pub(super) fn remove_empty(target: &ApplyTarget<'_>) {
    UndoDir::remove_empty(&target.undo_dir());
}

/// The record in an undo directory, if there is one.
pub(super) fn read(dir: &UndoDir) -> Result<Option<Record>> {
    let read = |file| Record::read(file);
    let record = dir.record()?.map(read).transpose();
    let path = dir.path().to_owned();
    Ok(record.map_err(|source| TargetError { path, source })?)
}

/// The file name of a kept object.
pub(super) fn kept_name(slot: StagingSlot, path: &BasePath) -> Vec<u8> {
    let (_, name) = path.split_bytes();
    // A file name has at most 255 bytes.
    [format!("{slot}-").as_bytes(), &name[..name.len().min(200)]].concat()
}

/// A digest of a file's content or a link's target. `None` for a directory, a file larger than
/// [`MAX_DIGEST_BYTES`], and an object that we may not read.
pub(super) fn digest(
    target: &Target,
    path: &BasePath,
    object: &TargetObject,
) -> Result<Option<Vec<u8>>> {
    if object.is_dir() {
        return Ok(None);
    }
    let content = match target.content(path, MAX_DIGEST_BYTES) {
        Err(error) if error.is_of_object() => None,
        content => content?,
    };
    Ok(content.map(|content| BlobDigest::of(&content).to_vec()))
}

/// The kept objects that a record lists.
fn copies(dir: &UndoDir, record: &Record) -> Vec<KeptCopy> {
    let moves = record.moves();
    let copy = |path: &BasePath, slot, change: usize| KeptCopy {
        path: MergedPath::of_base(path),
        change: record.changes.get(change).cloned().unwrap_or_else(MergedPath::root),
        copy: dir.shown(&UndoDir::place(&record.round(), &kept_name(slot, path))),
    };
    let removed = record.removed.iter().map(|r| copy(&r.path, r.slot, r.change));
    let replaced = record.placed.iter().filter_map(|placed| {
        Some(copy(&moves.entry_before(&placed.path)?, placed.over?, placed.change))
    });
    removed.chain(replaced).collect()
}

/// The attributes `before`, but as they are `left` where the steps did not set them: something else
/// did, and an undo leaves those as they are.
fn only_set(before: Attrs, (from, to): (&Attrs, &Attrs), left: &Attrs) -> Attrs {
    let number = |before, from, to, left| if from == to || left != to { left } else { before };
    let is_file = before.kind != FileKind::Directory;
    Attrs {
        kind: before.kind,
        mode: number(before.mode, from.mode, to.mode, left.mode),
        uid: number(before.uid, from.uid, to.uid, left.uid),
        gid: number(before.gid, from.gid, to.gid, left.gid),
        mtime: if is_file && left.mtime != to.mtime { left.mtime } else { before.mtime },
    }
}

impl Keeping<'_> {
    fn run(
        &self,
        old: Option<&Record>,
        top: &Attrs,
        watch: &mut ApplyWatch<'_>,
    ) -> Result<Option<Kept>> {
        let mut record = Record {
            session: self.journal.session.clone(),
            target: self.target.dir.path().to_owned(),
            top: Some(self.target.id()),
            begun: self.journal.begun,
            is_undone: self.journal.is_undo && !self.journal.is_redo,
            changes: self.journal.changes.iter().map(|change| change.path.clone()).collect(),
            ..Record::default()
        };
        self.find_placed(&mut record)?;
        self.find_removed(&mut record)?;
        record.before = self.before(&record, top)?;
        // An apply that changed nothing has no record, and does not replace an earlier one.
        if !self.journal.is_undo && record.changes_nothing() {
            if let Some(old) = old {
                sweep_old(self.dir, &old.round(), true);
            }
            return Ok(Some(Kept::default()));
        }
        self.dir.begin(&self.round)?;
        let items = self.items(&record);
        let mut losses = Vec::new();
        let Some(shared) = self.receive(&items, &mut losses, watch)? else { return Ok(None) };
        record.shared = shared;
        record.inside = self.inside()?;
        let mut kept = copies(self.dir, &record);
        if let Some(old) = old.filter(|_| self.journal.is_undo) {
            kept.extend(self.carry_over(old)?);
        }
        if self.tell(watch).is_break() {
            return Ok(None);
        }
        self.dir.commit(&mut |out| record.write(out))?;
        sweep_old(self.dir, &self.round, self.journal.is_undo);
        Ok(Some(Kept { copies: kept, losses }))
    }

    /// Reports that all steps are done, and that keeping continues.
    pub fn tell(&self, watch: &mut ApplyWatch<'_>) -> ControlFlow<()> {
        let all = self.journal.steps.len();
        watch(ApplyEvent::Step { done: all, all })
    }

    /// Adds the removed objects to the record.
    fn find_removed(&self, record: &mut Record) -> Result<()> {
        let puts = self.journal.steps.puts.iter();
        let put: HashSet<_> = puts.map(|put| (put.dir, put.slot)).collect();
        let takes = self.journal.steps.takes.iter().filter(|take| !take.stays);
        for take in takes.filter(|take| !put.contains(&(StagingDir::Taken, take.slot))) {
            let (path, slot, change) = (take.from.clone(), take.slot, take.change);
            let to = UndoDir::place(&self.round, &kept_name(slot, &path));
            if self.staging.look(StagingDir::Taken, slot)?.is_some()
                || self.dir.target().object(&to)?.is_some()
            {
                record.removed.push(RemovedByApply { path, slot, change });
            }
        }
        Ok(())
    }

    fn items(&self, record: &Record) -> Vec<KeptItem> {
        let moves = record.moves();
        let item = |dir, slot, path: &BasePath| {
            let to = UndoDir::place(&self.round, &kept_name(slot, path));
            KeptItem { dir, slot, path: path.clone(), to }
        };
        let removed = record.removed.iter();
        let removed = removed.map(|r| item(StagingDir::Taken, r.slot, &r.path));
        let replaced = record.placed.iter().filter_map(|placed| {
            let path = moves.entry_before(&placed.path)?;
            Some(item(StagingDir::Replaced, placed.over?, &path))
        });
        removed.chain(replaced).collect()
    }

    /// The attributes that the object at `path` has after the last step.
    fn attrs_after(&self, path: &BasePath) -> Result<Option<Attrs>> {
        let now = self.target.dir.object(path)?;
        Ok(now.map(|object| self.with_closed_mode(path, object.attrs)))
    }

    /// The attributes with the mode that a directory which is still open gets in the end.
    pub(super) fn with_closed_mode(&self, path: &BasePath, attrs: Attrs) -> Attrs {
        let mode = self.closed.get(path).map_or(attrs.mode, |closed| closed.mode);
        Attrs { mode, ..attrs }
    }

    /// The descendants of placed directories. Directories among them got their attributes after
    /// their entries.
    fn inside(&self) -> Result<Vec<PlacedDescendant>> {
        let mut all = self.journal.inside.clone();
        for inside in all.iter_mut().filter(|inside| inside.seen.is_dir()) {
            let attrs = self.attrs_after(&inside.path)?;
            inside.owner = attrs.as_ref().map(|attrs| (attrs.uid, attrs.gid));
            inside.mode = attrs.map_or(inside.mode, |attrs| attrs.mode);
        }
        Ok(all)
    }

    /// The attributes before the first step, with those after the last one.
    fn before(&self, record: &Record, top: &Attrs) -> Result<Vec<Before>> {
        let moves = record.moves();
        let mut all = Vec::new();
        let sets = self
            .journal
            .steps
            .sets
            .iter()
            .filter_map(|set| Some((set.path.clone(), (set.from.clone()?, set.attrs.clone()))));
        let mut sets: HashMap<_, _> = sets.collect();
        if let (Some(from), Some(to)) = (&self.journal.top_from, &self.journal.top) {
            sets.insert(BasePath::root(), (from.clone(), to.clone()));
        }
        for before in &self.journal.before {
            let left = match moves.after(&before.path) {
                Some(path) if path.is_root() => Some(top.clone()),
                Some(path) => self.attrs_after(&path)?,
                None => None,
            };
            let mut before = before.clone();
            let after = moves.after(&before.path);
            if let (Some(left), Some((from, to))) =
                (&left, after.and_then(|after| sets.get(&after)))
            {
                before.attrs = only_set(before.attrs, (from, to), left);
            }
            all.push(Before { left, ..before });
        }
        Ok(all)
    }

    /// Moves the objects that this undo leaves out out of the old round, so that they are not
    /// swept.
    fn carry_over(&self, old: &Record) -> Result<Vec<KeptCopy>> {
        let mut kept = Vec::new();
        for copy in copies(self.dir, old) {
            let change = old.changes.iter().position(|path| *path == copy.change);
            let name = copy.copy.file_name().map(|name| name.as_encoded_bytes().to_vec());
            let Some(name) = name.filter(|_| change.is_some_and(|at| self.skipped.contains(&at)))
            else {
                continue;
            };
            let from = UndoDir::place(&old.round(), &name);
            let to = [old.round().as_bytes(), b"-", &name[..]].concat();
            let to = UndoDir::place(LEFT_OUT, &to);
            if self.dir.target().object(&from)?.is_some() {
                self.dir.begin(LEFT_OUT)?;
                self.dir.receive(
                    (self.dir.target(), &from),
                    &to,
                    &mut Cloner::new(self.staging),
                )?;
            }
            if self.dir.target().object(&to)?.is_some() {
                kept.push(KeptCopy { copy: self.dir.shown(&to), ..copy });
            }
        }
        Ok(kept)
    }
}
