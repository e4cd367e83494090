//! Does the steps of the journal. Each is one rename, or can be repeated.
//!
//! The slots of the staging show which steps are done. A take is done if its slot is full, or if
//! the notes say that all takes are; a put is done if its slot is empty. Before an object is taken
//! or replaced, it and the session's rows are compared with the plan. If either differs, the whole
//! change is skipped. A taken object is put where the plan says even if the session has moved it
//! again; the session follows it there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;

use super::dir_times::DirTimes;
use super::journal::{Journal, Notes};
use super::locked_dirs;
use super::plan::target_path;
use super::refused::{mounted_at, mounted_below};
use super::removed_dir_check::TouchedFiles;
use super::session_check::{CHANGED, SessionCheck};
use super::stage::NotSet;
use super::step_failure::StepFailure;
use super::steps::{AppliedChange, PutStep, Take};
use super::target_dir::ApplyTarget;
use super::{ApplyEvent, ApplyWatch, LostLink, Skipped};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::vfs::FileKind;
use crate::writeback::{
    Attrs, ChangedDir, SeenObject, Staging, StagingDir, StagingSlot, TargetError,
};

/// Why the removal of a directory is left out.
pub(super) const MOVED_OUT_CHANGED: &str =
    "what was moved out of it changed after the plan was made";

/// The state of a run over the journal's steps.
pub(super) struct StepRunner<'a> {
    pub(super) target: &'a ApplyTarget<'a>,
    pub(super) staging: &'a Staging,
    pub(super) journal: &'a Journal,
    pub notes: Notes,
    pub not_set: NotSet,
    /// The attributes that the top is to have in the end; `None` before the last step.
    pub top: Option<Attrs>,
    pub(super) dir_times: DirTimes,
    /// Changes with a skipped step.
    skipped: HashSet<usize>,
    /// Takes without a put: the object is removed with all below it. By path.
    removed: BTreeMap<BasePath, &'a Take>,
    /// Takes with a put: the object moves. By its old path.
    pub(super) moved: BTreeMap<BasePath, StagingSlot>,
    /// Slots of takes that only add a hard link.
    links: HashSet<StagingSlot>,
    /// Changes with a put.
    pub(super) placed: HashSet<usize>,
    /// Directories that takes or openings change: their new ctimes are our own work.
    pub(super) source_dirs: HashSet<BasePath>,
    /// Files that get, lose or change a name by a step, which changes their ctimes.
    pub(super) touched_files: TouchedFiles,
    /// Mount points in the target, as this run began.
    mounts: BTreeSet<BasePath>,
    /// Steps that are done or skipped.
    pub done: usize,
}

/// The facts noted so far.
fn notes_of(staging: &Staging) -> Result<Notes> {
    let notes = staging.notes()?.map(Notes::read).transpose();
    let path = staging.path().to_owned();
    Ok(notes.map_err(|source| TargetError { path, source })?.unwrap_or_default())
}

/// The number of steps that an interrupted run has to do, or may have to: neither the slots nor the
/// notes show which attributes are set.
pub(super) fn steps_left(staging: &Staging, journal: &Journal) -> Result<usize> {
    let is_taken = notes_of(staging)?.is_taken;
    let mut to_take = HashSet::new();
    for take in journal.steps.takes.iter().filter(|_| !is_taken) {
        if staging.look(StagingDir::Taken, take.slot)?.is_none() {
            to_take.insert(take.slot);
        }
    }
    let mut left = to_take.len() + journal.steps.sets.len();
    for put in &journal.steps.puts {
        let waits = put.dir == StagingDir::Taken && to_take.contains(&put.slot);
        left += usize::from(waits || staging.look(put.dir, put.slot)?.is_some());
    }
    Ok(left)
}

impl<'a> StepRunner<'a> {
    pub fn new(
        target: &'a ApplyTarget<'a>,
        staging: &'a Staging,
        journal: &'a Journal,
        is_resumed: bool,
    ) -> Result<Self> {
        let notes = notes_of(staging)?;
        let noted = is_resumed.then_some(&*notes.dir_times);
        let dir_times = DirTimes::new(journal, target, staging, noted)?;
        let skipped = notes.skipped.iter().filter_map(|(change, _)| *change).collect();
        let (not_set, done) = (NotSet::default(), 0);
        let sources = journal.steps.takes.iter().filter_map(|take| take.from.split());
        let opened = journal.opened.iter().map(|opened| opened.path.clone());
        let source_dirs = sources.map(|(dir, _)| dir).chain(opened).collect();
        // A take without a put is a removal.
        let put: HashSet<_> = journal.steps.puts.iter().map(|put| (put.dir, put.slot)).collect();
        let (mut removed, mut moved) = (BTreeMap::new(), BTreeMap::new());
        for take in journal.steps.takes.iter().filter(|take| !take.stays) {
            match put.contains(&(StagingDir::Taken, take.slot)) {
                true => drop(moved.insert(take.from.clone(), take.slot)),
                false => drop(removed.insert(take.from.clone(), take)),
            }
        }
        let links = journal.steps.takes.iter().filter(|take| take.stays);
        let links = links.map(|take| take.slot).collect();
        let placed = journal.steps.puts.iter().map(|put| put.change).collect();
        Ok(Self {
            target,
            staging,
            journal,
            notes,
            not_set,
            top: None,
            dir_times,
            skipped,
            removed,
            moved,
            links,
            placed,
            source_dirs,
            touched_files: TouchedFiles::of(journal),
            mounts: target.dir.mounts_below(),
            done,
        })
    }

    /// Does the remaining steps. `false` if the watcher stopped the run.
    pub fn run(
        &mut self,
        session: &mut SessionCheck<'_, '_>,
        watch: &mut ApplyWatch<'_>,
    ) -> Result<bool> {
        let is_done = self.run_steps(session, watch)?;
        self.checked_enter(None)?;
        Ok(is_done)
    }

    fn run_steps(
        &mut self,
        session: &mut SessionCheck<'_, '_>,
        watch: &mut ApplyWatch<'_>,
    ) -> Result<bool> {
        let journal = self.journal;
        let (steps, all) = (&journal.steps, journal.steps.len());
        if !self.notes.is_taken {
            locked_dirs::open(&self.target.dir, journal)?;
        } else if self.notes.is_closing {
            locked_dirs::open_again(&self.target.dir, journal)?;
        }
        // An earlier run may have noted a skip and ended before the object was put back.
        for take in steps.takes.iter().filter(|take| !take.stays) {
            if self.skipped.contains(&take.change) {
                self.put_back(take)?;
            }
        }
        for take in &steps.takes {
            if watch(ApplyEvent::Step { done: self.done, all }).is_break() {
                return Ok(false);
            }
            if !self.notes.is_taken && !self.skipped.contains(&take.change) {
                let is_done =
                    self.checked(self.staging.look(StagingDir::Taken, take.slot))?.is_some();
                let change = self.journal.changes.get(take.change).filter(|_| !is_done);
                let taken = match session.before_step(change, watch)? {
                    ControlFlow::Break(()) => return Ok(false),
                    ControlFlow::Continue(false) => Err(StepFailure::Skip(CHANGED.to_owned())),
                    ControlFlow::Continue(true) => self.take(take),
                };
                self.finish_step(Some(take.change), taken)?;
            }
            self.done += 1;
        }
        if !self.notes.is_taken {
            self.checked(self.target.dir.sync().and_then(|()| self.staging.note(Notes::TAKEN)))?;
            self.notes.is_taken = true;
        }
        for put in &steps.puts {
            if watch(ApplyEvent::Step { done: self.done, all }).is_break() {
                return Ok(false);
            }
            if !self.skipped.contains(&put.change) {
                let change = self.journal.changes.get(put.change).filter(|_| self.is_new(put));
                let done = match session.before_step(change, watch)? {
                    ControlFlow::Break(()) => return Ok(false),
                    ControlFlow::Continue(false) => Err(StepFailure::Skip(CHANGED.to_owned())),
                    ControlFlow::Continue(true) => self.put(put),
                };
                self.finish_step(Some(put.change), done)?;
            }
            self.done += 1;
        }
        self.checked_enter(None)?;
        if !self.set_all(session, watch)? {
            return Ok(false);
        }
        self.set_top()?;
        self.checked(self.target.dir.sync())?;
        Ok(watch(ApplyEvent::Step { done: self.done, all }) == ControlFlow::Continue(()))
    }

    /// Whether skipping this put loses nothing: it is of a new object, or of a hard link.
    fn is_new(&self, put: &PutStep) -> bool {
        let is_there = self.staging.look(put.dir, put.slot).is_ok_and(|seen| seen.is_some());
        is_there && (put.dir == StagingDir::New || self.links.contains(&put.slot))
    }

    /// Sets attributes. `false` if the watcher stopped the run.
    fn set_all(
        &mut self,
        session: &mut SessionCheck<'_, '_>,
        watch: &mut ApplyWatch<'_>,
    ) -> Result<bool> {
        let journal = self.journal;
        for set in &journal.steps.sets {
            if watch(ApplyEvent::Step { done: self.done, all: journal.steps.len() }).is_break() {
                return Ok(false);
            }
            if set.change.is_none_or(|change| !self.skipped.contains(&change)) {
                // A put includes its attributes: the session's rows are not compared again. Nor are
                // those of a directory, which its entries change.
                let is_alone = |number: &usize| !self.placed.contains(number);
                let of_file = set.change.filter(|_| set.attrs.kind != FileKind::Directory);
                let change = of_file.filter(is_alone).and_then(|at| journal.changes.get(at));
                let done = match session.before_step(change, watch)? {
                    ControlFlow::Break(()) => return Ok(false),
                    ControlFlow::Continue(false) => Err(StepFailure::Skip(CHANGED.to_owned())),
                    ControlFlow::Continue(true) => self.set(set),
                };
                self.finish_step(set.change, done)?;
            }
            self.done += 1;
        }
        Ok(true)
    }

    fn checked_enter(&mut self, dir: Option<&BasePath>) -> Result<()> {
        let noted = self.dir_times.enter(dir, self.staging);
        self.checked(noted)
    }

    fn take(&mut self, take: &Take) -> std::result::Result<(), StepFailure> {
        if self.staging.look(StagingDir::Taken, take.slot)?.is_some() {
            return Ok(());
        }
        match self.target.dir.look(&take.from)? {
            Some(now) if take.seen.is_as_seen(&now) => {
                if let Some(mount) = mounted_below(&take.from, &self.mounts) {
                    return Err(StepFailure::Skip(mounted_at(mount)));
                }
                if now.is_dir() && self.removed.contains_key(&take.from) {
                    self.check_moved_out(&take.from)?;
                    self.check_unchanged_since_begun(&take.from)?;
                }
                let dir = self.enter(&take.from)?;
                let to = (self.staging, take.slot);
                let changed = self.target.dir.take(&take.from, take.stays, to)?;
                self.changed(dir, changed)
            }
            Some(_) => Err(StepFailure::Skip("it changed after the plan was made".to_owned())),
            None => Err(StepFailure::Skip("it was removed after the plan was made".to_owned())),
        }
    }

    /// Continues in the directory of `path`, in which a step moves an entry.
    fn enter(&mut self, path: &BasePath) -> std::result::Result<Option<BasePath>, StepFailure> {
        let dir = path.split().map(|(dir, _)| dir);
        self.dir_times.enter(dir.as_ref(), self.staging)?;
        Ok(dir)
    }

    fn changed(
        &mut self,
        dir: Option<BasePath>,
        changed: ChangedDir,
    ) -> std::result::Result<(), StepFailure> {
        Ok(self.dir_times.changed(dir, changed, self.staging)?)
    }

    fn put(&mut self, put: &PutStep) -> std::result::Result<(), StepFailure> {
        if self.staging.look(put.dir, put.slot)?.is_none() {
            return Ok(());
        }
        let replaces = match (self.target.dir.look(&put.to)?, &put.over) {
            (None, None) => false,
            (Some(now), Some(over))
                if over.is_as_seen(&now) || self.is_kept(put, over, &now)? =>
            {
                true
            }
            (Some(_), Some(_)) => {
                return Err(StepFailure::Skip("it changed after the plan was made".to_owned()));
            }
            (Some(_), None) => {
                return Err(StepFailure::Skip("a new object is at this path".to_owned()));
            }
            (None, Some(_)) => {
                return Err(StepFailure::Skip("it was removed after the plan was made".to_owned()));
            }
        };
        if replaces && self.journal.keeps {
            self.target.dir.keep_replaced(&put.to, (self.staging, put.slot))?;
        }
        let dir = self.enter(&put.to)?;
        let from = (self.staging, put.dir, put.slot);
        let changed = self.target.dir.put(from, &put.to, replaces)?;
        self.changed(dir, changed)
    }

    /// Whether the ctime of a file that is to be replaced differs only because an interrupted run
    /// made a hard link of the file, to keep it.
    fn is_kept(
        &self,
        put: &PutStep,
        over: &SeenObject,
        now: &SeenObject,
    ) -> std::result::Result<bool, StepFailure> {
        let kept = self.staging.look(StagingDir::Replaced, put.slot)?;
        let over = SeenObject { ctime: None, ..over.clone() };
        Ok(kept.is_some_and(|kept| kept.is(now)) && over.is_as_seen(now))
    }

    /// Skips the change of a step that failed.
    fn finish_step(
        &mut self,
        change: Option<usize>,
        step: std::result::Result<(), StepFailure>,
    ) -> Result<()> {
        match (step, change) {
            (Ok(()), _) | (Err(StepFailure::Skip(_)), None) => Ok(()),
            (Err(StepFailure::Fail(error)), _) => Err(self.failed(error)),
            (Err(StepFailure::Stop(error)), _) => Err(error),
            (Err(StepFailure::Skip(why)), Some(number)) => self.skip(number, why),
        }
    }

    /// Notes that an attribute stays as something else set it, of an object whose change is made.
    pub(super) fn keep_attribute(&mut self, path: MergedPath, why: String) -> Result<()> {
        let kept = Skipped { path, why };
        // An earlier run may have noted it.
        if !self.notes.kept_attributes.contains(&kept) {
            self.checked(self.staging.note(&Notes::kept_attribute(&kept)))?;
            self.notes.kept_attributes.push(kept);
        }
        Ok(())
    }

    /// Skips a change, and puts back the objects that it took.
    pub(super) fn skip(&mut self, number: usize, why: String) -> Result<()> {
        let path = self.journal.changes.get(number).map(|change| change.path.clone());
        let skipped = Skipped { path: path.unwrap_or_else(MergedPath::root), why };
        self.checked(self.staging.note(&Notes::skipped(Some(number), &skipped)))?;
        self.notes.skipped.push((Some(number), skipped));
        self.skipped.insert(number);
        let journal = self.journal;
        for take in journal.steps.takes.iter().filter(|take| take.change == number && !take.stays) {
            self.put_back(take)?;
        }
        Ok(())
    }

    /// Puts a taken object back, after any removed directory that held it. If that fails, moves the
    /// object to the kept directory.
    fn put_back(&mut self, take: &Take) -> Result<()> {
        if self.checked(self.staging.look(StagingDir::Taken, take.slot))?.is_none() {
            return Ok(());
        }
        let mut above = take.from.split().map(|(above, _)| above);
        while let Some(dir) = above {
            let removed = self.removed.get(&dir).copied();
            if let Some(removed) = removed.filter(|removed| !self.skipped.contains(&removed.change))
            {
                self.skip(removed.change, MOVED_OUT_CHANGED.to_owned())?;
            }
            above = dir.split().map(|(above, _)| above);
        }
        let from = (self.staging, StagingDir::Taken, take.slot);
        let dir = take.from.split().map(|(dir, _)| dir);
        self.checked_enter(dir.as_ref())?;
        if let Ok(changed) = self.target.dir.put(from, &take.from, false) {
            let noted = self.dir_times.changed(dir, changed, self.staging);
            return self.checked(noted);
        }
        let kept = self.checked(self.target.dir.keep(from, &take.from))?;
        let why = format!("it could not be put back: moved to {}", kept.display());
        let skipped = Skipped { path: MergedPath::of_base(&take.from), why };
        self.checked(self.staging.note(&Notes::skipped(None, &skipped)))?;
        self.notes.skipped.push((None, skipped));
        Ok(())
    }

    /// The changes that were made.
    pub fn applied(&self) -> Vec<AppliedChange> {
        let all = self.journal.changes.iter().enumerate();
        let made = all.filter(|(at, _)| !self.skipped.contains(at)).map(|(_, made)| made);
        let mut made: Vec<AppliedChange> = made.cloned().collect();
        // A directory above a skipped path is not whole.
        let mut holds_skipped: HashSet<MergedPath> = HashSet::new();
        let sets = self.journal.steps.sets.iter();
        let wanted: HashMap<_, _> =
            sets.map(|set| (MergedPath::of_base(&set.path), &set.attrs)).collect();
        let kept = &self.notes.kept_attributes;
        let kept_at: HashSet<_> = kept.iter().map(|kept| &kept.path).collect();
        for skipped in self.notes.skipped.iter().map(|(_, skipped)| skipped).chain(kept) {
            let mut above = skipped.path.clone();
            while holds_skipped.insert(above.clone()) && above != MergedPath::root() {
                above = above.parent();
            }
        }
        for change in &mut made {
            change.is_whole &= !holds_skipped.contains(&change.path);
            let wanted = wanted.get(&change.path).filter(|_| kept_at.contains(&change.path));
            change.not_given = wanted.map(|attrs| [attrs.mode, attrs.uid, attrs.gid]);
        }
        made
    }

    /// The files that were put without their further names.
    pub fn lost_links(&self) -> Vec<LostLink> {
        let is_put = |file: &&LostLink| !self.skipped.contains(&file.change);
        self.journal.lost_links.iter().filter(is_put).cloned().collect()
    }

    /// The changes with a skipped step.
    pub fn into_skipped(self) -> HashSet<usize> {
        self.skipped
    }

    /// Stores in each change the ctime that its object has in the base, if it can be read, and is
    /// as the steps left it.
    pub fn note_base_ctimes(&self, applied: &mut [AppliedChange]) {
        let steps = &self.journal.steps;
        let puts: HashMap<_, _> = steps.puts.iter().map(|put| (&put.to, put)).collect();
        let sets: HashMap<_, _> = steps.sets.iter().map(|set| (&set.path, set)).collect();
        // The top has no name that a client could remove.
        let has_name =
            |change: &&mut AppliedChange| change.was_entry() && change.path != MergedPath::root();
        for change in applied.iter_mut().filter(has_name) {
            let path = target_path(&change.path);
            let Ok(Some(now)) = self.target.dir.object(&path) else { continue };
            let made = puts.get(&path).and_then(|put| put.made.as_ref());
            let is_as_left = match (made, sets.get(&path)) {
                _ if now.is_dir() => true,
                (Some(made), _) => {
                    made.seen.is_as_seen(&now.seen) && now.attrs.has_rights_of(&made.attrs)
                }
                (None, Some(set)) => set.is_as_left(&now),
                (None, None) => true,
            };
            if is_as_left {
                change.base_ctime =
                    self.target.dir.look(&path).ok().flatten().and_then(|now| now.ctime);
            }
        }
    }

    pub(super) fn checked<T>(&self, step: std::result::Result<T, TargetError>) -> Result<T> {
        step.map_err(|error| self.failed(error))
    }

    fn failed(&self, source: TargetError) -> InspectError {
        InspectError::Unfinished { done: self.done, all: self.journal.steps.len(), source }
    }
}
