//! `acetate restore --tool-call`: takes back what changed while a tool call ran.

use super::{
    CliError, Ending, RestoreOptions, SessionSource, check_applies, check_count, go_back, output,
    print_json,
};
use crate::delta::Checkpoint;
use crate::inspect::InspectError;
use crate::inspect::opened::OpenSession;
use crate::inspect::restore::RestorePlan;
use crate::inspect::restore_call::{CallRefusal, RestorableCall, plan_restore_call};

/// Takes a call back once. `None` if something changed since it was shown.
pub(super) fn run_once(
    source: &SessionSource,
    how: &RestoreOptions,
    opened: OpenSession,
    call: i64,
) -> Result<Option<Ending>, CliError> {
    let (to, plan) = plan(source, (&opened, how.force), call)?;
    if plan.differences.is_empty() {
        output::line(format_args!("tool call {call}: nothing of what it changed is left"));
        if how.json {
            print_json(source, how, (&to, plan.call), (0, None))?;
        }
        return Ok(Some(Ending::Findings));
    }
    go_back(source, how, opened, &to, &plan)
}

/// The checkpoint before a call, and what would change.
pub(super) fn plan(
    source: &SessionSource,
    (opened, force): (&OpenSession, bool),
    call: i64,
) -> Result<(Checkpoint, RestorePlan), CliError> {
    let failed = |error: InspectError| {
        let hint = hint(&error, source);
        let error = CliError::from(error);
        if let Some(hint) = hint { error.with_hint(hint) } else { error }
    };
    let found = RestorableCall::find(opened.session(), call).map_err(failed)?;
    check_applies(force, opened, &found.to)?;
    let plan = plan_restore_call(opened, source.base.as_deref(), &found).map_err(failed)?;
    check_count(plan.scope.as_ref().map_or(0, |scope| scope.closed.count()))?;
    Ok((found.to, plan))
}

fn hint(error: &InspectError, source: &SessionSource) -> Option<String> {
    let InspectError::CallRefused { call, why } = error else { return None };
    let session = source.session.display();
    Some(match why {
        CallRefusal::NoCall { .. } => format!("`acetate tool ls {session}` lists them"),
        CallRefusal::NoBounds | CallRefusal::NoCheckpoint | CallRefusal::CheckpointRemoved(_) => {
            format!(
                "`acetate restore {session} CHECKPOINT [PATH...]` goes back to another checkpoint; \
             `acetate checkpoint ls {session}` lists them"
            )
        }
        CallRefusal::LogCut | CallRefusal::UnknownPath(_) | CallRefusal::Overlaps { .. } => {
            format!(
                "`acetate restore {session} CHECKPOINT PATH...` takes back what you name; \
                 `acetate tool show {session} {call}` says what changed, and the checkpoint before"
            )
        }
        CallRefusal::ChangedByOthers { to, .. } => format!(
            "`acetate restore {session} {to} PATH...` takes back what you name, together with \
             these changes"
        ),
    })
}
