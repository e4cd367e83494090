//! A connection to a control socket, at the server's end: what all control sockets do alike.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::bound_socket::BoundSocket;
use super::frame::{self, FrameKind};
use super::limits::{LAST_WORD_SECS, MAX_CONNECTIONS, MAX_MESSAGE_BYTES};
use super::refusal::Refusal;

/// The signal that stops the server of a control socket.
#[derive(Clone)]
pub struct StopListener(watch::Receiver<()>);

impl StopListener {
    /// A signal that is raised when the sender is dropped.
    pub fn new() -> (watch::Sender<()>, Self) {
        let (sender, receiver) = watch::channel(());
        (sender, Self(receiver))
    }

    async fn stopped(&mut self) {
        while self.0.changed().await.is_ok() {}
    }

    /// The result of `work`, or `None` if stopped first.
    pub(super) async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.stopped() => None,
        }
    }

    /// As [`Self::unless_stopped`], with a grace period of [`LAST_WORD_SECS`].
    pub(super) async fn unless_long_stopped<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let late = async {
            self.stopped().await;
            tokio::time::sleep(Duration::from_secs(LAST_WORD_SECS)).await;
        };
        tokio::select! {
            done = work => Some(done),
            () = late => None,
        }
    }
}

/// A connection of a user who may use the socket.
pub(super) struct ServedConnection {
    pub(super) stream: UnixStream,
    pub(super) stop: StopListener,
    /// The user at the other end.
    pub(super) uid: u32,
    /// The group of that user.
    pub(super) gid: u32,
}

impl ServedConnection {
    /// A connection that arrived at the socket of the user `owner`.
    ///
    /// # Errors
    /// It is of another user than `owner` and root.
    fn new(stream: UnixStream, owner: u32, stop: StopListener) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        if peer.uid() != owner && peer.uid() != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self { stream, stop, uid: peer.uid(), gid: peer.gid() })
    }

    /// The next request; `None` once the client ends, or the server stops.
    ///
    /// # Errors
    /// The connection broke, or what arrived is no request.
    pub(super) async fn request<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match self.stop.unless_stopped(frame::read(&mut self.stream)).await {
            Some(Ok((kind, payload))) => frame::parse_json(kind, &payload).map(Some),
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Some(Err(error)) => Err(error),
            None => Ok(None),
        }
    }

    /// Sends the answer to a request; `None` if the server stops and the client does not read.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) async fn answer<T: Serialize>(
        &mut self,
        reply: &Result<T, Refusal>,
    ) -> io::Result<Option<()>> {
        let text = match frame::json(reply) {
            Ok(text) if text.len() <= MAX_MESSAGE_BYTES => text,
            _ => frame::json(&Err::<T, _>(Refusal::new("the answer is too long to be sent")))?,
        };
        let sent = frame::write(&mut self.stream, FrameKind::Json, &text);
        self.stop.unless_long_stopped(sent).await.transpose()
    }
}

/// Serves the connections to a socket, each in a task of its own, until it is stopped; then waits
/// for these tasks.
pub(super) async fn serve_all<F>(
    socket: &BoundSocket,
    stop: StopListener,
    serve: impl Fn(ServedConnection) -> F,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = JoinSet::new();
    let mut stopping = stop.clone();
    while let Some((place, stream)) = stopping.unless_stopped(socket.next(&places)).await {
        while open.try_join_next().is_some() {}
        let serving = ServedConnection::new(stream, socket.owner(), stop.clone()).map(&serve);
        open.spawn(async move {
            let _place = place;
            let served = match serving {
                Ok(serving) => serving.await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::debug!(%error, "control connection");
            }
        });
    }
    while open.join_next().await.is_some() {}
}
