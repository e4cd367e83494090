//! Writing what a session made different to its base, or to a copy of it.
//!
//! An [`ApplyPlan`] says what is to be done, and what of it would overwrite a change that the base
//! got since. Then everything that is written is made in a hidden directory at the top of the
//! target; then a journal says what is to be done; and only then does the tree change, by steps
//! that are one rename each. A run that ends before the journal is there has changed nothing;
//! what a later one left undone, [`resume`] does.

mod audit_drift;
mod check;
mod commit;
mod consent;
mod copy;
mod dependent;
mod difference_steps;
mod drift;
mod finish_copy_up;
mod hunk_changes;
mod journal;
mod keep;
mod keep_checks;
mod kept_hard_links;
mod last_apply;
mod locked_dirs;
mod merge;
mod open_staging;
mod plan;
mod planner;
mod record;
mod refused;
mod session_check;
mod stage;
mod steps;
mod target_dir;
mod unchanged;
mod undo;
mod undo_change;
mod undo_drift;
mod undo_plan;

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::Path;

use super::InspectError;
use super::diff::Difference;
use super::error::Result;
use super::opened::OpenSession;
use crate::base::BasePath;
use crate::delta::{Ino, MergedPath, PendingCopies};
use crate::overlay::CopyStep;
use crate::writeback::{Attrs, Staging, Target, TargetError, Unset};
use commit::StepRunner;
use consent::check_consent;
use journal::{Journal, Notes};
use open_staging::{open, open_new, shown};
use planner::Planner;
use session_check::SessionCheck;
use stage::Staged;
use target_dir::ApplyTarget;

pub use consent::{Consent, ShowPlan};
pub use drift::{DriftReason, Drifted};
pub use keep::{KEEP_LIMIT_BYTES, KeptCopy};
pub use keep_checks::{check_not_taken_back, keep_nothing};
pub use last_apply::{KeptForUndo, LastApply, kept, last_apply};
pub use open_staging::{UnfinishedApply, check_finished, unfinished};
pub use plan::{ApplyOptions, ApplyPlan, AttributeCounts, KeptInBase, Loss, Merged, Special};
pub use stage::NotSet;
pub use steps::AppliedChange;
pub use unchanged::DroppedCopy;
pub use undo::{plan_undo, undo};
pub use undo_change::{DirContents, UndoChange, UndoDrift, UndoKind};
pub use undo_plan::{UndoOptions, UndoPlan};

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyEvent {
    /// What is to be placed is being made: so many bytes of all.
    Making {
        /// Bytes that were written.
        done: u64,
        /// All.
        all: u64,
    },
    /// What the session still has in the base is being copied into it: so much is left.
    Copying(PendingCopies),
    /// The tree is being changed: before the next step, after the last one, and between the
    /// objects that are kept then.
    Step {
        /// Steps that were done.
        done: usize,
        /// All.
        all: usize,
    },
}

/// What is told how far it is, and may break it off there.
pub type ApplyWatch<'a> = dyn FnMut(ApplyEvent) -> ControlFlow<()> + 'a;

/// The session, or whoever serves it.
pub trait SessionUpdater {
    /// Copies what copy-up left in the base, for a while, from the inode `from` on: the base is
    /// about to change. Where the round is over, all that was copied is synced.
    ///
    /// # Errors
    /// The session cannot be changed, and so nothing may be.
    fn copy(&mut self, from: Ino) -> Result<CopyStep>;

    /// Forgets what was applied, so that the base shows there again. The base is synced by then.
    /// Returns the paths of what changed in the session since the plan, which the session keeps.
    ///
    /// It may come twice for the same changes, if we are killed right after the first time: then
    /// `is_first` is false.
    ///
    /// # Errors
    /// The session cannot be changed; it is asked again by the next [`resume`].
    fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>>;

    /// Drops copies in which the session changed nothing. What cannot be dropped stays.
    fn drop_unchanged(&mut self, copies: &[DroppedCopy]);
}

/// Something that was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Where it is in the merged tree.
    pub path: MergedPath,
    /// Why.
    pub why: String,
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What was applied.
    pub applied: Vec<AppliedChange>,
    /// What was not, and why.
    pub skipped: Vec<Skipped>,
    /// What the plan left out and has no steps for.
    pub left_out: Vec<Skipped>,
    /// What we may not set.
    pub not_set: NotSet,
    /// Extended attributes that the host refuses to set.
    pub losses: Vec<Loss>,
    /// It was broken off when so many steps were done, of so many; (0, 0) where nothing is left
    /// to be finished, because nothing was begun.
    pub broken_off: Option<(usize, usize)>,
    /// It took an earlier apply back.
    pub is_undo: bool,
    /// The apply was done again, which an undo had taken back.
    pub is_redo: bool,
    /// What is kept of what it replaced and removed; `None` if nothing is to be.
    pub kept: Option<Vec<KeptCopy>>,
}

impl Report {
    /// What was applied, and the session does not keep.
    pub fn done(&self) -> impl Iterator<Item = &AppliedChange> {
        let skipped: HashSet<_> = self.skipped.iter().map(|skipped| &skipped.path).collect();
        self.applied.iter().filter(move |applied| !skipped.contains(&applied.path))
    }

    fn broken_off_at(self, steps: (usize, usize)) -> Self {
        Self { broken_off: Some(steps), applied: Vec::new(), ..self }
    }
}

/// Says what would be done, and calls `each` for every difference of it.
///
/// # Errors
/// The session, the base or the directory `to` cannot be read, or not all can be done.
pub fn plan(
    opened: &OpenSession,
    to: Option<&Path>,
    options: &ApplyOptions,
    each: &mut dyn FnMut(&Difference),
) -> Result<ApplyPlan> {
    let place = ApplyTarget::open(opened, to)?;
    let mut plan =
        opened.with_tree(|view| Planner::new(opened, view, &place, options, each).make())?;
    measure(&place, &mut plan, options)?;
    Ok(plan)
}

/// Adds how much the plan replaces and removes, if that is to be kept.
fn measure(place: &ApplyTarget<'_>, plan: &mut ApplyPlan, options: &ApplyOptions) -> Result<()> {
    if options.keep.is_some() {
        plan.kept_bytes = keep::measure(place, &plan.steps)?;
    }
    plan.ends_undo_of = last_apply::ended_by(place, plan)?;
    Ok(())
}

/// Makes a plan, and applies what of it there is `consent` to.
///
/// # Errors
/// As [`plan`]; something drifted, and is not to be overwritten; work of another run is there to
/// be finished; or the host refuses. Unless the error is [`InspectError::Unfinished`], nothing
/// has changed.
pub fn apply(
    opened: &OpenSession,
    to: Option<&Path>,
    options: &ApplyOptions,
    consent: Consent<'_>,
    mut bookkeeper: Option<&mut dyn SessionUpdater>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Report> {
    let place = ApplyTarget::open(opened, to)?;
    let mut staging = open_new(&place.target)?;
    let prepared = prepare(opened, &place, options, consent, &mut staging, watch);
    let begun = prepared.and_then(|prepared| {
        let Some((journal, staged)) = prepared else { return Ok(None) };
        begin(&staging, &journal, &staged, bookkeeper.as_deref_mut(), watch)
            .map(|begun| begun.then_some((journal, staged)))
    });
    match begun {
        Ok(Some((journal, staged))) => {
            run_journal(opened, &place, staging, &journal, staged, bookkeeper, watch)
        }
        given_up => give_up(&place, staging, given_up.map(drop)),
    }
}

/// Writes the journal, and what is left out; whether it was not broken off.
fn begin(
    staging: &Staging,
    journal: &Journal,
    staged: &Staged,
    bookkeeper: Option<&mut (dyn SessionUpdater + '_)>,
    watch: &mut ApplyWatch<'_>,
) -> Result<bool> {
    // As late as it may be: who writes to a large file while we prepare is served too.
    if finish_copy_up::bring_in(bookkeeper, watch)?.is_break() {
        return Ok(false);
    }
    let skipped = &staged.skipped;
    let lines: Vec<_> =
        skipped.iter().map(|(change, what)| Notes::skipped(*change, what)).collect();
    if !lines.is_empty() {
        staging.note(&lines.join("\n"))?;
    }
    staging.begin(&mut |out| journal.write(out))?;
    Ok(true)
}

/// Leaves everything as it was, before the first step.
fn give_up(place: &ApplyTarget<'_>, staging: Staging, why: Result<()>) -> Result<Report> {
    clear_up(&place.target, staging, Some(&plan::attrs_of(&place.top)))?;
    keep::remove_empty(place);
    why.map(|()| Report { broken_off: Some((0, 0)), ..Report::default() })
}

/// Makes everything that will be placed, and says how; `None` if it was broken off.
fn prepare(
    opened: &OpenSession,
    place: &ApplyTarget<'_>,
    options: &ApplyOptions,
    mut consent: Consent<'_>,
    staging: &mut Staging,
    watch: &mut ApplyWatch<'_>,
) -> Result<Option<(Journal, Staged)>> {
    staging.clear()?;
    let begun = staging.made_at()?;
    let prepared = opened.with_tree(|view| {
        let mut plan = match &mut consent {
            Consent::Shown(shown) => {
                let each = &mut |_: &Difference| {};
                let planner = Planner::new(opened, view, place, options, each);
                let mut plan = planner.with_consent_to(shown).make()?;
                measure(place, &mut plan, options)?;
                plan
            }
            Consent::All(show) => {
                let each = &mut |difference: &Difference| show.difference(difference);
                let mut plan = Planner::new(opened, view, place, options, each).make()?;
                measure(place, &mut plan, options)?;
                if show.plan(&plan).is_break() {
                    return Ok(None);
                }
                plan
            }
        };
        let shown = match &consent {
            Consent::Shown(shown) => Some(*shown),
            Consent::All(_) => None,
        };
        check_consent(&plan, shown, options)?;
        let leaves_kept =
            keep_checks::has_record(place) && keep_checks::changes_nothing(place, &plan)?;
        if let Some(limit) = options.keep.filter(|_| !leaves_kept) {
            keep_checks::refuse_taken_back(place, opened.session().id())?;
            keep_checks::check_room(place, plan.kept_bytes, limit)?;
            keep_checks::check_writable(place)?;
        }
        let mut staged = stage::stage(view, place, &plan, staging, watch)?;
        if let Some(staged) = &mut staged {
            let changed = plan.changed.drain(..).map(|skipped| (None, skipped));
            staged.skipped.extend(changed);
        }
        Ok(staged.map(|staged| (plan, staged, leaves_kept)))
    })?;
    let Some((plan, staged, leaves_kept)) = prepared else { return Ok(None) };
    let keeps = options.keep.is_some() && !leaves_kept;
    let left_out = plan.left_out_without_steps();
    let before = if keeps { keep::note_before(place, &plan.steps)? } else { Vec::new() };
    let journal = Journal {
        session: opened.session().id().to_owned(),
        file: opened.session().path().display().to_string(),
        begun,
        top: plan.top,
        keeps,
        is_undo: false,
        is_redo: false,
        leaves_kept: leaves_kept && options.keep.is_some(),
        steps: plan.steps,
        changes: plan.changes,
        unchanged: plan.unchanged,
        left_out,
        before,
        inside: Vec::new(),
        opened: Vec::new(),
    };
    Ok(Some((journal, staged)))
}

/// What an interrupted run of a session has left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptedApply {
    /// The number of steps.
    pub steps: usize,
    /// Whether it is an undo.
    pub is_undo: bool,
}

/// What an interrupted run of this session left, if there was one.
///
/// # Errors
/// It was another session's, or cannot be read.
pub fn interrupted(opened: &OpenSession, to: Option<&Path>) -> Result<Option<InterruptedApply>> {
    let place = ApplyTarget::open(opened, to)?;
    let Some(staging) = open(&place.target, false)? else { return Ok(None) };
    let journal = journal_of(opened, &place.target, &staging)?;
    Ok(journal
        .map(|journal| InterruptedApply { steps: journal.steps.len(), is_undo: journal.is_undo }))
}

/// Clears away what a run left that was killed before it had begun, or after it had ended.
///
/// # Errors
/// Another apply is at work, or the host refuses.
pub fn clear(opened: &OpenSession, to: Option<&Path>) -> Result<()> {
    let place = ApplyTarget::open(opened, to)?;
    let Some(staging) = open(&place.target, false)? else { return Ok(()) };
    if staging.journal()?.is_none() {
        let mut top = plan::attrs_of(&place.top);
        top.mtime = place.target.top_mtime(&staging)?.unwrap_or(top.mtime);
        clear_up(&place.target, staging, Some(&top))?;
    }
    Ok(())
}

/// Finishes what an interrupted run of this session left; `None` if there was none.
///
/// # Errors
/// It was another session's, or the host refuses.
pub fn resume(
    opened: &OpenSession,
    to: Option<&Path>,
    bookkeeper: Option<&mut dyn SessionUpdater>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Option<Report>> {
    let place = ApplyTarget::open(opened, to)?;
    let Some(staging) = open(&place.target, false)? else { return Ok(None) };
    let Some(journal) = journal_of(opened, &place.target, &staging)? else { return Ok(None) };
    run_journal(opened, &place, staging, &journal, Staged::default(), bookkeeper, watch).map(Some)
}

/// Does what the journal says, from where that was left.
fn run_journal(
    opened: &OpenSession,
    place: &ApplyTarget<'_>,
    staging: Staging,
    journal: &Journal,
    staged: Staged,
    mut bookkeeper: Option<&mut dyn SessionUpdater>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Report> {
    // A change that a client began before the journal was there may still read the base. The writer
    // makes changes one after the other, so this request ends after that one, and what it left to
    // be copied is in the session then.
    if finish_copy_up::bring_in(bookkeeper.as_deref_mut(), watch)?.is_break() {
        let broken_off = Some((0, journal.steps.len()));
        return Ok(Report { broken_off, ..Report::default() });
    }
    let session = SessionCheck::new(opened, bookkeeper);
    finish(place, staging, journal, staged, session, watch)
}

fn journal_of(opened: &OpenSession, target: &Target, staging: &Staging) -> Result<Option<Journal>> {
    let Some(file) = staging.journal()? else { return Ok(None) };
    let path = staging.path().to_owned();
    let journal = Journal::read(file).map_err(|source| TargetError { path, source })?;
    if journal.session != opened.session().id() {
        let what = format!("{}: an apply of {} was interrupted", shown(target), journal.file);
        let hint = "finish it first: run `acetate apply` with that session";
        return Err(InspectError::Refused { what, hint });
    }
    Ok(Some(journal))
}

/// Does what the journal says, tells the session, and clears up.
fn finish(
    place: &ApplyTarget<'_>,
    staging: Staging,
    journal: &Journal,
    staged: Staged,
    mut session: SessionCheck<'_, '_>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Report> {
    let target = &place.target;
    let mut commit = StepRunner::new(place, &staging, journal)?;
    commit.not_set = staged.not_set;
    let is_done = commit.run(&mut session, watch)?;
    let mut report = Report {
        applied: commit.applied(),
        skipped: commit.notes.skipped.iter().map(|(_, skipped)| skipped.clone()).collect(),
        left_out: journal.left_out.clone(),
        not_set: commit.not_set,
        losses: staged.losses,
        is_undo: journal.is_undo,
        is_redo: journal.is_redo,
        ..Report::default()
    };
    let steps = (commit.done, journal.steps.len());
    if !is_done {
        return Ok(report.broken_off_at(steps));
    }
    let (is_first, keeps_nothing) = (!commit.notes.is_told, commit.notes.keeps_nothing);
    if session.is_kept_in_step() {
        commit.note_base_ctimes(&mut report.applied);
    }
    let shared = commit.notes.shared.take();
    let (skipped, keeps) = (commit.into_skipped(), journal.keeps && !keeps_nothing);
    let closed = locked_dirs::closed_after(target, journal, &skipped)?;
    let now = || target.object(&BasePath::root()).map(|now| now.map(|object| object.attrs));
    let top = journal.top.clone().map_or_else(now, |top| Ok(Some(top)))?;
    let kept = match top.as_ref().filter(|_| keeps) {
        Some(top) => {
            match keep::keep(place, &staging, journal, (&skipped, shared), (top, &closed), watch) {
                Ok(None) => return Ok(report.broken_off_at(steps)),
                kept => kept,
            }
        }
        None if journal.leaves_kept => Ok(None),
        None => {
            if let Err(error) = keep::remove(place) {
                tracing::warn!(%error, "what an earlier apply kept is not removed");
            }
            Ok(None)
        }
    };
    report.kept = kept.map_err(|error| InspectError::Refused {
        what: format!("all is written, and what that replaced cannot be kept: {error}"),
        hint: "run the same command again: it finishes that; with --no-keep, nothing is kept",
    })?;
    if !journal.is_undo {
        if session.is_kept_in_step() {
            staging.note(Notes::TOLD)?;
        }
        let kept = session.forget(&report.applied, is_first)?;
        let kept = kept.into_iter().filter(|_| is_first);
        let why = "a client changed it during apply; the session keeps the change";
        report.skipped.extend(kept.map(|path| Skipped { path, why: why.to_owned() }));
        session.drop_unchanged(&journal.unchanged);
    }
    // Last: the session looks into the base while it forgets.
    if !closed.is_empty() {
        staging.note(Notes::CLOSING)?;
        locked_dirs::close(target, &closed)?;
    }
    let unset = clear_up(target, staging, top.as_ref())?;
    if journal.top.is_some() {
        report.not_set.add(unset);
    }
    Ok(report)
}

/// Removes the staging, and gives the top what it is to have.
fn clear_up(target: &Target, staging: Staging, top: Option<&Attrs>) -> Result<Unset> {
    if let Some(top) = top
        && let Err(error) = target.note_top_mtime(&staging, top.mtime)
    {
        // Only a run that is killed needs it.
        tracing::debug!(%error, "the time of the top is not noted");
    }
    target.remove(staging)?;
    let unset = top.map(|top| target.set(&BasePath::root(), top)).transpose()?;
    Ok(unset.unwrap_or_default())
}
