//! The socket beside an exports file: both ends.

use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::bound_socket::BoundSocket;
use super::client::{ConnectError, ControlError};
use super::exports_request::{ExportsAnswer, ExportsRequest};
use super::frame::{self, FrameKind};
use super::limits::MAX_CONNECTIONS;
use super::listener::StopListener;
use super::refusal::Refusal;
use super::{peer, socket};

/// The answer to a request, once it is known.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<ExportsAnswer, Refusal>> + Send + 'a>>;

/// A server of an exports file, as commands see it.
pub trait ExportsControl: Send + Sync + 'static {
    /// Performs a request.
    fn answer(&self, request: ExportsRequest) -> Answering<'_>;
}

/// The server's end of the socket; removed on drop.
pub struct ExportsListener(BoundSocket);

impl ExportsListener {
    /// Binds the socket beside `file`, whose path is real.
    ///
    /// # Errors
    /// The socket cannot be created, or another server listens there.
    pub fn bind(file: &Path) -> io::Result<Self> {
        let path = socket::path(file);
        if socket::with_address(&path, |path| BlockingStream::connect(path)).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server has the file"));
        }
        BoundSocket::bind(file).map(Self)
    }

    /// Serves connections until it is stopped.
    pub async fn serve(self, control: Arc<dyn ExportsControl>, stop: StopListener) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut open = JoinSet::new();
        let mut stopping = stop.clone();
        while let Some((place, stream)) = stopping.unless_stopped(self.0.next(&places)).await {
            while open.try_join_next().is_some() {}
            let (control, owner, stop) = (Arc::clone(&control), self.0.owner(), stop.clone());
            open.spawn(async move {
                let _place = place;
                if let Err(error) = serve_connection(stream, &*control, owner, stop).await {
                    tracing::debug!(%error, "control connection");
                }
            });
        }
        while open.join_next().await.is_some() {}
    }
}

async fn serve_connection(
    mut stream: UnixStream,
    control: &dyn ExportsControl,
    owner: u32,
    mut stop: StopListener,
) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    if peer.uid() != owner && peer.uid() != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    loop {
        let (kind, payload) = match stop.unless_stopped(frame::read(&mut stream)).await {
            Some(Ok(message)) => message,
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        };
        let request: ExportsRequest = frame::parse_json(kind, &payload)?;
        let Some(answer) = stop.unless_long_stopped(control.answer(request)).await else {
            return Ok(());
        };
        let text = frame::json(&answer)?;
        let sent = frame::write(&mut stream, FrameKind::Json, &text);
        match stop.unless_long_stopped(sent).await {
            Some(sent) => sent?,
            None => return Ok(()),
        }
    }
}

/// A connection to the server of an exports file.
#[derive(Debug)]
pub struct ExportsConnection(BlockingStream);

impl ExportsConnection {
    /// Connects to the server of `file`; `None` if none answers.
    ///
    /// # Errors
    /// The socket cannot be used, for example because it belongs to another user; or the listening
    /// process belongs neither to root, nor to the file's owner, nor to this user.
    pub fn open(file: &Path) -> Result<Option<Self>, ConnectError> {
        let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
        let failed = |source| ConnectError { session: file.to_owned(), source };
        let path = socket::path(&real);
        match socket::with_address(&path, |path| BlockingStream::connect(path)) {
            Ok(stream) => {
                peer::check(&stream, &path, &real).map_err(failed)?;
                Ok(Some(Self(stream)))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                _ => Err(failed(error)),
            },
        }
    }

    /// Performs a request. Waits until the server answers.
    ///
    /// # Errors
    /// The server refused it, or the connection broke and its outcome is unknown.
    pub fn ask(&mut self, request: &ExportsRequest) -> Result<ExportsAnswer, ControlError> {
        frame::write_blocking(&mut self.0, FrameKind::Json, &frame::json(request)?)?;
        let (kind, payload) = frame::read_blocking(&mut self.0).map_err(|error| {
            let ended = error.kind() == io::ErrorKind::UnexpectedEof;
            if ended { io::Error::other("ended before it answered") } else { error }
        })?;
        let reply: Result<ExportsAnswer, Refusal> = frame::parse_json(kind, &payload)?;
        Ok(reply?)
    }
}
