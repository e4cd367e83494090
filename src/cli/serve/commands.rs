//! Requests of commands to the server of an exports file, at its control socket.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::admin::Admin;
use crate::config::real_path;
use crate::control::{
    Answering, ExpiryText, ExportText, ExportsAnswer, ExportsControl, ExportsListener,
    ExportsRequest, MAX_LISTED_EXPORTS, Refusal, StopListener,
};
use crate::workspace::exports::listed::{ExportsView, ListedExpiry, ListedExport, ListedState};

/// Orders to reload that wait for the one in progress.
const MAX_ORDERS: usize = 16;

/// The time that requests in progress get to end at a shutdown.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the result of a reload is sent.
pub(super) type ReloadAnswer = oneshot::Sender<Result<ExportsAnswer, Refusal>>;

/// An order to reload.
pub(super) struct ReloadOrder {
    /// The name of an export that was added: it is opened, or the reload fails.
    pub(super) added: Option<String>,
    /// Where the result is sent.
    pub(super) answer: ReloadAnswer,
}

/// Answers requests. The server works without a socket too.
pub(super) struct ExportsCommands {
    /// Dropping the sender stops the listener.
    stop: watch::Sender<()>,
    listening: Option<JoinHandle<()>>,
}

/// What performs the requests.
struct ServerControl {
    view: ExportsView,
    orders: mpsc::Sender<ReloadOrder>,
}

impl ExportsCommands {
    /// Listens beside the exports file `file`, and has `admin` change exports; orders to reload
    /// arrive at the receiver.
    pub(super) fn begin(
        file: &Path,
        view: ExportsView,
        admin: Option<&Admin>,
    ) -> (Self, mpsc::Receiver<ReloadOrder>) {
        let (orders, ordered) = mpsc::channel(MAX_ORDERS);
        let control: Arc<dyn ExportsControl> = Arc::new(ServerControl { view, orders });
        if let Some(exports) = admin.and_then(|admin| admin.exports.as_ref()) {
            exports.serve(Arc::clone(&control));
        }
        let (stop, stopped) = StopListener::new();
        let listening = match ExportsListener::bind(&real_path(file)) {
            Ok(listener) => Some(tokio::spawn(listener.serve(control, stopped))),
            Err(error) => {
                tracing::warn!(
                    file = %file.display(),
                    %error,
                    "no control socket: `acetate exports` changes the next start, not this server"
                );
                None
            }
        };
        (Self { stop, listening }, ordered)
    }

    /// Stops listening, and waits for requests in progress.
    pub(super) async fn end(self) {
        drop(self.stop);
        let Some(listening) = self.listening else { return };
        if tokio::time::timeout(END_TIMEOUT, listening).await.is_err() {
            tracing::warn!("a request of a command is still running; it is aborted");
        }
    }
}

impl ExportsControl for ServerControl {
    fn answer(&self, request: ExportsRequest) -> Answering<'_> {
        Box::pin(async move {
            match request {
                ExportsRequest::Reload { added } => {
                    let stops = || Refusal::new("the server stops");
                    let (answer, answered) = oneshot::channel();
                    let order = ReloadOrder { added, answer };
                    self.orders.send(order).await.map_err(|_| stops())?;
                    answered.await.map_err(|_| stops())?
                }
                ExportsRequest::List { after } => {
                    let view = self.view.clone();
                    let listed = tokio::task::spawn_blocking(move || list(&view, after.as_deref()));
                    listed.await.map_err(|_| Refusal::new("the server failed; see its log"))
                }
                ExportsRequest::Uses { sessions } => {
                    let uses = sessions.iter().map(|session| self.view.use_of(session));
                    Ok(ExportsAnswer::Uses(uses.collect()))
                }
            }
        })
    }
}

/// The exports whose paths come after `after`, up to [`MAX_LISTED_EXPORTS`].
fn list(view: &ExportsView, after: Option<&str>) -> ExportsAnswer {
    let all = view.list();
    let is_before =
        |export: &ListedExport| after.is_some_and(|after| export.path.as_str() <= after);
    let begin = all.partition_point(is_before);
    let is_more = all.len() - begin > MAX_LISTED_EXPORTS;
    let exports = all.into_iter().skip(begin).take(MAX_LISTED_EXPORTS).map(text).collect();
    ExportsAnswer::Listed { exports, is_more }
}

fn text(export: ListedExport) -> ExportText {
    let ListedExport { name, path, file, template, state, expiry } = export;
    let state = match state {
        ListedState::Open => "open",
        ListedState::Closed => "closed",
        ListedState::Unavailable => "unavailable",
    };
    let (path, state) = (Some(path), Some(state.to_owned()));
    let expiry = expiry.map(|ListedExpiry { expire, is_kept, left }| ExpiryText {
        expire_secs: expire.map(|it| it.as_secs()),
        is_kept,
        left_secs: left.map(|it| it.as_secs()),
    });
    ExportText { name, path, file: file.to_path_buf(), template, state, expiry }
}
