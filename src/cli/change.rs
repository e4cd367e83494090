//! Who makes a change: the server that has the session, or else this process.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustix::process::{getegid, geteuid};
use tokio::runtime::{self, Runtime};

use super::error::CliError;
use super::layers::{self, Layers, Wanted};
use crate::control::{
    Answer, Connection, ControlError, Nothing, Reading, Refusal, Request, perform,
};
use crate::delta::MergedPath;
use crate::inspect::opened::open_session;
use crate::vfs::Caller;

/// How often a server is looked for that has the session and does not answer yet, or not any more.
const ATTEMPTS: u32 = 20;

/// Time between two such looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Makes changes in a session.
pub(super) struct Changer(Place);

enum Place {
    Served(Connection),
    Here { runtime: Runtime, layers: Box<Layers>, caller: Caller },
}

/// Runs `f` with what makes changes in the session, and sees to it that they are safe afterwards.
pub(super) fn with_changer<T>(
    session: &Path,
    base: Option<&Path>,
    f: impl FnOnce(&mut Changer) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let mut changer = Changer::open(session, base)?;
    let done = f(&mut changer);
    let ended = changer.end(session);
    let done = done?;
    ended.map(|()| done)
}

impl Changer {
    fn open(session: &Path, base: Option<&Path>) -> Result<Self, CliError> {
        // Nothing is made here; and what is no session is said as everywhere.
        drop(open_session(session)?);
        for attempt in 0.. {
            if let Some(server) = connect(session)? {
                return Ok(Self(Place::Served(server)));
            }
            match Self::open_here(session, base) {
                Err(error) if error.is_in_use() && attempt < ATTEMPTS => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.is_in_use() => {
                    let hint = "it does not answer for others; stop it, or change the session \
                                through a mount";
                    return Err(error.with_hint(hint));
                }
                opened => return opened,
            }
        }
        Err(CliError::new("the session is in use"))
    }

    fn open_here(session: &Path, base: Option<&Path>) -> Result<Self, CliError> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| CliError::caused("cannot start a runtime", &error))?;
        let wanted = Wanted { session, base, chunk_size: None, read_only: false, strict: false };
        let layers = Box::new(layers::open(&wanted)?);
        let caller = Caller {
            client: Caller::COMMAND_LINE,
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            gids: Vec::new(),
            call: None,
            is_owner: true,
        };
        Ok(Self(Place::Here { runtime, layers, caller }))
    }

    /// Asks for a change.
    pub(super) fn ask(&mut self, request: Request) -> Result<Answer, CliError> {
        match &mut self.0 {
            Place::Served(server) => Ok(server.ask(&request)?),
            Place::Here { runtime, layers, caller } => {
                let mut content = Nothing;
                Ok(runtime.block_on(perform(&layers.overlay, caller, request, &mut content))?)
            }
        }
    }

    /// Asks for a change that takes content.
    pub(super) fn ask_with(
        &mut self,
        request: Request,
        content: impl Read + Send,
    ) -> Result<Answer, CliError> {
        let mut content = Reading(content);
        match &mut self.0 {
            Place::Served(server) => Ok(server.ask_with(&request, &mut content)?),
            Place::Here { runtime, layers, caller } => {
                Ok(runtime.block_on(perform(&layers.overlay, caller, request, &mut content))?)
            }
        }
    }

    /// Syncs, and closes the session if this process has it.
    fn end(self, session: &Path) -> Result<(), CliError> {
        match self.0 {
            Place::Served(mut server) => server.ask(&Request::Sync).map(drop).map_err(Into::into),
            Place::Here { runtime, layers, .. } => {
                let finished = runtime.block_on(layers.overlay.finish_copies(|_| {}));
                let closed = runtime.block_on(layers.worker.shut_down());
                closed.map_err(|error| CliError::session(session, &error))?;
                let failed = |error| CliError::from(Refusal::at(&MergedPath::root(), error));
                finished.map(drop).map_err(failed)
            }
        }
    }
}

/// The server of a session, if there is one that answers.
pub(super) fn connect(session: &Path) -> Result<Option<Connection>, CliError> {
    let real = std::fs::canonicalize(session).unwrap_or_else(|_| session.to_owned());
    Connection::open(&real).map_err(|error| {
        let what = format!("{}: cannot ask its server", session.display());
        let denied = error.kind() == std::io::ErrorKind::PermissionDenied;
        let error = CliError::caused(what, &error);
        let hint = "another user serves it; do this as that user";
        if denied { error.with_hint(hint) } else { error }
    })
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        let error = Self::new(&refusal);
        match &refusal.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

impl From<ControlError> for CliError {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Refused(refusal) => refusal.into(),
            ControlError::Broken(_) => Self::new(&error)
                .with_hint("nobody knows what it did last; `acetate log` shows what was done"),
        }
    }
}
