//! Opens the staging directory of an apply, and finds an apply that has not ended.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use super::advice::ApplyAdvice;
use super::journal::Journal;
use super::journal_of;
use super::locked_dirs::close_left_open;
use super::step_runner::steps_left;
use super::target_dir::ApplyTarget;
use crate::base::BasePath;
use crate::inspect::InspectError;
use crate::inspect::error::Result;
use crate::inspect::opened::OpenSession;
use crate::system_error::words;
use crate::writeback::{Staging, Target, TargetError};

/// An apply, or undo, to a session's base that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnfinishedApply {
    /// Its process was killed or stopped; the next apply finishes it.
    Interrupted,
    /// The same, of another session; its file, if the journal can be read.
    InterruptedOther(Option<String>),
    /// Another process is running it.
    Running,
}

impl fmt::Display for UnfinishedApply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("an apply of this session was interrupted"),
            Self::InterruptedOther(Some(file)) => {
                write!(f, "an apply of {file} to the same base was interrupted")
            }
            Self::InterruptedOther(None) => {
                f.write_str("an apply of another session to the same base was interrupted")
            }
            Self::Running => f.write_str("an apply to the base is running"),
        }
    }
}

/// The unfinished apply to the session's base, of this or another session, if there is one. Until
/// it ends, objects that it moves are in its staging, and the base holds some of its changes, which
/// look like drift. `None` also if the base cannot be read.
pub fn unfinished(opened: &OpenSession) -> Option<UnfinishedApply> {
    opened.base_path()?;
    let target = ApplyTarget::open(opened, None).ok()?;
    let journal = match target.dir.staging(false) {
        Ok(staging) => staging?.journal(),
        Err(error) if error.source.kind() == ErrorKind::WouldBlock => {
            return Some(UnfinishedApply::Running);
        }
        // Another user's staging cannot be opened.
        Err(_) => {
            let is_there = opened.base().has_unfinished_apply().ok()?;
            return is_there.then_some(UnfinishedApply::InterruptedOther(None));
        }
    };
    let journal = journal.transpose()?.map(Journal::read);
    Some(match journal {
        Ok(Ok(journal)) if journal.session == opened.session().id() => UnfinishedApply::Interrupted,
        Ok(Ok(journal)) => UnfinishedApply::InterruptedOther(Some(journal.file)),
        Ok(Err(_)) | Err(_) => UnfinishedApply::InterruptedOther(None),
    })
}

/// Whether `dir` is the directory of an unfinished apply of the session with this id, perhaps at
/// another path, and no copy of it. `false` also if that cannot be read.
pub fn is_unfinished_in(session: &str, dir: &Path) -> bool {
    let Ok(target) = Target::open(dir) else { return false };
    let Ok(Some(staging)) = target.staging(false) else { return false };
    let Ok(Some(journal)) = staging.journal() else { return false };
    let top = target.object(&BasePath::root()).ok().flatten();
    Journal::read(journal).is_ok_and(|journal| {
        journal.session == session && journal.top_id == top.map(|top| top.id())
    })
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
        UnfinishedApply::InterruptedOther(_) => ApplyAdvice::FinishOther,
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
    let target = ApplyTarget::open(opened, to)?;
    let Some(staging) = open(&target.dir, false)? else { return Ok(None) };
    let Some(journal) = journal_of(opened, &target.dir, &staging)? else { return Ok(None) };
    let (steps, left) = (journal.steps.len(), steps_left(&staging, &journal)?);
    Ok(Some(InterruptedApply { steps, left, is_undo: journal.is_undo }))
}

/// Opens or creates the staging, and refuses one with the journal of an interrupted run. Closes
/// directories that a killed undo left open.
pub(super) fn open_new(target: &ApplyTarget<'_>) -> Result<Staging> {
    let dir = &target.dir;
    let staging = open(dir, true)?.ok_or_else(|| vanished(dir))?;
    if staging.journal()?.is_some() {
        let what = format!("{}: an apply to it was interrupted", shown(dir));
        return Err(InspectError::Refused { what, advice: ApplyAdvice::FinishOther });
    }
    close_left_open(target)?;
    Ok(staging)
}

/// Opens the staging, and creates it if `made` is set. `None` if it does not exist. Fails while
/// another process has it open. Restores the mode that a killed run changed to read a file.
pub(super) fn open(target: &Target, made: bool) -> Result<Option<Staging>> {
    let not_written = |error: TargetError, advice| InspectError::Refused {
        what: format!("{}: cannot be written: {}", shown(target), words(&error.source)),
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
