//! `/exports` of `--admin`: the commands `exports add`, `rm` and `ls` for HTTP.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::admin::{ExportsCall, ExportsReply, ExportsSource, Replying};
use crate::cli::export_set::adding::{
    AddedExport, AdditionOrigin, CheckedAddition, ExportAddition, add, check,
};
use crate::cli::export_set::removal::{ExportRemoval, RemovalApplied, RemovedExport, remove};
use crate::cli::export_set::{ChangeError, ChangeErrorKind, ServerLink, listing, not_served};
use crate::cli::output::json_text;
use crate::cli::text;
use crate::control::{ControlError, ExportsAnswer, ExportsControl, ExportsRequest, Refusal};
use crate::workspace::exports::base_probes::BaseProbes;

/// Time to check a change and to wait for an earlier one, and again for this one; the sum is less
/// than the time of an answer.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(4);

/// Changes that are checked at once: each has a thread, which a filesystem may hold up.
const MAX_CHECKS: usize = 8;

/// The error of a change that cannot be checked.
const NOT_CHECKED: &str =
    "too many changes are being checked, or a filesystem does not answer; nothing is changed";

/// The error of a change whose own check takes too long.
const SLOW_CHECK: &str =
    "the check of this change has not ended: a filesystem may not answer; nothing is changed";

/// The error of a change that has to wait.
const NOT_ITS_TURN: &str =
    "the change before this one has not ended, or a filesystem does not answer";

/// The exports of this server.
pub(super) struct AdminExports {
    file: PathBuf,
    runtime: Handle,
    /// Known once the server serves.
    control: OnceLock<Arc<dyn ExportsControl>>,
    /// One change at a time.
    turn: Arc<Semaphore>,
    /// Permits for checks.
    checks: Arc<Semaphore>,
    /// Finds directories that hang before a change has its turn.
    probes: BaseProbes,
}

/// The way to the server from within its process.
struct OwnServer(Arc<dyn ExportsControl>, Handle);

impl ServerLink for OwnServer {
    fn ask(&mut self, request: &ExportsRequest) -> Result<Option<ExportsAnswer>, ControlError> {
        Ok(Some(self.1.block_on(self.0.answer(request.clone()))?))
    }
}

impl AdminExports {
    /// The exports of the exports file `file`, before the server serves.
    pub(super) fn new(file: PathBuf, runtime: Handle) -> Self {
        let (control, probes) = (OnceLock::new(), BaseProbes::default());
        let (turn, checks) = (Semaphore::new(1), Semaphore::new(MAX_CHECKS));
        let (turn, checks) = (Arc::new(turn), Arc::new(checks));
        Self { file, runtime, control, turn, checks, probes }
    }

    /// From now on, requests are performed by `control`.
    pub(super) fn serve(&self, control: Arc<dyn ExportsControl>) {
        // Called once.
        let _first = self.control.set(control);
    }

    /// Adds an export. What may wait for its base is done before it has the turn of changes.
    async fn put(
        &self,
        control: &Arc<dyn ExportsControl>,
        name: String,
        text: String,
    ) -> ExportsReply {
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        let late = |what| failed(503, what, Some("try again"));
        let permit = timeout_at(deadline, Arc::clone(&self.checks).acquire_owned());
        // The semaphores are never closed.
        let Ok(Ok(permit)) = permit.await else { return late(NOT_CHECKED) };
        let checking = self.checked(name.clone(), text.clone(), permit);
        let checked = match timeout_at(deadline, checking).await {
            Ok(Ok(checked)) => checked,
            Ok(Err(refused)) => return refused,
            Err(_) => return late(SLOW_CHECK),
        };
        let turn = timeout_at(deadline, Arc::clone(&self.turn).acquire_owned());
        let Ok(Ok(turn)) = turn.await else { return late(NOT_ITS_TURN) };
        self.change(control, turn, move |file, server| {
            added(&name, add(file, addition(&name, &text), checked, server))
        })
        .await
    }

    /// Checks an addition, on a thread that has the permit until it ends.
    async fn checked(
        &self,
        name: String,
        text: String,
        permit: OwnedSemaphorePermit,
    ) -> Result<CheckedAddition, ExportsReply> {
        let ended = |_| failed(500, "the server failed; see its log", None);
        let (file, probes) = (self.file.clone(), self.probes.clone());
        let checking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            check(&file, addition(&name, &text), &probes)
        });
        checking.await.map_err(ended)?.map_err(|error| not_changed(&error))
    }

    /// Removes an export.
    async fn delete(
        &self,
        control: &Arc<dyn ExportsControl>,
        name: String,
        deletes: bool,
    ) -> ExportsReply {
        let turn = timeout(CHANGE_TIMEOUT, Arc::clone(&self.turn).acquire_owned());
        // The semaphore is never closed.
        let Ok(Ok(turn)) = turn.await else { return failed(503, NOT_ITS_TURN, Some("try again")) };
        let probes = self.probes.clone();
        self.change(control, turn, move |file, server| {
            let removal = ExportRemoval { name: &name, deletes };
            removed(file, &name, remove(file, removal, &probes, server))
        })
        .await
    }

    /// Makes a change on a thread where it may block. It is completed even if the client
    /// disconnects.
    async fn change(
        &self,
        control: &Arc<dyn ExportsControl>,
        turn: OwnedSemaphorePermit,
        change: impl FnOnce(&Path, &mut OwnServer) -> ExportsReply + Send + 'static,
    ) -> ExportsReply {
        let mut server = OwnServer(Arc::clone(control), self.runtime.clone());
        let file = self.file.clone();
        let changing = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            change(&file, &mut server)
        });
        match timeout(CHANGE_TIMEOUT, changing).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => failed(500, "the server failed; see its log", None),
            Err(_) => {
                let hint = "GET /exports shows later whether it was made";
                failed(504, "the change has not ended", Some(hint))
            }
        }
    }
}

impl ExportsSource for Arc<AdminExports> {
    fn perform(&self, call: ExportsCall) -> Replying<'_> {
        Box::pin(async move {
            let Some(control) = self.control.get() else {
                return failed(503, "starting: sessions are being opened", None);
            };
            match call {
                ExportsCall::List { after } => {
                    list(control.answer(ExportsRequest::List { after }).await)
                }
                ExportsCall::Put { name, text } => self.put(control, name, text).await,
                ExportsCall::Remove { name, deletes } => self.delete(control, name, deletes).await,
            }
        })
    }
}

fn list(answer: Result<ExportsAnswer, Refusal>) -> ExportsReply {
    let Ok(ExportsAnswer::Listed { exports, is_more }) = answer else {
        return failed(500, "the exports cannot be listed", None);
    };
    let mut object = text::json("exports");
    object.insert("is_more".to_owned(), is_more.into());
    let exports = exports.iter().map(|export| Value::Object(listing::json(export)));
    object.insert("exports".to_owned(), exports.collect());
    reply(200, object)
}

fn addition<'a>(name: &'a str, text: &'a str) -> ExportAddition<'a> {
    ExportAddition { name, text, replaces: true, origin: AdditionOrigin::Text }
}

fn added(name: &str, added: Result<AddedExport, ChangeError>) -> ExportsReply {
    let added = match added {
        Ok(added) => added,
        Err(error) => return not_changed(&error),
    };
    let status = if added.is_replaced { 200 } else { 201 };
    let mut object = added.json(name);
    object.insert("warnings".to_owned(), added.warnings.into());
    reply(status, object)
}

fn removed(file: &Path, name: &str, removed: Result<RemovedExport, ChangeError>) -> ExportsReply {
    let removed = match removed {
        Ok(removed) => removed,
        Err(error) => return not_changed(&error),
    };
    let mut object = removed.json(name);
    let warning = match removed.applied {
        RemovalApplied::Yes => None,
        RemovalApplied::NoServer => Some(not_served(file, &format!("no longer serves {name}"))),
        RemovalApplied::NotYet(why) => Some(format!("the server serves what it did before: {why}")),
    };
    object.insert("warnings".to_owned(), warning.into_iter().collect::<Vec<_>>().into());
    reply(200, object)
}

fn not_changed(ChangeError { kind, error }: &ChangeError) -> ExportsReply {
    let status = match kind {
        ChangeErrorKind::Invalid => 422,
        ChangeErrorKind::Missing => 404,
        ChangeErrorKind::Exists | ChangeErrorKind::InUse | ChangeErrorKind::Refused => 409,
        ChangeErrorKind::Storage => 507,
        ChangeErrorKind::NoAnswer => 503,
    };
    failed(status, &error.to_string(), error.hint())
}

fn failed(status: u16, what: &str, hint: Option<&str>) -> ExportsReply {
    let ExportsReply { status, json } = ExportsReply::error(status, what, hint);
    ExportsReply { status, json: text::printable_json(&json).into_owned() }
}

fn reply(status: u16, object: Map<String, Value>) -> ExportsReply {
    ExportsReply { status, json: json_text(&Value::Object(object)) }
}
