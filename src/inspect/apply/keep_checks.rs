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
use crate::vfs::FileKind;
use crate::writeback::{TargetObject, UndoDir, check_copy, effective_user, may_link};

/// The user who can read and make all objects.
const ROOT: u32 = 0;

/// Whether a plan changes nothing but times of directories, which follow from their entries.
/// Attributes that a file already has are no change.
pub(super) fn changes_nothing(place: &ApplyTarget<'_>, plan: &ApplyPlan) -> Result<bool> {
    Ok(plan.writes_nothing() || sets_only_times(place, &plan.steps)?)
}

fn sets_only_times(place: &ApplyTarget<'_>, steps: &Steps) -> Result<bool> {
    if !steps.takes.is_empty() || !steps.puts.is_empty() {
        return Ok(false);
    }
    for set in &steps.sets {
        let now = place.target.object(&set.path)?;
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
    place: &ApplyTarget<'_>,
    plan: &ApplyPlan,
    shown: Option<&ApplyPlan>,
    options: &ApplyOptions,
) -> Result<()> {
    check_consent(plan, shown, options)?;
    match options.keep {
        Some(limit) if !changes_nothing(place, plan)? => {
            check_keeping(opened.session().id(), place, plan, limit)
        }
        _ => Ok(()),
    }
}

/// Refuses to keep what a plan replaces and removes if that would lose what is kept already, or if
/// it cannot be done.
fn check_keeping(
    session: &str,
    place: &ApplyTarget<'_>,
    plan: &ApplyPlan,
    limit: u64,
) -> Result<()> {
    refuse_taken_back(place, session)?;
    check_room(place, plan.kept_bytes, limit)?;
    check_copies(place, &plan.steps)?;
    check_writable(place)
}

/// Refuses if the undo directory has the only copy of changes that were taken back.
fn refuse_taken_back(place: &ApplyTarget<'_>, session: &str) -> Result<()> {
    // An undo directory that cannot be used is refused later, by [`check_writable`]. After an apply
    // to a copy, the session still has its changes.
    let Ok(Some(dir)) = UndoDir::open(&place.undo_dir(), false) else { return Ok(()) };
    let is_only_here = |record: &Record| {
        let is_of_base = !place.is_copy() && place.is_of(record);
        record.is_taken_back && record.session == session && is_of_base
    };
    match read(&dir)?.filter(is_only_here) {
        Some(record) if !record.changes_nothing() => Err(InspectError::Refused {
            what:
                "the last apply was taken back, and only the copies kept for undo have its changes"
                    .to_owned(),
            advice: ApplyAdvice::RedoOrGiveUp,
        }),
        _ => Ok(()),
    }
}

/// Refuses an apply that would lose the changes of an earlier one that was taken back: only
/// [`undo`](super::undo()) can restore these changes.
///
/// # Errors
/// The apply would lose such changes, or the undo directory cannot be read.
pub fn check_not_taken_back(
    opened: &OpenSession,
    to: Option<&Path>,
    plan: &ApplyPlan,
) -> Result<()> {
    let place = ApplyTarget::open(opened, to)?;
    match changes_nothing(&place, plan)? {
        true => Ok(()),
        false => refuse_taken_back(&place, opened.session().id()),
    }
}

/// Notes that an interrupted run is to keep nothing for undo.
///
/// # Errors
/// Another apply is running, or the host refuses.
pub fn keep_nothing(opened: &OpenSession, to: Option<&Path>) -> Result<()> {
    let place = ApplyTarget::open(opened, to)?;
    match super::open(&place.target, false)? {
        Some(staging) => Ok(staging.note(Notes::KEEPS_NOTHING)?),
        None => Ok(()),
    }
}

/// Refuses if the undo directory cannot be used.
fn check_writable(place: &ApplyTarget<'_>) -> Result<()> {
    match UndoDir::open(&place.undo_dir(), true) {
        Ok(_) => Ok(()),
        Err(error) => {
            let what = format!("what is replaced and removed cannot be kept: {error}");
            Err(InspectError::Refused { what, advice: ApplyAdvice::KeepNothing })
        }
    }
}

/// Refuses to keep more than `limit` bytes, or than a filesystem other than the target's has free.
pub(super) fn check_room(place: &ApplyTarget<'_>, bytes: u64, limit: u64) -> Result<()> {
    if bytes > limit {
        let what = format!(
            "what is replaced and removed takes {bytes} bytes, more than the {limit} kept for undo"
        );
        let advice = ApplyAdvice::KeepMoreOrNothing;
        return Err(InspectError::Refused { what, advice });
    }
    let dir = place.undo_dir();
    match UndoDir::room_apart_from(&dir, place.top.dev)? {
        Some(room) if room < bytes => {
            let what = format!(
                "{}: what is replaced and removed takes {bytes} bytes, and {room} are free there",
                dir.display()
            );
            Err(InspectError::Refused { what, advice: ApplyAdvice::KeepNothing })
        }
        _ => Ok(()),
    }
}

/// Refuses to keep an object that has to be copied, and that this user cannot copy. It is copied
/// now if it goes to another filesystem or has further hard links in the target; and by an undo if
/// this user may not link it. All others are renamed, and linked by the undo.
pub(super) fn check_copies(place: &ApplyTarget<'_>, steps: &Steps) -> Result<()> {
    if effective_user() == ROOT {
        return Ok(());
    }
    let is_apart = is_kept_apart(place)?;
    let mut copied: BTreeMap<(u64, u64), (BasePath, TargetObject, u64)> = BTreeMap::new();
    each_kept(&place.target, steps, &mut |path, object| {
        if !object.is_dir() && (is_apart || object.nlink > 1 || !is_linkable(place, path, object)) {
            let first = || (path.clone(), object.clone(), 0);
            copied.entry(object.id()).or_insert_with(first).2 += 1;
        }
    })?;
    for (path, object, names) in copied.into_values() {
        let is_renamed = !is_apart && object.nlink <= names;
        if is_renamed && is_linkable(place, &path, &object) {
            continue;
        }
        if let Err(error) = check_copy(&place.target, &path, &object) {
            let path = place.shown(&path);
            let what = format!("{}: cannot be kept for undo: {}", path.display(), error.source);
            return Err(InspectError::Refused { what, advice: ApplyAdvice::KeepNothingOrLeaveOut });
        }
    }
    Ok(())
}

/// The objects that an undo would put back with another owner, or that hold such objects.
pub(super) fn lost_owners(place: &ApplyTarget<'_>, steps: &Steps) -> Result<Vec<Loss>> {
    let user = effective_user();
    if user == ROOT {
        return Ok(Vec::new());
    }
    let is_apart = is_kept_apart(place)?;
    let (mut tops, mut top) = (BTreeSet::new(), None);
    each_kept(&place.target, steps, &mut |path, object| {
        // A directory comes before its entries.
        let current = top.take().filter(|top| is_within(path, top)).unwrap_or_else(|| path.clone());
        let is_made_new = is_apart || object.is_dir() || !is_linkable(place, path, object);
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
fn is_kept_apart(place: &ApplyTarget<'_>) -> Result<bool> {
    Ok(UndoDir::room_apart_from(&place.undo_dir(), place.top.dev)?.is_some())
}

fn is_linkable(place: &ApplyTarget<'_>, path: &BasePath, object: &TargetObject) -> bool {
    object.attrs.uid == effective_user() || may_link(&place.target, path, object)
}
