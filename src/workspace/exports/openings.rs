//! The openings of an export in progress: calls join one and wait for it; they get JUKEBOX if it
//! takes long, or failed a moment ago.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::on_demand::{ExportSource, OPEN_WAIT};
use super::unavailable::{FIRST_RETRY, MAX_RETRY};
use crate::delta::postgres::HoldError;
use crate::delta::sqlite::OpenError;
use crate::export::{Export, OpenExport, OpenFuture, OpenPurpose, PauseFuture};
use crate::vfs::FsError;
use crate::workspace::error::Error;

/// Time that a mount waits for an opening that takes a lease and fetches a replica: unlike a call,
/// it is not tried again.
const DATABASE_MOUNT_WAIT: Duration = Duration::from_secs(15);

/// Time after which an opening gives its permit to the next one: its base may hang.
const STUCK_OPENING: Duration = Duration::from_secs(2);

/// The result of an opening, once it is known.
pub(super) type OpenOutcome = Option<std::result::Result<Arc<Export>, FsError>>;

/// Why the last opening failed.
pub(super) struct OpenFailure {
    text: String,
    at: Instant,
    /// The time until the next attempt.
    wait: Duration,
}

impl ExportSource {
    /// Starts an opening, or joins the one in progress.
    fn open_or_join(
        &self,
        purpose: OpenPurpose,
    ) -> std::result::Result<watch::Receiver<OpenOutcome>, FsError> {
        let mut opening = self.opening.lock();
        if let Some(opening) = &*opening {
            return Ok(opening.clone());
        }
        let is_early = |last: &OpenFailure| last.at.elapsed() < last.wait;
        if purpose == OpenPurpose::Call && self.last_failure.lock().as_ref().is_some_and(is_early) {
            return Err(FsError::TryLater);
        }
        let source = self.this.upgrade().ok_or(FsError::TryLater)?;
        let (sender, receiver) = watch::channel(None);
        *opening = Some(receiver.clone());
        self.parts.runtime.spawn(source.open_in_turn(purpose, sender));
        Ok(receiver)
    }

    /// Opens the export on a thread of its own, once a permit is free.
    async fn open_in_turn(
        self: Arc<Self>,
        purpose: OpenPurpose,
        opened: watch::Sender<OpenOutcome>,
    ) {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.parts.turns).acquire_owned().await;
        let source = Arc::clone(&self);
        let mut work = tokio::task::spawn_blocking(move || {
            source.parts.wait_for_room(source.needed()?)?;
            source.open_now(purpose)
        });
        let done = match tokio::time::timeout(STUCK_OPENING, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                let stuck = self.parts.stuck_turns.try_acquire();
                // Without a further permit, it keeps its own.
                let kept = Some(permit).filter(|_| stuck.is_err());
                let done = work.await;
                drop(kept);
                done
            }
        };
        let outcome = match done {
            Ok(Ok(export)) => {
                if self.last_failure.lock().take().is_some() {
                    tracing::info!(export = %self.config.name, "the export can be opened again");
                }
                Ok(export)
            }
            // The table has another entry, or none: a mount looks again.
            Ok(Err(Error::Gone { .. } | Error::Reloaded { .. })) => Err(FsError::Stale),
            Ok(Err(error)) if self.is_no_export(&error) => {
                tracing::debug!(export = %self.config.name, %error, "there is no such export");
                Err(FsError::NotFound)
            }
            Ok(Err(error)) => {
                self.note_failure(&error);
                Err(FsError::TryLater)
            }
            // The thread panicked, which is logged.
            Err(_) => Err(FsError::TryLater),
        };
        *self.opening.lock() = None;
        opened.send_replace(Some(outcome));
    }

    /// Whether a path has no export, as its session does not exist and is not to be created.
    fn is_no_export(&self, error: &Error) -> bool {
        let is_known = self.entry().is_some_and(|entry| entry.identity().is_some());
        !self.creates() && !is_known && matches!(error, Error::Open(OpenError::Missing { .. }))
    }

    /// Whether the table has an export at its path, if not this one.
    fn is_in_table(&self) -> bool {
        let path = self.config.path.as_ref();
        path.is_some_and(|path| self.parts.exports.find(path.as_str().as_bytes()).is_some())
    }

    /// Whether the last opening failed.
    pub(in crate::workspace) fn is_failing(&self) -> bool {
        self.last_failure.lock().is_some()
    }

    /// Logs a failure, unless it is that of the last attempt.
    fn note_failure(&self, error: &Error) {
        let mut last = self.last_failure.lock();
        let (text, at) = (error.to_string(), Instant::now());
        let wait = match error {
            // A session can become idle at any moment.
            Error::TooManyOpen { .. } | Error::SessionLost { .. } => FIRST_RETRY,
            // The other server can die at any moment.
            Error::Database { source, .. } if matches!(**source, HoldError::Held { .. }) => {
                FIRST_RETRY
            }
            _ => last.as_ref().map_or(FIRST_RETRY, |last| MAX_RETRY.min(last.wait * 2)),
        };
        if last.as_ref().is_none_or(|last| last.text != text) {
            tracing::error!(export = %self.config.name, %error, "the export cannot be opened");
        }
        *last = Some(OpenFailure { text, at, wait });
    }
}

impl OpenExport for ExportSource {
    fn pause(&self, time: Duration) -> PauseFuture<'_> {
        Box::pin(tokio::time::sleep(time))
    }

    fn open(&self, purpose: OpenPurpose) -> OpenFuture<'_> {
        Box::pin(async move {
            let mut opening = self.open_or_join(purpose)?;
            let wait = match purpose {
                OpenPurpose::Mount if self.config.urls().next().is_some() => DATABASE_MOUNT_WAIT,
                _ => OPEN_WAIT,
            };
            let done = tokio::time::timeout(wait, opening.wait_for(Option::is_some)).await;
            match done {
                // The handle may be of the other entry: the next call is.
                Ok(Ok(outcome))
                    if purpose == OpenPurpose::Call
                        && matches!(*outcome, Some(Err(FsError::Stale)))
                        && self.is_in_table() =>
                {
                    Err(FsError::TryLater)
                }
                Ok(Ok(outcome)) => outcome.clone().unwrap_or(Err(FsError::TryLater)),
                // The opening takes longer, or its thread panicked.
                Ok(Err(_)) | Err(_) => Err(FsError::TryLater),
            }
        })
    }
}
