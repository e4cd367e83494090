//! The checkpoint before a command changes something that a user may want back.

use std::collections::BTreeMap;

use crate::cli::change::SessionChanger;
use crate::cli::error::CliError;
use crate::cli::output;
use crate::control::{Answer, CheckpointText, Request};
use crate::delta::{CheckpointKind, MergedPath};
use crate::inspect::discard::has_room_to_keep;
use crate::inspect::opened::OpenSession;

/// What a command is about to change.
#[derive(Debug)]
pub(in crate::cli) struct StepToKeep {
    /// What it does.
    name: String,
    /// Whether the disk has room for what the checkpoint keeps of it.
    has_room: bool,
}

impl StepToKeep {
    /// A step that drops the session's changes at these paths.
    pub(in crate::cli) fn new(name: String, opened: &OpenSession, paths: &[MergedPath]) -> Self {
        // Where it cannot be counted, the step must not fail for it.
        let has_room = has_room_to_keep(opened, paths).unwrap_or(false);
        Self { name, has_room }
    }
}

/// The checkpoint of the tree before the requests of a command.
#[derive(Debug, Default)]
pub(in crate::cli) struct StepCheckpoint {
    /// The id; `None` without one.
    id: Option<i64>,
    /// Whether this command made it.
    is_new: bool,
}

impl StepCheckpoint {
    /// Makes a checkpoint of kind `safety`, unless nothing changed since the newest. A full disk is
    /// only warned of: the command may free some. None is made if the session's server makes none
    /// without being asked and the session has none.
    pub(in crate::cli) fn make(
        changer: &mut SessionChanger,
        step: &StepToKeep,
    ) -> Result<Self, CliError> {
        if !step.has_room {
            warn_of_no_room();
            return Ok(Self::default());
        }
        let labels = BTreeMap::from([("before".to_owned(), step.name.clone())]);
        let kind = CheckpointKind::Safety.as_str().to_owned();
        let new = CheckpointText { name: None, kind, labels, reuses: true };
        match changer.perform(Request::CreateCheckpoint(new), None)? {
            Ok(Answer::Checkpoint(Some(id))) => Ok(Self { id: Some(id), is_new: true }),
            Ok(Answer::CheckpointReused(id)) => Ok(Self { id: Some(id), is_new: false }),
            Ok(Answer::CheckpointsOff) => {
                output::line(format_args!(
                    "no checkpoint before it: the session's server makes none (--checkpoints off)"
                ));
                Ok(Self::default())
            }
            Ok(_) => Err(CliError::new("unexpected reply from the session's server")),
            Err(refusal) if refusal.is_full => {
                warn_of_no_room();
                Ok(Self::default())
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// The id of the checkpoint with the tree before.
    pub(in crate::cli) fn id(&self) -> Option<i64> {
        self.id
    }

    /// Performs a request of the command. If there is no room for what the checkpoint would keep,
    /// the checkpoint goes: a command that needed no room without it needs none.
    pub(in crate::cli) fn ask(
        &mut self,
        changer: &mut SessionChanger,
        request: Request,
    ) -> Result<Answer, CliError> {
        let refusal = match changer.perform(request.clone(), None)? {
            Err(refusal) if refusal.is_full && self.is_new => refusal,
            done => return Ok(done?),
        };
        let Some(id) = self.id.take() else { return Err(refusal.into()) };
        self.is_new = false;
        if changer.perform(Request::RemoveCheckpoint(id), None)?.is_err() {
            return Err(refusal.into());
        }
        warn_of_no_room();
        changer.ask(request)
    }
}

fn warn_of_no_room() {
    output::line(format_args!(
        "warning: the disk has no room for a checkpoint: `acetate undo` cannot take this back"
    ));
}
