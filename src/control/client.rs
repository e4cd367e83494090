//! The other end of the socket: asking the server that has a session.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::content::{ContentPart, Reading};
use super::frame::{self, FrameKind};
use super::peer;
use super::request::{Answer, Refusal, Request};
use super::socket;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It was not done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server ended, or what is there is none.
    #[error("the session's server: {0}")]
    Broken(#[from] io::Error),
}

/// A connection to the server of a session.
#[derive(Debug)]
pub struct ControlConnection {
    stream: UnixStream,
}

impl ControlConnection {
    /// Connects to the server of a session; `None` where there is none.
    ///
    /// # Errors
    /// The socket cannot be used: above all, it is another user's; or a process listens there that
    /// is none of root's, the session's owner's or our own user's.
    pub fn open(session: &Path) -> io::Result<Option<Self>> {
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

    /// Asks for something without content.
    ///
    /// # Errors
    /// It was not done, or nobody knows.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ControlError> {
        self.send(request)?;
        self.answer()
    }

    /// Asks for something, with the content that follows.
    ///
    /// # Errors
    /// It was not done, or nobody knows.
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
                        // A server that takes no more may have said why.
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
                    let why = error.to_string();
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
