//! Holds a session in a database for the time of one command.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::cli::control::Control;
use crate::cli::error::CliError;
use crate::cli::{output, session_names};
use crate::delta::postgres::SessionUrl;
use crate::delta::sqlite::Session;
use crate::server::Peers;
use crate::workspace::Error as WorkspaceError;
use crate::workspace::at_rest;
use crate::workspace::database::{self, DatabaseOptions, HeldReplica};
use crate::workspace::layers::{self, LayerOptions};
use crate::workspace::running::{PendingAtEnd, RunningSession};

/// A session that this process has, with the control socket that the command finds.
pub(super) struct CommandHolder {
    held: Arc<HeldReplica>,
    running: RunningSession,
    control: Control,
    watching: JoinHandle<()>,
}

impl CommandHolder {
    /// Takes the session's lease.
    ///
    /// # Errors
    /// A server has it, or the database refuses.
    pub(super) fn take(url: &SessionUrl, runtime: &Runtime) -> Result<Self, CliError> {
        let options = DatabaseOptions { existing: true, ..DatabaseOptions::new(url) };
        let held = database::hold(&options, runtime.handle(), std::future::pending())?;
        let held = held.map(Arc::new).ok_or_else(|| CliError::new("stopped"))?;
        match Self::open(&held, runtime) {
            Ok((running, control)) => {
                let watching = runtime.spawn(end_when_lost(Arc::clone(&held)));
                Ok(Self { held, running, control, watching })
            }
            Err(error) => {
                runtime.block_on(held.release());
                Err(error)
            }
        }
    }

    fn open(
        held: &Arc<HeldReplica>,
        runtime: &Runtime,
    ) -> Result<(RunningSession, Control), CliError> {
        let wanted = LayerOptions {
            database: Some(Arc::clone(held)),
            ..LayerOptions::new(&held.path, None)
        };
        let layers = layers::open(&wanted, &layers::pool(runtime.handle()))?;
        let running = RunningSession::begin(layers, runtime.handle());
        let layers = &running.layers;
        let _inside = runtime.enter();
        let control = Control::begin(
            &layers.session,
            layers.base.clone(),
            &layers.overlay,
            Vec::new(),
            Arc::new(Peers::default()),
            None,
            None,
        );
        Ok((running, control))
    }

    /// The replica's file.
    pub(super) fn path(&self) -> &Path {
        &self.held.path
    }

    /// Closes the session, and gives it back.
    ///
    /// # Errors
    /// It was not closed cleanly; what was answered is kept.
    pub(super) fn end(self, runtime: &Runtime) -> Result<(), CliError> {
        let Self { held, running, control, watching } = self;
        runtime.block_on(async {
            control.end().await;
            let ended = running.end(PendingAtEnd::Finish, |_| ()).await;
            watching.abort();
            held.release().await;
            ended.map(drop).map_err(CliError::from)
        })
    }
}

/// Changes what only a session that is not served lets change, and returns the replica's file too.
///
/// # Errors
/// A server has the session, the database refuses, or `change` fails.
pub(in crate::cli) fn change_at_rest<T>(
    url: &SessionUrl,
    change: impl FnOnce(&mut Session) -> Result<T, WorkspaceError>,
) -> Result<(T, PathBuf), CliError> {
    let runtime = super::start()?;
    let options = DatabaseOptions { existing: true, ..DatabaseOptions::new(url) };
    let held = database::hold(&options, runtime.handle(), std::future::pending())?;
    let held = held.ok_or_else(|| CliError::new("stopped"))?;
    session_names::show_as(&held.path, &url.to_string());
    let changed = at_rest::change_at_rest(&held, change);
    runtime.block_on(held.release());
    Ok((changed?, held.path.clone()))
}

/// Ends the process when the session is lost: what is not done yet cannot be done.
async fn end_when_lost(held: Arc<HeldReplica>) {
    let reason = held.until_lost().await;
    let error = CliError::new(format!("lost the session: {reason}"));
    output::error(&error.with_hint("what was not done yet can be done again"));
    std::process::exit(crate::cli::LOST);
}
