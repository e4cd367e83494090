//! The messages of the protocol, one per line of stdin and stdout.
//!
//! Unlike rmcp's own transport, this one bounds the calls in progress, answers requests that are
//! too long or no JSON, and ends only once all calls have ended.

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ErrorData, GetExtensions, JsonRpcMessage, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Stdin, Stdout};
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, watch};

use super::limits::{MAX_CALLS, MAX_REQUEST_BYTES};
use super::message_id::{self, MessageIdFinder};
use crate::inspect::json;

/// Bytes of stdin that are read at a time.
const PIECE_BYTES: usize = 64 << 10;

/// stdin and stdout. [`Transport::receive`] is dropped at any `await`: what must not be lost then
/// is in fields.
pub(super) struct StdioTransport {
    input: BufReader<Stdin>,
    line: IncomingLine,
    out: Arc<Mutex<Stdout>>,
    calls: Arc<Semaphore>,
    /// The permit of the next request.
    permit: Option<OwnedSemaphorePermit>,
    /// An answer to a request that is not valid.
    refusal: Option<ServerJsonRpcMessage>,
    stop: watch::Receiver<bool>,
    has_ended: bool,
}

impl StdioTransport {
    /// A request takes a permit of `calls` until its handler has ended. `stop` ends the input.
    pub(super) fn new(calls: Arc<Semaphore>, stop: watch::Receiver<bool>) -> Self {
        Self {
            input: BufReader::with_capacity(PIECE_BYTES, tokio::io::stdin()),
            line: IncomingLine::default(),
            out: Arc::new(Mutex::new(tokio::io::stdout())),
            calls,
            permit: None,
            refusal: None,
            stop,
            has_ended: false,
        }
    }

    /// The message of a line; `None` for one that is refused or has no meaning.
    fn message(&mut self, line: &[u8]) -> Option<ClientJsonRpcMessage> {
        if line.trim_ascii().is_empty() {
            return None;
        }
        let Some(mut value) = json::parse(line) else {
            return self.refuse(ErrorData::parse_error("not JSON", None), None);
        };
        if let Some(id) = value.get_mut("id") {
            message_id::encode(id);
        }
        if let Some(id) = value.pointer_mut("/params/requestId") {
            message_id::encode(id);
        }
        let id = value.get("id").cloned();
        let is_message = value.get("method").is_some() || value.get("result").is_some();
        let id = id.and_then(|id| serde_json::from_value::<RequestId>(id).ok());
        let mut message = match serde_json::from_value::<ClientJsonRpcMessage>(value) {
            Ok(message) => message,
            // A notification has no answer.
            Err(_) if id.is_none() && is_message => return None,
            Err(error) => {
                let what = format!("not a request of the protocol: {error}");
                return self.refuse(ErrorData::invalid_request(what, None), id);
            }
        };
        if let JsonRpcMessage::Request(request) = &mut message {
            let permit = self.permit.take().map(Arc::new);
            request.request.extensions_mut().insert(permit);
        }
        Some(message)
    }

    fn refuse(&mut self, error: ErrorData, id: Option<RequestId>) -> Option<ClientJsonRpcMessage> {
        tracing::warn!(error = %error.message, "a request is refused");
        self.refusal = Some(JsonRpcMessage::error(error, id));
        None
    }

    fn take(&mut self, read: LineRead) -> Option<ClientJsonRpcMessage> {
        match read {
            LineRead::Whole => {
                let line = std::mem::take(&mut self.line.bytes);
                return self.message(&line);
            }
            LineRead::TooLong(id) => {
                let what = format!(
                    "a request has at most {MAX_REQUEST_BYTES} bytes; write a large file in \
                     parts, with \"mode\": \"append\""
                );
                return self.refuse(ErrorData::invalid_request(what, None), id);
            }
            LineRead::End => self.has_ended = true,
            LineRead::Failed(error) => {
                tracing::error!(%error, "stdin cannot be read");
                self.has_ended = true;
            }
        }
        None
    }
}

impl Transport<RoleServer> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let out = Arc::clone(&self.out);
        async move { write(out.lock_owned().await, item).await }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            // Waits for answers that are not written yet, so that they do not pile up.
            let out = Arc::clone(&self.out).lock_owned().await;
            if let Some(refusal) = self.refusal.take() {
                // A task of its own: a line that is begun is completed.
                tokio::spawn(write(out, refusal));
                continue;
            }
            drop(out);
            if self.has_ended {
                break;
            }
            if self.permit.is_none() {
                self.permit = Arc::clone(&self.calls).acquire_owned().await.ok();
            }
            let read = tokio::select! {
                _ = self.stop.wait_for(|stop| *stop) => LineRead::End,
                read = self.line.read(&mut self.input) => read,
            };
            let message = self.take(read);
            if message.is_some() {
                return message;
            }
        }
        self.permit = None;
        let _all = self.calls.acquire_many(MAX_CALLS as u32).await;
        None
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

async fn write(mut out: OwnedMutexGuard<Stdout>, message: ServerJsonRpcMessage) -> io::Result<()> {
    let id = match &message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    };
    let mut line = match id.is_some_and(message_id::is_encoded) {
        false => serde_json::to_vec(&message)?,
        true => {
            let mut message = serde_json::to_value(&message)?;
            message.get_mut("id").into_iter().for_each(message_id::decode);
            serde_json::to_vec(&message)?
        }
    };
    line.push(b'\n');
    out.write_all(&line).await?;
    out.flush().await
}

/// What was read.
enum LineRead {
    /// A line, which is in [`IncomingLine::bytes`].
    Whole,
    /// A line that is too long, with the id of its request.
    TooLong(Option<RequestId>),
    End,
    Failed(io::Error),
}

/// A line that has arrived in part.
#[derive(Default)]
struct IncomingLine {
    bytes: Vec<u8>,
    /// Reads on where the line is too long to be kept.
    too_long: Option<MessageIdFinder>,
}

impl IncomingLine {
    /// Reads to the end of the line.
    async fn read(&mut self, input: &mut BufReader<Stdin>) -> LineRead {
        loop {
            let piece = match input.fill_buf().await {
                Ok([]) => return LineRead::End,
                Ok(piece) => piece,
                Err(error) => return LineRead::Failed(error),
            };
            let end = piece.iter().position(|byte| *byte == b'\n');
            let (part, taken) = match end {
                Some(end) => (piece.get(..end).unwrap_or_default(), end + 1),
                None => (piece, piece.len()),
            };
            self.add(part);
            input.consume(taken);
            if end.is_some() {
                return match self.too_long.take() {
                    Some(finder) => LineRead::TooLong(finder.found()),
                    None => LineRead::Whole,
                };
            }
        }
    }

    fn add(&mut self, part: &[u8]) {
        if self.too_long.is_none() && self.bytes.len() + part.len() > MAX_REQUEST_BYTES {
            let mut finder = MessageIdFinder::default();
            finder.read(&std::mem::take(&mut self.bytes));
            self.too_long = Some(finder);
        }
        match &mut self.too_long {
            Some(finder) => finder.read(part),
            None => self.bytes.extend_from_slice(part),
        }
    }
}
