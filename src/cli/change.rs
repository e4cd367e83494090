//! Makes changes through the server that has the session, or in this process if there is none.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::error::{CliError, CliErrorKind};
use super::output::{self, Out};
use super::source::SessionSource;
use super::tree_paths::TreePaths;
use super::{Ending, hints, text};
use crate::control::{
    Answer, ConnectError, ControlConnection, ControlError, Reading, Refusal, Request,
};
use crate::delta::MergedPath;
use crate::workspace::{Error as WorkspaceError, Workspace};

/// Attempts to find a server that holds the session but does not answer yet, or no longer.
const ATTEMPTS: u32 = 20;

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// The connection or workspace through which changes are made.
pub(super) struct SessionChanger(ChangerKind);

enum ChangerKind {
    Served(ControlConnection),
    Here(Box<Workspace>),
}

/// Runs `f` with a changer, and syncs its changes afterwards.
pub(super) fn with_session_changer<T>(
    source: &SessionSource,
    f: impl FnOnce(&mut SessionChanger) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let (done, synced) = change_and_sync(source, f)?;
    synced.map(|()| done)
}

/// As [`with_session_changer`], with the result of the sync apart from that of `f`.
pub(super) fn change_and_sync<T>(
    source: &SessionSource,
    f: impl FnOnce(&mut SessionChanger) -> Result<T, CliError>,
) -> Result<(T, Result<(), CliError>), CliError> {
    source.record_moved()?;
    let mut changer = SessionChanger::open(&source.session, source.base.as_deref())?;
    let done = f(&mut changer);
    let synced = changer.end();
    Ok((done?, synced))
}

impl SessionChanger {
    fn open(session: &Path, base: Option<&Path>) -> Result<Self, CliError> {
        for attempt in 0.. {
            if let Some(server) = connect(session)? {
                return Ok(Self(ChangerKind::Served(server)));
            }
            match Workspace::open(session, base).map_err(CliError::from) {
                Err(error) if error.kind() == CliErrorKind::InUse && attempt < ATTEMPTS => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.kind() == CliErrorKind::InUse => {
                    let hint = "it does not answer for others; stop it, or change the session \
                                through a mount";
                    return Err(error.with_hint(hint));
                }
                opened => return Ok(Self(ChangerKind::Here(Box::new(opened?)))),
            }
        }
        Err(CliError::new("the session is in use"))
    }

    /// Performs a request.
    pub(super) fn ask(&mut self, request: Request) -> Result<Answer, CliError> {
        Ok(self.perform(request, None)??)
    }

    /// Performs a request that has content.
    pub(super) fn ask_with(
        &mut self,
        request: Request,
        content: Reading<'_>,
    ) -> Result<Answer, CliError> {
        Ok(self.perform(request, Some(content))??)
    }

    /// Performs a request, and returns a refusal as such.
    pub(super) fn perform(
        &mut self,
        request: Request,
        content: Option<Reading<'_>>,
    ) -> Result<Result<Answer, Refusal>, CliError> {
        match &mut self.0 {
            ChangerKind::Served(server) => {
                let answer = match content {
                    Some(content) => server.ask_with(&request, content),
                    None => server.ask(&request),
                };
                match answer {
                    Err(ControlError::Refused(refusal)) => Ok(Err(refusal)),
                    answer => Ok(Ok(answer?)),
                }
            }
            ChangerKind::Here(workspace) => {
                let answer = match content {
                    Some(content) => workspace.perform_with(request, content),
                    None => workspace.perform(request),
                };
                match answer {
                    Err(WorkspaceError::Refused(refusal)) => Ok(Err(refusal)),
                    answer => Ok(Ok(answer?)),
                }
            }
        }
    }

    /// Syncs; closes the session if this process has it open.
    fn end(self) -> Result<(), CliError> {
        match self.0 {
            ChangerKind::Served(mut server) => match server.ask(&Request::Sync) {
                // An answer follows the commit, so a killed server has lost nothing.
                Err(error @ ControlError::Broken(_)) => {
                    let hint = "the changes are made, but a crash of the machine may undo them";
                    Err(CliError::from(error).with_hint(hint))
                }
                synced => Ok(synced.map(drop)?),
            },
            ChangerKind::Here(workspace) => Ok(workspace.close()?),
        }
    }
}

/// Makes one request per path. `json` is the type of a JSON object that is printed for each path,
/// and the key of its count of changed objects.
pub(super) fn ask_for_each(
    source: &SessionSource,
    given: &[OsString],
    json: Option<(&str, &str)>,
    mut ask: impl FnMut(&mut SessionChanger, &MergedPath) -> Result<Answer, CliError>,
) -> Result<Ending, CliError> {
    let mut out = Out::new();
    let mut several = PathResults::default();
    let paths = TreePaths::of_source(source, given)?.each(given)?;
    with_session_changer(source, |changer| {
        for path in paths {
            let answer = path.and_then(|path| Ok((ask(changer, &path)?, path)));
            let answer = several.take(answer)?;
            if let (Some((answer, path)), Some((what, key))) = (answer, json) {
                let count = if let Answer::Objects(count) = answer { count } else { 1 };
                let mut object = text::json(what);
                text::put_path(&mut object, "path", path.as_bytes());
                object.insert(key.to_owned(), count.into());
                out.json(object)?;
            }
        }
        Ok(())
    })?;
    out.end()?;
    several.end()
}

/// The results for several paths: one failure does not stop the others.
#[derive(Debug, Default)]
pub(super) struct PathResults {
    done: u64,
    /// The last failure, not printed yet.
    failed: Option<CliError>,
}

impl PathResults {
    /// Records the result for one path; `None` if it failed.
    ///
    /// # Errors
    /// A failure that is not about one path.
    pub(super) fn take<T>(&mut self, result: Result<T, CliError>) -> Result<Option<T>, CliError> {
        let value = self.checked(result)?;
        self.done += u64::from(value.is_some());
        Ok(value)
    }

    /// Records a failure for one path, and returns `None`; a success does not count as done yet.
    ///
    /// # Errors
    /// A failure that is not about one path.
    pub(super) fn checked<T>(
        &mut self,
        result: Result<T, CliError>,
    ) -> Result<Option<T>, CliError> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == CliErrorKind::Path => {
                if let Some(earlier) = self.failed.replace(error) {
                    output::error(&earlier);
                }
                Ok(None)
            }
            Err(error) => {
                if let Some(earlier) = self.failed.take() {
                    output::error(&earlier);
                }
                Err(error)
            }
        }
    }

    /// Counts further paths as done.
    pub(super) fn add_done(&mut self, paths: usize) {
        self.done += paths as u64;
    }

    /// `Ending::Findings` if some paths failed.
    ///
    /// # Errors
    /// All paths failed; the last failure.
    pub(super) fn end(self) -> Result<Ending, CliError> {
        match self.failed {
            None => Ok(Ending::Done),
            Some(error) if self.done == 0 => Err(error),
            Some(error) => {
                output::error(&error);
                Ok(Ending::Findings)
            }
        }
    }
}

/// Connects to the server of a session; `None` if no server answers.
pub(super) fn connect(session: &Path) -> Result<Option<ControlConnection>, CliError> {
    Ok(ControlConnection::open(session)?)
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> Self {
        let printed = Self::caused(&error, &error.source);
        let hint = "another user serves it; do this as that user";
        if error.is_denied() { printed.with_hint(hint) } else { printed }
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        let error = Self::new(&refusal).about_path();
        match hints::of_refusal(&refusal) {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl From<ControlError> for CliError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Refused(refusal) => refusal.into(),
            ControlError::Broken(_) => Self::new(&error).disconnected().with_hint(
                "it is not known whether the change was made; `acetate log` shows what was done",
            ),
        }
    }
}
