//! The socket beside an exports file: both ends.

use std::future::Future;
use std::io;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use super::bound_socket::BoundSocket;
use super::client::{ConnectError, ControlError};
use super::connection::{ServedConnection, StopListener, serve_all};
use super::exports_request::{ExportsAnswer, ExportsRequest};
use super::frame::{self, FrameKind};
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
        let serve = |connection| serve_connection(connection, Arc::clone(&control));
        serve_all(&self.0, stop, serve).await;
    }
}

async fn serve_connection(
    mut connection: ServedConnection,
    control: Arc<dyn ExportsControl>,
) -> io::Result<()> {
    while let Some(request) = connection.request::<ExportsRequest>().await? {
        let answer = connection.stop.unless_long_stopped(control.answer(request)).await;
        let Some(answer) = answer else { break };
        if connection.answer(&answer).await?.is_none() {
            break;
        }
    }
    Ok(())
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
