//! `acetate restore --tool-call`: takes back what changed while a tool call ran.

use super::{
    CliError, Ending, RestoreOptions, SessionSource, applied_since, check_applies, check_count,
    go_back, output, print_json,
};
use crate::delta::{Checkpoint, CheckpointId};
use crate::inspect::InspectError;
use crate::inspect::opened::OpenSession;
use crate::inspect::restore::RestorePlan;
use crate::inspect::restore_call::{
    CallPlan, CallRefusal, LaterChanges, NothingLeft, RestorableCall, plan_restore_call,
};

/// Who reads a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HintReader {
    /// A user of the command.
    Shell,
    /// An agent, which has tools and no commands.
    Agent,
}

/// Takes a call back once. `None` if something changed since it was shown.
pub(super) fn run_once(
    source: &SessionSource,
    how: &RestoreOptions,
    opened: OpenSession,
    call: i64,
) -> Result<Option<Ending>, CliError> {
    let (to, plan) = match plan(source, (&opened, how.force), call, HintReader::Shell)? {
        (to, CallPlan::Restore(plan)) => (to, plan),
        (to, CallPlan::Nothing(why)) => {
            tell_nothing(&opened, &to, &why)?;
            if how.json {
                print_json(source, how, (&to, Some(call)), (0, None))?;
            }
            return Ok(Some(Ending::Findings));
        }
    };
    go_back(source, how, opened, &to, &plan)
}

/// Says why nothing is left; an apply since may have it in the base.
fn tell_nothing(opened: &OpenSession, to: &Checkpoint, why: &NothingLeft) -> Result<(), CliError> {
    if let NothingLeft::ChangedBack { call } = why
        && let Some(advice) = applied_since::advice_if_applied(opened, to)?
    {
        output::line(format_args!(
            "tool call {call}: nothing of what it changed is left in the session; changes were \
             applied to the base since"
        ));
        output::line(format_args!("hint: {advice}"));
        return Ok(());
    }
    output::line(format_args!("{why}"));
    Ok(())
}

/// As [`run_once`] without a question, for an agent: fails if nothing is left.
pub(super) fn plan_for_agent(
    source: &SessionSource,
    opened: &OpenSession,
    call: i64,
) -> Result<(Checkpoint, RestorePlan), CliError> {
    match plan(source, (opened, false), call, HintReader::Agent)? {
        (to, CallPlan::Restore(plan)) => Ok((to, plan)),
        (_, CallPlan::Nothing(why)) => Err(CliError::new(why)),
    }
}

/// The checkpoint before a call, and what would change.
fn plan(
    source: &SessionSource,
    (opened, force): (&OpenSession, bool),
    call: i64,
    reader: HintReader,
) -> Result<(Checkpoint, CallPlan), CliError> {
    let failed = |error: InspectError| {
        let hint = match (&error, reader) {
            (InspectError::CallRefused { call, why }, HintReader::Shell) => {
                Some(shell_hint(*call, why, source))
            }
            (InspectError::CallRefused { why, .. }, HintReader::Agent) => Some(agent_hint(why)),
            _ => None,
        };
        let error = CliError::from(error);
        if let Some(hint) = hint { error.with_hint(hint) } else { error }
    };
    let found = RestorableCall::find(opened.session(), call).map_err(failed)?;
    check_applies(force, opened, &found.to)?;
    let plan = plan_restore_call(opened, source.base.as_deref(), &found).map_err(failed)?;
    if let CallPlan::Restore(RestorePlan { scope: Some(scope), .. }) = &plan {
        check_count(scope.closed.count())?;
    }
    Ok((found.to, plan))
}

fn shell_hint(call: i64, why: &CallRefusal, source: &SessionSource) -> String {
    let session = source.session.display();
    match why {
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
        CallRefusal::ChangedAgain { to, later, .. }
        | CallRefusal::DirAttributes { to, later, .. } => {
            let with_them = format!(
                "`acetate restore {session} {to} PATH...` takes back what you name, together with \
                 these changes"
            );
            match newest(later) {
                None => with_them,
                Some(newest) => format!(
                    "`acetate restore {session} --tool-call {newest}` takes that call back first; \
                     {with_them}"
                ),
            }
        }
    }
}

/// What an agent gives the tool `restore` instead.
fn agent_hint(why: &CallRefusal) -> String {
    let names = |to: Option<CheckpointId>| {
        let to = to.map_or_else(|| "ID".to_owned(), |to| to.to_string());
        format!("`checkpoint: {to}, paths: [...]` takes back what you name")
    };
    match why {
        CallRefusal::NoCall { .. } => {
            "the result of a call that changes something has its number, `tool_call`".to_owned()
        }
        CallRefusal::NoBounds | CallRefusal::NoCheckpoint | CallRefusal::CheckpointRemoved(_) => {
            "`checkpoint: ID` goes back to another checkpoint, with `paths: [...]` only there; \
             checkpoint_list lists them"
                .to_owned()
        }
        CallRefusal::LogCut | CallRefusal::UnknownPath(_) => {
            format!("{}; checkpoint_list lists the checkpoints", names(None))
        }
        CallRefusal::Overlaps { to, .. } => names(*to),
        CallRefusal::ChangedAgain { to, later, .. }
        | CallRefusal::DirAttributes { to, later, .. } => {
            let with_them = format!("{}, together with these changes", names(Some(*to)));
            match newest(later) {
                None => with_them,
                Some(newest) => {
                    format!("`tool_call: {newest}` takes that call back first; {with_them}")
                }
            }
        }
    }
}

/// The newest of the later calls, if nothing else is in the way.
fn newest(later: &LaterChanges) -> Option<i64> {
    later.calls.first().filter(|_| !later.is_outside_calls).map(|call| call.id)
}
