//! Whether what an apply replaces and removes can be kept, and may take the place of what is kept
//! of an earlier one.

use std::path::Path;

use super::journal::Notes;
use super::keep::read;
use super::plan::ApplyPlan;
use super::record::Record;
use super::steps::Steps;
use super::target_dir::ApplyTarget;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::vfs::FileKind;
use crate::writeback::UndoDir;

/// What to do where nothing can be kept.
const NO_KEEP_HINT: &str = "--no-keep keeps nothing, and then there is no --undo";

/// Whether a plan changes nothing but times of directories, which follow what is in them. A file
/// may get what it has already.
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

/// Whether something is kept of an apply.
pub(super) fn has_record(place: &ApplyTarget<'_>) -> bool {
    let dir = UndoDir::open(&place.undo_dir(), false).ok().flatten();
    dir.is_some_and(|dir| read(&dir).is_ok_and(|record| record.is_some()))
}

/// Refuses if what is kept are the changes of an apply that was taken back: they are nowhere else.
pub(super) fn refuse_taken_back(place: &ApplyTarget<'_>, session: &str) -> Result<()> {
    // What cannot be used is refused where something is to be kept. A session keeps what is applied
    // to a copy of its base.
    let Ok(Some(dir)) = UndoDir::open(&place.undo_dir(), false) else { return Ok(()) };
    let is_only_here = |record: &Record| {
        let is_of_base = !place.is_copy() && place.is_of(record);
        record.is_taken_back && record.session == session && is_of_base
    };
    match read(&dir)?.filter(is_only_here) {
        Some(record) if !record.placed.is_empty() || !record.removed.is_empty() => {
            Err(InspectError::Refused {
                what: "the last apply was taken back, and its changes are only kept for --undo"
                    .to_owned(),
                hint: "`acetate apply --undo` applies them again; --no-keep gives them up",
            })
        }
        _ => Ok(()),
    }
}

/// Refuses an apply that would lose the changes of an earlier one that was taken back: only what is
/// kept for [`undo`](super::undo()) has them.
///
/// # Errors
/// As it says; or what is kept cannot be read.
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

/// Notes that an interrupted run keeps nothing of what it replaced and removed.
///
/// # Errors
/// Another apply is at work, or the host refuses.
pub fn keep_nothing(opened: &OpenSession, to: Option<&Path>) -> Result<()> {
    let place = ApplyTarget::open(opened, to)?;
    match super::open(&place.target, false)? {
        Some(staging) => Ok(staging.note(Notes::KEEPS_NOTHING)?),
        None => Ok(()),
    }
}

/// Refuses if nothing can be kept beside the session.
pub(super) fn check_writable(place: &ApplyTarget<'_>) -> Result<()> {
    match UndoDir::open(&place.undo_dir(), true) {
        Ok(Some(dir)) => super::locked_dirs::close_left_open(place, &dir),
        Ok(None) => Ok(()),
        Err(error) => {
            let what = format!("what is replaced and removed cannot be kept: {error}");
            Err(InspectError::Refused { what, hint: NO_KEEP_HINT })
        }
    }
}

/// Refuses to keep more than `limit` bytes, or more than there is room for.
pub(super) fn check_room(place: &ApplyTarget<'_>, bytes: u64, limit: u64) -> Result<()> {
    if bytes > limit {
        let what = format!(
            "what is replaced and removed takes {bytes} bytes, and --undo can keep {limit}"
        );
        let hint = "--keep-limit SIZE keeps more; --no-keep keeps nothing, and then there is no \
                    --undo";
        return Err(InspectError::Refused { what, hint });
    }
    let dir = place.undo_dir();
    match UndoDir::room_apart_from(&dir, place.top.dev)? {
        Some(room) if room < bytes => {
            let what = format!(
                "{}: what is replaced and removed takes {bytes} bytes, and {room} are free there",
                dir.display()
            );
            Err(InspectError::Refused { what, hint: NO_KEEP_HINT })
        }
        _ => Ok(()),
    }
}
