//! What happens while a session is mounted or unmounted, for the caller to report.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::detach::ServerFate;
use super::error::MountError;
use super::mount_users::MountUser;
use crate::delta::PendingCopies;
use crate::pattern::PatternSet;

/// An event that is no result.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) enum MountEvent {
    /// A server created this session.
    Created(PathBuf),
    /// A session hides paths of its base.
    Hides { session: PathBuf, patterns: Arc<PatternSet> },
    /// A line that a server printed before it listened.
    ServerSaid(String),
    /// Another process, with this pid if known, mounts or unmounts the session; sent every second.
    WaitsForLock { holder: Option<u32>, session: PathBuf, left: PendingCopies },
    /// The server with this pid is ending; sent every second.
    WaitsForServer { pid: u32, left: PendingCopies },
    /// The server ended with copy-ups that it could not finish.
    CopiesLeft { session: PathBuf, left: PendingCopies },
    /// The server that was started for a failed mount could not be stopped.
    ServerNotStopped(MountError),
    /// These processes, which a command left behind, are ended.
    EndsLeftovers(Vec<MountUser>),
    /// The server of a session that had been mounted at `dir` was stopped.
    OtherReleased { dir: PathBuf, session: PathBuf },
    /// A killed run of the session was cleaned up.
    DeadRunReleased { session: PathBuf, server: ServerFate },
    /// The mount at this directory is being synced for longer than usual.
    Syncs(PathBuf),
    /// A mount at `dir` could not be synced: what programs wrote there may arrive later.
    NotSynced { dir: PathBuf, error: io::Error },
    /// The base can still be reached at another path, because that cannot be covered.
    BaseReachable { base: PathBuf, at: PathBuf, error: io::Error },
}

/// Receives the events.
pub(crate) type Observer<'a> = &'a dyn Fn(MountEvent);
