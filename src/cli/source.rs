//! The arguments for a session and its base.

use std::path::{Path, PathBuf};

use super::error::CliError;
use super::{applied_since, checkpoint, hints, output, text};
use crate::delta::Checkpoint;
use crate::delta::sqlite::Session;
use crate::inspect::InspectError;
use crate::inspect::apply::{UnfinishedApply, check_finished, unfinished};
use crate::inspect::opened::{OpenSession, open_session};
use crate::mounting::self_mount::base_showing_session;
use crate::workspace::layers::record_moved_base;

/// A session and its base.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SessionSource {
    /// The session file; it may be served at the same time.
    #[arg(value_name = "SESSION.db")]
    pub(super) session: PathBuf,

    /// The base directory, if it is not the one recorded in the session.
    ///
    /// A session with changes does not change over another base, except with --moved.
    #[arg(long, value_name = "DIR")]
    pub(super) base: Option<PathBuf>,

    /// Record --base as the session's base at another path, also with --dry-run.
    ///
    /// At least half of the files and links that were copied up must be there with their types and
    /// sizes.
    #[arg(long, requires = "base", hide_short_help = true)]
    moved: bool,
}

impl SessionSource {
    /// A session over the base that it records.
    pub(super) fn of(session: &Path) -> Self {
        Self { session: session.to_owned(), base: None, moved: false }
    }

    /// Opens the session and its base.
    ///
    /// # Errors
    /// One of them cannot be opened, or the path of the base shows the session itself.
    pub(super) fn open(&self) -> Result<OpenSession, CliError> {
        refuse_self_mount(&self.session, self.base.as_deref())?;
        self.record_moved()?;
        Ok(OpenSession::open(&self.session, self.base.as_deref())?)
    }

    /// The same for a command that looks before it changes something. Warns of an apply that has
    /// not ended.
    pub(super) fn open_warned(&self) -> Result<OpenSession, CliError> {
        let opened = self.open()?;
        warn_of_unfinished_apply(&opened);
        Ok(opened)
    }

    /// Records the base if it was moved; before anything else opens the session.
    ///
    /// # Errors
    /// The base is another tree, or the session cannot be changed.
    pub(super) fn record_moved(&self) -> Result<(), CliError> {
        match self.base.as_deref().filter(|_| self.moved) {
            Some(base) => Ok(record_moved_base(&self.session, base)?),
            None => Ok(()),
        }
    }
}

/// Warns of an apply that has not ended, for a command that reads the session file alone. A session
/// or base that cannot be opened has no warning.
pub(super) fn warn_if_unfinished(session: &Path, base: Option<&Path>) {
    let is_apart = matches!(base_showing_session(session, base), Ok(None));
    if is_apart && let Ok(opened) = OpenSession::open(session, base) {
        warn_of_unfinished_apply(&opened);
    }
}

fn warn_of_unfinished_apply(opened: &OpenSession) {
    let Some(apply) = unfinished(opened) else { return };
    let way_on = match apply {
        UnfinishedApply::Interrupted => "; `acetate apply` finishes it",
        UnfinishedApply::InterruptedOther(_) => "; `acetate apply` with that session finishes it",
        UnfinishedApply::Running => "",
    };
    output::line(format_args!(
        "warning: {apply}: what it wrote looks like changes of the base, and directories that it \
         moves may show empty{way_on}"
    ));
}

/// The same for a tool that only looks, and can do so without the base.
#[derive(Debug, clap::Args)]
pub(super) struct LookSource {
    /// The session file; it may be served at the same time.
    #[arg(value_name = "SESSION.db")]
    pub(super) session: PathBuf,

    /// The base directory, if it is not the one recorded in the session.
    #[arg(long, value_name = "DIR")]
    base: Option<PathBuf>,

    /// Show only what is in the session, as if the base were empty.
    #[arg(long, conflicts_with = "base", hide_short_help = true)]
    no_base: bool,
}

impl LookSource {
    /// Opens the session and its base, or the session alone with `--no-base`. Warns of an apply
    /// that has not ended.
    pub(super) fn open(&self) -> Result<OpenSession, CliError> {
        let opened = self.open_silently()?;
        warn_of_unfinished_apply(&opened);
        Ok(opened)
    }

    fn open_silently(&self) -> Result<OpenSession, CliError> {
        self.open_with(|session| Ok(open_session(session)?))
    }

    fn open_with(
        &self,
        open: impl FnOnce(&Path) -> Result<Session, CliError>,
    ) -> Result<OpenSession, CliError> {
        if self.no_base {
            return Ok(OpenSession::over_nothing(open(&self.session)?)?);
        }
        refuse_self_mount(&self.session, self.base.as_deref())?;
        let session = open(&self.session)?;
        OpenSession::over(session, self.base.as_deref()).map_err(|error| match error {
            InspectError::Base { is_recorded: true, .. } => {
                CliError::from(error).with_hint(format_args!(
                    "{}; or look at what the session holds alone with --no-base",
                    hints::MOVED_BASE
                ))
            }
            error => error.into(),
        })
    }
}

/// The same for a tool that looks at the tree, also as it was at a checkpoint.
#[derive(Debug, clap::Args)]
pub(super) struct PastSource {
    #[command(flatten)]
    now: LookSource,

    /// Show the tree as it was at this checkpoint, over the base as it is now.
    ///
    /// An id, a name, `@-1` for the newest, or a moment: see `acetate checkpoint`.
    #[arg(long, value_name = "CHECKPOINT", hide_short_help = true)]
    at: Option<String>,
}

impl PastSource {
    /// The tree of a session as it is.
    pub(super) fn of(source: &SessionSource) -> Self {
        let (session, base) = (source.session.clone(), source.base.clone());
        Self { now: LookSource { session, base, no_base: false }, at: None }
    }

    /// The checkpoint of `--at`.
    pub(super) fn at(&self) -> Option<&str> {
        self.at.as_deref()
    }

    /// As [`LookSource::open`].
    pub(super) fn open(&self) -> Result<OpenSession, CliError> {
        let opened = self.open_silently()?;
        warn_of_unfinished_apply(&opened);
        Ok(opened)
    }

    /// The same for a tool that would be wrong while an apply has not ended, which is refused.
    pub(super) fn open_settled(&self) -> Result<OpenSession, CliError> {
        let opened = self.open_silently()?;
        check_finished(&opened)?;
        Ok(opened)
    }

    /// Opens the session as [`PastSource::open`], with the tree as it was at the checkpoint that a
    /// user means; without a text, as it is now. Returns the checkpoint too. Warns if changes were
    /// applied to the base since.
    pub(super) fn open_moment(
        &self,
        text: Option<&str>,
    ) -> Result<(OpenSession, Option<Checkpoint>), CliError> {
        let mut at = None;
        let opened = self.now.open_with(|path| {
            let mut session = open_session(path)?;
            if let Some(text) = text {
                let found = checkpoint::find(&session, text)?;
                checkpoint::warn_if_incomplete(&found);
                session.show_at(&found);
                at = Some(found);
            }
            Ok(session)
        })?;
        at.as_ref().map_or(Ok(()), |at| applied_since::warn(&opened, at))?;
        Ok((opened, at))
    }

    /// The session file.
    pub(super) fn session(&self) -> &Path {
        &self.now.session
    }

    fn open_silently(&self) -> Result<OpenSession, CliError> {
        self.open_moment(self.at.as_deref()).map(|(opened, _)| opened)
    }
}

/// Refuses a session over a base whose path shows the session itself, as in a command of `run`.
fn refuse_self_mount(session: &Path, base: Option<&Path>) -> Result<(), CliError> {
    let Some(base) = base_showing_session(session, base)? else { return Ok(()) };
    let (base, session) = (text::name(base.as_os_str().as_encoded_bytes()), session.display());
    let what = format!("{base} shows the session itself here, in a command of `acetate run`");
    Err(CliError::new(what).with_hint(format_args!(
        "there is no base here to compare with or to change: do this outside of the run, or \
         when it has ended, with {session}"
    )))
}
