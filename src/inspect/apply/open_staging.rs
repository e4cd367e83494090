//! Opens the staging directory of an apply, and finds an apply that has not ended.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use super::advice::ApplyAdvice;
use super::commit::steps_left;
use super::journal_of;
use super::locked_dirs::close_left_open;
use super::target_dir::ApplyTarget;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::writeback::{Staging, Target, TargetError};

/// An apply, or undo, of a session to its base that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfinishedApply {
    /// Its process was killed or stopped; the next apply finishes it.
    Interrupted,
    /// Another process is running it.
    Running,
}

impl fmt::Display for UnfinishedApply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupted => "an apply of this session was interrupted",
            Self::Running => "an apply to the base is running",
        })
    }
}

/// The unfinished apply to the session's base, if there is one. Until it ends, the base holds some
/// of the session's changes, which look like drift. `None` also if the staging cannot be read.
pub fn unfinished(opened: &OpenSession) -> Option<UnfinishedApply> {
    opened.base_path()?;
    let place = ApplyTarget::open(opened, None).ok()?;
    match place.target.staging(false) {
        Ok(staging) => {
            let journal = journal_of(opened, &place.target, &staging?).ok()?;
            journal.map(|_| UnfinishedApply::Interrupted)
        }
        Err(error) if error.source.kind() == ErrorKind::WouldBlock => {
            Some(UnfinishedApply::Running)
        }
        Err(_) => None,
    }
}

/// Refuses an operation while an apply to the base is unfinished: an object that the apply moved to
/// staging is neither in the base nor in the session.
///
/// # Errors
/// [`InspectError::Refused`]: an apply was interrupted, or is running.
pub fn check_finished(opened: &OpenSession) -> Result<()> {
    let Some(apply) = unfinished(opened) else { return Ok(()) };
    let advice = match apply {
        UnfinishedApply::Interrupted => ApplyAdvice::FinishFirst,
        UnfinishedApply::Running => ApplyAdvice::Wait,
    };
    Err(InspectError::Refused { what: apply.to_string(), advice })
}

/// The work that an interrupted run left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptedApply {
    /// The number of all steps in the journal, done or not.
    pub steps: usize,
    /// The number of steps that are to be done, or may be: the slots do not show which attributes
    /// are set.
    pub left: usize,
    /// The run is an undo.
    pub is_undo: bool,
}

/// The unfinished work of an interrupted run of this session, if there is any.
///
/// # Errors
/// The run is another session's, or cannot be read.
pub fn interrupted(opened: &OpenSession, to: Option<&Path>) -> Result<Option<InterruptedApply>> {
    let place = ApplyTarget::open(opened, to)?;
    let Some(staging) = open(&place.target, false)? else { return Ok(None) };
    let Some(journal) = journal_of(opened, &place.target, &staging)? else { return Ok(None) };
    let (steps, left) = (journal.steps.len(), steps_left(&staging, &journal)?);
    Ok(Some(InterruptedApply { steps, left, is_undo: journal.is_undo }))
}

/// Opens or creates the staging, and refuses one with the journal of an interrupted run. Closes
/// directories that a killed undo left open.
pub(super) fn open_new(place: &ApplyTarget<'_>) -> Result<Staging> {
    let target = &place.target;
    let staging = open(target, true)?.ok_or_else(|| vanished(target))?;
    if staging.journal()?.is_some() {
        let what = format!("{}: an apply to it was interrupted", shown(target));
        return Err(InspectError::Refused { what, advice: ApplyAdvice::FinishOther });
    }
    close_left_open(place)?;
    Ok(staging)
}

/// Opens the staging, and creates it if `made` is set. `None` if it does not exist. Fails while
/// another process has it open. Restores the mode that a killed run changed to read a file.
pub(super) fn open(target: &Target, made: bool) -> Result<Option<Staging>> {
    let not_written = |error: TargetError, advice| InspectError::Refused {
        what: format!("{}: cannot be written: {}", shown(target), error.source),
        advice,
    };
    let staging = target.staging(made).map_err(|error| match error.source.kind() {
        ErrorKind::WouldBlock => InspectError::Refused {
            what: format!("{}: another apply is running", shown(target)),
            advice: ApplyAdvice::Wait,
        },
        ErrorKind::ReadOnlyFilesystem => not_written(error, ApplyAdvice::MountReadWrite),
        ErrorKind::PermissionDenied if made => not_written(error, ApplyAdvice::ApplyAsOther),
        _ => error.into(),
    })?;
    staging.as_ref().map_or(Ok(()), Staging::restore_mode)?;
    Ok(staging)
}

fn vanished(target: &Target) -> InspectError {
    let path = target.path().to_owned();
    TargetError { path, source: ErrorKind::NotFound.into() }.into()
}

pub(super) fn shown(target: &Target) -> String {
    target.path().display().to_string()
}
