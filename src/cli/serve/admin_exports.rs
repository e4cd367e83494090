//! `/exports` of `--admin`: the commands `exports add`, `rm` and `ls` for HTTP.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::admin::{ExportsCall, ExportsReply, ExportsSource, Replying};
use crate::cli::exports::change::{
    AddedExport, ChangeError, ChangeErrorKind, ServerLink, add, words,
};
use crate::cli::exports::removal::{RemovedExport, remove};
use crate::cli::exports::{self, listing};
use crate::cli::output::json_text;
use crate::cli::text;
use crate::control::{ControlError, ExportsAnswer, ExportsControl, ExportsRequest, Refusal};

/// Time to wait for an earlier change, and again for this one; the sum is less than the time of an
/// answer.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(4);

/// The exports of this server.
pub(super) struct AdminExports {
    file: PathBuf,
    runtime: Handle,
    /// Known once the server serves.
    control: OnceLock<Arc<dyn ExportsControl>>,
    /// One change at a time.
    turn: Arc<Semaphore>,
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
        let (control, turn) = (OnceLock::new(), Arc::new(Semaphore::new(1)));
        Self { file, runtime, control, turn }
    }

    /// From now on, requests are performed by `control`.
    pub(super) fn serve(&self, control: Arc<dyn ExportsControl>) {
        // Called once.
        let _first = self.control.set(control);
    }

    /// Makes a change on a thread where it may block. It is completed even if the
    /// client disconnects.
    async fn change(&self, control: &Arc<dyn ExportsControl>, call: ExportsCall) -> ExportsReply {
        let turn = timeout(CHANGE_TIMEOUT, Arc::clone(&self.turn).acquire_owned());
        // The semaphore is never closed.
        let Ok(Ok(turn)) = turn.await else {
            return failed(503, "the change before this one has not ended", Some("try again"));
        };
        let mut server = OwnServer(Arc::clone(control), self.runtime.clone());
        let file = self.file.clone();
        let changing = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            match call {
                ExportsCall::Put { name, text } => {
                    put(&name, add(&file, (&name, &text), true, &mut server))
                }
                ExportsCall::Remove { name, deletes } => {
                    removed(&name, remove(&file, &name, deletes, &mut server))
                }
                ExportsCall::List { .. } => failed(500, "a list is no change", None),
            }
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
                call => self.change(control, call).await,
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

fn put(name: &str, added: Result<AddedExport, ChangeError>) -> ExportsReply {
    let added = match added {
        Ok(added) => added,
        Err(error) => return not_changed(&error),
    };
    let status = if added.is_replaced { 200 } else { 201 };
    let mut object = exports::added_json(name, &added);
    let warnings = added.warnings.iter().map(words).collect::<Vec<_>>();
    object.insert("warnings".to_owned(), warnings.into());
    reply(status, object)
}

fn removed(name: &str, removed: Result<RemovedExport, ChangeError>) -> ExportsReply {
    match removed {
        Ok(removed) => reply(200, exports::removed_json(name, &removed)),
        Err(error) => not_changed(&error),
    }
}

fn not_changed(ChangeError { kind, error }: &ChangeError) -> ExportsReply {
    let status = match kind {
        ChangeErrorKind::Invalid => 422,
        ChangeErrorKind::Missing => 404,
        ChangeErrorKind::Exists | ChangeErrorKind::InUse | ChangeErrorKind::Refused => 409,
        ChangeErrorKind::Storage => 507,
        ChangeErrorKind::Unknown => 503,
    };
    failed(status, &error.to_string(), error.hint())
}

fn failed(status: u16, what: &str, hint: Option<&str>) -> ExportsReply {
    let mut object = text::json("error");
    object.insert("error".to_owned(), what.into());
    object.insert("hint".to_owned(), hint.into());
    reply(status, object)
}

fn reply(status: u16, object: Map<String, Value>) -> ExportsReply {
    ExportsReply { status, json: json_text(&Value::Object(object)) }
}
