//! The server's end of the control socket.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore, watch};
use tokio::task::JoinSet;

use super::bound_socket::BoundSocket;
use super::checkpoint_text::{RestoreAnswer, RestorePathsText};
use super::content::{ContentPart, ContentSource, NextPart};
use super::frame::{self, FrameKind};
use super::limits::{ALONE_SECS, LAST_WORD_SECS, MAX_CONNECTIONS, MAX_RESTORE_CHECKS};
use super::perform::{merge_guarded, merged, perform};
use super::refusal::Refusal;
use super::request::{Answer, Request};
use super::server_status::{ControlPeer, ServerStatus};
use super::usage::ExportsUsage;
use crate::delta::{CheckpointId, MergedPath};
use crate::overlay::{ChangeSteps, Overlay};
use crate::vfs::Caller;

/// What the server reports about itself.
pub struct About {
    /// Addresses on which it listens for clients.
    pub addresses: Vec<std::net::SocketAddr>,
    /// The base directory.
    pub base: Option<PathBuf>,
    /// Start of the server.
    pub since: Instant,
    /// Returns the clients' connections.
    pub peers: Box<dyn Fn() -> Vec<ControlPeer> + Send + Sync>,
    /// Returns the paths of the exports that show the session; `None` without an exports file.
    pub paths: Box<dyn Fn() -> Option<Vec<String>> + Send + Sync>,
    /// Returns the usage of its exports; may block.
    pub exports: Box<dyn Fn() -> Result<ExportsUsage, Refusal> + Send + Sync>,
    /// Checks, by the guards of its exports, what a restore of a checkpoint would bring back, in
    /// the whole tree or at and below some paths.
    pub check_restore: Box<CheckRestore>,
    /// Checks, by these guards, what files would have after the steps of a merge that has seen this
    /// row of the audit log.
    pub check_merge: Box<CheckMerge>,
}

/// Starts the check of a restore.
pub type CheckRestore = dyn Fn(CheckpointId, Option<Vec<MergedPath>>) -> RestoreCheck + Send + Sync;

/// Starts the check of a merge.
pub type CheckMerge = dyn Fn(&Caller, i64, Box<dyn ChangeSteps>) -> MergeCheck + Send + Sync;

/// A refusal if a guard refuses content.
pub type MergeCheck = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// The result of a check: the last row of the audit log that it has seen, or `None` without
/// guards; a refusal if a guard refuses content.
pub type RestoreCheck = Pin<Box<dyn Future<Output = Result<Option<i64>, Refusal>> + Send>>;

/// The socket beside a session file; removed on drop.
pub struct Listener {
    socket: BoundSocket,
    /// Referred to by each connection.
    users: Arc<()>,
}

/// Counts the connections of a [`Listener`].
#[derive(Debug, Clone)]
pub struct ConnectionCount(Weak<()>);

impl ConnectionCount {
    /// The number of connections now.
    pub fn get(&self) -> usize {
        // One reference is the listener's.
        self.0.strong_count().saturating_sub(1)
    }
}

impl Listener {
    /// Binds the socket. The caller must have the session locked: an existing socket is stale and
    /// is removed.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn bind(session: &Path) -> io::Result<Self> {
        Ok(Self { socket: BoundSocket::bind(session)?, users: Arc::default() })
    }

    /// Counts its connections.
    pub fn connections(&self) -> ConnectionCount {
        ConnectionCount(Arc::downgrade(&self.users))
    }

    /// Serves connections until it is stopped. A stop interrupts requests between two changes, and
    /// removes files that are not written completely.
    pub async fn serve(self, overlay: Arc<Overlay>, about: About, stop: StopListener) {
        let about = Arc::new(about);
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let alone = Arc::new(Mutex::new(()));
        let mut open = JoinSet::new();
        let mut stopping = stop.clone();
        while let Some((place, stream)) = stopping.unless_stopped(self.socket.next(&places)).await {
            while open.try_join_next().is_some() {}
            let (overlay, about, owner) =
                (Arc::clone(&overlay), Arc::clone(&about), self.socket.owner());
            let (alone, stop) = (Arc::clone(&alone), stop.clone());
            let user = Arc::clone(&self.users);
            open.spawn(async move {
                let (_place, _user) = (place, user);
                if let Err(error) =
                    serve_connection(stream, &overlay, &about, owner, &alone, stop).await
                {
                    tracing::debug!(%error, "control connection");
                }
            });
        }
        while open.join_next().await.is_some() {}
    }
}

/// The signal that stops a [`Listener`].
#[derive(Clone)]
pub struct StopListener(watch::Receiver<()>);

impl StopListener {
    /// A signal that is raised when the sender is dropped.
    pub fn new() -> (watch::Sender<()>, Self) {
        let (sender, receiver) = watch::channel(());
        (sender, Self(receiver))
    }

    pub(super) async fn stopped(&mut self) {
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

/// Serves one connection.
async fn serve_connection(
    mut stream: UnixStream,
    overlay: &Overlay,
    about: &Arc<About>,
    owner: u32,
    alone: &Arc<Mutex<()>>,
    mut stop: StopListener,
) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    if peer.uid() != owner && peer.uid() != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let caller = Caller::owner(peer.uid(), peer.gid());
    // Released when the connection ends.
    let mut held = None;
    loop {
        let (kind, payload) = match stop.unless_stopped(frame::read(&mut stream)).await {
            Some(Ok(message)) => message,
            Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        };
        let request: Request = frame::parse_json(kind, &payload)?;
        let reply = match request {
            request if request.has_content() => {
                let mut content =
                    IncomingContent { stream: &mut stream, stop: stop.clone(), is_over: false };
                let reply = match request {
                    Request::Merge { from, seen } => {
                        let check = |steps| (about.check_merge)(&caller, seen, steps);
                        merge_guarded(overlay, &caller, (&from, seen), &mut content, check).await
                    }
                    request => perform(overlay, &caller, request, &mut content).await,
                };
                content.drain().await?;
                reply
            }
            request => {
                let reply = reply(request, overlay, &caller, about, alone, &mut held);
                let Some(reply) = stop.unless_stopped(reply).await else { return Ok(()) };
                reply
            }
        };
        match stop.unless_long_stopped(answer(&mut stream, &reply)).await {
            Some(answered) => answered?,
            None => return Ok(()),
        }
    }
}

/// Executes a request without content.
async fn reply(
    request: Request,
    overlay: &Overlay,
    caller: &Caller,
    about: &Arc<About>,
    alone: &Arc<Mutex<()>>,
    held: &mut Option<OwnedMutexGuard<()>>,
) -> Result<Answer, Refusal> {
    match request {
        Request::Status => Ok(Answer::Status(about.status())),
        Request::Exports => exports(about).await,
        Request::Alone => hold(alone, held).await,
        Request::Restore { to, seen } => restore(overlay, caller, about, (to, seen)).await,
        Request::RestorePaths(paths) => restore_paths(overlay, caller, about, paths).await,
        request => perform(overlay, caller, request, &mut super::Nothing).await,
    }
}

/// Usage of the server's exports.
async fn exports(about: &Arc<About>) -> Result<Answer, Refusal> {
    let about = Arc::clone(about);
    let counted = tokio::task::spawn_blocking(move || (about.exports)()).await;
    let failed = |error| Refusal::new(format!("the exports cannot be counted: {error}"));
    counted.map_err(failed)?.map(Answer::Exports)
}

/// Makes the tree that of a checkpoint, if the guards accept it and nothing changed since.
async fn restore(
    overlay: &Overlay,
    caller: &Caller,
    about: &About,
    (to, seen): (i64, Option<i64>),
) -> Result<Answer, Refusal> {
    for attempt in 1.. {
        let checked = (about.check_restore)(CheckpointId(to), None).await?;
        let seen_by_both = seen.into_iter().chain(checked).min();
        let request = Request::Restore { to, seen: seen_by_both };
        let answer = perform(overlay, caller, request, &mut super::Nothing).await?;
        // Changed since the check, but not since the user looked.
        let is_changed = answer == Answer::Restored(RestoreAnswer::ChangedSince);
        if !is_changed || seen.is_some() || attempt == MAX_RESTORE_CHECKS {
            return Ok(answer);
        }
    }
    Err(Refusal::new("the session changes all the time"))
}

/// Makes paths those of a checkpoint, if the guards accept it and nothing changed since.
async fn restore_paths(
    overlay: &Overlay,
    caller: &Caller,
    about: &About,
    restore: RestorePathsText,
) -> Result<Answer, Refusal> {
    let (to, paths) = (CheckpointId(restore.to), merged(&restore.paths)?);
    let checked = (about.check_restore)(to, Some(paths)).await?;
    let seen = checked.map_or(restore.seen, |checked| restore.seen.min(checked));
    let request = Request::RestorePaths(RestorePathsText { seen, ..restore });
    perform(overlay, caller, request, &mut super::Nothing).await
}

/// Waits until no other connection holds the exclusive lock.
async fn hold(
    alone: &Arc<Mutex<()>>,
    held: &mut Option<OwnedMutexGuard<()>>,
) -> Result<Answer, Refusal> {
    if held.is_none() {
        let lock = Arc::clone(alone).lock_owned();
        let locked = tokio::time::timeout(Duration::from_secs(ALONE_SECS), lock).await;
        *held = Some(locked.map_err(|_| Refusal {
            hint: Some("it does not end; look what it waits for, and try again".to_owned()),
            ..Refusal::new("the session: another command is changing it")
        })?);
    }
    Ok(Answer::Done)
}

async fn answer(stream: &mut UnixStream, reply: &Result<Answer, Refusal>) -> io::Result<()> {
    let text = match frame::json(reply) {
        Ok(text) if text.len() <= super::limits::MAX_MESSAGE_BYTES => text,
        _ => frame::json(&Err::<Answer, _>(Refusal::new("the answer is too long to be sent")))?,
    };
    frame::write(stream, FrameKind::Json, &text).await
}

impl About {
    fn status(&self) -> ServerStatus {
        ServerStatus {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: self.addresses.clone(),
            base: self.base.clone(),
            exports: (self.paths)(),
            uptime: self.since.elapsed().as_secs(),
            peers: (self.peers)(),
        }
    }
}

/// Content that follows a request.
struct IncomingContent<'a> {
    stream: &'a mut UnixStream,
    stop: StopListener,
    /// Whether the end was reached, or reading failed.
    is_over: bool,
}

impl IncomingContent<'_> {
    async fn part(&mut self) -> io::Result<ContentPart> {
        if self.is_over {
            return Ok(ContentPart::END);
        }
        let Some(read) = self.stop.unless_stopped(frame::read(self.stream)).await else {
            self.is_over = true;
            return Err(io::Error::other("the server is stopping"));
        };
        let (kind, piece) = read?;
        self.is_over = match kind {
            FrameKind::Data => piece.is_empty(),
            FrameKind::Hole => false,
            FrameKind::Json | FrameKind::Broken => true,
        };
        match kind {
            FrameKind::Data => Ok(ContentPart::Data(piece)),
            FrameKind::Hole => match piece[..].try_into().map(u64::from_be_bytes) {
                Ok(bytes) if bytes > 0 => Ok(ContentPart::Hole(bytes)),
                _ => {
                    self.is_over = true;
                    Err(io::ErrorKind::InvalidData.into())
                }
            },
            FrameKind::Broken => {
                Err(io::Error::other(String::from_utf8_lossy(&piece).into_owned()))
            }
            FrameKind::Json => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Discards the rest of the content: the client reads the answer only after sending all.
    async fn drain(&mut self) -> io::Result<()> {
        while !self.is_over {
            match self.part().await {
                Err(error) if !self.is_over => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl ContentSource for IncomingContent<'_> {
    fn next(&mut self) -> NextPart<'_> {
        Box::pin(self.part())
    }
}
