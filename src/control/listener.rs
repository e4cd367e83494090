//! The server's end of the control socket.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::bound_socket::BoundSocket;
use super::checkpoint_text::{RestoreAnswer, RestorePathsText};
use super::connection::{ServedConnection, StopListener, serve_all};
use super::content::{ContentPart, ContentSource, NextPart};
use super::frame::{self, FrameKind};
use super::limits::{ALONE_SECS, MAX_RESTORE_CHECKS};
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
        let alone = Arc::new(Mutex::new(()));
        let serve = |connection| {
            let (overlay, about) = (Arc::clone(&overlay), Arc::clone(&about));
            let (alone, user) = (Arc::clone(&alone), Arc::clone(&self.users));
            async move {
                let _user = user;
                serve_connection(connection, &overlay, &about, &alone).await
            }
        };
        serve_all(&self.socket, stop, serve).await;
    }
}

/// Serves one connection.
async fn serve_connection(
    mut connection: ServedConnection,
    overlay: &Overlay,
    about: &Arc<About>,
    alone: &Arc<Mutex<()>>,
) -> io::Result<()> {
    let caller = Caller::owner(connection.uid, connection.gid);
    // Released when the connection ends.
    let mut held = None;
    while let Some(request) = connection.request::<Request>().await? {
        let reply = match request {
            request if request.has_content() => {
                let stop = connection.stop.clone();
                let stream = &mut connection.stream;
                let mut content = IncomingContent { stream, stop, is_over: false };
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
                let Some(reply) = connection.stop.unless_stopped(reply).await else { break };
                reply
            }
        };
        if connection.answer(&reply).await?.is_none() {
            break;
        }
    }
    Ok(())
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
