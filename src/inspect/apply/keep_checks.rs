//! Checks whether an apply can keep what it replaces and removes, and whether that may replace what
//! an earlier apply kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::advice::ApplyAdvice;
use super::consent::check_consent;
use super::journal::Notes;
use super::keep::{each_kept, read};
use super::plan::{ApplyOptions, ApplyPlan, Loss};
use super::record::Record;
use super::steps::Steps;
use super::target_dir::{ApplyTarget, is_within};
use crate::base::BasePath;
use crate::delta::MergedPath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::inspect::sizes::with_unit;
use crate::system_error::words;
use crate::vfs::FileKind;
use crate::writeback::{TargetObject, UndoDir, check_copy, effective_user, may_link};

/// The user who can read and make all objects.
const ROOT: u32 = 0;

/// Whether a plan changes nothing but times of directories, which follow from their entries.
/// Attributes that a file already has are no change.
pub(super) fn changes_nothing(target: &ApplyTarget<'_>, plan: &ApplyPlan) -> Result<bool> {
    Ok(plan.writes_nothing() || sets_only_times(target, &plan.steps)?)
}

fn sets_only_times(target: &ApplyTarget<'_>, steps: &Steps) -> Result<bool> {
    if !steps.takes.is_empty() || !steps.puts.is_empty() {
        return Ok(false);
    }
    for set in &steps.sets {
        let now = target.dir.object(&set.path)?;
        let is_dir = set.attrs.kind == FileKind::Directory;
        let is_same = now.is_some_and(|now| {
            now.attrs.has_rights_of(&set.attrs) && (is_dir || now.attrs.mtime == set.attrs.mtime)
        });
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Refuses a plan without consent, and one whose replaced objects cannot be kept.
pub(super) fn check_allowed(
    opened: &OpenSession,
    target: &ApplyTarget<'_>,
    plan: &ApplyPlan,
    shown: Option<&ApplyPlan>,
    options: &ApplyOptions,
) -> Result<()> {
    check_consent(plan, shown, options)?;
    match options.keep {
        Some(limit) if !changes_nothing(target, plan)? => {
            check_keeping(opened.session().id(), target, plan, limit)
        }
        _ => Ok(()),
    }
}

/// Refuses to keep what a plan replaces and removes if that would lose what is kept already, or if
/// it cannot be done.
fn check_keeping(
    session: &str,
    target: &ApplyTarget<'_>,
    plan: &ApplyPlan,
    limit: u64,
) -> Result<()> {
    refuse_taken_back(target, session)?;
    check_room(target, plan.kept_bytes, limit)?;
    check_copies(target, &plan.steps)?;
    check_writable(target)
}

/// Refuses if the undo directory has the only copy of changes that were undone.
fn refuse_taken_back(target: &ApplyTarget<'_>, session: &str) -> Result<()> {
    // An undo directory that cannot be used is refused later, by [`check_writable`]. After an apply
    // to a copy, the session still has its changes.
    let Ok(Some(dir)) = UndoDir::open(&target.undo_dir(), false) else { return Ok(()) };
    let is_only_here = |record: &Record| {
        let is_of_base = !target.is_copy() && target.is_of(record);
        record.is_undone && record.session == session && is_of_base
    };
    match read(&dir)?.filter(is_only_here) {
        Some(record) if !record.changes_nothing() => Err(InspectError::Refused {
            what: "the last apply was undone, and only the copies kept for undo have its changes"
                .to_owned(),
            advice: ApplyAdvice::RedoOrGiveUp,
        }),
        _ => Ok(()),
    }
}

/// Refuses an apply that would lose the changes of an earlier one that was undone: only
/// [`undo`](super::undo()) can restore these changes.
///
/// # Errors
/// The apply would lose such changes, or the undo directory cannot be read.
pub fn check_not_undone(opened: &OpenSession, to: Option<&Path>, plan: &ApplyPlan) -> Result<()> {
    let target = ApplyTarget::open(opened, to)?;
    match changes_nothing(&target, plan)? {
        true => Ok(()),
        false => refuse_taken_back(&target, opened.session().id()),
    }
}

/// Notes that an interrupted run is to keep nothing for undo.
///
/// # Errors
/// Another apply is running, or the host refuses.
pub fn keep_nothing(opened: &OpenSession, to: Option<&Path>) -> Result<()> {
    let target = ApplyTarget::open(opened, to)?;
    match super::open(&target.dir, false)? {
        Some(staging) => Ok(staging.note(Notes::KEEPS_NOTHING)?),
        None => Ok(()),
    }
}

/// Refuses if the undo directory cannot be used.
fn check_writable(target: &ApplyTarget<'_>) -> Result<()> {
    match UndoDir::open(&target.undo_dir(), true) {
        Ok(_) => Ok(()),
        Err(error) => {
            let what = format!("what is replaced and removed cannot be kept: {error}");
            Err(InspectError::Refused { what, advice: ApplyAdvice::KeepNothing })
        }
    }
}

/// Refuses to keep more than `limit` bytes, or than a filesystem other than the target's has free.
pub(super) fn check_room(target: &ApplyTarget<'_>, bytes: u64, limit: u64) -> Result<()> {
    if bytes > limit {
        let what = format!(
            "keeping {} for undo exceeds the limit of {}",
            with_unit(bytes),
            with_unit(limit)
        );
        let advice = ApplyAdvice::KeepMoreOrNothing;
        return Err(InspectError::Refused { what, advice });
    }
    let dir = target.undo_dir();
    match UndoDir::room_apart_from(&dir, target.top.dev)? {
        Some(room) if room < bytes => {
            let what = format!(
                "{}: keeping {} for undo exceeds the free space of {}",
                dir.display(),
                with_unit(bytes),
                with_unit(room)
            );
            Err(InspectError::Refused { what, advice: ApplyAdvice::KeepNothing })
        }
        _ => Ok(()),
    }
}

/// Refuses to keep an object that has to be copied, and that this user cannot copy. It is copied
/// now if it goes to another filesystem or has further hard links in the target; and by an undo if
/// this user may not link it. All others are renamed, and linked by the undo.
pub(super) fn check_copies(target: &ApplyTarget<'_>, steps: &Steps) -> Result<()> {
    if effective_user() == ROOT {
        return Ok(());
    }
    let is_apart = is_kept_apart(target)?;
    let mut copied: BTreeMap<(u64, u64), (BasePath, TargetObject, u64)> = BTreeMap::new();
    each_kept(&target.dir, steps, &mut |path, object| {
        if !object.is_dir() && (is_apart || object.nlink > 1 || !is_linkable(target, path, object))
        {
            let first = || (path.clone(), object.clone(), 0);
            copied.entry(object.id()).or_insert_with(first).2 += 1;
        }
    })?;
    for (path, object, names) in copied.into_values() {
        let is_renamed = !is_apart && object.nlink <= names;
        if is_renamed && is_linkable(target, &path, &object) {
            continue;
        }
        if let Err(error) = check_copy(&target.dir, &path, &object) {
            let path = target.shown(&path);
            let why = words(&error.source);
            let what = format!("{}: cannot be kept for undo: {why}", path.display());
            return Err(InspectError::Refused { what, advice: ApplyAdvice::KeepNothingOrLeaveOut });
        }
    }
    Ok(())
}

/// The objects that an undo would put back with another owner, or that hold such objects.
pub(super) fn lost_owners(target: &ApplyTarget<'_>, steps: &Steps) -> Result<Vec<Loss>> {
    let user = effective_user();
    if user == ROOT {
        return Ok(Vec::new());
    }
    let is_apart = is_kept_apart(target)?;
    let (mut tops, mut top) = (BTreeSet::new(), None);
    each_kept(&target.dir, steps, &mut |path, object| {
        // A directory comes before its entries.
        let current = top.take().filter(|top| is_within(path, top)).unwrap_or_else(|| path.clone());
        let is_made_new = is_apart || object.is_dir() || !is_linkable(target, path, object);
        if object.attrs.uid != user && is_made_new {
            tops.insert(current.clone());
        }
        top = Some(current);
    })?;
    let loss = |top: &BasePath| Loss {
        path: MergedPath::of_base(top),
        names: vec!["owners".to_owned()],
        why: "an undo can put back only copies of other users' objects",
    };
    Ok(tops.iter().map(loss).collect())
}

/// Whether what is kept goes to another filesystem.
fn is_kept_apart(target: &ApplyTarget<'_>) -> Result<bool> {
    Ok(UndoDir::room_apart_from(&target.undo_dir(), target.top.dev)?.is_some())
}

fn is_linkable(target: &ApplyTarget<'_>, path: &BasePath, object: &TargetObject) -> bool {
    object.attrs.uid == effective_user() || may_link(&target.dir, path, object)
}
