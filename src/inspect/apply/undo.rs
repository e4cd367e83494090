//! Undoes the last apply.
//!
//! An undo is itself an apply: it makes the objects that it puts back in staging, writes a journal,
//! and runs steps that can each be repeated. It keeps the objects that it replaces and removes, so
//! that the next undo repeats the apply.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;

use super::advice::ApplyAdvice;
use super::journal::Journal;
use super::keep;
use super::keep_checks;
use super::kept_hard_links::below;
use super::locked_dirs::{self, OpenedDir, add_before, while_open};
use super::plan::Loss;
use super::record::{PlacedDescendant, Record};
use super::stage::Staged;
use super::steps::AppliedChange;
use super::target_dir::ApplyTarget;
use super::undo_change;
use super::undo_links::{FurtherNames, NOT_FOUND};
use super::undo_plan::{Restore, UndoOptions, UndoPlan, UndoPlanner};
use super::{ApplyEvent, ApplyWatch, LostLink, Report, SessionUpdater, Skipped};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::overlay::MergedParts;
use crate::system_error::words;
use crate::writeback::{Cloner, Hooks, Staging, StagingDir, TargetObject, UndoDir};

/// Plans the undo of the last apply; `None` if no apply is kept.
///
/// # Errors
/// That apply was to another directory, or the kept objects or the target cannot be read.
pub fn plan_undo(
    opened: &OpenSession,
    to: Option<&Path>,
    options: &UndoOptions,
) -> Result<Option<UndoPlan>> {
    let target = ApplyTarget::open(opened, to)?;
    locked_dirs::check_top_is_open(target.dir.path(), &target.host_top)?;
    let Some((dir, record)) = kept(opened, &target)? else { return Ok(None) };
    let plan = |opened: &[OpenedDir]| make_plan(&target, (&dir, &record), options, opened);
    while_open(&target, (&dir, &record), plan).map(Some)
}

/// Undoes the last apply as in the plan `shown`; without one, as it is planned now.
///
/// # Errors
/// As [`plan_undo`]; an object changed since the apply, or since the plan was shown; there is no
/// room to keep the replaced objects; or the host refuses. Unless the error is
/// [`InspectError::Unfinished`], nothing has changed.
pub fn undo(
    opened: &OpenSession,
    to: Option<&Path>,
    options: &UndoOptions,
    shown: Option<&UndoPlan>,
    mut updater: Option<&mut dyn SessionUpdater>,
    watch: &mut ApplyWatch<'_>,
) -> Result<Report> {
    let target = ApplyTarget::open(opened, to)?;
    locked_dirs::check_top_is_open(target.dir.path(), &target.host_top)?;
    let mut staging = super::open_new(&target)?;
    let prepared = prepare(opened, &target, options, shown, &mut staging, watch);
    let begun = prepared.and_then(|prepared| {
        let Some((journal, staged)) = prepared else { return Ok(None) };
        super::begin(&staging, &journal, &staged, updater.as_deref_mut(), watch)
            .map(|begun| begun.then_some((journal, staged)))
    });
    match begun {
        Ok(Some((journal, staged))) => {
            super::run_journal(opened, &target, staging, &journal, staged, updater, watch)
        }
        given_up => super::end_before_journal(&target, staging, given_up.map(drop)),
    }
}

/// The undo directory and the record of this session's last apply to this target.
fn kept(opened: &OpenSession, target: &ApplyTarget<'_>) -> Result<Option<(UndoDir, Record)>> {
    let Some(dir) = UndoDir::open(&target.undo_dir(), false)? else { return Ok(None) };
    let Some(record) = keep::read(&dir)? else { return Ok(None) };
    if record.session != opened.session().id() {
        let what = format!("{}: kept by another session of this name", dir.path().display());
        let advice = ApplyAdvice::NextApplyDeletes;
        return Err(InspectError::Refused { what, advice });
    }
    if !target.is_of(&record) {
        let (applied, asked) = (record.target.display(), target.dir.path().display());
        let mut what = format!("the last apply was to {applied}, and not to {asked}");
        let advice = match (record.target.is_dir(), target.is_copy()) {
            (true, true) => ApplyAdvice::NameLastTargetOrNone,
            (true, false) => ApplyAdvice::NameLastTarget,
            (false, _) => {
                what.push_str(&format!(", and {applied} is gone"));
                ApplyAdvice::KeptUntilNextApply
            }
        };
        return Err(InspectError::Refused { what, advice });
    }
    Ok(Some((dir, record)))
}

fn make_plan(
    target: &ApplyTarget<'_>,
    (dir, record): (&UndoDir, &Record),
    options: &UndoOptions,
    opened: &[OpenedDir],
) -> Result<UndoPlan> {
    let mut planner = UndoPlanner::new(target, record, options, opened);
    planner.note_missing(dir)?;
    let mut plan = planner.make()?;
    if options.keep.is_some() {
        plan.kept_bytes = keep::measure(target, &plan.steps)?;
    }
    undo_change::count_held(target, (dir, record), &mut plan)?;
    Ok(plan)
}

/// Makes the objects to place; `None` if `watch` broke it off.
fn prepare(
    opened: &OpenSession,
    target: &ApplyTarget<'_>,
    options: &UndoOptions,
    shown: Option<&UndoPlan>,
    staging: &mut Staging,
    watch: &mut ApplyWatch<'_>,
) -> Result<Option<(Journal, Staged)>> {
    staging.clear()?;
    let begun = staging.made_at()?;
    let Some((dir, record)) = kept(opened, target)? else {
        return refused("nothing of an apply is kept any more".to_owned());
    };
    while_open(target, (&dir, &record), |dirs| {
        let watch = (&*staging, watch);
        let mut prepared = prepare_open(target, (&dir, &record), options, (shown, dirs), watch)?;
        if let Some((journal, _)) = &mut prepared {
            journal.session = opened.session().id().to_owned();
            journal.file = opened.session().path().display().to_string();
            journal.begun = begun;
        }
        Ok(prepared)
    })
}

fn refused<T>(what: String) -> Result<T> {
    Err(InspectError::Refused { what, advice: ApplyAdvice::PlanAgain })
}

/// As [`prepare`], while the directories `opened` are open.
fn prepare_open(
    target: &ApplyTarget<'_>,
    (dir, record): (&UndoDir, &Record),
    options: &UndoOptions,
    (shown, opened): (Option<&UndoPlan>, &[OpenedDir]),
    (staging, watch): (&Staging, &mut ApplyWatch<'_>),
) -> Result<Option<(Journal, Staged)>> {
    let plan = make_plan(target, (dir, record), options, opened)?;
    let is_other =
        |shown: &UndoPlan| shown.changes != plan.changes || shown.drifted != plan.drifted;
    if shown.is_some_and(is_other) {
        return refused("the directory changed after the plan was shown".to_owned());
    }
    let may_stay = options.force || options.skip_drifted;
    if let Some(drift) = plan.drifted.first().filter(|_| !may_stay) {
        return refused(format!("{}: {}", drift.path.display(), drift.why));
    }
    if let Some(limit) = options.keep {
        keep_checks::check_room(target, plan.kept_bytes, limit)?;
        keep_checks::check_copies(target, &plan.steps)?;
    }
    let mut staged = Staged::default();
    let restored = restore(target, (dir, record), &plan, (staging, &mut staged), watch)?;
    if restored.is_break() {
        return Ok(None);
    }
    let mut before = Vec::new();
    if options.keep.is_some() {
        before = keep::note_before(target, &plan.steps)?;
        add_before(&mut before, opened);
    }
    staged.skipped = left_out(&plan);
    let paths = plan.paths_by_change();
    let changes = record.changes.iter().enumerate().map(|(number, path)| AppliedChange {
        path: path.clone(),
        from: None,
        object: None,
        planned: None,
        base_ctime: None,
        was_linked: false,
        not_given: None,
        merged: MergedParts::default(),
        is_whole: true,
        part: None,
        paths: paths.get(&number).copied().unwrap_or(0),
    });
    let mut steps = plan.steps;
    steps.note_made(target, options.keep.is_some())?;
    let journal = Journal {
        top_id: Some(target.id()),
        top: plan.top,
        top_from: Some(target.host_top.clone()),
        keeps: options.keep.is_some(),
        is_undo: true,
        is_redo: record.is_undone,
        leaves_kept: false,
        changes: changes.collect(),
        before,
        inside: inside(target, &plan.restores)?,
        lost_links: staged.lost_links.drain(..).collect(),
        opened: opened.to_vec(),
        steps,
        ..Journal::default()
    };
    Ok(Some((journal, staged)))
}

/// The descendants of restored directories, by their paths after the undo.
fn inside(target: &ApplyTarget<'_>, restores: &[Restore]) -> Result<Vec<PlacedDescendant>> {
    let mut inside = Vec::new();
    for restore in restores {
        let top = Staging::path_of(StagingDir::New, restore.slot);
        let mut made = Vec::new();
        target.dir.walk(&top, &mut |path, object| {
            if *path != top {
                made.push((path.clone(), object.clone()));
            }
            true
        })?;
        for (staged, object) in made {
            let below = &staged.as_bytes()[top.as_bytes().len()..];
            let path = [restore.path.as_bytes(), below].concat();
            let path = BasePath::from_bytes(&path).unwrap_or_default();
            let digest = keep::digest(&target.dir, &staged, &object)?;
            let TargetObject { seen, attrs, .. } = object;
            let (mode, owner) = (attrs.mode, Some((attrs.uid, attrs.gid)));
            inside.push(PlacedDescendant { path, seen, mode, owner, digest });
        }
    }
    Ok(inside)
}

/// The changes that are left out, with the reasons.
fn left_out(plan: &UndoPlan) -> Vec<(Option<usize>, Skipped)> {
    let drifted = plan.drifted.iter().filter(|drift| plan.left_out.contains(&drift.change));
    let drifted = drifted.map(|drift| {
        let skipped = Skipped { path: drift.path.clone(), why: drift.why.to_owned() };
        (Some(drift.change), skipped)
    });
    let holders = plan.holder_changes.iter().zip(&plan.holders);
    drifted.chain(holders.map(|(change, holder)| (Some(*change), holder.clone()))).collect()
}

/// Copies the kept objects to staging; `Break` if `watch` broke it off.
fn restore(
    target: &ApplyTarget<'_>,
    (dir, record): (&UndoDir, &Record),
    plan: &UndoPlan,
    (staging, staged): (&Staging, &mut Staged),
    watch: &mut ApplyWatch<'_>,
) -> Result<ControlFlow<()>> {
    let links = FurtherNames::find(target, record)?;
    let later: HashSet<&BasePath> = record.before.iter().map(|before| &before.path).collect();
    let puts = plan.steps.puts.iter().filter(|put| put.dir == StagingDir::New);
    let changes: HashMap<_, _> = puts.map(|put| (put.slot, put.change)).collect();
    let mut cloner = Cloner::linking(staging);
    let all = plan.restores.len() as u64;
    for (done, restore) in plan.restores.iter().enumerate() {
        if watch(ApplyEvent::Making { done: done as u64, all }).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let from = UndoDir::place(&record.round(), &restore.name);
        let to = Staging::path_of(StagingDir::New, restore.slot);
        let hooks = Hooks {
            later: &|path| later.contains(&below(&restore.path, path)),
            other_name: &|path| links.name_of(restore.kept, path),
        };
        cloner.copy((dir.target(), &from), (&target.dir, &to), hooks)?;
        let refused = cloner.lost_links.drain(..).map(|(path, error)| {
            (path, format!("the host refuses a hard link: {}", words(&error)))
        });
        staged.losses.extend(cloner.lost.drain(..).map(|(path, names)| Loss {
            path: MergedPath::of_base(&below(&restore.path, &path)),
            names,
            why: "the host refuses it",
        }));
        let not_found = links.not_found(restore.kept);
        let not_found = not_found.map(|path| (path.clone(), NOT_FOUND.to_owned()));
        let change = changes.get(&restore.slot).copied().unwrap_or_default();
        staged.lost_links.extend(refused.chain(not_found).map(|(path, why)| {
            let path = MergedPath::of_base(&below(&restore.path, &path));
            LostLink { path, why, change }
        }));
    }
    for unset in cloner.unset {
        staged.not_set.add(unset);
    }
    Ok(ControlFlow::Continue(()))
}
