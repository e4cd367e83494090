//! The client's end of the control socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::content::{ContentPart, Reading};
use super::frame::{self, FrameKind};
use super::peer;
use super::refusal::Refusal;
use super::request::{Answer, Request};
use super::socket;

use crate::system_error::words;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The server refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection broke, or the process there is not an acetate server.
    #[error("the session's server: {}", words(.0))]
    Broken(#[from] io::Error),
}

/// The server of a session cannot be reached, or it may not be one.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot ask its server", .session.display())]
pub struct ConnectError {
    /// The session, as the caller named it.
    pub session: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

impl ConnectError {
    /// Whether the server belongs to another user.
    pub fn is_denied(&self) -> bool {
        self.source.kind() == io::ErrorKind::PermissionDenied
    }
}

/// A connection to the server of a session.
#[derive(Debug)]
pub struct ControlConnection {
    stream: UnixStream,
}

impl ControlConnection {
    /// Connects to the server of a session; `None` if there is none.
    ///
    /// # Errors
    /// The socket cannot be used, for example because it belongs to another user; or the listening
    /// process belongs neither to root, nor to the session's owner, nor to this user.
    pub fn open(session: &Path) -> Result<Option<Self>, ConnectError> {
        let real = std::fs::canonicalize(session).unwrap_or_else(|_| session.to_owned());
        let failed = |source| ConnectError { session: session.to_owned(), source };
        Self::open_real(&real).map_err(failed)
    }

    fn open_real(session: &Path) -> io::Result<Option<Self>> {
        let path = socket::path(session);
        match socket::with_address(&path, |path| UnixStream::connect(path)) {
            Ok(stream) => {
                peer::check(&stream, &path, session)?;
                Ok(Some(Self { stream }))
            }
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionRefused
                | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Sends a request without content.
    ///
    /// # Errors
    /// The request failed, or the connection broke and its outcome is unknown.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ControlError> {
        self.send(request)?;
        self.answer()
    }

    /// Sends a request with content.
    ///
    /// # Errors
    /// The request failed, or the connection broke and its outcome is unknown.
    pub fn ask_with(
        &mut self,
        request: &Request,
        mut content: Reading<'_>,
    ) -> Result<Answer, ControlError> {
        self.send(request)?;
        loop {
            match content.part() {
                Ok(part) => {
                    let sent = match &part {
                        ContentPart::Data(data) => {
                            frame::write_blocking(&mut self.stream, FrameKind::Data, data)
                        }
                        ContentPart::Hole(bytes) => {
                            let bytes = bytes.to_be_bytes();
                            frame::write_blocking(&mut self.stream, FrameKind::Hole, &bytes)
                        }
                    };
                    if let Err(error) = sent {
                        // A server that stops reading may have sent the reason.
                        return self.answer().map_err(|none| match none {
                            ControlError::Refused(why) => ControlError::Refused(why),
                            ControlError::Broken(_) => ControlError::Broken(error),
                        });
                    }
                    if part == ContentPart::END {
                        return self.answer();
                    }
                }
                Err(error) => {
                    let why = words(&error);
                    frame::write_blocking(&mut self.stream, FrameKind::Broken, why.as_bytes())?;
                    return self.answer();
                }
            }
        }
    }

    fn send(&mut self, request: &Request) -> io::Result<()> {
        frame::write_blocking(&mut self.stream, FrameKind::Json, &frame::json(request)?)
    }

    fn answer(&mut self) -> Result<Answer, ControlError> {
        let (kind, payload) = frame::read_blocking(&mut self.stream).map_err(|error| {
            let ended = error.kind() == io::ErrorKind::UnexpectedEof;
            if ended { io::Error::other("ended before it answered") } else { error }
        })?;
        let reply: Result<Answer, Refusal> = frame::parse_json(kind, &payload)?;
        Ok(reply?)
    }
}
