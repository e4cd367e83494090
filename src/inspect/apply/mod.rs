//! Applies a session's changes to its base, or to a copy of the base.
//!
//! An [`ApplyPlan`] lists the changes, and those that would overwrite a later change of the base.
//! New objects are first made in the staging, a hidden directory at the top of the target. Then a
//! journal of all steps is written. Only then does the tree change, by steps that are one rename
//! each or can be repeated. A run that ends before the journal is written changes nothing in the
//! tree; the session may have dropped moves of directories that the base made too, and shows the
//! same. [`resume`] finishes a run that ends later.

mod advice;
mod as_shown;
mod audit_drift;
mod check;
mod consent;
mod copy;
mod dependent;
mod difference_steps;
mod dir_times;
mod drift;
mod finish_copy_up;
mod git;
mod hunk_changes;
mod journal;
mod keep;
mod keep_checks;
mod kept_hard_links;
mod last_apply;
mod locked_dirs;
mod merge;
mod open_staging;
mod placed;
mod plan;
mod planner;
mod record;
mod refused;
mod remove_staging;
mod removed_dir_check;
mod report;
mod session_check;
mod set_attributes;
mod settle_moves;
mod sides;
mod stage;
mod step_failure;
mod step_runner;
mod steps;
mod target_dir;
mod unchanged;
mod undo;
mod undo_attributes;
mod undo_change;
mod undo_drift;
mod undo_links;
mod undo_plan;

use std::ops::ControlFlow;
use std::path::Path;

use super::InspectError;
use super::diff::Difference;
use super::error::Result;
use super::opened::OpenSession;
use crate::delta::{Ino, MergedPath, PendingCopies};
use crate::overlay::CopyStep;
use crate::writeback::{Staging, Target, TargetError};
use journal::{Journal, Notes};
use keep_checks::check_allowed;
use open_staging::{open, open_new, shown};
use planner::Planner;
use remove_staging::{remove_staging, remove_unused_staging};
use session_check::SessionCheck;
use settle_moves::settle_moves;
use stage::Staged;
use step_runner::StepRunner;
use target_dir::ApplyTarget;

pub use advice::ApplyAdvice;
pub use consent::{Consent, ShowPlan};
pub use drift::{DriftReason, Drifted, GoneDir};
pub use finish_copy_up::pending_copies;
pub use keep::{KEEP_LIMIT_BYTES, KeptCopy};
pub use keep_checks::{check_not_undone, keep_nothing};
pub use last_apply::{KeptForUndo, LastApply, kept, last_apply};
pub use open_staging::{
    InterruptedApply, UnfinishedApply, check_finished, interrupted, is_unfinished_in, unfinished,
};
pub use plan::{
    ApplyOptions, ApplyPlan, AttributeCounts, KeptExtent, KeptInBase, Loss, Merged, Special,
};
pub use report::{LostLink, Report, Skipped};
pub use settle_moves::has_moves_of_both;
pub use stage::NotSet;
pub use steps::AppliedChange;
pub use unchanged::DroppedCopy;
pub use undo::{plan_undo, undo};
pub use undo_change::{DirContents, UndoChange, UndoDrift, UndoKind};
pub use undo_plan::{UndoOptions, UndoPlan};

/// The progress of an apply or undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyEvent {
    /// New objects are being made in the staging.
    Making {
        /// Bytes that are written.
        done: u64,
        /// Bytes in all.
        all: u64,
    },
    /// Pending content is being copied into the session: the part that is left.
    Copying(PendingCopies),
    /// The tree is being changed: before each step, after the last one, and between the objects
    /// that are kept after that.
    Step {
        /// Steps that are done or skipped.
        done: usize,
        /// All steps.
        all: usize,
    },
}

/// Receives the progress; `Break` stops the run at that point.
pub type ApplyWatch<'a> = dyn FnMut(ApplyEvent) -> ControlFlow<()> + 'a;

/// Changes the session that is applied, directly or through its server.
pub trait SessionUpdater {
    /// Copies pending content of large files into the session for a limited time, from the inode
    /// `from` on, because the base is about to change. At the end of a round, all copied content is
    /// synced.
    ///
    /// # Errors
    /// The session cannot be changed, so the base must not be changed either.
    fn copy(&mut self, from: Ino) -> Result<CopyStep>;

    /// Drops applied changes from the session, so that the base shows again. The base is synced
    /// before. Returns the paths that changed in the session after the plan was made: the session
    /// keeps these changes.
    ///
    /// A kill right after the first call causes a second one for the same changes, with `is_first`
    /// false.
    ///
    /// # Errors
    /// The session cannot be changed; the next [`resume`] repeats the call.
    fn forget(&mut self, applied: &[AppliedChange], is_first: bool) -> Result<Vec<MergedPath>>;

    /// Drops the modes of directories that are closed to their owner, which the base got after the
    /// first call: the audit log has the rows of these changes already.
    ///
    /// # Errors
    /// As [`SessionUpdater::forget`].
    fn forget_closed(&mut self, applied: &[AppliedChange]) -> Result<()> {
        self.forget(applied, false).map(drop)
    }

    /// Drops the moves of directories that the base moved to the same place itself: the session
    /// has the base's directories there from then on.
    ///
    /// # Errors
    /// As [`Self::copy`].
    fn settle_moves(&mut self) -> Result<()>;

    /// Drops copies in which the session changed nothing. A copy that cannot be dropped stays.
    fn drop_unchanged(&mut self, copies: &[DroppedCopy]);
}

/// Makes a plan without applying it, and calls `each` for every difference in the plan.
///
/// # Errors
/// The session, the base or the directory `to` cannot be read, or some change cannot be applied.
pub fn plan(
    opened: &OpenSession,
    to: Option<&Path>,
    options: &ApplyOptions,
    each: &mut dyn FnMut(&Difference),
) -> Result<ApplyPlan> {
    let target = open_target(opened, to)?;
    let mut plan =
        opened.with_tree(|view| Planner::new(opened, view, &target, options, each).make())?;
    measure(&target, &mut plan, options)?;
    Ok(plan)
}

/// Opens the target of a new apply. A copy is refused while an apply to the base is unfinished: an
/// object that is in the base's staging would be missing in the plan.
fn open_target<'a>(opened: &'a OpenSession, to: Option<&Path>) -> Result<ApplyTarget<'a>> {
    let target = ApplyTarget::open(opened, to)?;
    if target.is_copy() {
        check_finished(opened)?;
    }
    Ok(target)
}

/// Adds the bytes that are to be kept for undo, the owners that an undo could not restore, and the
/// earlier apply whose undo the plan ends.
fn measure(target: &ApplyTarget<'_>, plan: &mut ApplyPlan, options: &ApplyOptions) -> Result<()> {
    if options.keep.is_some() {
        plan.kept_bytes = keep::measure(target, &plan.steps)?;
        plan.losses.extend(keep_checks::lost_owners(target, &plan.steps)?);
    }
    plan.ends_undo_of = last_apply::ended_by(target, plan)?;
    Ok(())
}

/// Makes a plan, and applies the changes to which the user gives `consent`.
///
/// # Errors
/// As [`plan`]; drift that must not be overwritten; unfinished work of another run; or the host
/// refuses. If the journal is written already, [`resume`] finishes the work.
pub fn apply(
    opened: &OpenSession,
    to: Option<&Path>,
    options: &ApplyOptions,
    consent: Consent<'_>,
    mut updater: Option<&mut dyn SessionUpdater>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Report> {
    let target = open_target(opened, to)?;
    let mut staging = open_new(&target)?;
    let prepared = prepare(opened, &target, options, consent, &mut staging, watch);
    let begun = prepared.and_then(|prepared| {
        let Some((journal, staged)) = prepared else { return Ok(None) };
        settle_moves(opened, updater.as_deref_mut())?;
        begin(&staging, &journal, &staged, updater.as_deref_mut(), watch)
            .map(|begun| begun.then_some((journal, staged)))
    });
    match begun {
        Ok(Some((journal, staged))) => {
            run_journal(opened, &target, staging, &journal, staged, updater, watch)
        }
        given_up => end_before_journal(&target, staging, given_up.map(drop)),
    }
}

/// Writes the left-out changes to the notes, and then the journal; `false` if it was stopped.
fn begin(
    staging: &Staging,
    journal: &Journal,
    staged: &Staged,
    updater: Option<&mut (dyn SessionUpdater + '_)>,
    watch: &mut ApplyWatch<'_>,
) -> Result<bool> {
    // As late as possible: clients may write to large files while objects are made.
    if finish_copy_up::finish_pending_copies(updater, watch)?.is_break() {
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

/// Cleans up after a run that ends before its journal is written.
fn end_before_journal(
    target: &ApplyTarget<'_>,
    staging: Staging,
    why: Result<()>,
) -> Result<Report> {
    remove_unused_staging(&target.dir, staging)?;
    keep::remove_empty(target);
    why.map(|()| Report { broken_off: Some((0, 0)), ..Report::default() })
}

/// Makes all new objects, and returns the journal; `None` if the run was stopped.
fn prepare(
    opened: &OpenSession,
    target: &ApplyTarget<'_>,
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
                let planner = Planner::new(opened, view, target, options, each);
                let mut plan = planner.with_consent_to(shown).make()?;
                measure(target, &mut plan, options)?;
                plan
            }
            Consent::All(show) => {
                let each = &mut |difference: &Difference| show.difference(difference);
                let mut plan = Planner::new(opened, view, target, options, each).make()?;
                measure(target, &mut plan, options)?;
                let checked = check_allowed(opened, target, &plan, None, options);
                if checked.is_err() {
                    plan.ends_undo_of = None;
                }
                if show.plan(&plan).is_break() {
                    return Ok(None);
                }
                checked?;
                plan
            }
        };
        if let Consent::Shown(shown) = &consent {
            check_allowed(opened, target, &plan, Some(shown), options)?;
        }
        let leaves_kept = keep_checks::changes_nothing(target, &plan)?;
        let mut staged = stage::stage(view, target, &plan, staging, watch)?;
        if let Some(staged) = &mut staged {
            staged.skipped.extend(plan.changed.drain(..).map(|skipped| (None, skipped)));
        }
        Ok(staged.map(|staged| (plan, staged, leaves_kept)))
    })?;
    let Some((mut plan, staged, leaves_kept)) = prepared else { return Ok(None) };
    let keeps = options.keep.is_some() && !leaves_kept;
    plan.steps.note_made(target, keeps)?;
    let left_out = plan.left_out_without_steps();
    let before = if keeps { keep::note_before(target, &plan.steps)? } else { Vec::new() };
    let journal = Journal {
        session: opened.session().id().to_owned(),
        file: opened.session().path().display().to_string(),
        begun,
        top_id: Some(target.id()),
        top: plan.top,
        top_from: Some(plan::attrs_of(&target.top)),
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
        lost_links: Vec::new(),
    };
    Ok(Some((journal, staged)))
}

/// Removes the staging of a run that was killed while it had no journal, and restores the modes
/// that the run changed for a moment.
///
/// # Errors
/// Another apply is running, or the host refuses.
pub fn clear(opened: &OpenSession, to: Option<&Path>) -> Result<()> {
    let target = ApplyTarget::open(opened, to)?;
    let Some(staging) = open(&target.dir, false)? else {
        return locked_dirs::close_left_open(&target);
    };
    if staging.journal()?.is_none() {
        locked_dirs::close_left_open(&target)?;
        remove_unused_staging(&target.dir, staging)?;
    }
    Ok(())
}

/// Finishes an interrupted run of this session; `None` if there is none.
///
/// # Errors
/// The run is another session's, or the host refuses.
pub fn resume(
    opened: &OpenSession,
    to: Option<&Path>,
    updater: Option<&mut dyn SessionUpdater>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Option<Report>> {
    let target = ApplyTarget::open(opened, to)?;
    let Some(staging) = open(&target.dir, false)? else { return Ok(None) };
    let Some(journal) = journal_of(opened, &target.dir, &staging)? else { return Ok(None) };
    let staged = Staged { is_resumed: true, ..Staged::default() };
    run_journal(opened, &target, staging, &journal, staged, updater, watch).map(Some)
}

/// Does the remaining steps of the journal, and completes the apply.
fn run_journal(
    opened: &OpenSession,
    target: &ApplyTarget<'_>,
    staging: Staging,
    journal: &Journal,
    staged: Staged,
    mut updater: Option<&mut dyn SessionUpdater>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Report> {
    // A client's change that began before the journal was written may still read the base. The
    // session's writer makes one change at a time, so this request runs after that change and
    // copies the content that the change left pending.
    let copied = finish_copy_up::finish_pending_copies(updater.as_deref_mut(), watch);
    if copied.map_err(|error| to_be_finished(journal, error))?.is_break() {
        let broken_off = Some((0, journal.steps.len()));
        return Ok(Report { broken_off, ..Report::default() });
    }
    let session = SessionCheck::new(opened, updater);
    finish(target, staging, journal, staged, session, watch)
}

/// With a journal, a repetition of the command finishes the run instead of planning again.
fn to_be_finished(journal: &Journal, error: InspectError) -> InspectError {
    let run = if journal.is_undo { "undo" } else { "apply" };
    match error {
        InspectError::Refused { what, advice: ApplyAdvice::PlanAgain } => InspectError::Refused {
            what: format!("the {run} is not finished: {what}"),
            advice: ApplyAdvice::Repeat,
        },
        error => error,
    }
}

fn journal_of(opened: &OpenSession, target: &Target, staging: &Staging) -> Result<Option<Journal>> {
    let Some(file) = staging.journal()? else { return Ok(None) };
    let path = staging.path().to_owned();
    let journal = Journal::read(file).map_err(|source| TargetError { path, source })?;
    if journal.session != opened.session().id() {
        let what = format!("{}: an apply of {} was interrupted", shown(target), journal.file);
        return Err(InspectError::Refused { what, advice: ApplyAdvice::FinishOther });
    }
    Ok(Some(journal))
}

/// Does the steps, keeps what they replaced, updates the session, and removes the staging.
fn finish(
    target: &ApplyTarget<'_>,
    staging: Staging,
    journal: &Journal,
    staged: Staged,
    mut session: SessionCheck<'_, '_>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Report> {
    let dir = &target.dir;
    let mut runner = StepRunner::new(target, &staging, journal, staged.is_resumed)?;
    runner.not_set = staged.not_set;
    let is_done = runner.run(&mut session, watch)?;
    let mut report = Report {
        applied: runner.applied(),
        kept_attributes: runner.notes.kept_attributes.clone(),
        skipped: runner.notes.skipped.iter().map(|(_, skipped)| skipped.clone()).collect(),
        left_out: journal.left_out.clone(),
        not_set: runner.not_set,
        losses: staged.losses,
        lost_links: runner.lost_links(),
        is_undo: journal.is_undo,
        is_redo: journal.is_redo,
        ..Report::default()
    };
    let steps = (runner.done, journal.steps.len());
    if !is_done {
        return Ok(report.broken_off_at(steps));
    }
    let (is_first, keeps_nothing) = (!runner.notes.session_informed, runner.notes.keeps_nothing);
    // An earlier run has informed the session of all, but for the modes of closed directories.
    let is_closing = runner.notes.is_closing;
    if session.is_kept_in_step() {
        runner.note_base_ctimes(&mut report.applied);
    }
    let (shared, top) = (runner.notes.shared.take(), runner.top.take());
    let (skipped, keeps) = (runner.into_skipped(), journal.keeps && !keeps_nothing);
    let closed = locked_dirs::closed_after(dir, journal, &skipped)?;
    let kept = match top.as_ref().filter(|_| keeps) {
        Some(top) => {
            match keep::keep(target, &staging, journal, (&skipped, shared), (top, &closed), watch) {
                Ok(None) => return Ok(report.broken_off_at(steps)),
                kept => kept,
            }
        }
        None if journal.leaves_kept => Ok(None),
        None => {
            keep::remove(target);
            Ok(None)
        }
    };
    let kept = kept.map_err(|error| InspectError::Refused {
        what: format!("applied, but the replaced objects could not be kept for undo: {error}"),
        advice: ApplyAdvice::RepeatOrKeepNothing,
    })?;
    report.losses.extend(kept.iter().flat_map(|kept| kept.losses.clone()));
    report.kept = kept.map(|kept| kept.copies);
    if !journal.is_undo && !is_closing {
        if session.is_kept_in_step() {
            staging.note(Notes::SESSION_INFORMED)?;
        }
        let kept = session.forget(&report.applied, is_first)?;
        let kept = kept.into_iter().filter(|_| is_first);
        let why = "a client changed it during apply; the session keeps the change";
        report.skipped.extend(kept.map(|path| Skipped { path, why: why.to_owned() }));
        session.drop_unchanged(&journal.unchanged);
    }
    // Last, because the session reads the base while it forgets changes. Then it forgets the closed
    // directories again: a mode that the base did not have yet was a change still.
    if !closed.is_empty() {
        staging.note(Notes::CLOSING)?;
        let left = locked_dirs::close(dir, &closed, &mut |paths| match journal.is_undo {
            true => Ok(()),
            false => session.forget_closed(&report.applied_at(paths)),
        })?;
        let why = "its mode changed before it was closed to its owner, and stays";
        let left = left.iter().map(MergedPath::of_base);
        report.skipped.extend(left.map(|path| Skipped { path, why: why.to_owned() }));
    }
    remove_staging(dir, staging, top)?;
    Ok(report)
}
