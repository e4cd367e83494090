//! Checkpoints from before an apply: the base is no longer what they showed through.

use std::path::Path;

use super::error::CliError;
use super::{checkpoint, output};
use crate::delta::Checkpoint;
use crate::delta::sqlite::Session;
use crate::inspect::apply::{LastApply, last_apply};
use crate::inspect::opened::OpenSession;
use crate::inspect::restore::applies_since;

/// What the log says of applies to the base since a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppliedSince {
    /// There was none, or it was undone.
    No,
    /// Changes that were applied are in the base.
    Yes,
    /// The log has lost rows.
    Unknown,
}

impl AppliedSince {
    /// After so many applies; `None` if that is not known.
    pub(super) fn of(session: &Session, base: Option<&Path>, applies: Option<u64>) -> Self {
        match applies {
            None => Self::Unknown,
            Some(0) => Self::No,
            Some(1) if last_to_base(session, base).is_some_and(|last| last.is_undone) => Self::No,
            Some(_) => Self::Yes,
        }
    }

    fn find(session: &Session, base: Option<&Path>, to: &Checkpoint) -> Result<Self, CliError> {
        Ok(Self::of(session, base, applies_since(session, to)?))
    }

    /// For `--json`: `None` if it is not known.
    pub(super) fn json(self) -> Option<bool> {
        match self {
            Self::No => Some(false),
            Self::Yes => Some(true),
            Self::Unknown => None,
        }
    }
}

/// The last apply, if it was to the base.
fn last_to_base(session: &Session, base: Option<&Path>) -> Option<LastApply> {
    last_apply(session).filter(|last| last.copy(base.or_else(|| session.base_path())).is_none())
}

/// What the user can do about changes that were applied.
fn advice(session: &Session, base: Option<&Path>) -> String {
    let named = session.path().display();
    match last_to_base(session, base).is_some_and(|last| !last.is_undone) {
        true => format!(
            "`acetate apply --undo {named}` undoes the last apply; --force goes on over the base \
             as it is"
        ),
        false => "nothing is kept of it for `acetate apply --undo`; --force goes on over the base \
                  as it is"
            .to_owned(),
    }
}

/// What the user can do about changes that were applied to the base since a checkpoint; `None` if
/// none were, or that is not known.
pub(super) fn advice_if_applied(
    opened: &OpenSession,
    to: &Checkpoint,
) -> Result<Option<String>, CliError> {
    let (session, base) = (opened.session(), opened.base_path());
    if AppliedSince::find(session, base, to)? != AppliedSince::Yes {
        return Ok(None);
    }
    let named = session.path().display();
    Ok(Some(match last_to_base(session, base).is_some_and(|last| !last.is_undone) {
        true => format!("`acetate apply --undo {named}` takes the last apply out of the base"),
        false => "nothing is kept of it for `acetate apply --undo`".to_owned(),
    }))
}

/// Refuses to go on across an apply to the base since a checkpoint.
pub(super) fn check(
    session: &Session,
    base: Option<&Path>,
    to: &Checkpoint,
) -> Result<(), CliError> {
    match AppliedSince::find(session, base, to)? {
        AppliedSince::No => Ok(()),
        AppliedSince::Yes => {
            let named = session.path().display();
            let what = format!("changes of {named} were applied to the base since the checkpoint");
            Err(CliError::new(what).with_hint(advice(session, base)))
        }
        AppliedSince::Unknown => {
            let what = "the log has lost changes since the checkpoint, so it does not tell whether \
                        any were applied to the base";
            Err(CliError::new(what).with_hint("--force continues all the same"))
        }
    }
}

/// Refuses to undo an apply, which `acetate undo` does not take back; `to` is the newest checkpoint
/// after which anything changed.
pub(super) fn check_undo(opened: &OpenSession, to: &Checkpoint) -> Result<(), CliError> {
    let (session, base) = (opened.session(), opened.base_path());
    if AppliedSince::find(session, base, to)? != AppliedSince::Yes {
        return Ok(());
    }
    let what = "the last step has an apply in it, which wrote to the base";
    let named = session.path().display();
    let hint = match last_to_base(session, base).is_some_and(|last| !last.is_undone) {
        true => format!(
            "`acetate apply --undo {named}` takes it out of the base; then `acetate undo {named}` \
             brings the changes back into the session"
        ),
        false => advice(session, base),
    };
    Err(CliError::new(what).with_hint(hint))
}

/// Warns that the tree at a checkpoint is shown over a base to which changes were applied since.
pub(super) fn warn(opened: &OpenSession, at: &Checkpoint) -> Result<(), CliError> {
    let Some(base) = opened.base_path() else { return Ok(()) };
    if AppliedSince::find(opened.session(), Some(base), at)? == AppliedSince::Yes {
        output::line(format_args!(
            "warning: changes were applied to the base since checkpoint {}: what the session had \
             not changed by then shows as it is in the base now",
            checkpoint::called(at)
        ));
    }
    Ok(())
}
