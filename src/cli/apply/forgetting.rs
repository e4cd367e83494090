//! Drops applied changes from the session.

use crate::cli::change::{SessionChanger, change_and_sync};
use crate::cli::checkpoint::before_step::{StepCheckpoint, StepToKeep};
use crate::cli::error::{CliError, CliErrorKind};
use crate::cli::output;
use crate::cli::source::SessionSource;
use crate::control::{self, Answer, Reading, Request, limits};
use crate::delta::{BEFORE_APPLY, Ino, MergedPath, PendingCopies};
use crate::inspect::InspectError;
use crate::inspect::apply::{AppliedChange, ApplyAdvice, DroppedCopy, SessionUpdater};
use crate::inspect::opened::OpenSession;
use crate::overlay::CopyStep;

/// Runs `f` with a changer of the session, and syncs. A server that is killed after `f` has lost
/// nothing, so the apply is complete.
pub(super) fn with_changer<T>(
    source: &SessionSource,
    f: impl FnOnce(&mut SessionChanger) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let (done, synced) = change_and_sync(source, f)?;
    match synced {
        Err(error) if error.kind() == CliErrorKind::Disconnected => {
            output::line(format_args!(
                "warning: {error}: the session is not synced, and a crash of the machine may bring \
                 back what it dropped"
            ));
            Ok(done)
        }
        synced => synced.map(|()| done),
    }
}

/// Drops applied changes from the session, itself or through its server.
pub(super) struct Forgetting<'a> {
    changer: &'a mut SessionChanger,
    /// The checkpoint of the tree before.
    before: StepCheckpoint,
}

impl SessionUpdater for Forgetting<'_> {
    fn copy(&mut self, from: Ino) -> Result<CopyStep, InspectError> {
        let failed = |why: &dyn std::fmt::Display| InspectError::Refused {
            what: format!("cannot copy what large files still have in the base: {why}"),
            advice: ApplyAdvice::MendAndRepeat,
        };
        match self.ask(Request::Copy { from: from.0 }) {
            Ok(Answer::Copied { next, has_copied, files, bytes }) => {
                let left = PendingCopies { files, bytes };
                Ok(CopyStep { next: next.map(Ino), has_copied, left })
            }
            Ok(_) => Err(failed(&"unexpected reply from the session's server")),
            // The next run copies by itself.
            Err(error) if error.kind() == CliErrorKind::Disconnected => Err(ended_early(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    fn forget(
        &mut self,
        applied: &[AppliedChange],
        is_first: bool,
    ) -> Result<Vec<MergedPath>, InspectError> {
        let (parts, applied): (Vec<_>, Vec<_>) =
            applied.iter().partition(|applied| applied.part.is_some());
        let mut requests = AppliedChange::in_requests(applied, limits::MAX_PATHS).into_iter();
        let mut all_kept = Vec::new();
        let forgotten = requests.try_for_each(|some| {
            let applied = some.into_iter().map(|applied| message(applied, is_first)).collect();
            if let Answer::Rebased { kept } =
                self.ask(Request::Rebase { applied, is_closing: false })?
            {
                all_kept.extend(kept.iter().filter_map(|path| path.merged().ok()));
            }
            Ok(())
        });
        let forgotten = forgotten
            .and_then(|()| parts.iter().try_for_each(|applied| self.keep_rest(applied, is_first)));
        forgotten.map_err(not_dropped)?;
        Ok(all_kept)
    }

    fn forget_closed(&mut self, applied: &[AppliedChange]) -> Result<(), InspectError> {
        for some in applied.chunks(limits::MAX_PATHS) {
            let applied = some.iter().map(|applied| message(applied, false)).collect();
            self.ask(Request::Rebase { applied, is_closing: true }).map_err(not_dropped)?;
        }
        Ok(())
    }

    fn settle_moves(&mut self) -> Result<(), InspectError> {
        self.ask(Request::SettleMoves).map(drop).map_err(|error| InspectError::Refused {
            what: format!("the session cannot drop moves that the base made too: {error}"),
            advice: ApplyAdvice::MendAndStartOver,
        })
    }

    fn drop_unchanged(&mut self, copies: &[DroppedCopy]) {
        // Entries before their directory.
        for some in copies.rchunks(limits::MAX_PATHS) {
            let copies = some.iter().map(|dropped| (&dropped.copy).into());
            if let Err(error) = self.ask(Request::DropUnchanged { copies: copies.collect() }) {
                tracing::warn!(%error, "copies in which nothing changed stay in the session");
                return;
            }
        }
    }
}

impl<'a> Forgetting<'a> {
    /// Drops changes without a checkpoint of its own.
    pub(super) fn new(changer: &'a mut SessionChanger) -> Self {
        Self { changer, before: StepCheckpoint::default() }
    }

    /// Makes a checkpoint of the session's changes first.
    pub(super) fn after_checkpoint(
        changer: &'a mut SessionChanger,
        opened: &OpenSession,
    ) -> Result<Self, CliError> {
        let step = StepToKeep::new(BEFORE_APPLY.to_owned(), opened, &[MergedPath::root()]);
        let made = StepCheckpoint::make(changer, &step);
        let before = made.map_err(|error| match error.kind() {
            CliErrorKind::Disconnected => CliError::from(ended_early(&error)),
            _ => error,
        })?;
        Ok(Self { changer, before })
    }

    fn ask(&mut self, request: Request) -> Result<Answer, CliError> {
        self.before.ask(self.changer, request)
    }

    /// Keeps a partly applied file in the session, with the applied part as its original.
    fn keep_rest(&mut self, applied: &AppliedChange, is_first: bool) -> Result<(), CliError> {
        let Some(part) = &applied.part else { return Ok(()) };
        let attributes = part.attributes;
        let request = Request::RebasePart { applied: message(applied, is_first), attributes };
        self.changer.ask_with(request, Reading::stream(&part.content[..])).map(drop)
    }
}

/// The error if the server ended before anything was written.
fn ended_early(error: &CliError) -> InspectError {
    InspectError::Refused { what: error.to_string(), advice: ApplyAdvice::PlanAgain }
}

fn not_dropped(error: CliError) -> InspectError {
    let what = format!("the base is updated, but the session could not drop the changes: {error}");
    InspectError::Refused { what, advice: ApplyAdvice::Repeat }
}

fn message(applied: &AppliedChange, is_first: bool) -> control::AppliedObject {
    let object = |(id, time): (crate::vfs::FileId, crate::vfs::Time)| (id.0, time.secs, time.nanos);
    control::AppliedObject {
        path: (&applied.path).into(),
        from: applied.from.as_ref().map(Into::into),
        object: applied.object.map(object),
        was_entry: is_first && applied.was_entry(),
        base_ctime: applied.base_ctime.map(|time| (time.secs, time.nanos)),
        was_linked: applied.was_linked,
        not_given: applied.not_given,
        merged_content: applied.merged.content,
        merged_attributes: applied.merged.attributes,
        merged_mtime: applied.merged.mtime,
    }
}
