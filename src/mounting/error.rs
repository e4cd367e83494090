//! The error type of mounting.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::base::BaseError;
use crate::control::ConnectError;
use crate::delta::PendingCopies;
use crate::inspect::InspectError;
use crate::system_error::words;

/// A failure to mount, to unmount, or to serve a session for a mount.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountError {
    /// A step failed or is refused. The message has the chain of causes.
    #[error("{what}")]
    Failed { what: String, advice: Option<MountAdvice> },
    #[error(transparent)]
    Session(#[from] InspectError),
    #[error("base {}: {source}", .path.display())]
    Base { path: PathBuf, source: BaseError },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server of a session ended without closing it.
    #[error("{}: the server ended before it had closed the session", .session.display())]
    NotClosed { session: PathBuf, left: PendingCopies },
}

/// What the user can do about a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MountAdvice {
    Server(ServerAdvice),
    Place(PlaceAdvice),
    System(SystemAdvice),
}

/// Advice about the server of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerAdvice {
    /// The server hides less than is wanted.
    StopToHideMore,
    /// The server has the session over another base; this is the wanted one.
    StopForBase(PathBuf),
    /// The server already decides this setting.
    LeaveOut(ServerSetting),
    /// The server is read-only.
    MountReadOnly,
    /// No address of the server is near.
    MountAsItSays,
    /// The server has an exports file; its best address, if one is known.
    MountExports { file: PathBuf, address: Option<SocketAddr> },
    /// Processes may still use a lazily unmounted mount of the server at this directory.
    StopHiddenLater(PathBuf),
    /// The hint that the server printed before it ended.
    Printed(String),
    /// Access was denied to the server, which ran as this user.
    RunsAs(String),
    /// The server of this session failed.
    ReadLog(PathBuf),
}

/// A setting that a server has from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerSetting {
    Listen,
    RootSquash(bool),
    KeepOriginals,
    Checkpoints,
}

/// Advice about the mount point, and about the paths of the session and the base.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) enum PlaceAdvice {
    /// The directory for a new session does not exist.
    MakeSessionDirectory,
    MakeDirectory(PathBuf),
    GiveEmptyDirectory,
    /// A component of the path is not a directory.
    CheckPath,
    /// The mount would hide the base or the session, or put the tree into itself.
    MountElsewhere,
    /// A symbolic link of another user leads to the mount point.
    NameRealPath,
    /// The directory belongs neither to root nor to this user.
    OwnDirectory {
        user: String,
    },
    /// Something else is mounted at this directory.
    ChooseOtherOrUnmount(PathBuf),
    /// Another process moved the mount point.
    StopMover {
        is_run: bool,
    },
    /// Processes use the mount at this directory.
    EndUsers(PathBuf),
}

/// Advice about the system and the rights of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
pub(crate) enum SystemAdvice {
    LoadNfsClient,
    /// The kernel or a security module refused the mount.
    MountOutsideContainer,
    CheckOptions,
    CheckFirewall,
    /// The kernel refused a mount namespace.
    MountWithoutNamespace,
    LeaveUserNamespace,
    /// The container has no CAP_SYS_ADMIN.
    AddCapability,
    BecomeRoot,
    /// On macOS, root and the owner of a directory may mount there.
    #[cfg_attr(target_os = "linux", allow(dead_code))]
    OwnDirectoryOrRoot,
    /// Landlock is older than ABI 2.
    NewerKernel,
    EnableLandlock,
}

impl From<ServerAdvice> for MountAdvice {
    fn from(advice: ServerAdvice) -> Self {
        Self::Server(advice)
    }
}

impl From<PlaceAdvice> for MountAdvice {
    fn from(advice: PlaceAdvice) -> Self {
        Self::Place(advice)
    }
}

impl From<SystemAdvice> for MountAdvice {
    fn from(advice: SystemAdvice) -> Self {
        Self::System(advice)
    }
}

/// A message with the chain of causes behind it.
pub(crate) fn with_causes(
    what: impl fmt::Display,
    cause: &(dyn std::error::Error + 'static),
) -> String {
    let mut what = what.to_string();
    let mut cause = Some(cause);
    while let Some(error) = cause {
        what.push_str(": ");
        what.push_str(&error.downcast_ref().map_or_else(|| error.to_string(), words));
        cause = error.source();
    }
    what
}

impl MountError {
    /// A failure without advice.
    pub(super) fn new(what: impl fmt::Display) -> Self {
        Self::Failed { what: what.to_string(), advice: None }
    }

    /// A failure with the chain of its causes.
    pub(super) fn caused(
        what: impl fmt::Display,
        cause: &(dyn std::error::Error + 'static),
    ) -> Self {
        Self::new(with_causes(what, cause))
    }

    /// A base directory that cannot be opened.
    pub(super) fn base(path: &Path, source: impl Into<BaseError>) -> Self {
        Self::Base { path: path.to_owned(), source: source.into() }
    }

    /// Adds advice to a failed step.
    pub(super) fn with_advice(self, advice: impl Into<MountAdvice>) -> Self {
        match self {
            Self::Failed { what, .. } => Self::Failed { what, advice: Some(advice.into()) },
            other => other,
        }
    }

    /// What the user can do about a failed step.
    #[cfg(test)]
    pub(super) fn advice(&self) -> Option<&MountAdvice> {
        match self {
            Self::Failed { advice, .. } => advice.as_ref(),
            _ => None,
        }
    }
}
